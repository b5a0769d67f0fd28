"""The one event loop: descriptors, timers, signals and children, and nothing of what they mean.

`asyncio` takes longer to import than a launch takes (docs/design.md); this is what is left when one needs callbacks
only.  A callback that raises ends `run` with its exception: nothing is swallowed here.  The one surprising thing: a
regular file, which epoll refuses, counts as always ready.
"""

from __future__ import annotations

import heapq
import os
import select
import time

from mslaunch.faststd import TYPE_CHECKING, signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

READ = 1
WRITE = 4
_HUNG = 8 | 16  # EPOLLERR, EPOLLHUP: whoever waits for the descriptor will find out by using it


class Timer:
    """A callback to come; `cancel` is all one can do to it."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None] | None) -> None:
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        """Forget it.  May be called after it fired."""
        self.callback = None


class Loop:
    """Callbacks for what happens.  Use it as a context manager: leaving it restores signal handlers."""

    def __init__(self) -> None:
        _keep_memory()
        self._poll = _Poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._soon: list[Callable[[], None]] = []
        self._signals: dict[int, Callable[[], None]] = {}
        self._before: dict[int, object] = {}
        self._children: dict[int, Callable[[int], None]] = {}
        self._wake: tuple[int, int] | None = None
        self._wake_before = -1

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back signal handlers and descriptors of the loop itself; others' descriptors stay open."""
        for signum, handler in self._before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]
        self._before.clear()
        if self._wake:
            signal.set_wakeup_fd(self._wake_before)
            for fd in self._wake:
                os.close(fd)
            self._wake = None
        self._poll.close()

    # --- descriptors

    def reader(self, fd: int, callback: Callable[[], None] | None) -> None:
        """Call back whenever `fd` can be read (or has ended); None: no more."""
        self._set(self._readers, fd, callback)

    def writer(self, fd: int, callback: Callable[[], None] | None) -> None:
        """Call back whenever `fd` can be written (or has broken); None: no more."""
        self._set(self._writers, fd, callback)

    def _set(self, table: dict[int, Callable[[], None]], fd: int, callback: Callable[[], None] | None) -> None:
        if callback is None:
            if table.pop(fd, None) is None:
                return
        else:
            had = fd in table
            table[fd] = callback
            if had:
                return
        self._poll.watch(fd, (READ if fd in self._readers else 0) | (WRITE if fd in self._writers else 0))

    # --- time

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back once, `seconds` from now."""
        timer = Timer(time.monotonic() + seconds, callback)
        self._count += 1
        heapq.heappush(self._timers, (timer.when, self._count, timer))
        return timer

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back once, at the end of this round, before anything is waited for."""
        self._soon.append(callback)

    def _due(self) -> float | None:
        """Run what is due; seconds until the next timer, None without one."""
        while self._timers:
            when, _, timer = self._timers[0]
            if timer.callback is None:
                heapq.heappop(self._timers)
                continue
            left = when - time.monotonic()
            if left > 0:
                return left
            heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            callback()
        return None

    # --- signals and children

    def signal(self, signum: int, callback: Callable[[], None] | None) -> None:
        """Call back, in the loop, for each `signum`; None: as if it never came.  Main thread only.

        A SIGHUP that was ignored when we came stays ignored: that is what nohup(1) is for.
        """
        if signum == signal.SIGHUP and callback and signal.getsignal(signum) == signal.SIG_IGN:
            return
        if self._wake is None:
            self._wake = os.pipe()
            for fd in self._wake:
                os.set_blocking(fd, False)
            self._wake_before = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
            self.reader(self._wake[0], self._woken)
        handler = signal.SIG_IGN if callback is None else _noted
        before = signal.signal(signum, handler)
        self._before.setdefault(signum, before)
        if callback:
            self._signals[signum] = callback

    def _woken(self) -> None:
        assert self._wake is not None
        for signum in set(_read_all(self._wake[0])):
            if signum in self._signals:
                self._signals[signum]()

    def child(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call back with the wait status once `pid`, a child of ours, has ended (it is reaped)."""
        if signal.SIGCHLD not in self._signals:
            self.signal(signal.SIGCHLD, self._reap)
            self.after(0, self._reap)  # it may have ended before SIGCHLD was watched
        self._children[pid] = callback

    def _reap(self) -> None:
        # by pid, not waitpid(-1): the children of a Python program that uses the API are its own
        for pid in list(self._children):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # somebody else reaped it
                ended, status = pid, 0
            if ended:
                self._children.pop(pid)(status)

    # --- running

    def run(self, until: Callable[[], bool]) -> None:
        """Wait and call back, until `until()` is true."""
        while True:
            while self._soon:
                now, self._soon = self._soon, []
                for callback in now:
                    callback()
            if until():
                return
            left = self._due()
            if self._soon or until():
                continue
            for fd, events in self._poll.wait(left):
                if events & (READ | _HUNG) and fd in self._readers:
                    self._readers[fd]()
                if events & (WRITE | _HUNG) and fd in self._writers:
                    self._writers[fd]()


class _Poll:
    """epoll where there is one, else poll(2), with the one difference between them smoothed over."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._plain = None if self._epoll else select.poll()
        self._watched: dict[int, int] = {}
        self._files: dict[int, int] = {}  # regular files: always ready, epoll does not take them

    def close(self) -> None:
        if self._epoll:
            self._epoll.close()

    def watch(self, fd: int, events: int) -> None:
        """Wait for `events` of `fd` from now on; 0: for nothing."""
        poll = self._epoll or self._plain
        assert poll is not None
        before = self._watched.pop(fd, 0)
        self._files.pop(fd, None)
        if events:
            self._watched[fd] = events
        try:
            if not events:
                if before:
                    poll.unregister(fd)
            elif before:
                poll.modify(fd, events)
            else:
                poll.register(fd, events)
        except PermissionError:
            if events:
                self._files[fd] = events
        except (OSError, KeyError):
            if events:
                raise

    def wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """What is ready, after at most `seconds` (None: as long as it takes)."""
        if self._files:
            seconds = 0.0
        if self._epoll:
            ready = self._epoll.poll(-1 if seconds is None else seconds, 256)  # rounds up to milliseconds
        else:
            assert self._plain is not None
            ready = self._plain.poll(None if seconds is None else seconds * 1000 + 0.9)
        return ready + list(self._files.items()) if self._files else ready


def _keep_memory() -> None:
    """Let malloc keep what large reads free, instead of giving it to the kernel and asking for it again.

    mallopt(3): when a block that was mapped is freed, its size becomes the threshold for mapping, and twice that the
    one for giving back.  So one large block, never touched, sets both; without it, most of the time of forwarding
    large outputs goes into page faults.
    """
    bytes(8 << 20)  # calloc: its pages are never touched, as those of a bytearray would be


def _noted(signum: int, frame: FrameType | None) -> None:
    """Python writes the signal's number to the wake-up descriptor; there is nothing else to do."""


def _read_all(fd: int) -> bytes:
    data = b""
    while True:
        try:
            more = os.read(fd, 4096)
        except BlockingIOError:
            return data
        if not more:
            return data
        data += more
