"""The launcher's standard output and standard error: descriptors that never block, and the launcher's own messages.

Both are shared with the parent process, so their flags are never changed: a pipe or terminal is opened a second time
through /proc, non-blocking.  A socket cannot be opened again, so small writes are made when poll says that they will
not block.  A broken pipe (`| head`) is reported once and then ignored; callers check `unread` to decide whether the job
must end.  What a device has not taken yet is `pending`; `BackPressure` in `job.job_actions` pauses the ranks when that
is much.
"""

from __future__ import annotations

import errno
import os
import stat

from mslaunch.errors import printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.observers import Connecting
from mslaunch.runtime.fd_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from mslaunch.launcher.observers import Observer
    from mslaunch.runtime.loop import Loop

    class Overlay(Protocol):
        """What stands below the output of a terminal."""

        def feed(self, device: OutputFd, data: bytes) -> bytes:
            """`data` is about to be written to `device`: what has to be written instead."""

        def hide(self) -> None:
            """This process is about to be stopped."""

        def drop(self) -> None:
            """What was to be written to the device is not."""

        def close(self) -> None:
            """Nothing stands there any more."""


_COLUMNS = 80  # of a terminal that does not tell
_NAMED_AFTER = 1.0  # seconds of progress, which begins after one, until the hosts that are waited for are named
_MOST_NAMED = 1000  # of more no line has room
_NEWLINE = ord("\n")
FLUSH_SECONDS = 3.0  #: how long the end of a launch waits for a device that takes nothing


class LastLine:
    """The last line of a device or file, which several descriptors may have in common."""

    torn = False  #: it has no end yet


class OutputFd:
    """One device.  With `owned` the descriptor is closed with it; `notice` tells the user of an error, once."""

    def __init__(self, loop: Loop, fd: int, name: str, notice: Callable[[str], None], owned: bool = False) -> None:
        #: called whenever bytes have gone out
        self.progress: Callable[[], None] = lambda: None
        self.failed = False  #: bytes were lost, and not because the reader has gone
        self.unread = False  #: the reader has gone
        self.line = LastLine()  #: of the device; another descriptor of the same file may have it, too
        self.overlay: Overlay | None = None  #: what is shown below, and hears of what is written
        self._loop = loop
        self._fd = fd
        self._name = name
        self._notice = notice
        self._owned = owned
        self._own = -1  # a second descriptor of the device
        self._queue: Writer | None = None
        self._gone = False
        try:
            mode = os.fstat(fd).st_mode
        except OSError:  # closed, as in >&-
            self._gone = True
            return
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd):
            try:
                self._own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            except OSError:
                self._own = os.dup(fd)
            self._queue = self._make_queue()

    def _make_queue(self) -> Writer:
        shared = os.get_blocking(self._own)
        return Writer(self._loop, self._own, self._broken, lambda size: self.progress(), shared)

    @property
    def pending(self) -> int:
        """Bytes that the device has not taken yet."""
        return self._queue.pending if self._queue else 0

    @property
    def flows(self) -> bool:
        """Whether it is a pipe, a socket or a terminal."""
        return self._queue is not None

    def send(self, data: bytes) -> None:
        """Write `data`, now or when it can be taken."""
        if self._gone or not data:
            return
        self.line.torn = data[-1] != _NEWLINE
        if self.overlay:
            data = self.overlay.feed(self, data)
        if self._queue:
            self._queue.send(data)
            return
        try:
            write_all(self._fd, data)
        except OSError as error:
            self._broken(error)

    def _broken(self, error: OSError) -> None:
        self._gone = True
        self.unread = error.errno == errno.EPIPE
        self.failed = not self.unread
        if self.unread:
            self._notice(f"the reader of {self._name} is gone; further output of ranks is dropped")
        else:
            self._notice(f"{self._name}: {error.strerror}; further output is lost")
        self.progress()  # nobody has to wait for room any more

    def flush(self) -> None:
        """Write now what can be written."""
        if self._queue:
            self._queue.flush()

    def drop(self) -> None:
        """Nobody reads: drop what is pending.  A regular file has nothing pending."""
        if self._queue and not self._gone:
            self._queue.close()
            self._queue = self._make_queue()
            if self.overlay:
                self.overlay.drop()

    def close(self) -> None:
        """Drop what is pending, and close the descriptors that are our own."""
        if self._queue:
            self._queue.close()
            os.close(self._own)
            self._queue = None
            self._gone = True
        if self._owned:
            self._owned = False
            self._gone = True
            os.close(self._fd)


class Console:
    """The launcher's own messages on descriptor `fd`, its standard error, which the ranks' standard error shares.

    `paint(kind, text)` colours messages (`messages.message_colors`); None: they have no colours.
    --quiet silences notices and the closing report, but no error that ends the command: `cli.main` prints these.
    """

    def __init__(
        self, loop: Loop, fd: int, quiet: bool, verbose: bool, paint: Callable[[str, str], str] | None = None
    ) -> None:
        self.stderr = OutputFd(loop, fd, "standard error", lambda text: None)
        self._stdout = self.stderr
        self._loop = loop
        self._fd = fd
        self._quiet = quiet
        self._verbose = verbose
        self._paint = paint
        self._connecting: float | None = None  # when progress began to be shown
        #: the function that shows progress, on a terminal
        self.observers: list[Observer] = [self._show_progress] if not quiet and os.isatty(fd) else []

    def info(self, text: str) -> None:
        """One line, or a few, unless --quiet was given."""
        self.write(f"mslaunch: {_behind(text)}\n", "notice")

    def verbose(self, text: str) -> None:
        """A message for --verbose."""
        if self._verbose:
            self.write(f"mslaunch: {_behind(text)}\n", "detail")

    def write(self, text: str, kind: str = "") -> None:
        """Text as it is, but for the colours of its kind."""
        if not self._quiet:
            self.print(text, kind)

    def print(self, text: str, kind: str = "") -> None:
        """Text that an option asked for, with --quiet too."""
        if text:
            text = printable(text)
            text = self._paint(kind, text) if self._paint and kind else text
            begun = "\n" if self.stderr.line.torn else ""  # what ranks have begun is no part of it
            self.stderr.send(f"{begun}{text}".encode("utf-8", "replace"))

    def _show_progress(self, record: Any) -> None:
        """A line that replaces the one before, until no host is waited for."""
        if isinstance(record, Connecting):
            began = self._connecting if self._connecting is not None else record.time
            self._connecting = None if record.over else began
            about = f"; tried again: {record.again}" if record.again else ""
            if not about and record.time - began >= _NAMED_AFTER and 0 < len(record.waiting) <= _MOST_NAMED:
                from mslaunch.plan.hosts.host_ranges import fold

                about = f", waiting for {fold(sorted(record.waiting))}"
            self.show("" if record.over else f"connecting {record.answered}/{record.hosts} hosts{about}")

    def show(self, text: str) -> None:
        """A line in place of the one before, "" for none, where progress is shown."""
        if self.observers:
            self.stderr.send(f"\r\x1b[K{printable(text)[: self._width - 1]}".encode("utf-8", "replace"))
            self.stderr.line.torn = False

    @property
    def _width(self) -> int:
        """Columns of the terminal: a longer line could not be replaced."""
        from mslaunch.launcher import terminal_size

        return terminal_size.columns(self._fd, _COLUMNS)

    def open_stdout(self, fd: int) -> OutputFd:
        """Standard output; the same device as standard error if it is one terminal, pipe or socket (`2>&1`).

        Of a file each keeps its descriptor, which may have a position of its own (`> file 2> file`).
        """
        same = _same_inode(fd, self._fd)
        if not same or stat.S_ISREG(os.fstat(fd).st_mode):
            self._stdout = OutputFd(self._loop, fd, "standard output", self.info)
        if same:
            self._stdout.line = self.stderr.line
        return self._stdout

    @property
    def beside(self) -> OutputFd | None:
        """Standard output if it is another device, and no regular file: its bytes may reach the terminal, too."""
        return self._stdout if self._stdout is not self.stderr and self._stdout.flows else None

    def finish(self, stuck: Sequence[str]) -> None:
        """Write the hosts whose agents are `stuck`; wait a moment for the reader, and close."""
        if stuck:
            self.info(f"still ending: {', '.join(stuck)}")
        self._loop.run(lambda: not self.stderr.pending, FLUSH_SECONDS)
        self.close()

    def hide_overlay(self) -> None:
        """This process is about to be stopped, and others use the terminal."""
        if self.stderr.overlay:
            self.stderr.overlay.hide()

    def close(self) -> None:
        """Write what can be written, and drop the rest."""
        if self.stderr.overlay:
            self.stderr.overlay.close()
        self.stderr.flush()
        self.stderr.close()
        self._stdout.close()


def _behind(text: str) -> str:
    """A message whose further lines stand behind its first: a host may have said them, in our words."""
    if "\n" not in text:
        return text
    first, *more = text.split("\n")
    return "\n".join([first, *(line if line.startswith("  ") else f"  | {line}" for line in more)])


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to a descriptor that blocks.  Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _same_inode(one: int, other: int) -> bool:
    """Whether two descriptors are one terminal, pipe, socket or file."""
    try:
        a, b = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev)
