"""The launcher's own console: what it says on standard error, between what ranks print there.

It goes through the same terminal as the ranks' standard error, so that order is kept and nothing blocks.  It knows
nothing of the job.  Surprising: --quiet silences notices and the report, never a refusal (that is `cli.main`'s).
"""

from __future__ import annotations

import os

from mslaunch.errors import printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.stdio.terminal import OutputFd

if TYPE_CHECKING:
    from mslaunch.runtime.loop import Loop


class Console:
    """Speaks on descriptor `fd`."""

    def __init__(self, loop: Loop, fd: int, quiet: bool, verbose: bool) -> None:
        self.stderr = OutputFd(loop, fd, "standard error", lambda text: None)
        self._quiet = quiet
        self._verbose = verbose
        self._live = not quiet and _is_terminal(fd)

    def info(self, text: str) -> None:
        """One line, or a few, for the person at the terminal."""
        self.write(f"mslaunch: {text}\n")

    def verbose(self, text: str) -> None:
        """What only --verbose shows."""
        if self._verbose:
            self.info(text)

    def write(self, text: str) -> None:
        """Text as it is."""
        if text and not self._quiet:
            self.stderr.send(printable(text).encode("utf-8", "replace"))

    def print(self, text: str) -> None:
        """Text that an option asked for by name, so --quiet does not silence it."""
        self.stderr.send(printable(text).encode("utf-8", "replace"))

    def progress(self, text: str) -> None:
        """A line that replaces the one before; "" wipes it.  Only on a terminal."""
        if self._live:
            self.stderr.send(f"\r\x1b[K{text}".encode())

    def close(self) -> None:
        """Say no more; what can still be written is."""
        self.stderr.flush()
        self.stderr.close()


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False
