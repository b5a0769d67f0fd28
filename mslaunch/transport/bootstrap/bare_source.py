"""Our own source without what only its readers need: what travels to hosts of another Python than ours."""

from __future__ import annotations

_QUOTES = '"' * 3
_TYPES = "if TYPE_CHECKING:"


def bare(text: str) -> str:
    """Our own source without comments, docstrings, and what only type checkers see; every line keeps its number.

    It relies on the style of this package: three quotation marks at the beginning of a line begin a docstring,
    elsewhere a text that is needed; a comment behind code follows two blanks; the type of a function's result is the
    end of its line.  A comment that has quotation marks stays, for it may be within a text.  (`ast` would be sure, and
    cost more than it saves; the tests use it.)
    """
    lines = []
    kept = inside = typing = False
    for line in text.split("\n"):
        code = line.lstrip()
        typing = typing and line[:1] in ("", " ")
        if typing or line == _TYPES:
            lines.append("" if typing else _TYPES + ' ""')
            typing = True
            continue
        ends = line.count(_QUOTES) % 2 == 1  # begins or ends a text that has several lines
        if inside:
            lines.append(line if kept else "")
        elif code[-1:] == ":" and ") -> " in line and code[0] in "d)":
            lines.append(line.rpartition(") -> ")[0] + "):")
        elif "  # " in line and code[0] != "#" and not ends:
            before, _, words = line.rpartition("  # ")
            lines.append(line if '"' in words or "'" in words else before)
        else:
            kept = not code.startswith(_QUOTES)
            lines.append((line if code[:1] != "#" else "") if kept else line[: len(line) - len(code)] + '""')
        if not (inside and kept):
            lines[-1] = _narrow(lines[-1])
        inside = inside != ends
    return "\n".join(lines)


def _narrow(line: str) -> str:
    """A line of code that is indented by single blanks, which makes the payload smaller by a thirtieth."""
    depth = (len(line) - len(line.lstrip(" "))) // 4
    return line[3 * depth :]
