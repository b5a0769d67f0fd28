"""Cells that are known to be wrong, and why: CI does not try them, a full run does."""

from __future__ import annotations

from chaos_lib.cells import Cell

#: patterns of cells, `*` for any word -> why
WRONG: dict[str, str] = {
    "both/*/STOP": "nobody is left who could act, until one of them is continued",
    "sshd/starting/STOP": "while an agent starts processes, its lease is 300 s",
    "agent/starting/STOP": "while an agent starts processes, its lease is 300 s",
    "host/starting/cut": "while an agent starts processes, its lease is 300 s",
    "host/starting/cut-to": "while an agent starts processes, its lease is 300 s",
    "host/starting/cut-from": "while an agent starts processes, its lease is 300 s",
    "host/starting/power": "while an agent starts processes, its lease is 300 s",
    "head/connecting/cut": "what waits for the agent's program has no lease yet",
    "head/connecting/cut-to": "what waits for the agent's program has no lease yet",
    "head/connecting/cut20": "what waits for the agent's program has no lease yet",
    "head/starting/*": "while an agent starts processes, its lease is 300 s",
    "both/files/KILL": "the session directory stays",
    "both/files/SEGV": "the session directory stays",
    "local-both/files/KILL": "the session directory stays",
    "local-both/files/SEGV": "the session directory stays",
}


def why(cell: Cell) -> str:
    """Why a cell is wrong; "" if nothing is known against it."""
    for pattern, reason in WRONG.items():
        words = pattern.split("/")
        if all(word in ("*", have) for word, have in zip(words, cell)):
            return reason
    return ""
