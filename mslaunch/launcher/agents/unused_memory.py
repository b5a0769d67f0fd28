"""Memory that this process has freed and malloc(3) keeps: given back to the system while nothing else is to be done.

Packets of many links are freed in another order than they came, so that few bytes in use keep a large heap: 64 SSH
hosts that had printed 3 MB each left 170 MiB, of which 45 were in use.  Giving these back took 80 ms.
"""

from __future__ import annotations

import os
import time

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_IDLE = 0.05  # of the time spent: below that a process is idle
_GROWTH = 5 / 4  # since the last time, before it is done again


class UnusedMemory:
    """That of this process; to be looked at now and then."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        """`clock`: seconds that this process has worked."""
        self._clock = clock
        self._worked = clock()
        self._kept = 0  # pages, after the last time

    def give_back(self, seconds: float) -> None:
        """Do so if the process was idle for the `seconds` since the last call, and has grown."""
        before, self._worked = self._worked, self._clock()
        if self._worked - before < seconds * _IDLE and _resident() > self._kept * _GROWTH:
            _trim()
            self._kept = _resident()


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _trim() -> None:
    try:
        import _ctypes  # the import of ctypes takes ten times as long

        trim = _ctypes.dlsym(_ctypes.dlopen(None, os.RTLD_NOW), "malloc_trim")  # type: ignore[arg-type]
        _ctypes.call_function(trim, (0,))
    except (ImportError, OSError, AttributeError):  # musl has none
        pass
