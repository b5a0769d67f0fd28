"""Cells that are known to be wrong, and why: CI does not try them, a full run does."""

from __future__ import annotations

from chaos_lib.cells import Cell

#: patterns of cells, `*` for any word -> why
WRONG: dict[str, str] = {
    "guard/*/KILL": "what has left its rank's session stays",
    "guard/*/SEGV": "what has left its rank's session stays",
    "local-guard/*/KILL": "what has left its rank's session stays",
    "local-guard/*/SEGV": "what has left its rank's session stays",
    "both/*/KILL": "nobody is left who could end the ranks",
    "both/*/SEGV": "nobody is left who could end the ranks",
    "local-both/*/KILL": "nobody is left who could end the ranks",
    "local-both/*/SEGV": "nobody is left who could end the ranks",
    "guard/*/TERM": "it is passed over",
    "local-guard/*/TERM": "it is passed over",
    "guard/*/STOP": "it does not see the end",
    "local-guard/*/STOP": "it does not see the end",
    "*/*/STOP": "no sign of life above TCP",
    "*/*/cut": "no sign of life above TCP",
    "*/*/cut-to": "no sign of life above TCP",
    "*/*/cut-from": "no sign of life above TCP",
    "*/*/power": "no sign of life above TCP",
    "guard/*/descriptors": "it cannot look for orphans",
    "local-guard/*/descriptors": "it cannot look for orphans",
    "guard/*/memory": "it cannot look for orphans",
    "local-guard/*/memory": "it cannot look for orphans",
    "agent/*/memory": "a traceback",
    "local-agent/*/memory": "a traceback",
}


def why(cell: Cell) -> str:
    """Why a cell is wrong; "" if nothing is known against it."""
    for pattern, reason in WRONG.items():
        words = pattern.split("/")
        if all(word in ("*", have) for word, have in zip(words, cell)):
            return reason
    return ""
