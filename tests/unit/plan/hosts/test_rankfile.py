"""Rankfiles: their text, the allocation that they make, and the cpus that they give."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine

from mslaunch.datamodel.jobmap import Allocation, JobMap, RankLine
from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import AllocationError, HostfileError, LaunchError, UsageError
from mslaunch.plan.hosts.rankfile import parse_ranks as parse
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.pipeline import allocate

FEW = settings(max_examples=100, deadline=None)
TWO = machine("socket:2 core:4 thread:2", "far").topology()  # the second threads are cpus 8 to 15


# ----------------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("rank 0=aa slot=0", RankLine(0, "aa", "0", "rf:1")),
        ("rank 0 = aa slot = 0:1", RankLine(0, "aa", "0:1", "rf:1")),
        ("  rank\t3=joe@aa.cluster.local slot=1:0-2,3 # x", RankLine(3, "joe@aa.cluster.local", "1:0-2,3", "rf:1")),
        ("// c\nrank 1=+n0 slot=0, 2", RankLine(1, "+n0", "0,2", "rf:2")),
        ("/* a\n b */ Rank 1=10.0.0.1 slot=0:*\r\n", RankLine(1, "10.0.0.1", "0:*", "rf:1")),
    ],
)
def test_lines_are_read(text: str, want: RankLine) -> None:
    assert parse(text, "rf") == (want,)


def test_lines_may_be_in_any_order() -> None:
    assert [line.rank for line in parse("rank 2=a slot=0\nrank 0=a slot=1\nrank 1=b slot=0\n", "rf")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "why", "line"),
    [
        ("aa slots=2", "no line of a rankfile", 1),
        ("\nrank x=aa slot=0", "not the number of a rank", 2),
        ("rank -1=aa slot=0", "not the number of a rank", 1),
        ("rank 0 aa slot=0", "no line of a rankfile", 1),
        ("rank 0=aa", "no slot=LIST", 1),
        ("rank 0=aa slots=1", "no slot=LIST", 1),
        ("rank 0=aa slot=", "no slot=LIST", 1),
        ("rank 0=aa slot=0=1", "no slot=LIST", 1),
        ("rank 0= slot=0", "has no host", 1),
        ("rank 0=", "has no host", 1),
        ("rank 0=aa slot=0\nrank 1=aa slot=0\nrank 0=bb slot=1", "has a place already, from rf:1", 3),
        ("rank 0=aa slot=0\n/*", "never ends", 2),
        ("rank 0=aa slot=0\nab\0", "no text file", 2),
    ],
)
def test_malformed_lines_are_refused(text: str, why: str, line: int) -> None:
    with pytest.raises(HostfileError, match=why) as caught:
        parse(text, "rf")
    assert caught.value.where == f"rf:{line}"
    assert caught.value.todo


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(HostfileError, match="no rank is named"):
        parse("# nothing\n", "rf")


WORDS = st.text("abcn019.-@+", min_size=1, max_size=8).filter(lambda word: "//" not in word)
CPUS = st.text("0123456789,-:*;sS", min_size=1, max_size=8)


@FEW
@given(st.dictionaries(st.integers(0, 99), st.tuples(WORDS, CPUS), min_size=1))
def test_a_written_rankfile_is_read_back(lines: dict[int, tuple[str, str]]) -> None:
    records = tuple(RankLine(rank, *lines[rank]) for rank in sorted(lines))
    text = "".join(f"rank {line.rank}={line.host} slot={line.cpus}\n" for line in records)
    assert tuple(line._replace(source="") for line in parse(text, "rf")) == records


@FEW
@given(st.text() | st.text("rank slot=0123 \n#/*:+a,-"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        job(text)
    except LaunchError as error:
        assert error.what and (error.todo or error.where)


# ------------------------------------------------------------------------------------------------------------------ job


def made(text: str, *apps: AppContext, default: str | None = None, **policy: bool) -> tuple[Request, Allocation]:
    """The request and the allocation of a launch with this rankfile; `hf` is a hostfile."""
    files = {"rf": text, "hf": "localhost slots=2\naa slots=2\nbb slots=9 max_slots=9 username=joe\n"}
    request = Request(apps or (AppContext(("x",)),), Policy(rankfile="rf", **policy), default_hostfile=default)
    return request, allocate(request, files.__getitem__, ("localhost", "head0").__contains__, "head0", 8)


def job(text: str, *apps: AppContext, mca: tuple[tuple[str, str], ...] = (), **policy: bool) -> JobMap:
    request, allocation = made(text, *apps, **policy)
    return map_job(request._replace(mca=mca), allocation, {node.name: TWO for node in allocation.nodes})


def app(np: int | None = None, hosts: str = "", hostfile: str | None = None) -> AppContext:
    return AppContext(("x",), np, hosts=(hosts,) if hosts else (), hostfile=hostfile)


def where(jobmap: JobMap) -> list[tuple[str, int]]:
    return [(jobmap.nodes[one.node].name, one.local_rank) for one in jobmap.placements]


ORDER = "rank 1=aa slot=0\nrank 0=bb slot=0\nrank 2=localhost slot=1\nrank 3=head0 slot=2\n"


def test_a_rankfile_makes_the_allocation() -> None:
    """Each line is a slot, and this host is node 0."""
    jobmap = job(ORDER)
    assert [(node.name, node.slots, node.source) for node in jobmap.nodes] == [
        ("head0", 2, "rf:3"),
        ("bb", 1, "rf:2"),
        ("aa", 1, "rf:1"),
    ]
    assert where(jobmap) == [("bb", 0), ("aa", 0), ("head0", 0), ("head0", 1)]
    assert jobmap.slots == 4


def test_np_takes_the_first_ranks() -> None:
    assert where(job(ORDER, app(2))) == [("bb", 0), ("aa", 0)]
    assert where(job(ORDER, app(1), app(2))) == [("bb", 0), ("aa", 0), ("head0", 0)]
    assert where(job(ORDER, app(3), app())) == where(job(ORDER))


@pytest.mark.parametrize(
    ("apps", "why"),
    [
        ((app(5),), "rank 4 of 5 has no line"),
        ((app(4), app()), "no ranks left"),
        ((app(hosts="aa,localhost"),), "bb, which is not among the hosts"),
    ],
)
def test_ranks_without_a_line_are_refused(apps: tuple[AppContext, ...], why: str) -> None:
    with pytest.raises(AllocationError, match=why):
        job(ORDER, *apps)


def test_a_gap_in_the_ranks_is_refused() -> None:
    with pytest.raises(AllocationError, match="rank 1 of 2 has no line"):
        job("rank 0=aa slot=0\nrank 2=aa slot=1\n")


def test_a_hostfile_says_how_to_reach_the_hosts_and_which_may_be_used() -> None:
    jobmap = job("rank 0=bb slot=0\nrank 1=bb slot=1\n", app(hostfile="hf"))
    assert (jobmap.nodes[0].user, jobmap.nodes[0].slots, jobmap.nodes[0].max_slots) == ("joe", 2, 9)
    with pytest.raises(AllocationError):
        job("rank 0=dd slot=0\n", app(hostfile="hf"))


def test_relative_hosts() -> None:
    text = "rank 0=+n2 slot=0\nrank 1=+n0 slot=0\n"
    assert where(job(text, app(hostfile="hf"))) == [("bb", 0), ("head0", 0)]
    assert where(job("rank 0=+n0 slot=0\n")) == [("head0", 0)]
    with pytest.raises(HostfileError, match="no host number 3") as caught:
        job("rank 0=+n3 slot=0\n", app(hostfile="hf"))
    assert caught.value.where == "rf:1"


@pytest.mark.parametrize("host", ["+e", "^aa", "a,b", "a[1-2]", "a!b", "+x"])
def test_unknown_hosts_are_refused(host: str) -> None:
    with pytest.raises(HostfileError) as caught:
        job(f"rank 0={host} slot=0\n")
    assert caught.value.where == "rf:1"


@pytest.mark.parametrize(
    ("slot", "cpus", "locale"),
    [
        ("0", (0, 8), ("core", 0)),
        ("1:3", (7, 15), ("core", 7)),
        ("0-1", (0, 8, 1, 9), ("", 0)),
        ("1:*", (4, 12, 5, 13, 6, 14, 7, 15), ("socket", 1)),
        ("S0", (0, 8, 1, 9, 2, 10, 3, 11), ("socket", 0)),
        ("0:1,2", (1, 9, 2, 10), ("", 0)),
    ],
)
def test_cpus_are_logical_cores(slot: str, cpus: tuple[int, ...], locale: tuple[str, int]) -> None:
    (one,) = job(f"rank 0=aa slot={slot}\n").placements
    assert set(one.cpus) == set(cpus)
    assert one.locale == locale


def test_cpus_are_hardware_threads_if_these_are_the_cpus() -> None:
    (one,) = job("rank 0=aa slot=1\n", hwthread_cpus=True).placements
    assert (one.cpus, one.locale) == ((8,), ("hwthread", 1))


def test_physical_numbers() -> None:
    physical = (("rmaps_rank_file_physical", "1"),)
    (one,) = job("rank 0=aa slot=9\n", mca=physical).placements
    assert (set(one.cpus), one.locale) == ({1, 9}, ("core", 1))
    (one,) = job("rank 0=aa slot=9\n", mca=physical, hwthread_cpus=True).placements
    assert one.cpus == (9,)


def test_cpus_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UsageError, match="aa has no") as caught:
        job("rank 0=aa slot=8\n")
    assert caught.value.where == "rf:1"


def test_before_the_hosts_are_asked_there_are_no_cpus_yet() -> None:
    request, allocation = made("rank 0=aa slot=99\n", default="hf")
    jobmap = map_job(request, allocation, {})
    assert [(one.cpus, one.locale) for one in jobmap.placements] == [((), ("", 0))]
