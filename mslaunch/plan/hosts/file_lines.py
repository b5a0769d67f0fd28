"""The lines of a hostfile or rankfile that are not empty, with their numbers and without comments.

Comments are those of Open MPI 4.1's mpirun (found by experiment): `#`, `//` and `/* */`, next to a word or not.  A
comment of several lines does not end the line that it begins on: `aa /*` and `*/ slots=2` on the next are one line,
with the number of the first.
"""

from __future__ import annotations

from mslaunch.errors import HostfileError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def lines_of(text: str, name: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty.  Raises HostfileError for a comment that never ends and for what is not text."""
    nul = text.find("\0")
    if nul >= 0:
        where = f"{name}:{text.count(chr(10), 0, nul) + 1}"
        raise HostfileError("this is no text file: it holds a NUL character", where, "name a file of lines")
    if text[:1] == "\ufeff":
        text = text[1:]
    elif text[:3] == "ï»¿":  # the same mark, read as Latin-1
        text = text[3:]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    begun = opened = 0  # first line of the entry, line of the open /*
    parts: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not parts:
            begun = number
        plain, is_open = _uncomment(line, bool(opened))
        opened = (opened or number) if is_open else 0
        parts.append(plain)
        if not opened:
            entry = " ".join(parts)
            parts = []
            if entry and not entry.isspace():
                yield begun, entry
    if opened:
        raise HostfileError("the comment that begins here never ends", f"{name}:{opened}", "end it with */")


def _uncomment(line: str, inside: bool) -> tuple[str, bool]:
    """The line without its comments, and whether a `/*` is open at its end; `inside`: one was at its beginning."""
    if not inside and "#" not in line and "/" not in line:
        return line, False
    parts: list[str] = []
    at, mark = 0, line.find("#")
    while True:
        if inside:
            end = line.find("*/", at)
            if end < 0:
                return " ".join(parts), True
            at = end + 2
        if 0 <= mark < at:
            mark = line.find("#", at)
        slash = line.find("/", at)
        while slash >= 0 and line[slash + 1 : slash + 2] not in ("/", "*"):
            slash = line.find("/", slash + 1)
        if slash < 0 or 0 <= mark < slash:
            parts.append(line[at:mark] if mark >= 0 else line[at:])
            return " ".join(parts), False
        parts.append(line[at:slash])
        if line[slash + 1] == "/":
            return " ".join(parts), False
        at = slash + 2
        inside = True
