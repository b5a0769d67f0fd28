"""--fold: nothing is lost, each rank's lines stay in order, nothing waits for long, and memory has a bound."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from fake_output import FakeOutput, files, jobmap_of, places_of
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.request import AppContext, OutputPolicy, Request
from mslaunch.errors import UsageError
from mslaunch.launcher.rank_names import RankNames
from mslaunch.launcher.stdio import fold_lines
from mslaunch.launcher.stdio.fold_lines import LONGEST, MOST, TICK, WINDOW, FoldedLines, FoldedOutput
from mslaunch.launcher.stdio.output import Output, open_output
from mslaunch.launcher.stdio.output_checks import check_output
from mslaunch.launcher.stdio.terminal import OutputFd
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.loop import Clock, Loop, Poller


class Lab:
    """Lines that wait, with a clock that only moves when told to."""

    def __init__(self, size: int = 4) -> None:
        self.time = 0.0
        self.shown: list[tuple[int, tuple[int, ...], bytes]] = []
        self.at: list[float] = []
        self.lines = FoldedLines(lambda: self.time, self._show, size)

    def _show(self, kind: int, ranks: object, lines: list[bytes]) -> None:
        self.shown += [(kind, tuple(ranks), line) for line in lines]  # type: ignore[call-overload]
        self.at += [self.time] * len(lines)

    def pass_time(self, seconds: float) -> None:
        """With a tick whenever one is due."""
        for _ in range(round(seconds / TICK)):
            self.time += TICK
            self.lines.flush()

    def of(self, rank: int) -> list[tuple[int, bytes]]:
        return [(kind, line) for kind, ranks, line in self.shown if rank in ranks]

    def text(self) -> list[str]:
        return [f"{','.join(map(str, ranks))} {line.decode()}" for _, ranks, line in self.shown]

    def check(self) -> None:
        segments = list(self.lines)
        assert self.lines.pending == sum(segment.size for segment in segments)
        assert self.lines._count == len(segments)
        assert all(line in self.lines._known for segment in segments for line in segment.lines)
        for number, rank in self.lines._ranks.items():
            own = [segment for segment in segments if number in segment.ranks]
            assert rank.anchor is None or rank.anchor in own
            behind = own[own.index(rank.anchor) + 1 :] if rank.anchor else own
            assert [segment for segment in behind if segment.owner is rank] == behind[: len(rank.alone)] == rank.alone


LINES = st.lists(st.sampled_from([b"", b"a", b"b", b"c", b"d"]), min_size=1, max_size=6)
EVENTS = st.lists(
    st.tuples(st.sampled_from([STDOUT, STDOUT, STDERR]), st.integers(0, 3), LINES) | st.sampled_from([0.02, 0.06, 0.2]),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(EVENTS, st.booleans())
def test_each_rank_is_shown_with_all_its_lines_in_order(events: list[object], finish: bool) -> None:
    lab = Lab()
    printed: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for event in events:
        if isinstance(event, float):
            lab.pass_time(event)
        else:
            kind, rank, lines = event  # type: ignore[misc]
            lab.lines.add(kind, rank, lines)
            printed[rank] += [(kind, line) for line in lines]
        lab.check()
    if finish:
        assert not lab.lines.flush(everything=True)
    else:
        lab.pass_time(LONGEST + 2 * TICK)
    assert not lab.lines.waits and lab.lines.pending == 0
    for rank in range(4):
        assert lab.of(rank) == printed[rank]
    assert all(list(ranks) == sorted(set(ranks)) for _, ranks, _ in lab.shown)


@settings(max_examples=200, deadline=None)
@given(EVENTS)
def test_nothing_waits_for_longer_than_it_may(events: list[object]) -> None:
    lab = Lab()
    came: dict[tuple[int, int], list[float]] = defaultdict(list)
    for event in events:
        if isinstance(event, float):
            lab.pass_time(event)
        else:
            kind, rank, lines = event  # type: ignore[misc]
            lab.lines.add(kind, rank, lines)
            came[rank, 0] += [lab.time] * len(lines)
    lab.pass_time(LONGEST + 2 * TICK)
    for (rank, _), times in came.items():
        seen = [at for at, (_, ranks, _) in zip(lab.at, lab.shown) if rank in ranks]
        alone = [len(ranks) == 1 for _, ranks, _ in lab.shown if rank in ranks]
        assert len(seen) == len(times)
        for shown, printed, lone in zip(seen, times, alone):
            assert shown - printed <= (WINDOW + TICK if lone else LONGEST + TICK) + 1e-6


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=3), max_size=30), st.data())
def test_equal_output_is_shown_once_however_it_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    lab = Lab(3)
    waiting = {rank: list(lines) for rank in range(3)}
    while any(waiting.values()):
        rank = data.draw(st.sampled_from([rank for rank in waiting if waiting[rank]]))
        count = data.draw(st.integers(1, 9))
        lab.lines.add(STDOUT, rank, waiting[rank][:count])
        del waiting[rank][:count]
        lab.check()
    lab.lines.flush(everything=True)
    assert [line for _, _, line in lab.shown] == lines
    assert {ranks for _, ranks, _ in lab.shown} <= {(0, 1, 2)}


def test_lines_that_differ_do_not_keep_the_equal_ones_after_them_apart() -> None:
    lab = Lab(8)
    for rank in range(3):
        lab.lines.add(STDOUT, rank, [b"hello", b"I am %d" % rank, b"go", b"step"])
    lab.lines.flush(everything=True)
    assert lab.text() == ["0,1,2 hello", "0 I am 0", "1 I am 1", "2 I am 2", "0,1,2 go", "0,1,2 step"]


def test_an_odd_line_is_shown_while_equal_ones_are_still_collected() -> None:
    lab = Lab(64)
    for rank in range(20):
        lab.lines.add(STDOUT, rank, [b"a", b"b"] if rank != 2 else [b"odd"])
        lab.pass_time(0.04)
    lab.lines.flush(everything=True)
    others = ",".join(str(rank) for rank in range(20) if rank != 2)
    assert lab.text() == ["2 odd", f"{others} a", f"{others} b"]
    assert lab.at[0] - 2 * 0.04 <= 0.2


def test_lines_that_all_ranks_have_printed_do_not_wait() -> None:
    lab = Lab(2)
    for rank in range(2):
        lab.lines.add(STDOUT, rank, [b"a"])
    assert not lab.lines.flush() and lab.text() == ["0,1 a"]


def test_standard_output_is_not_equal_to_standard_error() -> None:
    lab = Lab()
    lab.lines.add(STDOUT, 0, [b"a"])
    lab.lines.add(STDERR, 1, [b"a"])
    lab.lines.flush(everything=True)
    assert lab.text() == ["0 a", "1 a"]


def test_what_waits_has_a_bound() -> None:
    lab = Lab()
    for number in range(3000):
        lab.lines.add(STDOUT, number % 4, [b"%d.%d %s" % (number, line, b"x" * 200) for line in range(50)])
        assert lab.lines.pending <= MOST and lab.lines._known_size <= 3 * MOST
        if number % 100 == 0:
            lab.check()
    lab.lines.flush(everything=True)
    assert len(lab.shown) == 150_000


def test_many_small_segments_have_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_lines, "MOST_SEGMENTS", 64)
    lab = Lab()
    for number in range(1000):
        lab.lines.add(STDOUT, number % 4, [b"%d" % number])
        assert len(list(lab.lines)) <= 64
    lab.lines.flush(everything=True)
    assert Counter(line for _, _, line in lab.shown) == Counter(b"%d" % number for number in range(1000))


def test_a_rank_that_looks_for_equals_in_vain_does_not_stop_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_lines, "_LOOKS", 1000)
    lab = Lab()
    lab.lines._looks = 1000
    lab.lines.add(STDOUT, 0, [b"again"])
    lab.lines.add(STDERR, 1, [b"%d" % number for number in range(600)])
    for _ in range(10):
        lab.lines.add(STDOUT, 0, [b"again"])
    assert lab.lines._looks <= 0
    lab.lines.add(STDOUT, 2, [b"again"])
    lab.lines.flush()
    assert lab.lines._looks == 1000
    lab.lines.flush(everything=True)
    assert lab.of(0) == [(STDOUT, b"again")] * 11 and lab.of(2) == [(STDOUT, b"again")]


# --- on terminals


class VirtualClock(Clock):
    """Time moves on when the loop waits."""

    def __init__(self) -> None:
        self.time = 100.0
        self.waits = 0

    def now(self) -> float:  # type: ignore[override]
        return self.time

    def wait(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        assert seconds is not None, "nothing is due"
        self.waits += 1
        self.time += seconds
        return []


class Terminals:
    """The output of a job with --fold; `one`: both streams are one device."""

    def __init__(self, policy: OutputPolicy, ranks: int = 4, one: bool = True) -> None:
        self.loop = Loop(VirtualClock())
        out = FakeOutput()
        self.devices: dict[int, FakeOutput] = {STDOUT: out, STDERR: out if one else FakeOutput()}
        terminals: dict[int, OutputFd] = dict(self.devices)
        self.output = open_output(policy, jobmap_of(ranks), self.loop, terminals, pytest.fail)

    def seen(self, kind: int = STDOUT) -> str:
        return self.devices[kind].seen.decode()

    def wait(self, seconds: float) -> None:
        over: list[bool] = []
        self.loop.after(seconds, lambda: over.append(True))
        self.loop.run(lambda: bool(over))


FOLD = OutputPolicy(fold=True)


def test_lines_have_the_ranks_before_them() -> None:
    lab = Terminals(FOLD)
    for rank in (0, 1, 3):
        lab.output.write(STDOUT, rank, b"epoch 1\nloss 0.5\n")
    lab.output.write(STDOUT, 2, b"epoch 1\nloss nan\nhalf a li")
    lab.output.write(STDOUT, 2, b"ne")
    lab.wait(2.0)
    assert lab.seen() == "[0-3] epoch 1\n[0-1,3] loss 0.5\n[2] loss nan\n"
    lab.output.write(STDOUT, 2, b"")
    lab.output.finish()
    assert lab.seen().endswith("nan\n[2] half a line\n")


def test_a_launcher_that_had_no_processor_reads_first_what_has_come() -> None:
    lab = Terminals(FOLD)
    lab.output.write(STDOUT, 0, b"a\n")
    lab.wait(TICK)
    lab.loop._clock.time += 0.5  # type: ignore[attr-defined]
    lab.loop.soon(lambda: lab.output.write(STDOUT, 1, b"a\n"))
    lab.wait(WINDOW + 3 * TICK)
    assert lab.seen() == "[0-1] a\n"


def test_no_timer_runs_while_nothing_waits() -> None:
    lab = Terminals(FOLD)
    lab.output.write(STDOUT, 0, b"a\n")
    assert lab.loop._timers
    lab.wait(WINDOW + 3 * TICK)
    assert lab.seen() == "[0] a\n" and not any(timer.callback for _, _, timer in lab.loop._timers)


def test_the_streams_of_two_devices_stay_apart() -> None:
    lab = Terminals(FOLD, one=False)
    for rank in range(2):
        lab.output.write(STDOUT, rank, b"out\n")
        lab.output.write(STDERR, rank, b"err\n")
    lab.output.finish()
    assert (lab.seen(STDOUT), lab.seen(STDERR)) == ("[0-1] out\n", "[0-1] err\n")


def test_tracebacks_of_many_ranks_are_shown_once() -> None:
    lab = Terminals(FOLD)
    frames = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    step()\n'
    for piece in frames.splitlines(keepends=True):
        for rank in range(4):
            other = piece.replace("line 3", "line 7") if rank == 3 else piece
            lab.output.write(STDERR, rank, f"[rank{rank}]: {other}".encode())
    for rank in range(4):
        lab.output.write(STDERR, rank, f"[rank{rank}]: ValueError: {rank // 2}\n".encode())
    lab.output.finish()
    assert lab.seen().splitlines() == [
        *[f"[0-2] {line}" for line in frames.splitlines()],
        "[0-1] ValueError: 0",
        *[f"[3] {line}" for line in frames.replace("line 3", "line 7").splitlines()],
        "[2-3] ValueError: 1",
    ]


def test_files_have_the_bytes_of_each_rank(tmp_path: object) -> None:
    lab = Terminals(OutputPolicy(directory=str(tmp_path), fold=True), 2)
    for rank in range(2):
        lab.output.write(STDOUT, rank, b"\r 1%\r 2%\r\n[rank0]: a\nhalf")
        lab.output.write(STDOUT, rank, b"")
    lab.output.finish()
    assert lab.output.close()
    kept = files(tmp_path)  # type: ignore[arg-type]
    assert kept["1/rank.0/stdout"] == kept["1/rank.1/stdout"] == b"\r 1%\r 2%\r\n[rank0]: a\nhalf"
    assert lab.seen().splitlines() == ["[0-1]  2%", "[0] a", "[1] [rank0]: a", "[0-1] half"]


def test_only_the_chosen_ranks_count() -> None:
    lab = Terminals(OutputPolicy(fold=True, shown=(1, 2)))
    for rank in range(4):
        lab.output.write(STDOUT, rank, b"a\n")
    lab.wait(TICK)
    assert lab.seen() == "[1-2] a\n", "at once: all that are shown have printed it"


def test_a_launch_that_ends_by_an_error_shows_what_waits() -> None:
    lab = Terminals(FOLD)
    lab.output.write(STDOUT, 0, b"last words")
    lab.output.close()
    assert lab.seen() == "[0] last words\n"


def test_a_device_that_takes_nothing_gets_nothing_more() -> None:
    class Stuck(FakeOutput):
        @property
        def pending(self) -> int:
            return len(self.seen)

    with Loop() as loop:
        stuck, out = Stuck(), FakeOutput()
        devices: dict[int, OutputFd] = {STDOUT: out, STDERR: stuck}
        fold = FoldedOutput(loop, devices, RankNames(2), 2)
        output = Output(FOLD, places_of(2), devices, pytest.fail, fold=fold)
        stuck.seen = b"x"
        for kind in devices:
            output.write(kind, 0, b"a\n")
        output.abandon()
        output.write(STDERR, 0, b"b\n")
        output.finish()
        assert (out.seen, stuck.seen) == (b"[0] a\n", b"x")


def test_spawned_ranks_are_named_by_their_world() -> None:
    lab = Terminals(FOLD, 2)
    lab.output.add_world([("alpha", 0), ("alpha", 0), ("alpha", 0)])
    for rank in range(5):
        lab.output.write(STDOUT, rank, b"a\n")
    lab.output.finish()
    assert lab.seen() == "[0-1; 0-2 of world 2] a\n"


# --- what is refused


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        (OutputPolicy(fold=True, tag="tag"), "tags"),
        (OutputPolicy(fold=True, prepend="%r|"), "prefixes"),
        (OutputPolicy(fold=True, timestamp=True), "time stamps"),
        (OutputPolicy(fold=True, xml=True), "--xml"),
        (OutputPolicy(fold=True, xml_file="f"), "--xml"),
        (OutputPolicy(fold=True, xterm="0"), "--xterm"),
        (OutputPolicy(shown=(0, 4)), "no rank 4 among 4"),
    ],
)
def test_what_does_not_go_together_is_refused(policy: OutputPolicy, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        check_output(Request((AppContext(("x",)),), output=policy), 4)


def test_ranks_that_exist_may_be_shown() -> None:
    check_output(Request((AppContext(("x",)),), output=OutputPolicy(shown=(0, 3), fold=True, merge=True)), 4)
