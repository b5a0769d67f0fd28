"""A command of this host that starts agents: its input is given at once, its output is a pipe, its errors are kept.

`subprocess` and `tempfile` would do the same, and take as long to import as a launch on this host: 15 to 20 ms.
"""

from __future__ import annotations

import os
import time

from mslaunch.faststd import TYPE_CHECKING, signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NOISE = 4096  # bytes of its last words
_LONGEST_PAUSE = 0.01  # seconds
#: that Python ignores, and programs expect not to be (as `subprocess` does)
_RESET = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]


class SpawnedCommand:
    """In a session of its own, so a Ctrl-C at the terminal does not reach it."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], given: bytes) -> None:
        """Run it with `given` as its standard input.  Raises OSError."""
        self._pid = 0
        self._status: int | None = None
        self._said = b""
        self._noise = _unnamed_file(environ.get("TMPDIR") or "/tmp")
        fd = os.memfd_create("mslaunch")
        self.output, ours = os.pipe()  #: to be closed by whoever reads it
        try:
            os.write(fd, given)
            os.lseek(fd, 0, os.SEEK_SET)
            actions = [(os.POSIX_SPAWN_DUP2, each, number) for number, each in enumerate((fd, ours, self._noise))]
            self._pid = _spawn(argv, environ, actions)
        except OSError:
            os.close(self.output)
            self.close()
            raise
        finally:
            os.close(fd)
            os.close(ours)

    @property
    def status(self) -> int | None:
        """Its exit status, if it has ended; negative for a signal."""
        if self._status is None and self._pid:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def noise(self) -> bytes:
        """The last 4 KiB of its standard error."""
        if self._noise >= 0:
            self._said = os.pread(self._noise, _NOISE, max(0, os.fstat(self._noise).st_size - _NOISE))
        return self._said

    def ended_within(self, seconds: float) -> bool:
        """Whether it ends within `seconds`; it is reaped then."""
        deadline = time.monotonic() + seconds
        pause = 0.0005
        while self.status is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return True

    def kill(self) -> None:
        """Kill and reap it."""
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
            self._status = os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Keep its last words, and not the file."""
        if self._noise >= 0:
            self.noise()
            os.close(self._noise)
            self._noise = -1


def _unnamed_file(directory: str) -> int:
    """A file without a name there; in memory where the file system has none (O_TMPFILE of open(2))."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.memfd_create("mslaunch")


def _spawn(argv: Sequence[str], environ: Mapping[str, str], actions: list[tuple[int, int, int]]) -> int:
    """The pid of a program, which is looked for in PATH of `environ`.  Raises OSError."""
    refused: OSError = FileNotFoundError(2, "No such file or directory", argv[0])
    path = environ.get("PATH", os.defpath)
    for directory in [""] if "/" in argv[0] else [each or "." for each in path.split(":")]:
        try:
            return os.posix_spawn(
                os.path.join(directory, argv[0]),
                list(argv),
                environ,
                file_actions=actions,
                setsid=True,
                setsigdef=_RESET,
                setsigmask=[],
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error
    raise refused
