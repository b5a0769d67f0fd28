"""How many ranks each host gets in msrun's dialect: --local_worker_num, slots, even shares, and what is refused."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import AllocationError, UsageError
from mslaunch.plan.hosts import msrun_slots
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.pipeline import allocate


def ranks(total, each=0, hosts=(), text=None):
    """Ranks by host."""
    app = AppContext(("a",), total, hosts=hosts, hostfile="f" if text is not None else None)
    request = Request((app,), Policy(map_by="slot", bind_to="none", per_host=each))
    allocation = allocate(request, lambda _: text or "", lambda name: name == "here", "here", 2)
    assert all(node.slots is not None for node in allocation.nodes), "no host need be asked for its cores"
    jobmap = map_job(request, allocation, {})
    found = Counter(jobmap.nodes[row.node].name for row in jobmap.placements)
    return dict(found)


@pytest.mark.parametrize(
    ("total", "each", "hosts", "expected"),
    [
        (8, 4, "a,b", {"a": 4, "b": 4}),
        (8, 4, "a:1,b:1", {"a": 4, "b": 4}),
        (4, 4, "a,b", {"a": 4}),
        (None, 3, "a,b", {"a": 3, "b": 3}),
        (4, 0, "a:3,b:1", {"a": 3, "b": 1}),
        (3, 0, "a:3,b:1", {"a": 3}),
        (None, 0, "a:3,b:1", {"a": 3, "b": 1}),
        (8, 0, "a,b", {"a": 4, "b": 4}),
        (7, 0, "a,b", {"a": 4, "b": 3}),
        (None, 0, "a,b", {"a": 4, "b": 4}),
        (1, 0, "a,b", {"a": 1}),
        (3, 0, "a,a,b", {"a": 2, "b": 1}),
        (5, 0, "b,here", {"here": 3, "b": 2}),
        (4, 0, "[fd00::1],fd00::2", {"fd00::1": 2, "fd00::2": 2}),
        (3, 0, "[fd00::1]:2,fd00::2", {"fd00::1": 2, "fd00::2": 1}),
        (6, 0, "n[1-3]", {"n1": 2, "n2": 2, "n3": 2}),
    ],
)
def test_ranks_on_hosts_of_the_option(total, each, hosts, expected):
    assert ranks(total, each, (hosts,)) == expected


@pytest.mark.parametrize(
    ("total", "each", "text", "expected"),
    [
        (4, 0, "a slots=3\nb slots=1\n", {"a": 3, "b": 1}),
        (6, 0, "a slots=3\nb\nc\n", {"a": 3, "b": 2, "c": 1}),
        (6, 0, "a\nhere\n", {"here": 3, "a": 3}),
        (4, 2, "a slots=16\nb slots=1\n", {"a": 2, "b": 2}),
        (4, 2, "a\nb\nc spare\n", {"a": 2, "b": 2}),
        (4, 0, "a\nb\nc spare\n", {"a": 2, "b": 2}),
    ],
)
def test_ranks_on_hosts_of_a_file(total, each, text, expected):
    assert ranks(total, each, text=text) == expected


@pytest.mark.parametrize(
    ("total", "each", "hosts", "where", "phrase"),
    [
        (9, 4, "a,b", "--worker_num", "2 hosts with 4 workers each make 8, and 9"),
        (6, 4, "a,b", "--local_worker_num", "6 workers cannot be 4 on each host"),
        (5, 0, "a:3,b:1", "--worker_num", "the slots of the hosts are 4 (a 3, b 1)"),
    ],
)
def test_numbers_that_do_not_add_up_are_refused(total, each, hosts, where, phrase):
    with pytest.raises(UsageError) as caught:
        ranks(total, each, (hosts,))
    assert caught.value.where == where and phrase in str(caught.value)


@given(
    st.none() | st.integers(1, 40),
    st.integers(0, 9),
    st.lists(st.sampled_from(["a", "b", "a:2", "c:3", "here"]), min_size=1, max_size=4),
)
def test_all_ranks_are_placed_or_the_numbers_are_refused(total, each, hosts):
    try:
        found = ranks(total, each, (",".join(hosts),))
    except (UsageError, AllocationError) as error:
        assert error.where in ("--worker_num", "--local_worker_num")
        return
    if total is not None:
        assert sum(found.values()) == total
    if each:
        assert set(found.values()) == {each}


def test_the_option_is_read_once_for_all_hosts(monkeypatch):
    read, are_bare = [], msrun_slots._are_bare
    monkeypatch.setattr(msrun_slots, "_are_bare", lambda texts: read.append(texts) or are_bare(texts))
    assert ranks(60, hosts=("n[1-30]",)) == {f"n{host}": 2 for host in range(1, 31)}
    assert len(read) == 1
