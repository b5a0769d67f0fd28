"""Events of a launch for Python programs (`api.Launch`), and where they come from: a thread that runs the launch.

What ranks print comes through two pipes, so that ranks wait for a slow reader as they do for a slow terminal; each line
begins with the rank that printed it.  Other events are kept in a queue, which few of them can fill.
"""

from __future__ import annotations

import os
import select
from collections import deque

from mslaunch.datamodel.node_plan import is_service
from mslaunch.datamodel.outcome import Outcome
from mslaunch.datamodel.request import Caller
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher import observers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Union

    LaunchEvent = Union[
        "StartEvent", "LineEvent", "EndEvent", "CauseEvent", "RestartEvent", "HangEvent", "MessageEvent", "JobEndEvent"
    ]

MARK = b"\x01"  # our own messages have no such character
LINE_PREFIX = "\x01%r\x01"
_BLOCK = 1 << 16


class StartEvent(NamedTuple):
    """A rank runs, for the first time (`starts` is 1) or again; a service has no number."""

    rank: int | None
    name: str
    host: str
    pid: int
    starts: int


class LineEvent(NamedTuple):
    """A line that a rank has printed, without its end; `stream` is "stdout" or "stderr"."""

    rank: int
    stream: str
    text: str


class EndEvent(NamedTuple):
    """A rank has ended; lines of it may still follow."""

    rank: int | None
    name: str
    host: str
    code: int | None
    signal: int | None
    lost: bool  # with its host
    by_mslaunch: bool


class CauseEvent(NamedTuple):
    """The job has failed, and why; what runs of it is being ended."""

    text: str
    rank: int | None
    host: str
    code: int


class RestartEvent(NamedTuple):
    """All ranks are started again; `changed` says what is different now."""

    attempt: int
    changed: str


class HangEvent(NamedTuple):
    """--hang-timeout has found a hang."""

    text: str


class MessageEvent(NamedTuple):
    """A line of the launcher, which the command would print on standard error."""

    text: str


class JobEndEvent(NamedTuple):
    """The last event."""

    outcome: Outcome


def event_of(record: Any) -> LaunchEvent | None:
    """The event of a record of observers, if there is one."""
    if isinstance(record, (observers.RankStarted, observers.RankEnded)):
        number = None if is_service(record.rank) else record.rank
        if isinstance(record, observers.RankStarted):
            return StartEvent(number, record.name, record.host, record.pid, record.starts)
        return EndEvent(number, record.name, record.host, record.code, record.signal, record.lost, record.by_us)
    if isinstance(record, observers.JobFailed):
        failure = record.failure
        return CauseEvent(failure.what, failure.rank, failure.host, failure.code)
    if isinstance(record, observers.Restarting):
        return RestartEvent(record.number, record.changed)
    return HangEvent(record.text) if isinstance(record, observers.HangFound) else None


class EventSource:
    """Runs a launch in a thread, and gives its events to one reader."""

    def __init__(self, run: Callable[[Caller], Outcome], environ: Mapping[str, str], cwd: str) -> None:
        import threading

        self.told = False  #: the last event was taken
        self._events: deque[LaunchEvent] = deque()
        self._end: Outcome | BaseException | None = None
        pipes = {name: os.pipe() for name in ("stdout", "stderr", "wake", "cancel")}
        self._reading = {pipes[name][0]: name for name in ("stdout", "stderr", "wake")}
        self._parts = dict.fromkeys(self._reading, b"")
        for fd in self._reading:
            os.set_blocking(fd, False)
        self._wake, (self._asked, self._cancel) = pipes["wake"][1], pipes["cancel"]
        os.set_blocking(self._wake, False)
        self._cancelled = threading.Lock()
        caller = Caller(
            environ, cwd, -1, pipes["stdout"][1], pipes["stderr"][1], signals=False,
            observers=(self._observe,), on_context=self._prepare,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, args=(run, caller), name="mslaunch", daemon=True)
        self._thread.start()

    # --- in the thread of the launch

    def _run(self, run: Callable[[Caller], Outcome], caller: Caller) -> None:
        try:
            self._end = run(caller)
        except BaseException as error:
            self._end = error
        finally:
            with self._cancelled:
                os.close(self._asked)
                os.close(self._cancel)
                self._cancel = -1
            for fd in (caller.stdout, caller.stderr, self._wake):
                os.close(fd)

    def _prepare(self, context: Any) -> None:
        """`context` is a `LaunchContext`, whose module imports from this folder."""

        def cancelled() -> None:
            from mslaunch.launcher.job.events import Interrupted

            os.read(self._asked, 1)
            context.interrupts.post(Interrupted("SIGTERM"))

        context.loop.reader(self._asked, cancelled)

    def _observe(self, record: Any) -> None:
        event = event_of(record)
        if event:
            self._events.append(event)
            try:
                os.write(self._wake, b".")
            except BlockingIOError:  # the reader will be woken anyway
                pass

    # --- in the thread of the reader

    def cancel(self) -> None:
        """End the launch; once it has ended, nothing is done."""
        with self._cancelled:
            if self._cancel >= 0:
                os.write(self._cancel, b".")

    def take(self) -> LaunchEvent | None:
        """The next event; None: there is none yet.  Raises StopIteration after the last, or what ended the launch."""
        if not self._events:
            for fd in list(self._reading):
                self._read(fd)
        if self._events:
            return self._events.popleft()
        if self._reading:
            return None
        if self.told:
            raise StopIteration
        self.told = True
        self._thread.join()
        if isinstance(self._end, BaseException):
            raise self._end
        assert self._end
        return JobEndEvent(self._end)

    def wait(self, seconds: float | None) -> bool:
        """Wait until something can be read; False: not within so many seconds."""
        return bool(select.select(list(self._reading), [], [], None if seconds is None else max(0.0, seconds))[0])

    async def readable(self) -> None:
        """The same in asyncio."""
        import asyncio

        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        for fd in self._reading:
            loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            for fd in self._reading:
                loop.remove_reader(fd)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, _BLOCK)
        except BlockingIOError:
            return
        name = self._reading[fd]
        if not data:
            os.close(fd)
            del self._reading[fd]
            data = b"\n" if self._parts[fd] else b""
        if name == "wake":
            return
        *lines, self._parts[fd] = (self._parts[fd] + data).split(b"\n")
        for line in lines:
            _, rank, text = line.split(MARK, 2) if line[:1] == MARK else (b"", b"", line)
            words = text.decode("utf-8", "replace")
            self._events.append(LineEvent(int(rank), name, words) if rank else MessageEvent(words))
