"""Events of a launch for Python programs (`api.Launch`), and where they come from: a thread that runs the launch.

What ranks print comes through two pipes, so that ranks wait for a slow reader as they do for a slow terminal.  Each
line, and each piece of a long one, begins with the rank that printed it and a random word, which ranks do not know.
Other events are few, and wait in an unbounded queue.
"""

from __future__ import annotations

import os
from collections import deque

from mslaunch.datamodel.outcome import Outcome
from mslaunch.datamodel.request import Caller
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher import observers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Union

    LaunchEvent = Union[
        "StartEvent", "LineEvent", "EndEvent", "CauseEvent", "RestartEvent", "HangEvent", "MessageEvent", "JobEndEvent"
    ]

_END = b"\x01"  # of a prefix
_BLOCK = 1 << 16
_LONGEST = 1 << 16  # characters of a line that is not cut


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
    """The job has failed, and why; its remaining ranks are being ended."""

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
        number = record.rank_or_none
        if isinstance(record, observers.RankStarted):
            return StartEvent(number, record.name, record.host, record.pid, record.starts)
        return EndEvent(number, record.name, record.host, record.code, record.signal, record.lost, record.by_us)
    if isinstance(record, observers.JobFailed):
        failure = record.failure
        return CauseEvent(failure.what, failure.rank, failure.host, failure.code)
    if isinstance(record, observers.Restarting):
        return RestartEvent(record.number, record.changed)
    return HangEvent(record.text) if isinstance(record, observers.HangFound) else None


def line_prefix(word: str) -> str:
    """The pattern of what lines begin with; `word` is the random one of a launch."""
    return f"\x01{word}:%r\x01"


class PrintedLines:
    """Makes events of one stream of bytes; what it keeps is bounded by the pieces in which lines come."""

    def __init__(self, word: str, stream: str) -> None:
        self._begin = f"\x01{word}:".encode()
        self._stream = stream
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[LineEvent | MessageEvent]:
        """The events that `data` completes; b"" is the end."""
        *lines, rest = (self._rest + data).split(b"\n")
        if not data and rest:
            lines, rest = [*lines, rest], b""
        last = rest.rfind(self._begin)
        if last > 0:  # a piece of a long line is whole when the next begins
            lines, rest = [*lines, rest[:last]], rest[last:]
        self._rest = rest
        for line in lines:
            message, *pieces = line.split(self._begin)
            if message or not pieces:
                yield MessageEvent(message.decode("utf-8", "replace"))
            for piece in pieces:
                rank, _, text = piece.partition(_END)
                words = text.decode("utf-8", "replace")
                for at in range(0, len(words) or 1, _LONGEST):
                    yield LineEvent(int(rank), self._stream, words[at : at + _LONGEST])


class EventSource:
    """Runs a launch in a thread, and gives its events to one reader; `word` is that of its `line_prefix`."""

    def __init__(self, run: Callable[[Caller], Outcome], environ: Mapping[str, str], cwd: str, word: str) -> None:
        import threading

        self.told = False  #: the last event was taken
        self._events: deque[LaunchEvent] = deque()
        self._end: Outcome | BaseException | None = None
        pipes = {name: os.pipe() for name in ("stdout", "stderr", "wake", "cancel")}
        self._reading = {pipes[name][0]: PrintedLines(word, name) for name in ("stdout", "stderr")}
        self._woken = pipes["wake"][0]
        self._reading[self._woken] = PrintedLines(word, "")
        for fd in self._reading:
            os.set_blocking(fd, False)
        self._wake, (self._asked, self._cancel) = pipes["wake"][1], pipes["cancel"]
        os.set_blocking(self._wake, False)
        self._cancelled = threading.Lock()
        self._reader = threading.Lock()  # of the thread that reads, or waits for something to be read
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
            except (BlockingIOError, BrokenPipeError):  # the reader will be woken anyway, or there is none
                pass

    # --- in the thread of the reader

    def cancel(self) -> None:
        """End the launch; once it has ended, nothing is done."""
        with self._cancelled:
            if self._cancel >= 0:
                os.write(self._cancel, b".")

    def abandon(self) -> None:
        """Nobody will read any more: end the launch."""
        self.cancel()
        while self._reading:
            os.close(self._reading.popitem()[0])

    def next_event(self, seconds: float | None) -> LaunchEvent | None:
        """The next event, waited for as long; None: none has come.  Raises as `take`."""
        if not self._reader.acquire(timeout=-1 if seconds is None else max(0.0, seconds)):
            return None
        try:
            event = self.take()
            return self.take() if event is None and self.wait(seconds) else event
        finally:
            self._reader.release()

    async def awaited(self) -> LaunchEvent:
        """The next event in asyncio.  Raises as `take`, but StopAsyncIteration; RuntimeError if somebody else reads."""
        if not self._reader.acquire(blocking=False):
            raise RuntimeError("another task or thread reads the events of this launch")
        try:
            while (event := self.take()) is None:
                await self.readable()
            return event
        except StopIteration:
            raise StopAsyncIteration from None
        finally:
            self._reader.release()

    def take(self) -> LaunchEvent | None:
        """The next event; None: there is none yet.  Raises StopIteration after the last, or what ended the launch."""
        if not self._events:
            for fd in sorted(self._reading, key=lambda fd: fd != self._woken):  # that one may say that no more follows
                self._read(fd)
        if self._events:
            return self._events.popleft()
        if self._reading:
            return None
        if self.told:
            raise StopIteration
        self.told = True
        self._thread.join()
        return JobEndEvent(self.outcome())

    @property
    def ended(self) -> bool:
        """The launch is over, though not all may have been read."""
        return self._end is not None

    def outcome(self) -> Outcome:
        """How the launch ended, once that was told.  Raises what ended it before anything was started."""
        if isinstance(self._end, BaseException):
            raise self._end
        assert self._end
        return self._end

    def wait(self, seconds: float | None) -> bool:
        """Wait until something can be read; False: not within so many seconds."""
        if self._events or not self._reading:
            return True
        import select

        poll = select.poll()
        for fd in self._reading:
            poll.register(fd, select.POLLIN)
        return bool(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))

    async def readable(self) -> None:
        """The same in asyncio."""
        import asyncio

        if self._events or not self._reading:
            await asyncio.sleep(0)
            return
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
            if self._woken in self._reading:
                return
            data = b""  # the launch is over, and has left the other end open
        lines = self._reading[fd]
        if not data:
            os.close(fd)
            del self._reading[fd]
        if fd != self._woken:
            self._events.extend(lines.feed(data))
