"""Demultiplexer of mpirun's streams: which rank printed what, and which rank is which process on which host.

Each rank's first line on stderr is its hello (`rank_wrapper`).  mpirun's streams are tagged only if it matters whose
output it is; a local rank's output does not come through them (`local_streams`), only its hello, if at all.
"""

from __future__ import annotations

from mslaunch.backends.openmpi.tag_parser import TagParser
from mslaunch.datamodel.node_plan import is_service
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from mslaunch.launcher.stdio.output import Output

_KEPT = 1 << 14  # bytes of mpirun's own messages


class RankProcessId(NamedTuple):
    """What a rank has said of itself."""

    pid: int
    host: str


class Demux:
    """Of a job of `size` ranks; `hello` is the first word of the lines by which they identify themselves."""

    def __init__(self, output: Output, size: int, hello: str) -> None:
        self.known: dict[int, RankProcessId] = {}
        self.own = b""  #: the last messages of mpirun itself, and of ranks that cannot be told apart
        self._output = output
        self._hello = hello.encode()
        self._size = size
        self._tags: dict[int, TagParser] = {}
        self._heads: dict[int, bytes] = {}  # first lines of ranks elsewhere, until complete
        self._open: set[tuple[int, int]] = set()  # streams of ranks elsewhere that have begun
        self._raw = b""

    def expect_tags(self, blank: bool) -> None:
        """mpirun tags its streams; `blank`: with a blank after each tag."""
        self._tags = {STDOUT: TagParser(blank), STDERR: TagParser(blank)}

    def on_hello(self, line: bytes) -> int | None:
        """Read HELLO RANK PID HOST; the rank, or None if the line is no hello."""
        words = line.split(b" ", 3)
        if len(words) != 4 or words[0] != self._hello or not (words[1].isdigit() and words[2].isdigit()):
            return None
        rank, pid = int(words[1]), int(words[2])
        if rank >= self._size:
            return None
        if rank not in self.known:
            self.known[rank] = RankProcessId(pid, words[3].decode("utf-8", "replace"))
            self._output.started(rank, pid)
        return rank

    def write(self, kind: int, number: int, data: bytes) -> None:
        """`data` was printed by mpirun, which is rank 0 of its job, or by a service; b"" ends the stream."""
        if is_service(number):
            self._output.write(kind, number, data)
        elif not self._tags:
            self._write_untagged(kind, data)
        else:
            for rank, piece in self._tags[kind].feed(data) if data else self._tags[kind].end():
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
        """All ranks elsewhere and mpirun in one stream, from which hellos are taken out."""
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
