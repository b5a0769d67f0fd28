"""The launcher of a job, by its process id and the time of its start, because ids are reused."""

from __future__ import annotations

import os
import select
import time

from mslaunch.faststd import NamedTuple, signal
from mslaunch.host.processes import read, stat_fields

_POLL_SECONDS = 0.01  # where the kernel has no event for the end of a process
_LONGEST = 86400.0  # seconds of one poll(), which takes no more than an int of milliseconds


class ProcessIdentity(NamedTuple):
    """A process, the launcher of a job."""

    pid: int
    start: str  # clock ticks from the boot of the host
    boot: str  # the kernel's id of this boot
    namespace: str = ""  # of process ids, as in a container; empty if the kernel does not tell

    @property
    def elsewhere(self) -> bool:
        """It was started in another PID namespace of this kernel: its id means nothing here."""
        return bool(self.namespace) and self.namespace != _namespace() and self.boot == _boot()

    @property
    def lives(self) -> bool:
        """It has not ended, as far as it can be seen from here."""
        found = process(self.pid)
        return found is not None and found[:3] == self[:3] and not self.elsewhere

    def send(self, signum: int) -> bool:
        """Send a signal; False if the process has ended."""
        fd = _open(self.pid)
        try:
            if not self.lives:
                return False
            if fd >= 0 and hasattr(signal, "pidfd_send_signal"):
                signal.pidfd_send_signal(fd, signum)
            else:
                os.kill(self.pid, signum)
        except ProcessLookupError:
            return False
        finally:
            _close(fd)
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for its end, for at most so long; True if it has ended."""
        deadline = time.monotonic() + seconds
        fd = _open(self.pid)
        try:
            while self.lives:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if fd < 0:
                    time.sleep(min(left, _POLL_SECONDS))
                else:
                    poller = select.poll()  # select() takes no descriptor above 1023
                    poller.register(fd, select.POLLIN)
                    poller.poll(min(left, _LONGEST) * 1000)
        finally:
            _close(fd)
        return True


def process(pid: int) -> ProcessIdentity | None:
    """The process that has this id now; None if there is none, or a zombie."""
    fields = stat_fields(pid)
    if not fields or fields[0] in b"ZX":
        return None
    return ProcessIdentity(pid, fields[19].decode(), _boot(), _namespace())


def _boot() -> str:
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _open(pid: int) -> int:
    """A descriptor of the process (pidfd_open(2), Linux 5.3); -1 with an old kernel or Python, or if it has ended."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
