"""The time in which one host must be reached, and how the attempt is cancelled.

Nothing here blocks.  A thread that is about to block first passes to `arm` what would wake it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mslaunch.faststd import NamedTuple

if TYPE_CHECKING:
    import socket


class ConnectCancelled(Exception):  # noqa: N818 - not an error: the launcher asked for it
    """The launcher closed the link before it was open; nothing was started on the host."""


class Deadline:
    """The seconds in which a host must be reached; `stopped` halts the clock while a person types."""

    def __init__(self, seconds: float, parent: Deadline | None = None) -> None:
        self.seconds = seconds if parent is None else min(seconds, parent.left())
        self._end = time.monotonic() + self.seconds
        self._halted: float | None = None
        self._parent = parent  # its clock is halted together with this one

    def left(self) -> float:
        """Seconds left, never negative."""
        now = time.monotonic() if self._halted is None else self._halted
        return max(0.0, self._end - now)

    @property
    def halted(self) -> bool:
        """Whether the clock is halted, because a person is being asked something."""
        return self._halted is not None

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Time spent inside does not count."""
        with self._parent.stopped() if self._parent else contextlib.nullcontext():
            self._halted = begin = time.monotonic()
            try:
                yield
            finally:
                self._end += time.monotonic() - begin
                self._halted = None


class CommandRequest(NamedTuple):
    """A command to be started on a host, what takes its output, and what is called at the end of that."""

    line: str  # for the login shell
    sink: socket.socket
    over: Callable[[], None]


Arm = Callable[[Callable[[], None]], None]  #: see `ConnectAttempt.arm`


class ConnectAttempt(NamedTuple):
    """How long to try, and how the attempt is cancelled."""

    deadline: Deadline
    arm: Arm  # takes what to call if the link is closed; raises ConnectCancelled if it already is
    pause: Callable[[float], Any]  # waits between two tries; raises ConnectCancelled
    trail: tuple[str, ...] = ()  # the hosts whose ProxyJump led here
    command: CommandRequest | None = None  # to be started there
