"""The line below the output: with a terminal emulator, the screen without it is that of the plain output."""

from __future__ import annotations

import os
import re
import select
import termios
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mslaunch.launcher.monitoring import terminal_line
from mslaunch.launcher.monitoring.terminal_line import PAUSE, TICK, CursorTracker, TerminalLine
from mslaunch.launcher.stdio.terminal import Console, LastLine, OutputFd
from mslaunch.runtime.loop import Loop, Timer

LINE = "mslaunch: 4/4 ranks"
NO_TERMINAL = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


class Emulator:
    """A terminal that knows \\r, \\n, SGR and the erasing to the end of a row; a cell is a byte and its attributes."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[int, str]]] = [[]]
        self.column = 0
        self.style = ""
        self.begun = b""

    def feed(self, data: bytes) -> None:
        data, self.begun = self.begun + data, b""
        for found in re.finditer(rb"\x1b\[([0-9;]*)([mK])|(\x1b(?:\[[0-9;]*)?)\Z|([^\x1b])", data):
            if found[2] == b"K":
                del self.rows[-1][self.column :]
            elif found[2]:
                numbers = found[1].decode()
                self.style = "" if numbers in ("", "0") else f"{self.style};{numbers}"
            elif found[3]:
                self.begun = found[3]
            else:
                self._put(found[4])

    def _put(self, byte: bytes) -> None:
        if byte == b"\n":
            self.rows.append([])
            self.column = 0
        elif byte == b"\r":
            self.column = 0
        else:
            self.rows[-1][self.column : self.column + 1] = [(byte[0], self.style)]
            self.column += 1

    @property
    def state(self) -> object:
        return self.rows, self.column, self.style, self.begun


class FakeLoop(Loop):
    """Whose time passes when a test says so."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[Timer] = []
        self.now = lambda: self.time

    def after(self, seconds: float, callback) -> Timer:  # type: ignore[no-untyped-def]
        self.timers.append(Timer(self.time + seconds, callback))
        return self.timers[-1]

    def pass_time(self, seconds: float) -> None:
        until = self.time + seconds
        while due := [timer for timer in self.timers if timer.callback and timer.when <= until]:
            timer = min(due, key=lambda one: one.when)
            self.time = timer.when
            callback, timer.callback = timer.callback, None
            assert callback
            callback()
        self.timers = [timer for timer in self.timers if timer.callback]
        self.time = until


class FakeDevice(OutputFd):
    """A terminal, or a pipe to a program that prints on it (`| tee`)."""

    def __init__(self, screen: Emulator) -> None:
        self.overlay, self.line = None, LastLine()
        self.seen = b""
        self.busy = 0
        self._screen = screen

    @property
    def pending(self) -> int:
        return self.busy

    def send(self, data: bytes) -> None:
        if self.overlay:
            data = self.overlay.feed(self, data)
        self.seen += data
        self._screen.feed(data)

    def flush(self) -> None:
        pass


class Lab:
    """A line on a fake terminal, 40 columns wide."""

    def __init__(self, beside: bool = False) -> None:
        self.loop, self.screen, self.text = FakeLoop(), Emulator(), LINE
        self.device = FakeDevice(self.screen)
        self.beside = FakeDevice(self.screen) if beside else None
        self.line = TerminalLine(self.loop, self.device, NO_TERMINAL, lambda: self.text, self.beside)

    @property
    def shown(self) -> bool:
        return self.text.encode() == bytes(cell for cell, _ in self.screen.rows[-1])


@pytest.fixture
def lab() -> Lab:
    return Lab()


PIECES = st.sampled_from(
    [b"a line\n", b"Name: ", b"\n", b"\r", b"10%\r", b"\r\x1b[K", b"\x1b[31m", b"\x1b[0m", b"\x1b[1;38;5;7m",
     b"red\x1b", b"[m", b"\x1b[3", b"9m", b"\x1b[41m", b"\x1b[49m", b"x\x1b[K", b"\x1b[22m", b"\x1b[2", b"two\nlines\n",
     b"\x1b[m\n"]
)  # fmt: skip
PAUSES = st.sampled_from([0.05, 0.1, 0.3, 1.0, 2.5])


@given(st.lists(PIECES, max_size=12), st.lists(PAUSES, min_size=12, max_size=12), st.booleans())
@example([b"\x1b[41m", b"\n", b"\x1b[0m"], [1.0] * 12, False)
@example([b"10%\r", b"\r\x1b[K"], [1.0] * 12, False)
@example([b"\x1b[31m", b"a line\n", b"\x1b[3", b"9m"], [1.0] * 12, True)
def test_the_screen_without_the_line_is_that_of_the_plain_output(
    pieces: list[bytes], pauses: list[float], beside: bool
) -> None:
    lab, plain = Lab(beside), Emulator()
    for number, (piece, pause) in enumerate(zip(pieces, pauses)):
        (lab.beside if lab.beside and number % 2 else lab.device).send(piece)
        plain.feed(piece)
        assert lab.screen.state == plain.state, "right after output there is no line"
        lab.loop.pass_time(pause)
        if lab.shown:
            assert lab.screen.rows[:-1] == plain.rows[:-1] and not plain.rows[-1]
        else:
            assert lab.screen.state == plain.state
    lab.line.close()
    assert lab.screen.state == plain.state, "nothing stays"
    assert lab.device.overlay is None


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_the_state_does_not_depend_on_the_pieces(data: bytes) -> None:
    whole, parts = CursorTracker(), CursorTracker()
    whole.feed(data)
    for at in range(len(data)):
        parts.feed(data[at : at + 1])
    assert whole.moved == parts.moved
    assert whole.moved or (whole.free, whole._styles) == (parts.free, parts._styles)


def test_it_is_drawn_soon_after_output_and_each_second(lab: Lab) -> None:
    lab.device.send(b"a line\n")
    assert not lab.shown
    lab.loop.pass_time(PAUSE)
    assert lab.shown
    lab.text = "mslaunch: 3/4 ranks"
    lab.loop.pass_time(TICK)
    assert lab.shown and lab.screen.rows[0] == [(byte, "") for byte in b"a line"]


def test_much_output_draws_it_ten_times_a_second(lab: Lab) -> None:
    for _ in range(1000):
        lab.device.send(b"a line\n")
        lab.loop.pass_time(0.001)
    assert 8 <= lab.device.seen.count(LINE.encode()) <= 10


def test_output_without_a_newline_keeps_it_away(lab: Lab) -> None:
    lab.device.send(b"Name: ")
    lab.loop.pass_time(60)
    assert lab.device.seen == b"Name: "
    lab.device.send(b"\n")
    lab.loop.pass_time(PAUSE)
    assert lab.shown


@pytest.mark.parametrize(
    "data", [b"\x1b[2J", b"\x1b[A", b"\x1b[10;5H", b"\x1b7", b"\x1bM", b"\x1b[?1049h", b"\x1b[2K", b"\x1b]0;t\x07",
             b"\x0c"]
)  # fmt: skip
@pytest.mark.parametrize("split", [0, 1, 2])
def test_a_program_that_moves_the_cursor_has_the_screen_for_itself(lab: Lab, data: bytes, split: int) -> None:
    tracker = CursorTracker()
    for part in (data[:split], data[split:], b"\n"):
        tracker.feed(part)
    assert tracker.moved and not tracker.free
    lab.loop.pass_time(TICK)
    assert lab.shown
    seen = len(lab.device.seen)
    lab.device._screen = Emulator()
    lab.device._screen.feed = lambda data: None  # type: ignore[method-assign]
    lab.device.send(data + b"\n")
    lab.loop.pass_time(60)
    assert lab.device.seen[seen:] == b"\r\x1b[K" + data + b"\n", "erased before, and never drawn again"


def test_a_sequence_without_an_end_is_not_kept_for_ever() -> None:
    tracker = CursorTracker()
    for _ in range(100):
        tracker.feed(b"\x1b[" if not tracker._begun else b"1;1;1;1;")
    assert tracker.moved


def test_it_is_gone_while_the_process_is_stopped(lab: Lab) -> None:
    lab.loop.pass_time(TICK)
    assert lab.shown
    lab.line.hide()
    assert lab.screen.rows == [[]]
    lab.device.send(b"the last words\n")
    lab.loop.pass_time(1.5)
    assert not lab.shown, "agents have a second to answer, until then it must not come back"
    lab.loop.pass_time(2 * TICK)
    assert lab.shown


def test_a_device_that_takes_nothing_gets_no_line(lab: Lab) -> None:
    lab.device.busy = 1
    lab.loop.pass_time(60)
    assert lab.device.seen == b""


def test_after_dropped_bytes_it_is_erased_once_and_not_drawn(lab: Lab) -> None:
    lab.loop.pass_time(TICK)
    seen = len(lab.device.seen)
    lab.line.drop()
    lab.device.send(b"a line\n")
    lab.loop.pass_time(60)
    assert lab.device.seen[seen:] == b"\r\x1b[Ka line\n"


def test_an_empty_text_erases_it(lab: Lab) -> None:
    lab.loop.pass_time(TICK)
    lab.text = ""
    lab.loop.pass_time(TICK)
    assert lab.screen.rows == [[]]


# --- a real terminal


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    main, other = os.openpty()
    yield main, other
    os.close(main)
    os.close(other)


def read_to(fd: int, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        assert select.select([fd], [], [], 10)[0], data
        data += os.read(fd, 4096)
    return data


def test_the_line_fits_the_terminal_also_after_it_has_changed(terminal: tuple[int, int]) -> None:
    main, other = terminal
    with Loop() as loop:
        console = Console(loop, other, False, False)
        line = TerminalLine(loop, console.stderr, other, lambda: "x" * 200)
        for columns in (40, 17, 120):
            termios.tcsetwinsize(other, (24, columns)) if hasattr(termios, "tcsetwinsize") else _resize(other, columns)
            console.stderr.send(b"\n")
            console.stderr.flush()
            line.draw()
            assert read_to(main, b"x\x1b[K").count(b"x") == columns - 1
        line.close()
        assert read_to(main, b"\x1b[K") == b"\r\x1b[K"
        console.close()


def _resize(fd: int, columns: int) -> None:
    import fcntl
    import struct

    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def test_a_program_that_reads_keys_is_left_alone(terminal: tuple[int, int]) -> None:
    other = terminal[1]
    assert terminal_line._is_ours(other)
    mode = termios.tcgetattr(other)
    mode[3] &= ~termios.ICANON
    termios.tcsetattr(other, termios.TCSANOW, mode)
    assert not terminal_line._is_ours(other)


def test_closing_the_console_erases_it(terminal: tuple[int, int]) -> None:
    main, other = terminal
    with Loop() as loop:
        console = Console(loop, other, False, False)
        line = TerminalLine(loop, console.stderr, other, lambda: LINE)
        line.draw()
        console.close()
        assert read_to(main, b"\r\x1b[K") == b"\r" + LINE.encode() + b"\x1b[K\r\x1b[K"
