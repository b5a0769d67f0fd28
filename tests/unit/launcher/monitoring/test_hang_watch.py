"""The watch for hangs in virtual time: what counts as silence, and what is done about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from histories import exited, make_state
from virtual_time import FastClock

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_plan import SERVICE_BASE
from mslaunch.datamodel.request import AppContext, HangPolicy, Request, Share
from mslaunch.errors import UsageError
from mslaunch.host.file_state import LOOK
from mslaunch.launcher.job import events
from mslaunch.launcher.job.events import Hung, Paused, Prepared, Resumed, Started, Suspended
from mslaunch.launcher.monitoring.hang_watch import HangWatch, check_hangs
from mslaunch.protocol.frames import STDOUT
from mslaunch.runtime.loop import Loop

TWO = JobMap((Node("n0", 2, "-H"),), (Placement(0, 0, 0, 0), Placement(1, 0, 0, 1)), 2)


class Watched:
    """A job of two ranks, its watch, and what was found: seconds since the start, and the silence."""

    def __init__(self, loop: Loop, clock: FastClock, **how: Any) -> None:
        self.loop, self.clock = loop, clock
        self.found: list[tuple[float, float]] = []
        self.hung: list[Hung] = []
        self.printed: list[bytes] = []
        self.state = make_state(TWO)
        how = {"hang": HangPolicy(10.0, "report"), **how}
        request = Request((AppContext(("x",)),), **how)
        self.watch = HangWatch(loop, request, self.state, self._write, None, self._post, "/")

    def _write(self, kind: int, rank: int, data: bytes) -> None:
        self.printed.append(data)

    def _post(self, event: Hung) -> None:
        self.found.append((self.loop.now() - 1000, event.seconds))
        self.hung.append(event)

    def say(self, *happened: Any) -> None:
        for event in happened:
            self.state.on(event)
            self.watch.observe(event)

    def run(self, until: float) -> list[tuple[float, float]]:
        """Until so many seconds have passed since the beginning."""
        self.loop.run(lambda: False, until - (self.loop.now() - 1000))
        return self.found

    def at(self, seconds: float, act: Any) -> None:
        self.loop.after(seconds, act)


@pytest.fixture
def clock() -> FastClock:
    return FastClock()


@pytest.fixture
def loop(clock: FastClock) -> Iterator[Loop]:
    with Loop(clock) as made:
        yield made


@pytest.fixture
def job(loop: Loop, clock: FastClock) -> Watched:
    job = Watched(loop, clock)
    job.say(Prepared(), Started(0, 9), Started(1, 9))
    return job


def test_silence_is_found_when_the_time_is_over(job: Watched) -> None:
    assert job.run(9.9) == []
    assert job.run(10.1) == [(10, 10)]
    assert job.hung == [Hung(10, "report", True, "")]


def test_the_start_does_not_count(loop: Loop, clock: FastClock) -> None:
    job = Watched(loop, clock)
    job.say(Prepared(), Started(0, 9))
    assert job.run(100) == []
    job.say(Started(1, 9))
    assert job.run(111) == [(110, 10)]


def test_output_begins_the_time_anew_and_reaches_its_place(job: Watched) -> None:
    for second in range(5, 100, 5):
        job.at(second, lambda: job.watch.write(STDOUT, 0, b"x"))
    assert job.run(104) == []
    assert job.run(106) == [(105, 10)]
    assert job.printed == [b"x"] * 19


def test_neither_the_end_of_a_stream_nor_what_a_service_says_is_output_of_a_rank(job: Watched) -> None:
    job.at(5, lambda: job.watch.write(STDOUT, 0, b""))
    job.at(6, lambda: job.watch.write(STDOUT, SERVICE_BASE, b"x"))
    assert job.run(11) == [(10, 10)]
    assert job.printed == [b"", b"x"]


def test_five_reports_of_one_silence(job: Watched) -> None:
    assert job.run(1000) == [(10, 10), (20, 20), (30, 30), (40, 40), (50, 50)]
    job.watch.write(STDOUT, 0, b"x")
    assert job.run(1500)[5:] == [(1010, 10), (1020, 20), (1030, 30), (1040, 40), (1050, 50)]


def test_a_suspended_job_does_not_hang(job: Watched) -> None:
    job.at(5, lambda: job.say(Suspended()))
    job.at(100, lambda: job.say(Resumed()))
    assert job.run(109) == []
    assert job.run(111) == [(110, 10)]


def test_a_job_whose_output_waits_for_a_terminal_does_not_hang(job: Watched) -> None:
    job.at(5, lambda: job.say(Paused(True)))
    job.at(100, lambda: job.say(Paused(False)))
    assert job.run(109) == []
    assert job.run(111) == [(110, 10)]


def test_time_in_which_the_launcher_was_stopped_does_not_count(job: Watched, clock: FastClock) -> None:
    clock.stopped = 3600.0
    assert job.run(3600 + 19) == []
    assert len(job.run(3600 + 21)) == 1


def test_a_rank_that_ends_or_starts_is_activity(job: Watched) -> None:
    job.at(8, lambda: job.say(exited(0, 0, 0, None)))
    assert job.run(17) == []
    assert job.run(19) == [(18, 10)]


def test_nothing_is_found_while_the_job_is_ended_or_after_it(job: Watched) -> None:
    job.at(8, lambda: job.say(events.Interrupted("SIGINT")))
    assert job.run(100) == []
    job.watch.end()


def test_the_end_of_an_attempt_ends_its_watch(job: Watched) -> None:
    job.watch.end()
    assert job.run(100) == []


def test_after_a_restart_the_time_begins_anew(loop: Loop, clock: FastClock) -> None:
    job = Watched(loop, clock, hang=HangPolicy(10.0, "restart"), stacks_on=())
    job.say(Prepared(), Started(0, 9), Started(1, 9))
    assert job.run(25) == [(10, 10), (20, 10)]
    assert job.hung[0] == Hung(10, "restart", False, "")


def test_a_file_that_changes_is_progress(loop: Loop, clock: FastClock, tmp_path: Path) -> None:
    """It need not be there from the beginning; looks of threads take no virtual time, so that each is waited for."""
    file = tmp_path / "steps"
    job = Watched(loop, clock, progress_file=str(file))
    watched: Any = job.watch._file
    ask = watched.ask
    watched.ask = lambda now: (ask(now), _until(lambda: watched._look.over))
    job.say(Prepared(), Started(0, 9), Started(1, 9))

    def write() -> None:
        with file.open("a") as stream:
            stream.write("x")

    for second in (3, 12, 21):
        job.at(second, write)
    assert job.run(30) == []
    assert [silence for _, silence in job.run(34)] == [10]
    assert job.hung[0].file == str(file)


def _until(true: Any) -> None:
    import threading

    for thread in threading.enumerate():
        if thread.name == LOOK:  # pytest-xdist has threads of its own, which do not end
            thread.join(10)
    assert true()


@pytest.mark.parametrize(
    ("how", "where"),
    [
        ({"hang": HangPolicy(0, "end")}, "--on-hang"),
        ({"hang": HangPolicy(5, "restart")}, "--on-hang restart"),
        ({"hang": HangPolicy(5, "restart"), "restart": "none"}, "--on-hang restart"),
        ({"hang": HangPolicy(5, "restart"), "recovery": True}, "--on-hang restart"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as error:
        check_hangs(Request((AppContext(("x",)),), **how))
    assert error.value.where == where and error.value.todo


def test_a_share_sees_too_little() -> None:
    request = Request((AppContext(("x",)),), hang=HangPolicy(5))
    check_hangs(request)
    cluster = request.cluster._replace(share=Share(4, 0, "10.0.0.1", 29500, True))
    with pytest.raises(UsageError):
        check_hangs(request._replace(cluster=cluster))


@pytest.mark.parametrize(("restart", "most"), [("group", 0), ("rank", 2), ("", 2)])
def test_what_may_be_started_again(restart: str, most: int) -> None:
    check_hangs(Request((AppContext(("x",)),), hang=HangPolicy(5, "restart"), restart=restart, max_restarts=most))
