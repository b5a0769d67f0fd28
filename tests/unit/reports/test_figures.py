"""Figures of a run: axes, areas, shades and lists are sums and orders of what the record has, whatever that is."""

from __future__ import annotations

import json
import re
from typing import Any

import example_runs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mslaunch.reports import bindings, lanes, overview, rank_ends, rank_grid, rankings, time_axis, wording
from mslaunch.reports.figure import WIDTH, Figure
from mslaunch.reports.read_record import read_record
from mslaunch.reports.recorded_run import RecordedRank, RecordedRun
from mslaunch.reports.time_axis import Panel

SECONDS = st.floats(0, 1e9)


def read(record: Any) -> RecordedRun:
    return read_record(json.dumps(record).encode())


def rank(**fields: Any) -> RecordedRank:
    known = dict.fromkeys(RecordedRank._fields)
    numbers = {
        "rank": 0,
        "name": "rank 0",
        "host": 0,
        "local_rank": 0,
        "app": 0,
        "cpus": "",
        "lost": False,
        "starts": 1,
    }
    return RecordedRank(**{**known, **numbers, **fields})


# --- axes


@given(SECONDS, st.floats(0.001, 1e9), st.integers(1, 30))
def test_ticks_are_round_rising_and_few(low: float, length: float, most: int) -> None:
    high = low + length
    assume(length / low > 1e-6 if low else True)  # floats have no room between their ends
    found = time_axis.ticks(low, high, most)
    step = time_axis.step(low, high, most)
    assert found == sorted(set(found)) and len(found) <= most + 1
    assert all(low * (1 - 1e-9) <= tick <= high + step * 1e-6 for tick in found)
    assert all(abs(tick / step - round(tick / step)) < 1e-3 for tick in found)
    if step > time_axis.STEPS[0]:
        smaller = time_axis.STEPS[time_axis.STEPS.index(step) - 1]
        assert (high - low) / smaller > most, "no smaller step would do"


@given(SECONDS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e9), st.lists(SECONDS, max_size=20))
def test_panels_cover_an_attempt_and_keep_the_order(
    began: float, start: float, end: float, length: float, times: list[float]
) -> None:
    ended = began + length
    axis = time_axis.panels(began, began + start * length, ended - end * length, ended, 100.0, 900.0)
    assert (axis[0].low, axis[-1].high) == (began, ended)
    assert (axis[0].left, axis[-1].right) == (100.0, pytest.approx(900.0))
    assert all(before.high == after.low and before.right < after.left for before, after in zip(axis, axis[1:]))
    places = [time_axis.place(axis, time) for time in sorted(times)]
    assert places == sorted(places)
    assert all(100.0 <= place <= axis[-1].right for place in places)


@given(SECONDS, st.floats(1, 1e6), st.floats(0, 1), st.floats(0, 1))
def test_a_span_has_a_part_in_each_panel_that_it_touches(began: float, length: float, low: float, high: float) -> None:
    low, high = began + length * min(low, high), began + length * max(low, high)
    axis = time_axis.panels(began, began + length / 50, began + length * 0.95, began + length, 0.0, 900.0)
    parts = list(time_axis.spans(axis, low, high))
    assert parts and all(left <= right for left, right in parts)
    assert parts[0][0] == pytest.approx(time_axis.place(axis, low)) or parts[0][0] in [each.right for each in axis]
    assert all(before[1] < after[0] for before, after in zip(parts, parts[1:]))


def test_a_short_start_and_a_short_end_are_stretched() -> None:
    names = [[panel.name for panel in time_axis.panels(0, start, failing, 100.0, 0, 900)] for start, failing in (
        (1.0, 99.0), (1.0, 10.0), (50.0, 99.0), (50.0, 60.0), (None, None))]  # fmt: skip
    assert names == [["start", "run", "end"], ["start", "run"], ["run", "end"], [""], [""]]


# --- what is counted


RANKS = st.lists(st.tuples(st.none() | st.floats(0, 100), st.none() | st.floats(0, 100)), max_size=30)


@given(RANKS, st.floats(0, 100))
def test_running_ranks_are_those_between_start_and_end(
    times: list[tuple[float | None, float | None]], at: float
) -> None:
    ranks = [rank(started=started, ended=ended) for started, ended in times]
    points = overview.running(ranks, 100.0)
    count = next((count for time, count in reversed(points) if time <= at), 0)
    assert count == sum(
        each.started is not None and each.started <= at < max(each.started, 100.0 if each.ended is None else each.ended)
        for each in ranks
    )
    assert [time for time, _ in points] == sorted({time for time, _ in points})
    assert not points or points[-1][1] == 0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=200))
def test_thinned_points_keep_the_highest_and_the_last(points: list[tuple[float, float]]) -> None:
    points.sort(key=lambda point: point[0])
    axis = Panel("", 0.0, 100.0, 0.0, 50.0)
    found = overview.thinned(points, axis)
    assert len(found) <= 2 * 101 + 1
    assert set(found) <= set(points)
    assert max((value for _, value in found), default=0) == max((value for _, value in points), default=0)
    assert found[-1:] == points[-1:]


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50), st.integers(1, 50))
def test_bins_hold_all_values(values: list[float], count: int) -> None:
    found = rankings.bins(values, count)
    assert (len(found), sum(found)) == (count, len(values))


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=50))
def test_shades_rise_with_values(values: list[float]) -> None:
    bounds = rank_grid.breaks(values)
    assert len(bounds) == rank_grid.CLASSES + 1
    assert bounds == sorted(bounds) and (bounds[0], bounds[-1]) == (min(values), max(values))
    shades = [rank_grid.shade(value, bounds) for value in sorted(values)]
    assert shades == sorted(shades) and set(shades) <= set(range(rank_grid.CLASSES))
    if max(values) > min(values):
        assert rank_grid.shade(max(values), bounds) == rank_grid.CLASSES - 1


@given(st.sets(st.integers(0, 200)))
def test_cpus_are_read_as_they_are_written(cpus: set[int]) -> None:
    from mslaunch.plan.number_ranges import ranges

    assert bindings.cpu_mask(ranges(sorted(cpus))) == sum(1 << cpu for cpu in cpus)


@pytest.mark.parametrize("text", ["", "x", "1-", "-", "3-x", "1,,2", "²", "1-99999999999"])
def test_what_is_no_list_of_cpus_is_none(text: str) -> None:
    assert bindings.cpu_mask(text) == 0


def test_a_host_with_very_many_cpus_is_cut() -> None:
    assert bindings.cpu_mask("0-99999").bit_length() == bindings.MOST_CPUS
    assert bindings.cpu_mask("5000-99999,3") == 8


@given(st.lists(st.sets(st.integers(0, 12)), max_size=60))
def test_owners_of_cpus_are_counted_and_the_first_are_named(ranks: list[set[int]]) -> None:
    owners = bindings.CpuOwners()
    for name, cpus in enumerate(ranks):
        owners.add(name, sum(1 << cpu for cpu in cpus))
    for cpu in range(13):
        of = [name for name, cpus in enumerate(ranks) if cpu in cpus]
        assert owners.of(cpu) == (len(of), tuple(of[: bindings.MOST_OWNERS]))


# --- ends


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"rank": 1, "started": 1.0, "ended": 2.0, "code": 3}, "first", "exit code 3"),
        ({"rank": 2, "started": 1.0, "ended": 2.0, "code": 4}, "failed", "exit code 4"),
        ({"rank": 2, "started": 1.0, "ended": 2.0, "signal": 11}, "failed", "SIGSEGV"),
        ({"rank": 2, "started": 1.0, "ended": 2.0, "signal": 15}, "ended", "SIGTERM"),
        ({"rank": 2, "started": 1.0, "ended": 2.0, "code": 143, "by_mslaunch": True}, "ended", "exit code 143"),
        ({"rank": 2, "started": 1.0, "ended": 2.0, "code": 0}, "ok", "exit code 0"),
        ({"rank": 2, "started": 1.0, "lost": True}, "lost", "lost"),
        ({"rank": 2, "started": 1.0}, "running", "no end recorded"),
        ({"rank": 2}, "unstarted", "not started"),
        ({"rank": 2, "started": 1.0, "ended": 2.0, "signal": 40}, "failed", "signal 40"),
    ],
)
def test_kinds_of_ends(fields: dict[str, Any], kind: str, text: str) -> None:
    attempt = read(example_runs.example(failing=1)).attempts[0]
    each = rank(**fields)
    assert (rank_ends.kind_of(each, attempt), rank_ends.text_of(each)) == (kind, text)


def test_term_without_a_failure_is_a_failure_of_the_rank() -> None:
    attempt = read(example_runs.example(failing=None)).attempts[0]
    assert rank_ends.kind_of(rank(started=1.0, ended=2.0, signal=15), attempt) == "failed"


def test_the_first_failure_is_first_and_the_others_follow_by_time() -> None:
    run = read(example_runs.example(64, 8, failing=9))
    ordered = rank_ends.in_order(rank_ends.ends_of(run.attempts[0]))
    assert ordered[0].rank.rank == 9
    times = [each.rank.ended for each in ordered[1:]]
    assert times == sorted(times)  # type: ignore[type-var]


# --- bindings


def test_few_hosts_have_a_row_each_and_many_that_are_alike_have_one() -> None:
    few = read(example_runs.example(8, 4))
    found = bindings.bindings(few.attempts[0], few.hosts)
    assert [row.hosts for row in found.rows] == ["n00", "n01"]
    assert found.rows[1].text == "4: 0-1, 5: 2-3, 6: 4-5, 7: 6-7"
    many = read(example_runs.example(512, 4))
    found = bindings.bindings(many.attempts[0], many.hosts)
    assert [(row.hosts, row.alike) for row in found.rows] == [("n[000-127]", 128)]
    assert found.local and found.rows[0].text == "0: 0-1, 1: 2-3, 2: 4-5, 3: 6-7"


def test_ranks_that_share_cpus_or_are_not_bound_are_told() -> None:
    record = example_runs.example(4, 4)
    for each, cpus in zip(record["attempts"][0]["ranks"], ("0-1", "1", "", "9")):
        each["cpus"] = cpus
    run = read(record)
    (row,) = bindings.bindings(run.attempts[0], run.hosts).rows
    assert row.text == "0: 0-1, 1: 1, 2: not bound, 3: 9"
    assert row.strip is not None
    looks = [shape.look for shape in row.strip.shapes if shape.kind == "rect"]
    assert looks == ["cpu-0", "cpu-shared", *["cpu-none"] * 7, "cpu-1"]


# --- whole figures


def numbers(figure: Figure) -> list[tuple[float, float]]:
    """All points of a figure's rectangles, lines and labels."""
    found = []
    for shape in figure.shapes:
        if shape.kind == "rect":
            found += [(float(shape.x), float(shape.y))]
            found += [(float(shape.x) + float(shape.width), float(shape.y) + float(shape.height))]
        elif shape.kind == "line":
            found += [(float(shape.x1), float(shape.y1)), (float(shape.x2), float(shape.y2))]
        elif shape.kind == "label":
            found.append((float(shape.x), float(shape.y)))
    return found


def assert_inside(figure: Figure) -> None:
    width, height = float(figure.width), float(figure.height)
    for x, y in numbers(figure):
        assert -1 <= x <= width + 1.1 and -1 <= y <= height + 1, (x, y)
    for shape in figure.shapes:
        if shape.kind == "path":
            assert re.fullmatch(r"[MHVhvlzm\d. -]*", shape.d), shape.d


@st.composite
def records(draw: Any) -> Any:
    """A small record with times in any order, and any of them unknown."""
    time = st.none() | st.floats(0, 1e6)
    hosts = draw(st.integers(1, 3))

    def one_rank(number: int) -> dict[str, Any]:
        return {
            "rank": number, "host": draw(st.integers(0, hosts - 1)), "local_rank": draw(st.integers(0, 4)),
            "cpus": draw(st.sampled_from(["", "0-1", "3", "x", "0-4000"])), "lost": draw(st.booleans()),
            **{name: draw(time) for name in ("started", "ended", "first_output", "last_output", "silence")},
            "code": draw(st.none() | st.integers(0, 255)), "signal": draw(st.none() | st.integers(0, 64)),
            "bytes": draw(st.none() | st.integers(0, 2**50)), "starts": 1,
        }  # fmt: skip

    def one_attempt(number: int) -> dict[str, Any]:
        names = ("connected", "staged", "started", "all_started", "failed", "ended")
        cause = draw(st.none() | st.just({"kind": "rank_failed", "text": "rank 1 failed", "rank": 1, "host": "a"}))
        return {
            "number": number, "began": draw(st.floats(0, 1e6)), **{name: draw(time) for name in names}, "cause": cause,
            "ranks": [one_rank(at) for at in range(draw(st.sampled_from([0, 1, 3, 70])))],
        }  # fmt: skip

    return {
        "schema": 1, "state": draw(st.sampled_from(["running", "ended"])), "seconds": draw(time),
        "hosts": [{"name": f"h{at}", "connected": draw(time), "facts": {"cpus": 4}} for at in range(hosts)],
        "attempts": [one_attempt(at + 1) for at in range(draw(st.integers(0, 2)))],
        "output": {"interval": draw(st.sampled_from([0.5, 1.0, 64.0])), "bytes": draw(st.lists(st.integers(0, 9**9)))},
        "restarts": draw(st.lists(st.fixed_dictionaries({"seconds": st.floats(0, 1e6)}), max_size=3)),
        "hangs": draw(st.lists(st.fixed_dictionaries({"seconds": st.floats(0, 1e6)}), max_size=3)),
    }  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(records())
def test_all_shapes_lie_inside_their_figures(record: Any) -> None:
    run = read(record)
    assert_inside(overview.draw(run))
    for attempt in run.attempts:
        if attempt.ranks:
            assert_inside(lanes.draw(run, attempt))
            grid = rank_grid.draw(attempt, run.hosts)
            assert grid.left + grid.per_row * grid.block_width <= WIDTH + grid.block_width
            for ranking in rankings.rankings(attempt, run.hosts):
                assert_inside(ranking.histogram)
            for row in bindings.bindings(attempt, run.hosts).rows:
                if row.strip:
                    assert_inside(row.strip)


@pytest.mark.parametrize(("ranks", "per_host"), [(65, 1), (4096, 1), (4096, 8), (4096, 128), (100, 100), (5000, 3)])
def test_the_grid_has_a_cell_for_each_rank(ranks: int, per_host: int) -> None:
    run = read(example_runs.example(ranks, per_host))
    grid = rank_grid.draw(run.attempts[0], run.hosts)
    assert grid.one_rank and float(grid.height) < 1200
    for layer in grid.layers:
        cells = [cell for _, path in layer.paths for cell in path.split("z")[:-1]]
        assert len(cells) == len(set(cells)) == ranks
        assert {look for look, _ in layer.paths} == {look for look, _ in layer.legend}


def test_lanes_of_many_hosts_are_at_most_64_rows() -> None:
    run = read(example_runs.example(4096, 1))
    figure = lanes.draw(run, run.attempts[0])
    assert float(figure.height) < 1000
    names = [shape.text for shape in figure.shapes if shape.kind == "label" and shape.look.startswith("row-note small")]
    assert len(names) == lanes.MOST_ROWS and names[0] == "n[0000-0063]"


# --- words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.004, "4 ms"), (0.42, "0.42 s"), (9.99, "9.99 s"), (12.46, "12.5 s"), (99.96, "1 min 40 s"),
     (125, "2 min 05 s"), (3599.7, "1 h 00 min"), (4320, "1 h 12 min"), (86400 * 3 + 3600 * 4, "3 d 4 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "step", "text"),
    [(0, 1, "0"), (0.5, 0.5, "0.5 s"), (0.25, 0.05, "0.25 s"), (60, 20, "1 min"), (80, 20, "1 min 20 s"),
     (3600, 600, "1 h"), (5400, 1800, "1 h 30 min"), (117.5, 0.5, "1 min 57.5 s"),
     (120.0, 0.5, "2 min"), (86400 * 2, 86400, "2 d")],
)  # fmt: skip
def test_labels_of_ticks(seconds: float, step: float, text: str) -> None:
    assert wording.tick_label(seconds, step) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (812, "812 B"), (999.6, "1.0 kB"), (4100, "4.1 kB"), (123456, "123 kB"), (2e16, "20000 TB")],
)
def test_sizes(count: float, text: str) -> None:
    assert wording.size(count) == text


@given(st.text(max_size=60), st.integers(3, 60))
def test_shortened_texts_keep_their_ends(text: str, most: int) -> None:
    found = wording.shortened(text, most)
    assert len(found) <= most
    assert found == text or (text.startswith(found.partition("…")[0]) and "…" in found)
