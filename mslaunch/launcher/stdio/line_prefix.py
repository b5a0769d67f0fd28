"""Output cut into lines, and the prefix of each line: tags and time stamps.

As observed of Open MPI 4.1.4 (`[1,0]<stdout>:text`), 5.0.11 (`[1,0]<stdout>: text`) and hydra 5.0.2 (`[0] text`).  A
line is shown when it has ended; 4.1.4 writes a tag for each piece of a line as it comes.
"""

from __future__ import annotations

import os
import time

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.stdio import file_patterns
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.request import OutputPolicy
    from mslaunch.launcher.stdio.file_patterns import PatternValues

#: bytes; of a longer line pieces are shown, each as an unfinished line
LONGEST = 1 << 16
STREAMS = {STDOUT: "stdout", STDERR: "stderr"}

#: (style, tag) -> pattern; beside `file_patterns.LETTERS`: %s the stream, %i the process id, %n the name of the job,
#: which ends with the number of the world
_TAGS = {
    ("4.1", ""): "<%s>:",
    ("4.1", "tag"): "[%w,%r]<%s>:",
    ("4.1", "rank"): "[%r] ",
    ("5.0", ""): "<%s>: ",
    ("5.0", "tag"): "[%w,%r]<%s>: ",
    ("5.0", "rank"): "[%r]<%s>: ",
    ("5.0", "detailed"): "[%w,%r][%h:%i]<%s>: ",
    ("5.0", "fullname"): "[%n,%r]<%s>: ",
    ("5.0", "detailed-fullname"): "[%n,%r][%h:%i]<%s>: ",
}


class LineSplitter:
    """Cuts streams into lines; `transform(kind, rank, lines)` changes them; the last may be unfinished."""

    def __init__(self, transform: Callable[[int, int, bytes], bytes]) -> None:
        self._transform = transform
        self._partial: dict[tuple[int, int], bytes] = {}

    def feed(self, kind: int, rank: int, data: bytes) -> bytes:
        """The transformed lines that `data` completes; b"" ends the stream, for now or for good."""
        text = self._partial.pop((kind, rank), b"") + data
        end = text.rfind(b"\n") + 1 if data else len(text)
        if len(text) - end > LONGEST:
            end = len(text)
        if end < len(text):
            self._partial[kind, rank] = text[end:]
        return self._transform(kind, rank, text[:end]) if end else b""

    def unfinished(self) -> list[tuple[int, int]]:
        """The streams (kind, rank) whose last line has not ended."""
        return list(self._partial)


class LineGuard:
    """For a sink of several streams: ends the unfinished line of one before a line of another."""

    def __init__(self) -> None:
        self._unfinished: tuple[int, int] | None = None

    def join(self, kind: int, rank: int, data: bytes) -> bytes:
        """`data`, after a line end if need be."""
        torn = self._unfinished not in (None, (kind, rank))
        self._unfinished = None if data.endswith(b"\n") else (kind, rank)
        return b"\n" + data if torn else data


class Prefix:
    """The prefix of the lines of each stream."""

    def __init__(self, policy: OutputPolicy, places: PatternValues) -> None:
        self._places = places
        self._style = policy.style
        self._timestamp = policy.timestamp
        self._pattern = _TAGS.get((policy.style, policy.tag)) or _TAGS["5.0", policy.tag]
        if policy.prepend is not None:
            if policy.streams is None:  # else it is ours
                file_patterns.check(policy.prepend, "-prepend-pattern")
            self._pattern = policy.prepend
        self._pids: dict[int, int] = {}
        self._made: dict[tuple[int, int], bytes] = {}

    def started(self, rank: int, pid: int) -> None:
        """Note the process id of a rank, which the detailed tags show."""
        self._pids[rank] = pid
        for kind in STREAMS:
            self._made.pop((kind, rank), None)

    def format(self, kind: int, rank: int, lines: bytes) -> bytes:
        """`lines` with the prefix before each."""
        prefix = self._made.get((kind, rank)) or self._make(kind, rank)
        if self._timestamp:
            stamp = time.ctime()  # as C's ctime(3): `Sat Nov 21 00:27:04 2026`
            prefix = (f"[{stamp}]" if self._style == "5.0" else stamp).encode() + prefix
        ended = lines.endswith(b"\n")
        body = lines[:-1] if ended else lines
        return b"".join((prefix, body.replace(b"\n", b"\n" + prefix), b"\n" if ended else b""))

    def _make(self, kind: int, rank: int) -> bytes:
        values = self._places.of(rank)
        values.update(s=STREAMS[kind], i=str(self._pids.get(rank, "unknown")))
        values["n"] = f"mslaunch-{os.uname().nodename}-{os.getpid()}@{values['w']}"
        made = self._made[kind, rank] = file_patterns.fill(self._pattern, values).encode("utf-8", "surrogateescape")
        return made
