"""The launcher's own streams: pipes, files, sockets, and readers that go away."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mslaunch.launcher.stdio.terminal import Console, OutputFd
from mslaunch.runtime.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


def blocking(fd: int) -> bool:
    return not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK


def test_a_pipe_stays_blocking(loop: Loop) -> None:
    """O_NONBLOCK would be seen by everyone who shares the descriptor: the shell, the ranks of a caller."""
    reader, writer = os.pipe()
    terminal = OutputFd(loop, writer, "standard output", pytest.fail)
    terminal.send(b"x" * (1 << 20))
    assert terminal.pending > 0
    assert blocking(writer) and blocking(reader)
    received = 0

    def read() -> None:
        nonlocal received
        received += len(os.read(reader, 1 << 16))

    loop.reader(reader, read)
    loop.run(lambda: not terminal.pending and received == 1 << 20)
    loop.reader(reader, None)
    terminal.close()
    terminal.close()
    os.write(writer, b"still open")
    assert os.read(reader, 99) == b"still open"
    os.close(reader)
    os.close(writer)


def test_a_closed_reader_is_reported_once(loop: Loop) -> None:
    reader, writer = os.pipe()
    notices: list[str] = []
    terminal = OutputFd(loop, writer, "standard output", notices.append)
    os.close(reader)
    for _ in range(3):
        terminal.send(b"x")
        loop.run(lambda: bool(notices))
    assert notices == ["the reader of standard output is gone; further output of ranks is dropped"]
    assert not terminal.failed and terminal.pending == 0
    terminal.close()
    os.close(writer)


def test_a_reader_that_closed_earlier_is_reported_once(loop: Loop) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    notices: list[str] = []
    terminal = OutputFd(loop, writer, "standard output", notices.append)
    for _ in range(2):
        terminal.send(b"x")
        loop.run(lambda: bool(notices))
    assert len(notices) == 1 and "is gone" in notices[0] and not terminal.failed
    os.close(writer)


def test_a_reader_that_closes_resumes_the_writers(loop: Loop) -> None:
    """Agents paused because of `pending` must be resumed, or the launch hangs forever."""
    reader, writer = os.pipe()
    gone: list[str] = []
    heard: list[int] = []
    terminal = OutputFd(loop, writer, "standard output", gone.append)
    terminal.progress = lambda: heard.append(terminal.pending)
    terminal.send(b"x" * (1 << 21))
    assert heard[-1] > 1 << 20
    os.close(reader)
    loop.run(lambda: bool(gone))
    assert heard[-1] == 0
    terminal.close()
    os.close(writer)


def test_a_full_disk_is_reported(loop: Loop) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    notices: list[str] = []
    terminal = OutputFd(loop, fd, "standard output", notices.append)
    terminal.send(b"x")
    terminal.send(b"x")
    assert notices == ["standard output: No space left on device; further output is lost"]
    assert terminal.failed
    os.close(fd)


def test_a_file_is_written_at_once(loop: Loop, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    terminal = OutputFd(loop, fd, "standard output", pytest.fail)
    terminal.send(b"a" * 100000)
    terminal.send(b"b")
    assert terminal.pending == 0
    terminal.close()
    assert (tmp_path / "out").read_bytes() == b"a" * 100000 + b"b"
    os.close(fd)


def test_a_closed_stream_is_ignored(loop: Loop) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    terminal = OutputFd(loop, writer, "standard output", pytest.fail)
    terminal.send(b"x")
    assert terminal.pending == 0 and not terminal.failed
    terminal.close()


def test_a_nonblocking_socket_loses_nothing(loop: Loop) -> None:
    """Children of programs with an event loop may have such a standard output."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        notices: list[str] = []
        received = bytearray()
        terminal = OutputFd(loop, ours.fileno(), "standard output", notices.append)
        loop.reader(theirs.fileno(), lambda: received.extend(theirs.recv(1 << 16)))
        terminal.send(b"x" * (1 << 22))
        loop.run(lambda: len(received) == 1 << 22 or bool(notices))
        assert notices == []
        loop.reader(theirs.fileno(), None)
        terminal.close()


def test_a_terminal_stays_blocking(loop: Loop) -> None:
    controller, terminal_fd = os.openpty()
    terminal = OutputFd(loop, terminal_fd, "standard error", pytest.fail)
    terminal.send(b"hello")
    loop.run(lambda: not terminal.pending)
    assert os.read(controller, 99) == b"hello"
    assert blocking(terminal_fd)
    terminal.close()
    os.close(terminal_fd)
    os.close(controller)


def test_a_slow_reader_is_given_up(loop: Loop, tmp_path: Path) -> None:
    """Output for an unread pipe is dropped, but a file gets all of it."""
    reader, writer = os.pipe()
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    for fd in (writer, file):
        terminal = OutputFd(loop, fd, "standard output", pytest.fail)
        terminal.send(b"x" * (1 << 20))
        terminal.drop()
        assert terminal.pending == 0
        terminal.send(b"y")  # a reader that resumes gets it
        terminal.close()
    assert os.fstat(file).st_size == (1 << 20) + 1
    for fd in (reader, writer, file):
        os.close(fd)


def test_a_message_begins_a_line_of_its_own(loop: Loop, tmp_path: Path) -> None:
    """Whatever ranks have printed."""
    with open(tmp_path / "said", "wb") as file:
        console = Console(loop, file.fileno(), quiet=False, verbose=False)
        console.info("one")
        console.stderr.send(b"of a rank")
        console.stderr.send(b"")
        console.info("two")
        console.stderr.send(b"whole\n")
        console.info("three")
        console.close()
    said = (tmp_path / "said").read_bytes()
    assert said == b"mslaunch: one\nof a rank\nmslaunch: two\nwhole\nmslaunch: three\n"


@pytest.mark.parametrize("again", [False, True])
def test_a_message_begins_a_line_of_its_own_in_a_file_of_both_streams(loop: Loop, tmp_path: Path, again: bool) -> None:
    """`> log 2>&1`, as of a batch job or a detached one; or `>> log 2>> log`, which opens it again."""
    with open(tmp_path / "log", "ab") as stdout, open(tmp_path / "log", "ab") as other:
        console = Console(loop, (other if again else stdout).fileno(), quiet=False, verbose=False)
        console.open_stdout(stdout.fileno()).send(b"50 % of a rank")
        console.info("one")
        console.info("two")
        console.close()
    assert (tmp_path / "log").read_bytes() == b"50 % of a rank\nmslaunch: one\nmslaunch: two\n"


def test_a_message_on_standard_error_leaves_another_file_alone(loop: Loop, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as stdout, open(tmp_path / "err", "wb") as stderr:
        console = Console(loop, stderr.fileno(), quiet=False, verbose=False)
        console.open_stdout(stdout.fileno()).send(b"50 % of a rank")
        console.info("one")
        console.close()
    assert (tmp_path / "out").read_bytes() == b"50 % of a rank"
    assert (tmp_path / "err").read_bytes() == b"mslaunch: one\n"


def test_a_message_after_an_unfinished_line_keeps_its_colours(loop: Loop, tmp_path: Path) -> None:
    """Those of its kind are for its first line, which the line end in front of it is not."""
    with open(tmp_path / "said", "wb") as file:
        console = Console(loop, file.fileno(), quiet=False, verbose=False, paint=lambda kind, text: f"<{kind}>{text}")
        console.stderr.send(b"50 % of a rank")
        console.print("mslaunch: one\n", "failure")
        console.close()
    assert (tmp_path / "said").read_bytes() == b"50 % of a rank\n<failure>mslaunch: one\n"


def test_further_lines_of_a_message_stand_behind_its_first(loop: Loop) -> None:
    """A host may have said them."""
    reader, writer = os.pipe()
    console = Console(loop, writer, quiet=False, verbose=True)
    console.info("n01: it failed\nmslaunch: all is well\n  as was said")
    console.verbose("agent\nmslaunch: all is well")
    console.close()
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        said = file.read()
    first = "mslaunch: n01: it failed\n  | mslaunch: all is well\n  as was said\n"
    assert said == first + "mslaunch: agent\n  | mslaunch: all is well\n"
