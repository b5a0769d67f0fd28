"""Observers of a launch: functions that get the records below, and cannot change what happens.

A record is immutable, and its `time` is in seconds since the launch began.  An observer that raises is dropped, with a
message; the launch goes on.  Without observers no record is made.
"""

from __future__ import annotations

import time

from mslaunch.datamodel.node_plan import NO_RANK, is_rank
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mslaunch.datamodel.outcome import Failure, Outcome
    from mslaunch.plan.mapping.pipeline import Placed
    from mslaunch.protocol.control import Hello

    Observer = Callable[[Any], None]
    Listener = Callable[
        [int, int, bytes], None
    ]  # STDOUT or STDERR, the number of a rank or service, bytes; b"": its end


class Connecting(NamedTuple):
    """So many of the hosts that are being connected have answered; the first record comes after a second."""

    time: float
    answered: int
    hosts: int
    over: bool  # no host is waited for any more
    again: str = ""  # the hosts that are tried again, why, and for how long (--wait-hosts)
    waiting: frozenset[str] = frozenset()  # the hosts that have not answered


class Connected(NamedTuple):
    """The agents of an attempt are ready."""

    time: float
    hosts: tuple[str, ...]
    hellos: tuple[Hello | None, ...] = ()  # what the agent of each host said of it


class Staging(NamedTuple):
    """So many of all bytes of the files, times the hosts, are on their way; the first record comes after a second."""

    time: float
    sent: int
    size: int
    hosts: int


class Staged(NamedTuple):
    """Files (--preload-files and -s) have arrived on all hosts."""

    time: float
    files: int


class AttemptStarted(NamedTuple):
    """The ranks of an attempt are about to be started."""

    time: float
    number: int
    ranks: int
    placed: Placed | None = None  # where they are


class RankStarted(NamedTuple):
    """A rank or a service runs, for the first time or again; `name` is that in messages: `rank 3`."""

    time: float
    name: str
    host: str
    pid: int
    rank: int = NO_RANK  # its number in frames
    starts: int = 1  # 2 and more: it was started again

    @property
    def rank_or_none(self) -> int | None:
        """The rank; None if it is a service."""
        return self.rank if is_rank(self.rank) else None


class AllStarted(NamedTuple):
    """All ranks of an attempt run."""

    time: float
    number: int


class RankEnded(NamedTuple):
    """The process of a rank or a service has ended, or its host was lost."""

    time: float
    name: str
    host: str
    code: int | None
    signal: int | None
    lost: bool = False  # with its host; how the process ends is not known
    rank: int = NO_RANK
    by_us: bool = False  # mslaunch has ended it, because of the failure of another, or as it was asked

    @property
    def rank_or_none(self) -> int | None:
        """The rank; None if it is a service."""
        return self.rank if is_rank(self.rank) else None


class Waiting(NamedTuple):
    """Ranks that other commands start have not come, or devices are held between two attempts; "": it is over."""

    time: float
    text: str  # who is here or holds them, and what to do


class OutputCounted(NamedTuple):
    """How many bytes the ranks and services of an attempt have written."""

    time: float
    stdout: int
    stderr: int


class HangFound(NamedTuple):
    """No rank has printed anything for too long (--hang-timeout); `text` says what they do, as far as it is known."""

    time: float
    text: str


class JobFailed(NamedTuple):
    """An attempt has failed, its remaining ranks are being ended; `failure` is the cause as far as it is known."""

    time: float
    number: int
    failure: Failure


class AttemptEnded(NamedTuple):
    """All processes of an attempt have ended; `failure` is why it failed."""

    time: float
    number: int
    failure: Failure | None


class Restarting(NamedTuple):
    """Another attempt is about to start all ranks; `changed` says what is different in it, if anything is."""

    time: float
    number: int
    failure: Failure  # of the attempt before
    changed: str


class LaunchRefused(NamedTuple):
    """The launch is over and no rank was started: `error` says why, and nothing follows."""

    time: float
    error: BaseException


class LaunchEnded(NamedTuple):
    """The launch is over; its report follows."""

    time: float
    outcome: Outcome
    report: str = ""  # the closing block


class Observers:
    """Gives each record to all observers, and what ranks print to all listeners; `warn` tells that one was dropped."""

    def __init__(self, began: float, observers: Iterable[Observer], warn: Callable[[str], None]) -> None:
        self.listeners: list[Listener] = []
        self.began = began  #: on the clock of time.monotonic
        self._observers = list(observers)
        self._closers: list[Callable[[], None]] = []
        self._warn = warn

    def __bool__(self) -> bool:
        return bool(self._observers)

    def add(self, observer: Observer) -> None:
        """One more."""
        self._observers.append(observer)

    def listen(self, listener: Listener) -> None:
        """Give what processes print to `listener` as well, before it is shown."""
        self.listeners.append(listener)

    @property
    def listener(self) -> Listener | None:
        """What gets all that is printed; None: nobody listens."""
        return self.heard if self.listeners else None

    def on_close(self, closer: Callable[[], None]) -> None:
        """Call `closer` when the launch is over, while its loop still runs."""
        self._closers.append(closer)

    def close(self) -> None:
        """Nothing follows."""
        while self._closers:
            self._guarded(lambda: None, self._closers.pop())

    def heard(self, kind: int, rank: int, data: bytes) -> None:
        """A process has printed `data`."""
        for listener in list(self.listeners):
            self._guarded(lambda gone=listener: self.listeners.remove(gone), listener, kind, rank, data)  # type: ignore[misc]

    def emit(self, kind: Callable[..., Any], *facts: Any) -> None:
        """A record of this kind, made now."""
        if self._observers:
            record = kind(time.monotonic() - self.began, *facts)
            for observer in list(self._observers):
                self._guarded(lambda gone=observer: self._observers.remove(gone), observer, record)  # type: ignore[misc]

    def _guarded(self, drop: Callable[[], object], act: Callable[..., None], *args: Any) -> None:
        try:
            act(*args)
        except Exception as error:
            drop()
            self._warn(f"an observer of this launch failed and gets no more records: {error!r}")
