"""The addresses at which ranks meet: neither another user of a host nor a dishonest host becomes one of them.

Two real hosts have a bridge for containers with the same address, as hosts with docker have, and their network on an
interface that the kernel lists after it.  Another user of the second host sits at that address, or in a container that
has it, and passes everything on to the first host.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from other_user import UID, interpreter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "launch"), str(ROOT / "tests" / "hosts")]

import launching  # noqa: E402
from clusters import MARKS, Cluster, cluster_of  # noqa: E402

HOSTILE = ROOT / "tests" / "hostile" / "hostile_host.py"
HERE = os.uname().nodename
EVIL = "127.0.0.2"  #: the address of the hostile host, where honest ones reach it

PORTS = (1024, 1324)  #: from which the hosts choose, so that the other user can sit at all of them
BRIDGE = "172.17.0.1"
#: the network on a bridge of its own, which is later in the kernel's list than docker0
NETWORK = """
set -e
ip link add docker0 type bridge
ip address add {docker}/16 dev docker0
ip link set docker0 up
ip link add lan0 type bridge
ip address flush dev eth0
ip link set eth0 master lan0
ip address add {own}/16 dev lan0
ip link set lan0 up
echo "{last} 60999" > /proc/sys/net/ipv4/ip_local_port_range
"""
#: a namespace with an address in the network of docker0
CONTAINER = """
set -e
unshare -n sleep 1000 > /dev/null &
holder=$!
while [ "$(readlink /proc/$holder/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add inside type veth peer name eth0 netns $holder
ip link set inside master docker0 up
nsenter -t $holder -n ip address add {address}/16 dev eth0
nsenter -t $holder -n ip link set eth0 up
exec "$@" $holder
"""
MEET = ("sh", "-c", "echo $RANK $(hostname) $MASTER_ADDR $MS_SCHED_HOST")
MET = [f"{rank} n0{rank + 1} 10.77.1.1 10.77.1.1" for rank in (0, 1)]


def bridged(cluster: Cluster, second: str) -> None:
    """Give both hosts their networks; `second` is the address of the second one's docker0."""
    for host, own, docker in (("n01", "10.77.1.1", BRIDGE), ("n02", "10.77.1.2", second)):
        cluster.on(host, NETWORK.format(own=own, docker=docker, last=PORTS[1]))


@contextlib.contextmanager
def relaying(cluster: Cluster, *stage: str) -> Iterator[subprocess.Popen[bytes]]:
    """The other user of n02 is there: `stage` are the words that make this user."""
    program = str(ROOT / "tests/hostile/user_relay.py")
    relay = [interpreter(), "-I", "-S", program, BRIDGE, *map(str, PORTS), "10.77.1.1"]
    process = subprocess.Popen(
        cluster.command("exec", "n02", *stage, *relay), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin and process.stdout
    try:
        while (line := process.stdout.readline()) != b"ready\n":
            assert line, "no relay"
        yield process
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


OTHER_USER = (
    "setpriv",
    f"--reuid={UID}",
    f"--regid={UID}",
    "--clear-groups",
    "--inh-caps=-all",
    "--no-new-privs",
    "--",
)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Both hosts have the same docker0."""
    with cluster_of(2, tmp_path_factory.mktemp("hosts") / "c") as cluster:
        bridged(cluster, BRIDGE)
        yield cluster


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Cluster]:
    """The docker0 of the second host has another address, and a container there the first one's."""
    with cluster_of(2, tmp_path / "c") as cluster:
        bridged(cluster, "172.17.0.254")
        yield cluster


def real(test: Any) -> Any:
    """Mark a test that needs real hosts."""
    for mark in MARKS:
        test = mark(test)
    return test


def meeting(cluster: Cluster, tmp_path: Path) -> list[str]:
    """What the ranks print of a launch from the first host."""
    ended = cluster.start_on("n01", "-H", "n01:1,n02:1", "-n", 2, *MEET, cwd=tmp_path).end()
    assert (ended.code, ended.err) == (0, "")
    return ended.lines


@real
def test_hosts_with_the_same_bridge_meet_at_their_network(alike: Cluster, tmp_path: Path) -> None:
    assert meeting(alike, tmp_path) == MET


@real
def test_another_user_at_the_address_of_the_bridge_is_no_meeting_place(alike: Cluster, tmp_path: Path) -> None:
    with relaying(alike, *OTHER_USER):
        assert meeting(alike, tmp_path) == MET


@real
def test_a_relay_in_a_container_is_no_meeting_place(other: Cluster, tmp_path: Path) -> None:
    with relaying(other, "sh", "-c", CONTAINER.format(address=BRIDGE), "sh"):
        assert meeting(other, tmp_path) == MET


def links(cluster: Cluster, tmp_path: Path) -> dict[tuple[str, str], str]:
    """The addresses of the links that --check has measured from the first host."""
    ended = cluster.start_on("n01", "--check", "--json", "-H", "n01:1,n02:1", "true", cwd=tmp_path).end(60)
    found = json.loads(ended.out)
    return {(link["from"], link["to"]): link.get("error") or link["address"] for link in found["links"]}


MEASURED = {("n01", "n02"): "10.77.1.2", ("n02", "n01"): "10.77.1.1"}


@real
def test_another_user_at_the_address_of_the_bridge_is_not_measured(alike: Cluster, tmp_path: Path) -> None:
    """What this user was sent lets nobody in."""
    with relaying(alike, *OTHER_USER) as relay:
        assert links(alike, tmp_path) == MEASURED
        assert relay.stdin and relay.stdout
        relay.stdin.close()
        assert relay.stdout.read() == b""


@real
def test_a_relay_in_a_container_is_not_measured(other: Cluster, tmp_path: Path) -> None:
    with relaying(other, "sh", "-c", CONTAINER.format(address=BRIDGE), "sh") as relay:
        assert links(other, tmp_path) == MEASURED
        assert relay.stdin and relay.stdout
        relay.stdin.close()
        assert relay.stdout.read() == b""


# --- a dishonest host


@pytest.fixture
def lied(tmp_path: Path) -> Iterator[Callable[..., launching.Result]]:
    """`lied(seen, own, reached, translated, *words)`: a launch with a host that says so of addresses."""
    jobs: list[launching.Job] = []

    def run(*said: str, words: tuple[str, ...] = (), hosts: str = "localhost:1,good:1,evil:1") -> launching.Result:
        env = launching.environment(
            HOSTILE_ATTACK="addresses",
            HOSTILE_WORD=" ".join(word or "-" for word in said),
            HOSTILE_LOG=str(tmp_path / "heard"),
        )
        agent = ["--rsh-agent", f"{sys.executable} {HOSTILE}", "--agent-python", sys.executable, "-H", hosts]
        program = ["sh", "-c", "echo $RANK $MASTER_ADDR $MS_SCHED_HOST $TF_CONFIG"]
        jobs.append(launching.Job([*agent, *words, *program], env, cwd=tmp_path))
        ended = jobs[-1].end(60)
        jobs[-1].wait_gone()
        return ended

    yield run
    for job in jobs:
        job.destroy()


def asked(tmp_path: Path) -> list[str]:
    """The addresses that the hostile host was asked to probe."""
    lines = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
    return next(line["addresses"] for line in lines if line["what"] == "probe")


PRETENDS = f"evil says that it sees this host at {EVIL}, its own address: that is ignored"


def test_a_host_does_not_become_the_meeting_place_of_others(lied: Any, tmp_path: Path) -> None:
    """It says that the launcher is at its own address, and that it reaches nothing else."""
    ended = lied(EVIL, EVIL, "", "")
    assert EVIL not in asked(tmp_path)
    met = {line.split()[1] for line in ended.out.decode().splitlines()}
    assert ended.code == 0 and len(met) == 1 and met <= set(asked(tmp_path)), ended
    assert PRETENDS in ended.err and f"evil cannot reach {HERE} at {met.pop()} (MASTER_ADDR" in ended.err


@pytest.mark.parametrize("answer", [(EVIL, ""), ("", EVIL)])
def test_a_host_that_reaches_its_own_address_for_another_ends_the_job(lied: Any, answer: tuple[str, str]) -> None:
    ended = lied(EVIL, EVIL, *answer)
    assert (ended.code, ended.out) == (255, b"") and "Traceback" not in ended.err, ended
    assert "it has reached an address that it was not asked to probe on evil" in ended.err


def test_a_host_speaks_for_its_own_ranks_only(lied: Any, tmp_path: Path) -> None:
    """Each rank has an address: the one of its own ranks is its own business."""
    ended = lied(EVIL, EVIL, "", "", words=("--env-for", "tf"))
    assert EVIL not in asked(tmp_path)
    for line in ended.out.decode().splitlines():
        _, address, _, config = line.split(" ", 3)
        workers = [worker.rpartition(":")[0] for worker in json.loads(config)["cluster"]["worker"]]
        assert address == workers[0] and EVIL not in workers[:2] and workers[2] == EVIL, line


def test_alone_among_the_others_it_is_named(lied: Any, tmp_path: Path) -> None:
    """If it is the only other host, nobody can contradict it: an address that is nobody's may be translated."""
    ended = lied("198.51.100.7", EVIL, "198.51.100.7", "", hosts="localhost:1,evil:1")
    assert asked(tmp_path)[-1] == "198.51.100.7"
    assert f"other hosts reach {HERE} at 198.51.100.7 only by address translation (MASTER_ADDR" in ended.err, ended
