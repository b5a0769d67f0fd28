"""--progress: what the line says, when plain lines come, and where there is none."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from virtual_time import FastClock

from mslaunch.datamodel.request import AppContext, Caller, MonitorPolicy, Request
from mslaunch.launcher import observers
from mslaunch.launcher.monitoring.status_line import LaunchProgress, PlainLines, amount, clock, way_of
from mslaunch.runtime.loop import Loop


class Watch:
    """A launch of `ranks` ranks on two hosts, by a clock that a test sets."""

    def __init__(self, ranks: int) -> None:
        self.clock = FastClock(100.0)
        self.progress = LaunchProgress(100.0, lambda: self.time)
        self.tell(observers.Connected, ("a", "b"))
        self.tell(observers.AttemptStarted, 1, ranks)
        for rank in range(ranks):
            self.start(rank)

    @property
    def time(self) -> float:
        return self.clock.time

    @time.setter
    def time(self, seconds: float) -> None:
        self.clock.time = seconds

    def tell(self, kind: Callable[..., object], *facts: object) -> None:
        self.progress.observe(kind(self.time - 100, *facts))

    def start(self, rank: int, starts: int = 1) -> None:
        self.tell(observers.RankStarted, f"rank {rank}", "a", 1, rank, starts)

    def print(self, size: int, *ranks: int) -> None:
        for rank in ranks:
            self.progress.heard(1, rank, b"x" * size)


def test_all_of_it() -> None:
    watch = Watch(16)
    for second in range(751):
        watch.time = 100.0 + second
        watch.print(80_000, *(rank for rank in range(16) if rank not in (3, 7) or second <= 686))
        text = watch.progress.text()
    watch.start(5, 2)
    text = watch.progress.text()
    assert text == "mslaunch: 16/16 ranks on 2 hosts, 12:30, 1.1 MB/s, 1 restart, ranks 3,7 silent for 64 s"


def test_a_service_is_no_rank() -> None:
    watch = Watch(2)
    watch.tell(observers.RankStarted, "the MindSpore scheduler", "a", 1, -2, 1)
    watch.tell(observers.RankEnded, "rank 1", "a", 0, None, False, 1)
    assert watch.progress.text() == "mslaunch: 1/2 ranks on 2 hosts, 0:00, 0 B/s"


@pytest.mark.parametrize(
    ("talking", "said"),
    [
        ((), "silent for 60 s"),
        (range(1, 12), "rank 0 silent for 60 s"),
        (range(11, 12), "ranks 0,1,2,3,4,5,6,7 and 3 more silent for 60 s"),
    ],
)
def test_silent_ranks(talking: range, said: str) -> None:
    watch = Watch(12)
    watch.time += 60.4
    watch.print(1, *talking)
    assert watch.progress.text().endswith(f"/s, {said}")


def test_the_end_of_an_attempt_and_another() -> None:
    watch = Watch(1)
    watch.tell(observers.JobFailed, 1, None)
    assert "ending the job" in watch.progress.text()
    watch.tell(observers.AttemptEnded, 1, None)
    assert watch.progress.text() == ""
    watch.tell(observers.Restarting, 2, None, "")
    watch.tell(observers.AttemptStarted, 2, 1)
    assert watch.progress.text() == "mslaunch: 0/1 rank on 2 hosts, 0:00, 0 B/s, 1 restart"


def test_files_that_are_being_sent() -> None:
    now = 0.0
    progress = LaunchProgress(0.0, lambda: now)
    progress.observe(observers.Connected(1.0, ("a", "b")))
    assert progress.text() == ""
    progress.observe(observers.Staging(2.0, 4 * 10**6, 18 * 10**6, 2))
    assert progress.text() == "mslaunch: sending files to 2 hosts, 4.0 MB of 18 MB"
    progress.observe(observers.Staging(3.0, 4 * 10**6, 18 * 10**6, 2))
    assert progress.text() == "mslaunch: sending files to 2 hosts, 4.0 MB of 18 MB, 0 B/s"
    progress.observe(observers.Staging(4.0, 6 * 10**6, 18 * 10**6, 2))
    assert progress.text() == "mslaunch: sending files to 2 hosts, 6.0 MB of 18 MB, 1.0 MB/s, 0:12 left"
    for second in range(5, 10):
        progress.observe(observers.Staging(float(second), (6 + 2 * (second - 4)) * 10**6, 18 * 10**6, 2))
    assert progress.text() == "mslaunch: sending files to 2 hosts, 16 MB of 18 MB, 2.0 MB/s, 0:01 left"
    progress.observe(observers.Connected(9.5, ("a", "b")))
    progress.observe(observers.Staging(10.5, 10**6, 18 * 10**6, 2))
    assert progress.text() == "mslaunch: sending files to 2 hosts, 1.0 MB of 18 MB"
    progress.observe(observers.Staged(6.0, 3))
    assert progress.text() == ""


def test_numbers() -> None:
    sizes = [0, 999, 999.96, 1000, 9940, 9960, 10**6 - 1, 123 * 10**6, 5 * 10**12, 10**16]
    assert [amount(size) for size in sizes] == [
        "0 B", "999 B", "1.0 kB", "1.0 kB", "9.9 kB", "10 kB", "1.0 MB", "123 MB", "5.0 TB", "10000 TB",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (0, 59.9, 61, 3599, 3600, 90061)] == [
        "0:00", "0:59", "1:01", "59:59", "1:00:00", "25:01:01",
    ]  # fmt: skip


def test_plain_lines_become_seldom() -> None:
    watch, said = Watch(1), []
    with Loop(watch.clock) as loop:
        lines = PlainLines(loop, watch.progress, lambda text: said.append((watch.time - 100, text)))
        loop.run(lambda: False, 901)
        times = [when for when, _ in said]
        assert times[:8] == [10, 20, 30, 40, 50, 60, 90, 120]
        assert times[-4:] == [720, 780, 840, 900] and len(times) == 6 + 18 + 5
        assert said[0][1] == "mslaunch: 1/1 rank on 2 hosts, 0:10, 0 B/s\n"
        lines.close()
        loop.run(lambda: False, 1000)
        assert len(said) == len(times)


@pytest.mark.parametrize(
    ("progress", "more", "term", "on_terminal", "elsewhere"),
    [
        ("auto", {}, "xterm", "line", ""),
        ("yes", {}, "xterm", "line", "plain"),
        ("plain", {}, "xterm", "plain", "plain"),
        ("no", {}, "xterm", "", ""),
        ("auto", {}, "dumb", "", ""),
        ("auto", {}, "", "", ""),
        ("yes", {}, "dumb", "plain", "plain"),
        *(
            (progress, {name: True}, "xterm", "", "")
            for progress in ("auto", "yes", "plain")
            for name in ("detach", "do_not_launch")
        ),
        ("auto", {"quiet": True}, "xterm", "", ""),
        ("yes", {"quiet": True}, "xterm", "line", "plain"),
        ("plain", {"quiet": True}, "xterm", "plain", "plain"),
    ],
)
def test_where_there_is_one(progress: str, more: dict[str, bool], term: str, on_terminal: str, elsewhere: str) -> None:
    request = Request((AppContext(("x",)),), monitor=MonitorPolicy(progress=progress), **more)  # type: ignore[arg-type]
    main, other = os.openpty()
    reader, writer = os.pipe()
    environ = {"TERM": term} if term else {}
    for fd, expected in ((other, on_terminal), (writer, elsewhere)):
        caller = Caller(environ, "/", stderr=fd, command=lambda: ["x"])
        assert way_of(request, caller, False) == expected
        assert way_of(request, caller, True) == ("plain" if expected and progress != "auto" else ""), "XML there"
        if progress == "auto":
            assert way_of(request, Caller(environ, "/", stderr=fd), False) == "", "the Python API prints past us"
    for one in (main, other, reader, writer):
        os.close(one)
