"""The process of a launcher, identified by its id and the time of its start, because ids are reused."""

from __future__ import annotations

import os
import select
import time

from mslaunch.faststd import NamedTuple, signal
from mslaunch.host.processes import read, stat_fields

_POLL_SECONDS = 0.01  # where the kernel has no event for the end of a process


class LauncherProcess(NamedTuple):
    """A process that is not our child."""

    pid: int
    start: str  # clock ticks from the boot of the host
    boot: str  # the kernel's id of this boot

    @property
    def lives(self) -> bool:
        """It has not ended."""
        return self == process(self.pid)

    def send(self, signum: int) -> bool:
        """Send a signal; False if the process has ended."""
        with _Handle(self.pid) as handle:
            if not self.lives:
                return False
            try:
                handle.send(signum)
            except ProcessLookupError:
                return False
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for its end, for at most so long; True if it has ended."""
        deadline = time.monotonic() + seconds
        with _Handle(self.pid) as handle:
            while self.lives:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                handle.wait(left)
        return True


class _Handle:
    """A descriptor of a process (pidfd_open(2), Linux 5.3), else its number."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd = -1
        try:
            self._fd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # an old kernel or Python, or the process has ended
            pass

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def send(self, signum: int) -> None:
        if self._fd >= 0 and hasattr(signal, "pidfd_send_signal"):
            signal.pidfd_send_signal(self._fd, signum)
        else:
            os.kill(self._pid, signum)

    def wait(self, seconds: float) -> None:
        """Until the process has ended, or a moment where the kernel has no event for that; at most so long."""
        if self._fd < 0:
            time.sleep(min(seconds, _POLL_SECONDS))
            return
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.poll(seconds * 1000)


def process(pid: int) -> LauncherProcess | None:
    """The process that has this id now; None if there is none, or a zombie."""
    fields = stat_fields(pid)
    if not fields or fields[0] in b"ZX":
        return None
    return LauncherProcess(pid, fields[19].decode(), read("/proc/sys/kernel/random/boot_id").decode().strip())
