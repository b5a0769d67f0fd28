"""The event loop: callbacks for descriptors, timers, signals and children; and the clock that it goes by.

A callback that raises ends `run` with its exception.  asyncio takes longer to import than a whole launch
(docs/design.md, "Start-up time").
"""

from __future__ import annotations

import os
import select
import time

from mslaunch.faststd import TYPE_CHECKING, heapq, signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_READ, _WRITE = 1, 4
_LATE = 1.0  # seconds: a timer this late means that we were stopped; what has come meanwhile is heard first
_HUNG_UP = 8 | 16  # EPOLLERR, EPOLLHUP: come unasked; whoever waits for the descriptor finds out by using it


class Poller:
    """Waits for descriptors by epoll(7), or by poll(2) where there is none.

    A regular file, which epoll refuses, is always ready.
    """

    def __init__(self) -> None:
        self._poll = select.epoll() if hasattr(select, "epoll") else select.poll()
        self._second = 1 if hasattr(select, "epoll") else 1000  # both round up to milliseconds
        self._watched: dict[int, int] = {}
        self._files: dict[int, int] = {}

    def close(self) -> None:
        """Give back what belongs to the poller itself."""
        if hasattr(self._poll, "close"):
            self._poll.close()

    def watch(self, fd: int, events: int) -> None:
        """Wait for `events` of `fd` from now on; 0: for nothing."""
        before = self._watched.pop(fd, 0)
        self._files.pop(fd, None)
        if events:
            self._watched[fd] = events
        try:
            if events:
                (self._poll.modify if before else self._poll.register)(fd, events)
            elif before:
                self._poll.unregister(fd)
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
        ready = self._poll.poll(None if seconds is None else seconds * self._second)
        return ready + list(self._files.items())


class Clock:
    """The host's monotonic clock.  One for virtual time replaces both methods: a wait may only move the time on."""

    now = staticmethod(time.monotonic)

    def wait(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        """Descriptors that are ready, after at most `seconds`; None: as long as it takes."""
        return poller.wait(seconds)


class Timer:
    """A callback that is due at `when`; `callback` is None once it has fired or was cancelled."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None] | None) -> None:
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        """Drop it.  May be called after it has fired."""
        self.callback = None


class Loop:
    """The loop.  Use it as a context manager: leaving it restores signal handlers."""

    def __init__(self, clock: Clock | None = None) -> None:
        _keep_memory()
        self._clock = clock or Clock()
        self._poller = Poller()
        self.now: Callable[[], float] = self._clock.now
        self._timers: list[tuple[float, int, Timer]] = []  # a heap: when, which was set first, timer
        self._count = 0
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}
        self._soon: list[Callable[[], None]] = []
        self._signals: dict[int, Callable[[], None]] = {}
        self._before: dict[int, object] = {}
        self._children: dict[int, Callable[[int], None]] = {}
        self._adopts = False
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
        self._poller.close()

    # --- descriptors

    def reader(self, fd: int, callback: Callable[[], object] | None) -> None:
        """Call back whenever `fd` can be read (or has ended); None: no more."""
        self._set(self._readers, fd, callback)

    def writer(self, fd: int, callback: Callable[[], object] | None) -> None:
        """Call back whenever `fd` can be written (or has broken); None: no more."""
        self._set(self._writers, fd, callback)

    def _set(self, table: dict[int, Callable[[], object]], fd: int, callback: Callable[[], object] | None) -> None:
        had = table.pop(fd, None)
        if callback:
            table[fd] = callback
        if bool(had) == bool(callback):
            return
        self._poller.watch(fd, (_READ if fd in self._readers else 0) | (_WRITE if fd in self._writers else 0))

    # --- time

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back once, `seconds` from now; of equal times, the one that was set first."""
        timer = Timer(self.now() + seconds, callback)
        self._count += 1
        heapq.heappush(self._timers, (timer.when, self._count, timer))
        return timer

    def _run_due(self) -> float | None:
        """Run what is due; seconds until the next timer, None without one."""
        while self._timers:
            when, _, timer = self._timers[0]
            left = when - self.now()
            if timer.callback and left > 0:
                return left
            heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback:
                callback()
        return None

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back once, at the end of this round, before anything is waited for."""
        self._soon.append(callback)

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
        try:
            signums = set(os.read(self._wake[0], 4096))
        except BlockingIOError:  # a run within this round has read them
            return
        for signum in signums & set(self._signals):
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
        while self._adopts and self._reap_any():
            pass

    def reap_adopted(self) -> None:
        """From now on, reap children that nobody waits for as well: orphans that this process has adopted."""
        self._adopts = True
        self.after(0, self._reap)

    def _reap_any(self) -> bool:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            status = os.waitpid(ended.si_pid, 0)[1] if ended else 0
        except ChildProcessError:
            return False
        if ended and ended.si_pid in self._children:  # it has ended just now
            self._children.pop(ended.si_pid)(status)
        return bool(ended)

    # --- running

    def run(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait and call back, until `until()` is true; with `seconds`, no longer than that.  Returns `until()`."""
        over: list[bool] = []
        limit = None if seconds is None else self.after(seconds, lambda: over.append(True))
        while True:
            while self._soon:
                now, self._soon = self._soon, []
                for callback in now:
                    callback()
            done = until()
            if done or over:
                if limit:
                    limit.cancel()
                return done
            if self._timers and self.now() - self._timers[0][0] > _LATE:
                self._deliver(0.0)
            left = self._run_due()
            if self._soon or over or until():
                continue
            self._deliver(left)

    def _deliver(self, seconds: float | None) -> None:
        """Call back for descriptors that are ready, after at most `seconds`."""
        for fd, events in self._clock.wait(self._poller, seconds):
            if events & (_READ | _HUNG_UP) and fd in self._readers:
                self._readers[fd]()
            if events & (_WRITE | _HUNG_UP) and fd in self._writers:
                self._writers[fd]()


def _keep_memory() -> None:
    """Let malloc keep what large reads free, instead of giving it to the kernel and asking for it again.

    mallopt(3): when a block that was mapped is freed, its size becomes the threshold for mapping, and twice that the
    one for giving back.  So one large block, never touched, sets both; without it, most of the time of forwarding
    large outputs goes into page faults.
    """
    bytes(8 << 20)  # calloc: its pages are never touched, as those of a bytearray would be


def _noted(signum: int, frame: FrameType | None) -> None:
    """Python writes the signal's number to the wake-up descriptor; there is nothing else to do."""
