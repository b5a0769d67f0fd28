"""What ranks have printed: sizes, pauses, rates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.node_plan import SERVICE_BASE
from mslaunch.launcher.monitoring.activity import Activity, OutputRate
from mslaunch.protocol.frames import STDOUT

_STEPS = st.lists(st.tuples(st.floats(0, 5000), st.integers(0, 3), st.binary(max_size=600)), max_size=40)


@given(_STEPS)
def test_every_byte_is_counted_once_and_pauses_are_the_longest(steps: list[tuple[float, int, bytes]]) -> None:
    clock = [0.0]
    activity = Activity(0.0, lambda: clock[0])
    times: dict[int, list[float]] = {}
    for pause, rank, data in steps:
        clock[0] += pause
        activity.heard(STDOUT, rank, data)
        if data:
            times.setdefault(rank, []).append(clock[0])
    size = sum(len(data) for _, _, data in steps)
    assert activity.size == sum(activity.rate.sizes) == sum(one.size for one in activity.ranks.values()) == size
    assert len(activity.rate.sizes) <= 600 and set(activity.ranks) == set(times)
    for rank, when in times.items():
        one = activity.ranks[rank]
        assert (one.first, one.last) == (when[0], when[-1])
        assert one.silence == max((after - before for before, after in zip(when, when[1:])), default=0.0)


def test_the_interval_doubles_when_a_launch_is_long() -> None:
    rate = OutputRate()
    for second in range(1000):
        rate.add(second, 1)
    assert rate.interval == 2.0 and rate.sizes == [2] * 500


def test_the_last_line_is_the_last_that_has_something() -> None:
    activity = Activity(0.0, lambda: 0.0)
    for data in (b"step 1\nste", b"p 2\n", b"\n"):
        activity.heard(STDOUT, 0, data)
    assert activity.ranks[0].last_line == "step 2"
    activity.heard(STDOUT, 1, b"x" * 5000 + b"\r 10 %\r 20 %")
    assert activity.ranks[1].last_line == " 20 %"


def test_the_last_output_is_that_of_ranks_in_any_attempt() -> None:
    clock = [1.0]
    activity = Activity(0.0, lambda: clock[0])
    activity.heard(STDOUT, 0, b"before")
    activity.begin_attempt()
    assert activity.last == 1.0 and activity.ranks == {}
    clock[0] = 2.0
    activity.heard(STDOUT, SERVICE_BASE, b"the scheduler still runs")
    assert activity.last == 1.0
    activity.heard(STDOUT, 3, b"after")
    assert activity.last == 2.0
