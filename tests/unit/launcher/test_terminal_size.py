"""The size of a terminal, and what counts where none tells it."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

import pytest

from mslaunch.launcher import terminal_size


@pytest.mark.parametrize(("rows", "columns", "expected"), [(50, 132, (50, 132)), (0, 0, (24, 80)), (0, 132, (24, 132))])
def test_a_terminal_that_does_not_tell_has_the_size_that_is_given(
    rows: int, columns: int, expected: tuple[int, int]
) -> None:
    reader, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    assert (terminal_size.lines(terminal, 24), terminal_size.columns(terminal, 80)) == expected
    os.close(reader)
    os.close(terminal)


def test_what_is_no_terminal_has_the_size_that_is_given() -> None:
    reader, writer = os.pipe()
    assert (terminal_size.lines(writer, 24), terminal_size.columns(writer, 0)) == (24, 0)
    os.close(reader)
    os.close(writer)
    assert terminal_size.columns(writer, 80) == 80, "it is closed"
