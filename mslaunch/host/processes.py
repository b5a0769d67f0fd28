"""Other processes of this node, as /proc shows them: who descends from whom, and what each was started with.

It knows nothing of ranks or services.  The surprising thing: there are no errors here.  A process may vanish at any
time, or be somebody else's, and then there is nothing to be said of it.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def family(roots: Sequence[int]) -> Iterator[int]:
    """The roots, for it is nearly always one of them; then what they started, parents before children."""
    yield from roots
    children = _children(roots)
    wave = list(roots)
    reached = set(wave)
    while wave:
        wave = [child for pid in wave for child in children.get(pid, ()) if child not in reached]
        reached.update(wave)
        yield from wave


def _children(roots: Sequence[int]) -> dict[int, list[int]]:
    """Parent → children, of all processes.  One whose parent is gone counts as a child of its session's leader.

    proc(5): in /proc/PID/stat the name is in parentheses and may itself hold any of them; state, ppid, pgrp and
    session follow the last one.
    """
    children: dict[int, list[int]] = {}
    leaders = set(roots)
    for number in everybody():
        fields = read(f"/proc/{number}/stat").rpartition(b")")[2].split()
        if len(fields) > 3:
            parent, session = int(fields[1]), int(fields[3])
            for above in {parent, session} if session in leaders else (parent,):
                children.setdefault(above, []).append(number)
    return children


def everybody() -> list[int]:
    """All processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(path: str) -> bytes:
    """A file's bytes; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def strings(pid: int, what: str) -> list[str]:
    """The words of /proc/PID/cmdline or environ."""
    return [os.fsdecode(word) for word in read(f"/proc/{pid}/{what}").split(b"\0")[:-1]]


def link(pid: int, what: str) -> str:
    """Where /proc/PID/WHAT leads to; "" if we may not know."""
    try:
        return os.readlink(f"/proc/{pid}/{what}")
    except OSError:
        return ""
