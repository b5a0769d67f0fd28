"""Measurements of links: in which rounds they are made, and which links are odd."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Node
from mslaunch.preflight.check_records import LinkReport
from mslaunch.preflight.link_findings import better, deaf_hosts, link_findings, norm_of, odd, settled, worst_first
from mslaunch.preflight.measure_rounds import EVERY, ROUNDS, apart, few_of_each, rounds_of
from mslaunch.protocol.check_messages import LinkFacts

GOOD = LinkFacts("", "10.0.0.1", 0.0002, 1e9, 1000, 0)
NAMES = [f"n{number}" for number in range(8)]
NODES = {name: Node(name, 1, "") for name in NAMES}


def links(**changed: LinkFacts) -> list[LinkReport]:
    """All of eight hosts; `n1_n2`: from one to another, `n1`: all of a host."""
    return [
        LinkReport(one, two, changed.get(f"{one}_{two}", changed.get(one, changed.get(two, GOOD))))
        for one, two in itertools.permutations(NAMES, 2)
    ]


# --- rounds


@given(st.integers(0, EVERY))
def test_up_to_some_hosts_all_pairs_are_measured_both_ways(count: int) -> None:
    names = [str(number) for number in range(count)]
    rounds = rounds_of(names, random.Random(1).randrange)
    assert sorted(pair for pairs in rounds for pair in pairs) == sorted(itertools.permutations(names, 2))
    for pairs in rounds:
        busy = [name for pair in pairs for name in pair]
        assert len(busy) == len(set(busy))


@given(st.integers(EVERY + 1, 300))
def test_of_more_hosts_each_takes_part_in_a_bounded_number(count: int) -> None:
    names = [str(number) for number in range(count)]
    rounds = rounds_of(names, random.Random(1).randrange)
    assert len(rounds) <= ROUNDS
    for pairs in rounds:
        busy = [name for pair in pairs for name in pair]
        assert len(busy) == len(set(busy))
    assert {(name, names[(at + 1) % count]) for at, name in enumerate(names)} <= {
        pair for row in rounds for pair in row
    }


PAIRS = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("fghij")), max_size=30)


@given(PAIRS)
def test_apart(pairs: list[tuple[str, str]]) -> None:
    rounds = apart(pairs)
    assert sorted(pair for row in rounds for pair in row) == sorted(pairs)
    assert all(len({name for pair in row for name in pair}) == 2 * len(row) for row in rounds)


@given(PAIRS, st.integers(1, 4))
def test_few_of_each(pairs: list[tuple[str, str]], most: int) -> None:
    kept = few_of_each(pairs, most)
    counts = [sum(name in pair for pair in kept) for name in "abcdefghij"]
    assert max(counts) <= most
    assert [pair for pair in pairs if pair in kept][:1] == pairs[:1]


# --- what is odd


def found(reports: list[LinkReport]) -> list[tuple[tuple[str, ...], str]]:
    return [(one.hosts, one.what) for one in link_findings(reports, NODES)]


def test_links_that_are_alike() -> None:
    assert found(links()) == []
    assert found([]) == []


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        (GOOD._replace(delay=0.02), "round trip 20 ms; the median is 0.2 ms"),
        (GOOD._replace(rate=1e7), "9.54 MiB/s; the median is 954 MiB/s"),
        (GOOD._replace(again=50), "5.0% of the packets are lost (50 of 1000)"),
        (LinkFacts("10.0.0.1: no answer"), "no connection: 10.0.0.1: no answer"),
    ],
)
def test_one_odd_link_and_one_odd_host(facts: LinkFacts, what: str) -> None:
    assert found(links(n1_n2=facts)) == [(("n1", "n2"), f"n1 to n2: {what}")]
    assert found(links(n1_n2=facts, n2_n1=facts)) == [(("n1", "n2"), f"n1 to n2: {what}")]
    ((hosts, said),) = found(links(n3=facts))
    assert hosts == ("n3",)
    assert what.rpartition(": ")[2] in said
    assert "n0, n1, n2 and 4 more" in said


def test_a_network_that_loses_packets_everywhere() -> None:
    lossy = GOOD._replace(again=50)
    ((hosts, what),) = found(links(**dict.fromkeys(NAMES, lossy)))
    assert (hosts, what) == ((), "28 links between hosts lose packets (median 5.0%)")


def test_few_packets_sent_again_and_small_delays_are_no_fault() -> None:
    assert found(links(n1_n2=GOOD._replace(again=3, sent=100), n3_n4=GOOD._replace(delay=0.003))) == []


def test_what_is_better_the_second_time_counts() -> None:
    slow = GOOD._replace(delay=0.05, rate=5e8)
    assert better(slow, GOOD) == GOOD
    assert better(LinkFacts("no answer"), slow) == slow
    assert better(LinkFacts("no answer"), LinkFacts("no way")).error
    norm = norm_of(links())
    again = [LinkReport("n1", "n2", GOOD)]
    assert found(settled(links(n1_n2=slow), again, norm)) == []
    assert found(settled(links(n1_n2=slow), [LinkReport("n1", "n2", slow)], norm)) != []


def test_of_many_odd_links_of_a_host_a_few_decide() -> None:
    slow = GOOD._replace(delay=0.05)
    first, norm = links(n3=slow), norm_of(links(n3=slow))
    names = [("n3", "n0"), ("n3", "n1"), ("n2", "n3")]
    still = [LinkReport(one, two, slow) for one, two in names]
    assert [hosts for hosts, _ in found(settled(first, still, norm))] == [("n3",)]
    assert found(settled(first, [LinkReport(one, two, GOOD) for one, two in names], norm)) == []


def test_the_worst_come_first() -> None:
    facts = {
        "n1_n2": GOOD._replace(rate=1e6),
        "n2_n3": GOOD._replace(delay=0.02),
        "n3_n4": GOOD._replace(delay=0.09),
        "n4_n5": LinkFacts("no answer"),
    }
    reports = links(**facts)
    worst = [f"{one.source}_{one.target}" for one in worst_first(reports, norm_of(reports))]
    assert worst == ["n4_n5", "n3_n4", "n2_n3", "n1_n2"]


@given(
    st.lists(
        st.tuples(
            st.permutations(NAMES).map(lambda names: (names[0], names[1])),
            st.builds(
                LinkFacts,
                st.sampled_from(["", "no answer"]),
                st.just("a"),
                st.floats(0, 10),
                st.floats(0, 1e12),
                st.integers(-1, 1000),
                st.integers(-1, 1000),
            ),
        ),
        max_size=20,
    )
)
def test_any_measurements(rows: list[tuple[tuple[str, str], LinkFacts]]) -> None:
    reports = [LinkReport(*pair, facts) for pair, facts in rows]
    norm = norm_of(reports)
    for finding in link_findings(settled(reports, reports[:3], norm), NODES):
        assert set(finding.hosts) <= set(NAMES)
        assert finding.repair
    assert all(odd(one.facts, norm) for one in worst_first(reports, norm))


def test_a_host_that_cannot_listen_is_told() -> None:
    (found,) = deaf_hosts({"n3": "it cannot listen at any port: Too many open files"}, NODES)
    assert (found.hosts, found.check) == (("n3",), "network")
    assert found.what == "its links were not measured: it cannot listen at any port: Too many open files"
    assert found.repair[0] == "ssh n3 'ulimit -n; ss -s'"
