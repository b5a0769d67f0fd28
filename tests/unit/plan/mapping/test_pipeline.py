"""From the allocation to the finished map: the scheduler's host, and the ranks of a share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Allocation, JobMap, Node
from mslaunch.datamodel.node_report import Topology
from mslaunch.datamodel.request import AppContext, Policy, Request, ServicePolicy, Share
from mslaunch.errors import UsageError
from mslaunch.launcher.stdio.xml import map_element
from mslaunch.plan.displays import map_text, show_map
from mslaunch.plan.mapping.pipeline import place

NODES = (Node("head", 2, "-H", local=True), Node("n1", 2, "hosts:2", user="joe", port=2222), Node("n2", 2, "-H"))
SPARE = Node("n9", 2, "hosts:9", spare=True)


def placed(cluster: ServicePolicy, np: int, allocation: Allocation | None = None, **request: object) -> JobMap:
    asked = Request((AppContext(("x",), np),), Policy(bind_to="none"), cluster=cluster, **request)  # type: ignore[arg-type]

    def ask(nodes: Sequence[Node]) -> dict[str, Topology]:
        raise AssertionError("nothing depends on machines")

    whole = allocation or Allocation(NODES, True, spares=(SPARE,))
    return place(asked, whole, ask, lambda name: name in ("localhost", "10.0.0.1"), "head.site").jobmap


@pytest.mark.parametrize(
    ("host", "np", "service", "nodes"),
    [
        ("", 2, -1, ["head"]),
        ("head", 2, -1, ["head"]),
        ("localhost", 6, -1, ["head", "n1", "n2"]),
        ("10.0.0.1", 2, -1, ["head"]),
        ("n1", 6, 1, ["head", "n1", "n2"]),
        ("n2.site", 6, 2, ["head", "n1", "n2"]),
        ("n2", 3, 2, ["head", "n1", "n2"]),
        ("n9", 3, 2, ["head", "n1", "n9"]),
        ("ann@far", 2, 1, ["head", "far"]),
        ("fd00::7", 2, 1, ["head", "fd00::7"]),
        ("[fd00::7]", 2, 1, ["head", "fd00::7"]),
        ("192.168.0.7", 4, 2, ["head", "n1", "192.168.0.7"]),
    ],
)
def test_the_node_of_the_scheduler(host: str, np: int, service: int, nodes: list[str]) -> None:
    jobmap = placed(ServicePolicy(host), np)
    assert ([node.name for node in jobmap.nodes], jobmap.service) == (nodes, service)
    assert len(jobmap.placements) == np and jobmap.slots == 6


def test_user_and_port_of_the_host_of_the_scheduler() -> None:
    """What the allocation says of a host is kept; what it does not say can be said here."""
    assert placed(ServicePolicy("eve@n1"), 2).nodes[1] == NODES[1]
    assert placed(ServicePolicy("eve@n2"), 2).nodes[1] == NODES[2]._replace(user="eve")
    assert placed(ServicePolicy("ann@far"), 2).nodes[1] == Node("far", 0, "--scheduler", user="ann")
    far = Allocation((NODES[2],), True)
    local = placed(ServicePolicy("localhost"), 2, far)
    assert local.nodes == (NODES[2], Node("head.site", 0, "--scheduler", local=True)) and local.service == 1


def test_domain_names_are_kept_on_request() -> None:
    for mca, name in (((), "far"), ((("orte_keep_fqdn_hostnames", "1"),), "far.site")):
        assert placed(ServicePolicy("far.site"), 2, mca=mca).nodes[1].name == name


@pytest.mark.parametrize("host", ["n1,n2", "n[1-2]", "+n1", "^n1", "a b", "", "joe@", "-x", "a@b@c"])
def test_malformed_hosts_are_refused(host: str) -> None:
    if not host:
        assert placed(ServicePolicy(host), 2).service == -1
        return
    with pytest.raises(UsageError) as caught:
        placed(ServicePolicy(host), 2)
    assert caught.value.where == "--scheduler" and caught.value.todo


def test_without_a_scheduler_no_node_is_added_for_it() -> None:
    share = Share(8, 2, "10.0.0.9", 8118, True)
    for cluster in (ServicePolicy("n2", simulated=True), ServicePolicy("n2", share=share)):
        assert placed(cluster, 2).nodes == NODES[:1]


@given(st.integers(0, 9), st.integers(1, 6))
def test_the_ranks_of_a_share(first: int, np: int) -> None:
    allocation = Allocation((NODES[0]._replace(slots=6),), False)
    share = Share(first + np, first, "10.0.0.9", 8118, False)
    jobmap = placed(ServicePolicy(share=share), np, allocation)
    assert [placement.rank for placement in jobmap.placements] == list(range(first, first + np))
    assert [placement.local_rank for placement in jobmap.placements] == list(range(np))
    assert jobmap.first == first
    unknown = placed(ServicePolicy(share=share._replace(first=None)), np, allocation)
    assert [placement.rank for placement in unknown.placements] == list(range(np))


def test_tables_do_not_list_a_host_without_ranks() -> None:
    jobmap, alone = (placed(ServicePolicy(host), 4) for host in ("far", ""))
    assert map_text(jobmap, {}, 1) == map_text(alone, {}, 1)
    assert map_element(jobmap) == map_element(alone)
    shown = show_map(jobmap, [AppContext(("x",))])
    head = "map: 4 ranks on 2 nodes, 6 slots in all"
    assert shown.splitlines()[0] == f"{head}, the scheduler on far"
    assert shown.splitlines()[1:] == show_map(alone, [AppContext(("x",))]).splitlines()[1:]
    for how in ("diffable", "devel"):
        assert "far" not in "".join(show_map(jobmap, [AppContext(("x",))], how).splitlines(True)[how == "devel" :])
