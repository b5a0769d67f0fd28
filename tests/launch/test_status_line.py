"""--progress on a real terminal: the line comes and goes, and the output is what it would be without it."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from launching import COMMAND, environment, state_of, through_rsh, wait_until

ONE = ["-n", "1", "--pty", "no"]
RANKS = b"mslaunch: 1/1 rank on 1 host, "
FAILING = ["sh", "-c", "read line < go; exit 3"]
WAITING = ["sh", "-c", "echo one; read line < go; echo two"]
TWO = through_rsh("alpha:4", "beta:4")


class Screen:
    """The side of a terminal that a person looks at."""

    def __init__(self, columns: int = 100) -> None:
        self.main, self.other = os.openpty()
        self.resize(columns)
        self.seen = b""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def expect(self, word: bytes, after: int = 0) -> int:
        """Read until `word` is there behind position `after`; the position behind it."""
        deadline = time.monotonic() + 30
        while (at := self.seen.find(word, after)) < 0:
            assert select.select([self.main], [], [], deadline - time.monotonic())[0], self.seen[after:]
            self.seen += os.read(self.main, 1 << 16)
        return at + len(word)

    def stays(self, seconds: float) -> bool:
        """Whether nothing is written for so long."""
        return not select.select([self.main], [], [], seconds)[0]

    def rest(self) -> bytes:
        """All until nobody has the terminal any more."""
        self.close_other()
        try:
            while select.select([self.main], [], [], 30)[0]:
                self.seen += os.read(self.main, 1 << 16)
        except OSError:  # EIO: the other side is closed
            pass
        return self.seen

    @property
    def output(self) -> bytes:
        """What was written but for lines that were erased: each line is drawn over the one before."""
        return re.sub(rb"(?:\r[^\r\n]*\x1b\[K)*\r\x1b\[K", b"", self.rest()).replace(b"\r\n", b"\n")

    def close_other(self) -> None:
        if self.other >= 0:
            os.close(self.other)
            self.other = -1


@pytest.fixture
def screen():
    made = Screen()
    yield made
    made.close_other()
    os.close(made.main)


@pytest.fixture
def launch(start, screen, tmp_path):
    """Start the command on the screen; ranks go on when `go` is written."""
    os.mkfifo(tmp_path / "go")

    def begin(words, **how):
        return start(words, **{"env": {"TERM": "xterm"}, "stdout": screen.other, "stderr": screen.other, **how})

    return begin


def go(tmp_path) -> None:
    (tmp_path / "go").write_text("on\n")


def test_it_comes_after_two_seconds_and_leaves_nothing(launch, screen, tmp_path):
    began = time.monotonic()
    job = launch([*ONE, *WAITING])
    at = screen.expect(RANKS)
    assert time.monotonic() - began > 2
    assert screen.seen[:5] == b"one\r\n" and b"\x1b[2mmslaunch" in screen.seen
    go(tmp_path)
    screen.expect(b"\r\x1b[Ktwo\r\n", at)
    assert job.end().code == 0
    assert screen.output == b"one\ntwo\n"


def test_a_short_launch_and_no_write_the_same_bytes_as_before(launch, screen, tmp_path):
    assert launch([*ONE, "echo", "one"]).end().code == 0
    job = launch([*ONE, "--progress", "no", *WAITING])
    screen.expect(b"one\r\none\r\n")
    assert screen.stays(3)
    go(tmp_path)
    assert job.end().code == 0
    assert screen.rest() == b"one\r\none\r\ntwo\r\n"


def test_yes_shows_it_at_once_and_a_closing_block_follows_it(launch, screen, tmp_path):
    job = launch(["--progress", "yes", "--fold", *TWO, "--map-by", "node", "-n", "2", "--pty", "no", *FAILING])
    screen.expect(b"mslaunch: 2/2 ranks on 2 hosts, ")
    go(tmp_path)
    assert job.end().code == 3
    assert re.match(rb"(\x1b\[[0-9;]*m)*mslaunch:.* ended with exit code 3", screen.output)


def test_a_refused_launch_leaves_no_line(launch, screen):
    assert launch(["--progress", "yes", *ONE, "/nonexistent/program"]).end().code
    assert b" on 1 host, " not in screen.output and b"/nonexistent/program" in screen.seen


def test_standard_output_in_a_pipe(launch, screen, tmp_path):
    job = launch([*ONE, *WAITING], stdout=subprocess.PIPE)
    at = screen.expect(RANKS)
    go(tmp_path)
    ended = job.end()
    assert (ended.code, ended.out) == (0, b"one\ntwo\n")
    screen.expect(b"\r\x1b[K", at)
    assert screen.output == b""


def test_beside_tee_the_line_is_erased_before_the_pipe_gets_something(launch, screen, tmp_path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=screen.other) as tee:
        job = launch([*ONE, *WAITING], stdout=tee.stdin)
        tee.stdin.close()
        at = screen.expect(RANKS)
        go(tmp_path)
        assert job.end().code == 0
        screen.expect(b"\r\x1b[Ktwo\r\n", at)
    assert screen.output == b"one\ntwo\n"


def test_the_terminal_becomes_narrow(launch, screen, tmp_path):
    job = launch(["--progress", "yes", *ONE, *WAITING])
    at = screen.expect(RANKS)
    screen.resize(15)
    screen.expect(b"mslaunch: 1/1 \x1b[0m\x1b[K", at)
    go(tmp_path)
    assert job.end().code == 0


def test_output_without_a_newline_is_left_alone(launch, screen, tmp_path):
    job = launch(["--progress", "yes", *ONE, "sh", "-c", "printf 'Name: '; read line < go; echo $line"])
    screen.expect(b"Name: ")
    assert screen.stays(2.5)
    go(tmp_path)
    assert job.end().code == 0
    assert screen.output == b"Name: on\n"


def test_a_program_with_the_whole_screen_is_left_alone(launch, screen, tmp_path):
    job = launch(["--progress", "yes", *ONE, "sh", "-c", r"printf '\033[2J\033[Htop\n'; read line < go"])
    screen.expect(b"top\r\n")
    assert screen.stays(2.5)
    go(tmp_path)
    assert job.end().code == 0


def test_suspended_it_is_gone_and_it_comes_again(launch, screen, tmp_path):
    job = launch(["--progress", "yes", *ONE, *WAITING])
    screen.expect(b"one\r\n")
    screen.expect(RANKS)
    job.send(signal.SIGTSTP)
    wait_until(lambda: state_of(job.pid) == "T")
    while not screen.seen.endswith(b"\r\x1b[K"):  # the kernel hands it over when it comes to it
        assert not screen.stays(30), screen.seen
        screen.seen += os.read(screen.main, 1 << 16)
    assert screen.stays(0)
    at = len(screen.seen)
    job.send(signal.SIGCONT)
    screen.expect(RANKS, at)
    go(tmp_path)
    assert job.end().code == 0
    assert screen.output == b"one\ntwo\n"


def test_in_the_background_there_is_none(screen, tmp_path):
    """A shell with job control starts it by `&` on its own terminal, whose foreground is the shell."""
    os.mkfifo(tmp_path / "go")
    line = " ".join([*COMMAND, "--progress yes -n 1 --pty no sh -c 'echo one; read line < go; echo two' & wait"])
    with subprocess.Popen(
        ["setsid", "--wait", "--ctty", "bash", "-mc", line], stdin=screen.other, stdout=screen.other,
        stderr=screen.other, cwd=tmp_path, env=environment(TERM="xterm"),
    ) as shell:  # fmt: skip
        screen.expect(b"one\r\n")
        assert screen.stays(2.5)
        go(tmp_path)
        assert shell.wait(30) == 0
    assert screen.rest().startswith(b"one\r\ntwo\r\n") and b"\x1b[K" not in screen.seen


def test_where_there_is_none(launch, screen, tmp_path):
    for words, more in ((["--quiet"], {}), ([], {"env": {"TERM": "dumb"}}), (["--xml"], {})):
        before = len(screen.seen)
        job = launch([*words, *ONE, *WAITING], **more)
        screen.expect(b"one", before)
        screen.stays(3)
        go(tmp_path)
        assert job.end().code == 0
    assert b"rank on" not in screen.rest() and b"\x1b[K" not in screen.seen


@pytest.mark.parametrize("more", [[], ["--quiet"]])
def test_plain_lines_have_no_control_codes(start, tmp_path, more):
    """--quiet does not silence what was asked for."""
    os.mkfifo(tmp_path / "go")
    job = start([*more, "--progress", "plain", *ONE, *WAITING])
    said = job.expect_error(b"\n")
    go(tmp_path)
    ended = job.end()
    assert re.fullmatch(rb"mslaunch: 1/1 rank on 1 host, 0:1\d, \d+ B/s\n", said), said
    assert (ended.code, ended.out) == (0, b"one\ntwo\n")
