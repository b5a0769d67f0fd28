"""One line below the output of a terminal, which never tears it: erased before other bytes go out, drawn again later.

It is drawn only while the cursor is at the beginning of an empty row and no colour is left on, so that prompts and
progress bars, which write a row in parts, are left alone; and only while the terminal is in its line mode and this
process in its foreground.  A program that moves the cursor in any other way (ECMA-48) has the screen for itself: the
line is switched off for good.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.terminal_size import columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.launcher.stdio.terminal import OutputFd
    from mslaunch.runtime.loop import Loop, Timer

ERASE = b"\r\x1b[K"
_COLUMNS = 80  # of a terminal that does not tell
PAUSE = 0.1  #: seconds from output to the next drawing, and between two
TICK = 1.0  #: seconds after which the line is drawn again without output
_HELD = 2.0  # seconds without a line from Ctrl-Z on, until which this process has been stopped
_MOST_BYTES = 64  # of an escape sequence that is not complete
#: SGR, and the erasing of a line; the start of one; any other
_SEQUENCE = rb"\x1b(?:\[([0-9;:]*)([mK])|(\[[0-9;:]*)?\Z)|[\x1b\x0b\x0c]"
_MOVING = rb"\x1b(?!\[[0-9;:]*m|\[0?K)|[\x0b\x0c]"
_RESET = b"\x1b[0m"
#: what ends an attribute -> what begins it (ECMA-48, SGR)
_ENDED_BY = {22: (1, 2), 23: (3,), 24: (4, 21), 25: (5, 6), 27: (7,), 28: (8,), 29: (9,)}
_BACKGROUND = 49
_ENDS = {begin: end for end, begins in _ENDED_BY.items() for begin in begins}


class CursorTracker:
    """Where the bytes that went to a terminal have left its cursor, and whether they have moved it up or elsewhere."""

    def __init__(self) -> None:
        import re

        self._sequence, self._moving = re.compile(_SEQUENCE), re.compile(_MOVING)
        self.moved = False  #: by a sequence that is none of those above
        self._at_start = True  # of an empty row
        self._returned = False  # the cursor is in the first column, of a row that may have text
        self._styles: set[int] = set()  # attributes that are on, by what ends them
        self._begun = b""  # an escape sequence that is not complete

    @property
    def free(self) -> bool:
        """Whether something may be written below, and erased, without a trace."""
        return self._at_start and not (self._styles or self._begun or self.moved)

    def feed(self, data: bytes) -> None:
        """`data` goes out."""
        if not self._begun and b"\x1b" not in data and b"\x0b" not in data and b"\x0c" not in data:
            self._text(data)
            return
        data, self._begun, done = self._last_of(self._begun + data), b"", 0
        for found in self._sequence.finditer(data):
            self._text(data[done : found.start()])
            done = found.end()
            numbers, kind = found[1], found[2]
            if kind == b"m":
                self._style(numbers)
            elif kind == b"K" and numbers in (b"", b"0"):
                self._at_start = (self._at_start or self._returned) and _BACKGROUND not in self._styles
            elif kind or found[0][:1] != b"\x1b" or done < len(data) or len(found[0]) > _MOST_BYTES:
                self.moved = True
            else:
                self._begun = found[0]
        self._text(data[done:])

    def _last_of(self, data: bytes) -> bytes:
        """The end of `data`, which makes all the difference but for what has moved the cursor before."""
        last = data.rfind(_RESET, 0, max(0, data.rfind(b"\n")))
        if last < 0:
            return data
        self.moved = self.moved or bool(self._moving.search(data, 0, last))
        return data[last:]

    def _text(self, data: bytes) -> None:
        if data:
            self._at_start = data.endswith(b"\n") and _BACKGROUND not in self._styles  # it may fill the row
            self._returned = data.endswith((b"\r", b"\n"))

    def _style(self, numbers: bytes) -> None:
        codes = [int(code or b"0") for code in numbers.replace(b":", b";")[:_MOST_BYTES].split(b";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self._styles.clear()
            elif code in _ENDED_BY or code in (39, 49, 59):
                self._styles.discard(code)
            elif code in (38, 48, 58):  # a colour by its number, or by red, green and blue
                self._styles.add(code + 1)
                del codes[: 2 if codes[:1] == [5] else 4]
            else:
                self._styles.add(39 if code // 10 in (3, 9) else 49 if code // 10 in (4, 10) else _ENDS.get(code, -1))


class TerminalLine:
    """The line at the end of the terminal `device`, which is descriptor `fd`.

    `text()` gives it, in ASCII; "": there is none now.  `beside` is another device whose bytes may reach the same
    terminal, as of `| tee`.  `dim`: it is drawn with less intensity.
    """

    def __init__(
        self,
        loop: Loop,
        device: OutputFd,
        fd: int,
        text: Callable[[], str],
        beside: OutputFd | None = None,
        dim: bool = False,
    ) -> None:
        self._loop = loop
        self._device = device
        self._fd = fd
        self._text = text
        self._before, self._after = (b"\x1b[2m", b"\x1b[0m") if dim else (b"", b"")
        self._shown = b""  # what stands there now
        self._held_until = 0.0
        self._trackers = {one: CursorTracker() for one in (device, beside) if one}
        self._both = CursorTracker() if beside else None  # of what may come to one screen in this order
        self._all = [*self._trackers.values(), *([self._both] if self._both else [])]
        for one in self._trackers:
            one.overlay = self
        self._due: Timer | None = loop.after(TICK, self._tick)

    def feed(self, device: OutputFd, data: bytes) -> bytes:
        """`data` is about to be written to `device`: what has to be written instead."""
        self._trackers[device].feed(data)
        if self._both:
            self._both.feed(data)
        self._draw_after(PAUSE)
        if not self._shown:
            return data
        if device is self._device:
            self._shown = b""
            return ERASE + data
        self.erase()
        return data

    def erase(self) -> None:
        """Erase the line, now."""
        if self._shown:
            self._shown = b""
            self._put(ERASE)
            self._device.flush()

    def hide(self) -> None:
        """This process is about to be stopped: no line until it goes on."""
        self._held_until = self._loop.now() + _HELD
        self.erase()

    def drop(self) -> None:
        """Bytes were dropped, perhaps ours: what may stand there is erased before the next, and that is all."""
        self._shown = b"?"
        for tracker in self._all:
            tracker.moved = True

    def close(self) -> None:
        """There is no line any more.  May be called twice."""
        self.erase()
        if self._due:
            self._due.cancel()
            self._due = None
        for device in self._trackers:
            device.overlay = None

    def draw(self) -> None:
        """Draw it, if it has changed and may be drawn."""
        line = self._text()[: max(0, columns(self._fd, _COLUMNS) - 1)].encode("ascii", "replace")
        if not line:
            self.erase()
        elif line != self._shown and self._may_draw:
            self._put(b"\r" + self._before + line + self._after + b"\x1b[K")
            self._shown = line
            self._device.flush()

    def _tick(self) -> None:
        self._due = None
        if not any(tracker.moved for tracker in self._all):
            self._draw_after(TICK)
            self.draw()

    def _draw_after(self, seconds: float) -> None:
        when = self._loop.now() + seconds
        if self._due and self._due.callback:
            if self._due.when <= when:
                return
            self._due.cancel()
        self._due = self._loop.after(seconds, self._tick)

    @property
    def _may_draw(self) -> bool:
        if self._device.pending or self._loop.now() < self._held_until:
            return False
        return all(tracker.free for tracker in self._all) and _is_ours(self._fd)

    def _put(self, data: bytes) -> None:
        """Write to the device without coming by `feed`, which would take it for output."""
        self._device.overlay = None
        self._device.send(data)
        self._device.line.torn = False  # it is drawn below whole lines only
        self._device.overlay = self


def _is_ours(fd: int) -> bool:
    """Whether this process is in the foreground of the terminal, and no program reads its keys one by one."""
    import termios

    try:
        if os.tcgetpgrp(fd) != os.getpgrp():
            return False
    except OSError:  # it is not the terminal of our session, and has no foreground for us
        pass
    try:
        return bool(termios.tcgetattr(fd)[3] & termios.ICANON)
    except termios.error:
        return True
