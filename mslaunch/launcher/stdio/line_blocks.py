"""Streams of ranks cut into blocks, for --fold: a block is a line without its end, or a traceback of Python.

A traceback is a block up to its last line, which is one of its own: it names the exception, and often differs between
ranks whose tracebacks are alike.  Formats are those of `traceback` of Python 3.8 to 3.13, with causes
(raise … from) and exception groups.  A line is what a terminal would show in the end: what stands before a carriage
return is left out, and so is `[rankN]: `, which torch puts before the tracebacks of rank N.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.stdio.line_prefix import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WORDS = b"Traceback (most recent call last):"
_HEADS = (_WORDS, b"+ Exception Group " + _WORDS)
_CAUSES = (
    b"The above exception was the direct cause of the following exception:",
    b"During handling of the above exception, another exception occurred:",
)
_FRAMES, _GROUP, _WHOLE, _BLANK, _CAUSE = range(5)  # what the last line of a traceback was
_UNFINISHED = 1.0  # seconds that a traceback may take, with all its causes
_SETTLED = 0.05  # seconds after a whole traceback in which its exception may turn out to be the cause of another


class Traceback:
    """The lines of a traceback while they come; `since` is when the first came, `heard` when the last did."""

    def __init__(self, head: bytes, since: float) -> None:
        self.since = self.heard = since
        self.size = len(head)
        self._lines = [head]
        self._whole = 0  # lines up to that of an exception
        self._state = _GROUP if b"+" in head else _FRAMES

    def is_due(self, now: float) -> bool:
        """Whether it has waited long enough for more lines."""
        return now - self.since >= _UNFINISHED or (self._whole > 0 and now - self.heard >= _SETTLED)

    def takes(self, line: bytes) -> bool:
        """Whether `line` belongs to the traceback, which then has it."""
        state, indented = self._state, line[:1] in (b" ", b"\t")
        if state == _FRAMES and line and not indented:
            state = _WHOLE
        elif state in (_WHOLE, _GROUP) and not line:
            state = _BLANK
        elif state == _BLANK and line in _CAUSES:
            state = _CAUSE
        elif state == _CAUSE and line.lstrip() in _HEADS:
            state = _GROUP if b"+" in line else _FRAMES
        elif not (indented and state in (_FRAMES, _GROUP)) and not (state == _CAUSE and not line):
            return False
        self._lines.append(line)
        self.size += len(line)
        if state in (_WHOLE, _GROUP):
            self._whole = len(self._lines)
        self._state = state
        return True

    def blocks(self) -> list[bytes]:
        """All but the last line of the traceback, that line, and lines that came after it."""
        end = self._whole or len(self._lines)
        lines = self._lines
        if lines[end - 1][:1] in (b" ", b"\t") or end == 1:  # the end of a group, or half a traceback
            return [b"\n".join(lines[:end]), *lines[end:]]
        return [b"\n".join(lines[: end - 1]), *lines[end - 1 :]]


class _Stream:
    """What has come of one stream and is not yet a block.

    `partial` is a line without its end: no carriage return but perhaps its last byte, since it overwrites the line.
    """

    __slots__ = ("partial", "traceback")

    def __init__(self) -> None:
        self.partial = bytearray()
        self.traceback: Traceback | None = None

    def add(self, data: bytes) -> None:
        """Add what ends no line, in a time that does not grow with `partial`: a program may write byte by byte."""
        text = data.rstrip(b"\r")
        begin = text.rfind(b"\r") + 1
        if begin or (text and self.partial.endswith(b"\r")):
            self.partial.clear()
        self.partial += text[begin:]
        if len(text) < len(data) and not self.partial.endswith(b"\r"):
            self.partial += b"\r"


class BlockSplitter:
    """Cuts the streams of all ranks into blocks; `now()` is the time in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._open: set[tuple[int, int]] = set()  # streams in the middle of a traceback

    @property
    def waits(self) -> bool:
        """Whether a traceback waits for its end."""
        return bool(self._open)

    def feed(self, kind: int, rank: int, data: bytes) -> list[bytes]:
        """The blocks that `data` completes; b"" ends the stream, for now or for good."""
        stream = self._streams.get((kind, rank))
        if stream is None:
            stream = self._streams[kind, rank] = _Stream()
        if data and b"\n" not in data:
            stream.add(data)
            if len(stream.partial) <= LONGEST:
                return []
            data = b"\n"  # it is cut here
        text = bytes(stream.partial) + data
        lines = text.split(b"\n")
        stream.partial.clear()
        rest = lines.pop()
        if (rest and not data) or len(rest) > LONGEST:
            lines.append(rest)
        else:
            stream.add(rest)
        if b"\r" in text:
            lines = [_last_state(line) for line in lines]
        mark = b"[rank%d]: " % max(rank, 0)
        if b"[" in text and mark in text:  # few lines have a bracket, and one byte is found four times as fast
            lines = [line[len(mark) :] if line.startswith(mark) else line for line in lines]
        if stream.traceback or _WORDS in text:
            lines = self._joined(stream, lines)
        if not data and stream.traceback:
            lines += stream.traceback.blocks()
            stream.traceback = None
        (self._open.add if stream.traceback else self._open.discard)((kind, rank))
        return lines

    def _joined(self, stream: _Stream, lines: Sequence[bytes]) -> list[bytes]:
        """`lines` with those of a traceback as its blocks, once it is whole."""
        blocks: list[bytes] = []
        now = self._now()
        for line in lines:
            if stream.traceback:
                if stream.traceback.size < LONGEST and stream.traceback.takes(line):
                    stream.traceback.heard = now
                    continue
                blocks += stream.traceback.blocks()
                stream.traceback = None
            if line.lstrip() in _HEADS:
                stream.traceback = Traceback(line, now)
            else:
                blocks.append(line)
        return blocks

    def overdue(self) -> list[tuple[int, int, float, list[bytes]]]:
        """Tracebacks that have waited long enough: stream, rank, when each began, its blocks."""
        found = []
        for kind, rank in sorted(self._open, key=lambda key: key[1]):
            stream = self._streams[kind, rank]
            traceback = stream.traceback
            if traceback and traceback.is_due(self._now()):
                found.append((kind, rank, traceback.since, traceback.blocks()))
                stream.traceback = None
                self._open.discard((kind, rank))
        return found

    def unfinished(self) -> list[tuple[int, int]]:
        """The streams (kind, rank) of which something is no block yet."""
        return [key for key, stream in self._streams.items() if stream.partial or stream.traceback]


def _last_state(line: bytes) -> bytes:
    """What a terminal shows of a line that was written again and again: a progress bar."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
