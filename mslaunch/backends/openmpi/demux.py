"""Demultiplexer of mpirun's two streams: takes the tags off and finds which rank printed what, and where it runs.

Each rank's first line on stderr is its hello (`rank_wrapper`).  mpirun is asked for tags only if it matters whose
output it is.  A local rank's output does not come through mpirun (`local_streams`); its hello may.

4.1 puts a tag before each piece of a line as it comes, 5.0 before each line.  What follows the end of a line without a
tag is a message of mpirun's.  A tag that a program prints in the middle of a line is taken for mpirun's.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.datamodel.outcome import RankStatus
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mslaunch.launcher.stdio.output import Output

_KEPT = 1 << 14  # bytes of mpirun's own messages
_LONGEST = 64  # bytes; no tag is longer
_FRAME = b"-" * 74 + b"\n"  # how mpirun's messages begin


class Demux:
    """Sorts the output of `size` ranks.  Each identifies itself by a line whose first word is `hello`.

    `style` is the style of mpirun's tags, "4.1" or "5.0"; "" means that mpirun writes none.
    """

    def __init__(self, output: Output, size: int, hello: str, style: str) -> None:
        self.known: dict[int, RankStatus] = {}  #: the ranks that have identified themselves
        self.own = b""  #: the last messages of mpirun itself, and of ranks that cannot be told apart
        self._output = output
        self._hello = hello.encode()
        self._size = size
        self._tags = {kind: TagParser(style == "5.0") for kind in (STDOUT, STDERR) if style}
        self._heads: dict[int, bytes] = {}  # incomplete first lines of ranks on other hosts
        self._open: set[tuple[int, int]] = set()  # streams of ranks on other hosts that have begun
        self._raw = b""

    def on_hello(self, line: bytes) -> int | None:
        """Read HELLO RANK PID HOST.  Returns the rank, or None if the line is something else."""
        words = line.split(b" ", 3)
        if len(words) != 4 or words[0] != self._hello or not (words[1].isdigit() and words[2].isdigit()):
            return None
        rank, pid = int(words[1]), int(words[2])
        if rank >= self._size:
            return None
        if rank not in self.known:
            self.known[rank] = RankStatus(rank, words[3].decode("utf-8", "replace"), pid)
            self._output.started(rank, pid)
        return rank

    def write(self, kind: int, number: int, data: bytes) -> None:
        """`data` was printed by mpirun, which is rank 0 of its job, or by a service; b"" ends the stream."""
        if is_service(number):
            self._output.write(kind, number, data)
        elif not self._tags:
            self._write_untagged(kind, data)
        else:
            for rank, piece in self._tags[kind].feed(data):
                self._write_piece(kind, rank, piece)
            for stream in [] if data else [stream for stream in self._open if stream[0] == kind]:
                self._output.write(*stream, b"")

    def _write_piece(self, kind: int, rank: int | None, data: bytes) -> None:
        if rank is None or rank >= self._size:
            self._write_own(kind, data)
            return
        if kind == STDERR and rank not in self.known:
            head = self._heads.pop(rank, b"") + data
            line, end, data = head.partition(b"\n")
            if not end:
                self._heads[rank] = head
                return
            if self.on_hello(line) is None:
                data = head
        if data:
            self._open.add((kind, rank))
            self._output.write(kind, rank, data)

    def _write_untagged(self, kind: int, data: bytes) -> None:
        """One stream carries all ranks on other hosts and mpirun itself: remove the hellos, pass the rest on."""
        if kind == STDERR:
            ended, data, self._raw = not data, self._raw + data, b""
            while self._hello in data:
                before, _, rest = data.partition(self._hello)
                line, end, after = rest.partition(b"\n")
                if not end and not ended:
                    self._raw = data
                    return
                self.on_hello(self._hello + line)
                data = before + after
        if data:
            self._write_own(kind, data)

    def _write_own(self, kind: int, data: bytes) -> None:
        self.own = (self.own + data)[-_KEPT:]
        self._output.write_unsorted(kind, data)


class TagParser:
    """Removes the tags of one stream.  `blank`: a blank follows each tag (5.0)."""

    def __init__(self, blank: bool) -> None:
        import re

        end = rb" " if blank else rb""
        self._tag = re.compile(rb"\[(\d{1,9}),(\d{1,9})\]<std(?:out|err|diag)>:" + end)
        self._begun = re.compile(rb"\[(?:\d{1,9}(?:,(?:\d{1,9}(?:\](?:<[a-z]{0,7}(?:>:?)?)?)?)?)?)?$")
        self._rank: int | None = None
        self._fresh = False  # a tag was removed, and nothing has followed it yet
        self._left = b""

    def feed(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """The bytes of each rank, in order; None stands for mpirun itself and for jobs that a rank has spawned.

        b"" ends the stream.
        """
        text = self._left + data
        begun = self._begun.search(text, max(0, len(text) - _LONGEST)) if data else None
        end = begun.start() if begun else len(text)
        self._left = text[end:]
        yield from self._cut(text[:end])

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
        """How many bytes at the end of a rank's unfinished line belong to a message that mpirun wrote behind it."""
        if self._rank is None or not line.endswith(_FRAME) or line[-len(_FRAME) - 1 : -len(_FRAME)] in (b"", b"-"):
            return 0
        return len(_FRAME)
