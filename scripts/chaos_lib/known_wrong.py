"""Cells that are known to be wrong, and why: CI does not try them, a full run does."""

from __future__ import annotations

from fnmatch import fnmatchcase

from chaos_lib.cells import Cell

#: patterns of cells, `*` for any word -> why
WRONG: dict[str, str] = {
    "both/connecting/STOP": "who is stopped before its agent has spoken is not known to the launcher",
}


def why(cell: Cell) -> str:
    """Why a cell is wrong; "" if nothing is known against it."""
    for pattern, reason in WRONG.items():
        words = pattern.split("/")
        if all(fnmatchcase(have, word) for word, have in zip(words, cell)):
            return reason
    return ""
