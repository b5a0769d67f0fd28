"""The size of a terminal, for texts that must fit it."""

from __future__ import annotations

import os


def columns(fd: int, otherwise: int) -> int:
    """The columns of the terminal at this descriptor; `otherwise` if there is none, or if it does not tell."""
    try:
        return os.get_terminal_size(fd).columns or otherwise
    except OSError:
        return otherwise


def lines(fd: int, otherwise: int) -> int:
    """Its lines, as `columns`."""
    try:
        return os.get_terminal_size(fd).lines or otherwise
    except OSError:
        return otherwise
