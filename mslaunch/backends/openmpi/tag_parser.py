"""Takes mpirun's tags off again: which bytes of its stdout or stderr are which rank's.

4.1 puts a tag before each piece of a line as it comes, 5.0 before each line.  What follows the end of a line without a
tag is a message of mpirun's.  A program that prints a tag in the middle of a line is believed.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 64  # bytes; no tag is longer
_FRAME = b"-" * 74 + b"\n"  # how mpirun's messages begin


class TagParser:
    """For one stream.  `blank`: a blank follows each tag (5.0)."""

    def __init__(self, blank: bool) -> None:
        import re

        end = rb" " if blank else rb""
        self._tag = re.compile(rb"\[(\d{1,9}),(\d{1,9})\]<std(?:out|err|diag)>:" + end)
        self._begun = re.compile(rb"\[(?:\d{1,9}(?:,(?:\d{1,9}(?:\](?:<[a-z]{0,7}(?:>:?)?)?)?)?)?)?$")
        self._rank: int | None = None
        self._fresh = False  # a tag has been taken off, and nothing has followed yet
        self._left = b""

    def feed(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """The bytes of each rank, in order; None: mpirun's own, or those of a job that a rank has spawned."""
        data, self._left = self._left + data, b""
        begun = self._begun.search(data, max(0, len(data) - _LONGEST))
        if begun:
            data, self._left = data[: begun.start()], data[begun.start() :]
        yield from self._cut(data)

    def end(self) -> Iterator[tuple[int | None, bytes]]:
        """Nothing more will come."""
        data, self._left = self._left, b""
        yield from self._cut(data)

    def _cut(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        at = 0
        while at < len(data):
            found = self._tag.search(data, at)
            if found and found.start() == at and not self._fresh:
                job, rank = map(int, found.groups())
                self._rank = rank if job == 1 else None
                self._fresh = True
                at = found.end()
                continue
            stop = data.find(b"\n", at) + 1 or len(data)
            if found and at < found.start() < stop:
                stop = found.start()
            else:
                stop -= self._message_start(data[at:stop])
            if data[at:stop] == _FRAME and not self._fresh:
                self._rank = None
            yield self._rank, data[at:stop]
            self._fresh = False
            if data[stop - 1 : stop] == b"\n" or data[stop : stop + len(_FRAME)] == _FRAME:
                self._rank = None
            at = stop

    def _message_start(self, line: bytes) -> int:
        """How many bytes at the end of a rank's line begin a message of mpirun's, put behind an unfinished line."""
        if self._rank is None or not line.endswith(_FRAME) or line[-len(_FRAME) - 1 : -len(_FRAME)] in (b"", b"-"):
            return 0
        return len(_FRAME)
