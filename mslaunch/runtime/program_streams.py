"""The standard streams of a program: its output, read here in whole lines, and its input, written into a pipe.

A line that a program wrote in two pieces (Python without a buffer writes "text" and then "\\n") waits `JOIN` seconds
for its end, so that lines of different ranks do not mix; nothing else is held back.  Streams that outlive their
program, because an orphan holds them open, are closed by `StreamGroup`.
"""

from __future__ import annotations

import fcntl
import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.runtime.fd_reader import FULL, FdReader
from mslaunch.runtime.fd_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop, Timer

JOIN = 0.04  #: seconds that the rest of a line is waited for
DRAIN = 5.0  #: seconds of silence after which a stream is closed that outlives its program
DRAIN_ENDING = 0.5  #: the same while the job is being ended
_LONG = 1 << 16  # bytes of an unfinished line that are passed on as they are
_F_SETPIPE_SZ = 1031
_PIPE_BUDGET = 16 << 20  # bytes for all pipes of a node; the kernel grants an ordinary user 64 MiB


def pipe_size(programs: int) -> int:
    """Bytes for the standard output of each of so many programs."""
    return min(FULL, max(1 << 16, _PIPE_BUDGET // max(programs, 1)))


def open_stream(pty: bool, size: int = 0) -> tuple[int, int]:
    """The end to read and the program's end of a pipe of `size` bytes (0: the kernel's default), or of a terminal.

    Without /dev/pts there is a pipe in any case.  Raises OSError when there are no more descriptors.
    """
    if pty:
        try:
            return _raw_pty()
        except OSError:
            size = 0
    reader, writer = os.pipe()
    if size > 1 << 16:
        try:
            fcntl.fcntl(reader, _F_SETPIPE_SZ, size)
        except OSError:  # this user has enough pipes of that size
            pass
    return reader, writer


def _raw_pty() -> tuple[int, int]:
    import termios

    ours, child = os.openpty()
    mode = termios.tcgetattr(child)
    mode[0] = mode[1] = mode[3] = 0  # no translation of input or output, no echo, no line editing
    mode[2] = mode[2] & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    termios.tcsetattr(child, termios.TCSANOW, mode)
    return ours, child


class OutputStream:
    """Reads `fd`, which it owns, and passes on whole lines where it can: `output(data)`; b"" is the end."""

    def __init__(self, loop: Loop, fd: int, output: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._output = output
        self._tail = b""
        self._since = 0.0  # when the line of the tail began to come
        self._timer: Timer | None = None
        reader = FdReader(loop, fd, self._pass_lines, self._on_end)
        self.watch, self.drain, self.close = reader.watch, reader.drain, reader.close

    def _pass_lines(self, data: bytes) -> None:
        had = len(self._tail)
        if had:
            data = self._tail + data
        cut = data.rfind(b"\n") + 1
        if len(data) - cut > _LONG:
            cut = len(data)
        self._tail = data[cut:]
        if cut:
            self._output(data[:cut] if self._tail else data)
        if self._tail:
            if cut or not had:
                self._since = self._loop.now()
            self._timer = self._timer or self._loop.after(JOIN, self._on_timer)

    def _on_timer(self) -> None:
        """The line that the timer was set for may have ended since, and another one have begun."""
        left = self._since + JOIN - self._loop.now()
        if self._tail and left > 0:
            self._timer = self._loop.after(left, self._on_timer)
        else:
            self._flush()

    def _flush(self) -> None:
        self._timer = None
        if self._tail:
            tail, self._tail = self._tail, b""
            self._output(tail)

    def _on_end(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._flush()
        self._output(b"")


class StreamGroup:
    """Output streams that are read and closed together, each known by a key.

    Once their program has ended, silence of `seconds` closes them.  Silence counts only while they are read: a launcher
    that does not keep up may let them wait for longer.
    """

    def __init__(self, loop: Loop, output: Callable[[int, bytes], None]) -> None:
        """`output(key, data)` takes what is printed; b"" is the end of a stream, which is no member any more then."""
        self.seconds = DRAIN
        self._loop = loop
        self._output = output
        self._streams: dict[int, OutputStream] = {}
        self._reading = False
        self._ended = False
        self._bounded = False
        self._deadline = 0.0  # of a bounded end, once it has begun
        self._timer: Timer | None = None

    def add(self, key: int, fd: int) -> None:
        """One more; it is read after the next `watch`."""
        self._streams[key] = OutputStream(self._loop, fd, lambda data: self._on_output(key, data))

    @property
    def over(self) -> bool:
        """Whether all have ended."""
        return not self._streams

    def watch(self, on: bool) -> None:
        """Read, or let the program wait."""
        self._reading = on
        for stream in self._streams.values():
            stream.watch(on)
        self._set_timer()

    def program_ended(self) -> None:
        """From now on only orphans hold them open."""
        self._ended = True
        self._set_timer()

    def hurry(self, bounded: bool = False) -> None:
        """Orphans have `DRAIN_ENDING` left.

        `bounded`: so do those that print, for they may print for ever.  Pauses count then, or a slow reader of their
        output would put the end off with each of them; what a pipe holds is read once more after the last.
        """
        self.seconds = DRAIN_ENDING
        self._bounded = self._bounded or bounded
        self._set_timer()

    def drain(self) -> None:
        """Close them all; what is there by now is passed on."""
        for stream in list(self._streams.values()):
            stream.drain()

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._ended and self._streams:
            end = self._loop.now() + self.seconds
            if self._bounded:
                end = self._deadline = self._deadline or end
            if self._reading:
                self._timer = self._loop.after(end - self._loop.now(), self.drain)

    def _on_output(self, key: int, data: bytes) -> None:
        if not data:
            del self._streams[key]
        self._output(key, data)
        if self._timer:
            self._set_timer()


class InputStream:
    """Writes to `fd`, the end of a pipe, which it owns."""

    def __init__(self, loop: Loop, fd: int, taken: Callable[[int], None]) -> None:
        """`taken(size)`: so many bytes were written, or will never be read."""
        self._fd = fd
        self._taken = taken
        self._ending = False
        self._writer = Writer(loop, fd, lambda error: self.close(), self._progress)

    def feed(self, data: bytes) -> None:
        """Bytes for the program; b"" closes the stream once they are written."""
        if self._fd < 0:
            self._taken(len(data))
        elif data:
            self._writer.send(data)
        else:
            self._ending = True
            self._progress(0)

    def _progress(self, size: int) -> None:
        if size:
            self._taken(size)
        if self._ending and not self._writer.pending:
            self.close()

    def close(self) -> None:
        """Nobody reads any more."""
        if self._fd >= 0:
            left = self._writer.pending
            self._writer.close()
            os.close(self._fd)
            self._fd = -1
            self._taken(left)
