"""Choosing among granted hosts; the expected slots are those of mpirun 4.1.4 and 5.0.11 in a job of Slurm."""

from __future__ import annotations

import pytest

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.datamodel.request import AppContext, Request
from mslaunch.errors import AllocationError
from mslaunch.plan.mapping.pipeline import allocate

JOB = "Slurm's job 17"
GRANTED = Allocation(tuple(Node(name, slots, JOB) for name, slots in (("n1", 4), ("n2", 2), ("n3", 1))), declared=True)
FILES = {
    "two": "n2\nn3\n",
    "fewer": "n2 slots=1\n",
    "more": "n2 slots=5\n",
    "outside": "n2\nn9\n",
    "thrice": "n2\nn2\nn2\n",
    "spare": "n1\nn3 spare\n",
}


def choose(
    hosts: str = "", hostfile: str | None = None, default: str | None = None, granted: Allocation = GRANTED
) -> Allocation:
    app = AppContext(("true",), hosts=(hosts,) if hosts else (), hostfile=hostfile)
    request = Request((app,), default_hostfile=default)
    return allocate(request, FILES.__getitem__, lambda name: name == "localhost", "vm", 64, granted, JOB)


def rows(allocation: Allocation) -> list[tuple[str, int | None]]:
    return [(node.name, node.slots) for node in allocation.nodes]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("", [("n1", 4), ("n2", 2), ("n3", 1)]),
        ("n2", [("n2", 1)]),
        ("n2:1", [("n2", 1)]),
        ("n2:5", [("n2", 2)]),
        ("n2:*", [("n2", 2)]),
        ("n2,n2", [("n2", 2)]),
        ("n1,n2,n2", [("n1", 1), ("n2", 2)]),
        ("n3,n1", [("n3", 1), ("n1", 1)]),
        ("+n1", [("n2", 2)]),
        ("+e:2", [("n1", 4), ("n2", 2)]),
        ("^n1", [("n2", 2), ("n3", 1)]),
        ("n2.cluster.local", [("n2", 1)]),
    ],
)
def test_hosts_of_the_command_line(hosts: str, expected: list[tuple[str, int]]) -> None:
    assert rows(choose(hosts)) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [("two", [("n2", 2), ("n3", 1)]), ("fewer", [("n2", 2)]), ("more", [("n2", 2)]), ("thrice", [("n2", 2)])],
)
def test_a_hostfile_chooses_hosts_and_says_no_slots(file: str, expected: list[tuple[str, int]]) -> None:
    assert rows(choose(hostfile=file)) == expected


def test_a_default_hostfile_chooses_nothing() -> None:
    assert choose(default="two") == GRANTED


def test_spares_are_granted_hosts_too() -> None:
    chosen = choose(hostfile="spare")
    assert rows(chosen) == [("n1", 4)]
    assert chosen.spares == (Node("n3", 1, JOB, spare=True),)


@pytest.mark.parametrize(
    ("hosts", "hostfile"), [("n9", None), ("n2,n9", None), ("vm", None), ("localhost", None), ("", "outside")]
)
def test_a_host_outside_is_refused(hosts: str, hostfile: str | None) -> None:
    with pytest.raises(AllocationError, match=r"is not a host of Slurm's job 17, which has n1, n2, n3") as refused:
        choose(hosts, hostfile)
    assert refused.value.todo == "name hosts of the job, or add --resource-manager none to leave it"


def test_this_host_is_granted_under_any_of_its_names() -> None:
    here = GRANTED._replace(nodes=(Node("n1", 4, JOB, local=True), *GRANTED.nodes[1:]))
    for name in ("localhost", "vm"):
        assert rows(choose(f"{name}:2", granted=here)) == [("n1", 2)]


def test_two_domains_are_not_one_host() -> None:
    far = Allocation((Node("a.one", 1, JOB), Node("a.two", 1, JOB)), declared=True)
    with pytest.raises(AllocationError, match="a is not a host"):
        choose("a", granted=far)
