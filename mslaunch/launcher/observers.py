"""Observers of a launch: functions that get the records below, and cannot change what happens.

A record is immutable, and its `time` is in seconds since the launch began.  An observer that raises is dropped, with a
message; the launch goes on.  Without observers no record is made.
"""

from __future__ import annotations

import time

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mslaunch.datamodel.outcome import Failure, Outcome

    Observer = Callable[[Any], None]


class Connecting(NamedTuple):
    """So many of the hosts that are being connected have answered; the first record comes after a second."""

    time: float
    answered: int
    hosts: int
    over: bool  # no host is waited for any more
    again: str = ""  # the hosts that are tried again, why, and for how long (--wait-hosts)


class Connected(NamedTuple):
    """The agents of an attempt are ready."""

    time: float
    hosts: tuple[str, ...]


class Staged(NamedTuple):
    """Files (--preload-files and -s) have arrived on all hosts."""

    time: float
    files: int


class AttemptStarted(NamedTuple):
    """The ranks of an attempt are about to be started."""

    time: float
    number: int
    ranks: int


class RankStarted(NamedTuple):
    """A rank or a service runs, for the first time or again; `name` is that in messages: `rank 3`."""

    time: float
    name: str
    host: str
    pid: int


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
    """An attempt has failed, and what runs of it is being ended; `failure` is the cause as far as it is known now."""

    time: float
    number: int
    failure: Failure


class AttemptEnded(NamedTuple):
    """All processes of an attempt have ended; `failure` is why it failed."""

    time: float
    number: int
    failure: Failure | None


class LaunchEnded(NamedTuple):
    """The launch is over; its report follows."""

    time: float
    outcome: Outcome


class Observers:
    """Gives each record to all observers; `warn` tells the user that one was dropped."""

    def __init__(self, began: float, observers: Iterable[Observer], warn: Callable[[str], None]) -> None:
        self._began = began
        self._observers = list(observers)
        self._warn = warn

    def __bool__(self) -> bool:
        return bool(self._observers)

    def add(self, observer: Observer) -> None:
        """One more."""
        self._observers.append(observer)

    def emit(self, kind: Callable[..., Any], *facts: Any) -> None:
        """A record of this kind, made now."""
        if self._observers:
            record = kind(time.monotonic() - self._began, *facts)
            for observer in list(self._observers):
                try:
                    observer(record)
                except Exception as error:
                    self._observers.remove(observer)
                    self._warn(f"an observer of this launch failed and gets no more records: {error!r}")
