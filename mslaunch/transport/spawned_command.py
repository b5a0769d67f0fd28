"""A command of this host that starts agents: its input is given at once, its output is a pipe, its last words are kept.

`subprocess` would do the same, and take as long to import as a launch on this host: 15 to 20 ms.
"""

from __future__ import annotations

import os
import time

from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.transport.last_words import LastWords

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.runtime.loop import Loop

_LONGEST_PAUSE = 0.01  # seconds
#: that Python ignores, and programs expect not to be (as `subprocess` does)
_RESET = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]


class SpawnedCommand:
    """In a session of its own, so a Ctrl-C at the terminal does not reach it."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], given: bytes, loop: Loop) -> None:
        """Run it with `given` as its standard input.  Raises OSError."""
        self._pid = 0
        self._status: int | None = None
        self._words = LastWords()
        fd = os.memfd_create("mslaunch")
        self.output, ours = os.pipe()  #: to be closed by whoever reads it
        ends = (fd, ours, self._words.pipe)
        try:
            os.write(fd, given)
            os.lseek(fd, 0, os.SEEK_SET)
            actions = [(os.POSIX_SPAWN_DUP2, each, number) for number, each in enumerate(ends)]
            self._pid = _spawn(argv, environ, actions)
        except OSError:
            os.close(self.output)
            raise
        finally:
            os.close(fd)
            os.close(ours)
            self._words.begin(loop)
            if not self._pid:
                self.close()

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
        return self._words.said()

    def ended_within(self, seconds: float) -> bool:
        """Whether it ends within `seconds`; it is reaped then."""
        deadline = time.monotonic() + seconds
        pause = 0.0005
        while self.status is None:
            if time.monotonic() > deadline:
                return False
            self._words.said()
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
        """Listen no more; its last words stay."""
        self._words.close()


def _spawn(argv: Sequence[str], environ: Mapping[str, str], actions: list[tuple[int, int, int]]) -> int:
    """The pid of a program, which is looked for in the absolute directories of PATH of `environ`.  Raises OSError.

    The others mean the working directory, where a stranger may have put an srun.
    """
    refused: OSError = FileNotFoundError(2, "No such file or directory", argv[0])
    path = environ.get("PATH", os.defpath)
    for directory in [""] if "/" in argv[0] else [each for each in path.split(":") if each[:1] == "/"]:
        file = os.path.join(directory, argv[0])
        try:
            os.stat(file)  # a process for each directory without it takes longer
            return os.posix_spawn(
                file,
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
