"""Cells that are known to be wrong, and why: CI does not try them, a full run does."""

from __future__ import annotations

from fnmatch import fnmatchcase

from chaos_lib.cells import Cell

#: patterns of cells, `*` for any word -> why
WRONG: dict[str, str] = {
    "both/*/STOP": "nobody is left who could act, until one of them is continued",
    "both/files/KILL": "the session directory stays",
    "both/files/SEGV": "the session directory stays",
    "local-both/files/KILL": "the session directory stays",
    "local-both/files/SEGV": "the session directory stays",
}


def why(cell: Cell) -> str:
    """Why a cell is wrong; "" if nothing is known against it."""
    for pattern, reason in WRONG.items():
        words = pattern.split("/")
        if all(fnmatchcase(have, word) for word, have in zip(words, cell)):
            return reason
    return ""
