"""Patterns of file names: letters, ranks that do not begin at 0, services, addresses of hosts."""

from __future__ import annotations

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.launcher.stdio import file_patterns
from mslaunch.launcher.stdio.file_patterns import PatternValues, addresses_of
from mslaunch.protocol.control import Hello

FIRST_SERVER = SERVICE - 1


def test_ranks_may_begin_at_another_number() -> None:
    places = PatternValues([("alpha", 0), ("alpha", 0)], first=6)
    assert list(places.ranks) == [6, 7]
    assert file_patterns.fill("%w/%r on %h", places.of(7)) == "1/7 on alpha"
    assert places.add_world([("beta", 1)]) == range(8, 9)
    assert file_patterns.fill("%g.%r on %h", places.of(8)) == "1.0 on beta"


def test_services_have_the_node_of_the_map() -> None:
    for service, host in ((None, "alpha"), (("gamma", 2), "gamma")):
        places = PatternValues([("alpha", 0), ("beta", 1)], service=service)
        assert file_patterns.fill("%r@%h", places.of(SERVICE)) == f"scheduler@{host}"
        assert file_patterns.fill("%r@%h", places.of(SERVICE - 4)) == f"server.3@{host}"


def test_addresses_are_looked_up_by_host() -> None:
    places = PatternValues([("alpha", 0), ("beta", 1)], addresses={0: "10.0.0.1", 1: "fd00::1"}.__getitem__)
    assert [places.of(rank)["a"] for rank in (SERVICE, 0, 1)] == [
        "10.0.0.1",
        "10.0.0.1",
        "fd00::1",
    ]
    assert PatternValues([("alpha", 0), ("beta", 1)]).of(1)["a"] == "beta", "no address is known"


@pytest.mark.parametrize(
    ("policy", "needed"),
    [
        (OutputPolicy(), False),
        (OutputPolicy(outfile="logs/%r"), False),
        (OutputPolicy(outfile="logs/100%%a"), False),
        (OutputPolicy(outfile="w_%a_%r.log"), True),
        (OutputPolicy(errfile="%%%a"), True),
        (OutputPolicy(prepend="%a: "), True),
    ],
)
def test_whether_a_pattern_needs_addresses(policy: OutputPolicy, needed: bool) -> None:
    assert policy.needs_addresses is needed


# --- addresses of nodes


def peer(name: str, addresses: tuple[str, ...], local: bool = False, seen_from: str = "") -> tuple[Node, Hello]:
    return Node(name, 1, "-H", local=local), Hello(name, 1, 1, 1, "3.11", addresses, seen_from)


def test_a_job_on_this_host_alone_has_the_loopback_address() -> None:
    assert addresses_of([peer("here", ("10.0.0.1", "127.0.0.1"), local=True)])(0) == "127.0.0.1"
    assert addresses_of([peer("there", ("10.0.0.2", "127.0.0.1"))])(0) == "10.0.0.2"


def test_each_host_has_the_address_of_its_name_or_its_first() -> None:
    peers = [
        peer("here", ("10.9.0.1", "10.0.0.1"), local=True),
        peer("there", ("10.0.0.2", "127.0.0.1"), seen_from="10.0.0.1"),
        peer("10.0.0.3", ("192.168.0.3",)),
        peer("fd00::4", ("10.0.0.4",)),
    ]
    find = addresses_of(peers)
    assert [find(node) for node in range(4)] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::4"]


def test_a_share_has_the_address_that_reaches_the_others() -> None:
    assert addresses_of([peer("here", ("10.0.0.1",), local=True)], "127.0.0.9")(0) == "127.0.0.1"
    assert addresses_of([peer("here", ("10.0.0.1",), local=True)], "no address")(0) == "127.0.0.1"
