"""The launcher's own messages on standard error, on the same device as the ranks' standard error.

--quiet silences notices and the report, never an error that ends the command: `cli.main` prints these.
"""

from __future__ import annotations

import os

from mslaunch.errors import printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.observers import Connecting
from mslaunch.launcher.stdio.terminal import FLUSH_SECONDS, OutputFd, same_device

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mslaunch.launcher.observers import Observer
    from mslaunch.runtime.loop import Loop


class Console:
    """Writes to descriptor `fd`, the launcher's standard error."""

    def __init__(self, loop: Loop, fd: int, quiet: bool, verbose: bool) -> None:
        self.stderr = OutputFd(loop, fd, "standard error", lambda text: None)
        self._stdout = self.stderr
        self._loop = loop
        self._fd = fd
        self._quiet = quiet
        self._verbose = verbose
        self._live = not quiet and os.isatty(fd)

    def info(self, text: str) -> None:
        """One line, or a few, unless --quiet was given."""
        self.write(f"mslaunch: {text}\n")

    def verbose(self, text: str) -> None:
        """A message for --verbose."""
        if self._verbose:
            self.info(text)

    def write(self, text: str) -> None:
        """Text as it is."""
        if text and not self._quiet:
            self.stderr.send(printable(text).encode("utf-8", "replace"))

    def print(self, text: str) -> None:
        """Text that an option asked for, with --quiet too."""
        self.stderr.send(printable(text).encode("utf-8", "replace"))

    @property
    def observers(self) -> list[Observer]:
        """The function that shows progress, on a terminal."""
        return [self._show_progress] if self._live else []

    def _show_progress(self, record: Any) -> None:
        """A line that replaces the one before, until no host is waited for."""
        if isinstance(record, Connecting):
            text = "" if record.over else f"connecting {record.answered}/{record.hosts} hosts"
            self.stderr.send(f"\r\x1b[K{text}".encode())

    def open_stdout(self, fd: int) -> OutputFd:
        """Standard output; the same device as standard error if it is one terminal, pipe or socket."""
        if not same_device(fd, self._fd):
            self._stdout = OutputFd(self._loop, fd, "standard output", self.info)
        return self._stdout

    def finish(self, report: str, stuck: Sequence[str]) -> None:
        """Write the report, and the hosts whose agents are `stuck`; wait a moment for the reader, and close."""
        self.write(report)
        if stuck:
            self.info(f"still ending: {', '.join(stuck)}")
        self._loop.run(lambda: not self.stderr.pending, FLUSH_SECONDS)
        self.close()

    def close(self) -> None:
        """Write what can be written, and drop the rest."""
        self.stderr.flush()
        self.stderr.close()
        self._stdout.close()
