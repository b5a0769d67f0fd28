"""The desk of a job that mpirun runs: its output sorted by rank, as if the ranks were ours.

What local ranks print comes from `nearby`, what others print out of mpirun's own streams, tagged where somebody wants
to know whose it is.  It also hears who has started: each rank's first line says so.  The surprising thing is whom it
belongs to: it is an `Output`, so logs, tags and XML are those of any launch.
"""

from __future__ import annotations

import os

from mslaunch.backends.openmpi.tag_parser import TagParser
from mslaunch.datamodel.node_plan import SERVICE
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.output import Output
from mslaunch.launcher.stdio.terminal import OutputFd
from mslaunch.protocol.frames import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.backends.openmpi.local_streams import LocalStreams
    from mslaunch.launcher.stdio.console import Console
    from mslaunch.runtime.loop import Loop

_KEPT = 1 << 14  # of mpirun's own last words


class Known(NamedTuple):
    """What a rank has said of itself."""

    pid: int
    host: str


class MpirunOutput(Output):
    """Where all bytes go; `hello` is the word before what a rank says of itself, `size` the number of ranks."""

    nearby: LocalStreams

    def __init__(
        self,
        policy: OutputPolicy,
        size: int,
        hello: str,
        terminals: dict[int, OutputFd],
        notice: Callable[[str], None],
        xml_file: OutputFd | None = None,
    ) -> None:
        super().__init__(policy, PatternValues([(os.uname().nodename, 0)] * size), terminals, notice, xml_file)
        self.known: dict[int, Known] = {}
        self.own = b""
        self._hello = hello.encode()
        self._size = size
        self._stderr = terminals[STDERR]
        self._untag: dict[int, TagParser] = {}
        self._heads: dict[int, bytes] = {}  # of ranks elsewhere, until their first line is complete
        self._spoken: dict[tuple[int, int], None] = {}  # streams of ranks that came through mpirun
        self._raw = b""

    @property
    def sorts(self) -> bool:
        """Whether it matters which rank printed what."""
        return bool(self.logs or self._lines)

    def expect_tags(self, blank: bool) -> None:
        """What comes from mpirun is tagged."""
        self._untag = {STDOUT: TagParser(blank), STDERR: TagParser(blank)}

    # --- who

    def introduced(self, line: bytes) -> int | None:
        """Read what a rank says of itself: HELLO RANK PID HOST; its rank, or None if that makes no sense."""
        words = line.split(b" ", 3)
        if len(words) != 4 or words[0] != self._hello or not (words[1].isdigit() and words[2].isdigit()):
            return None
        rank = int(words[1])
        if rank >= self._size:
            return None
        told = rank in self.known
        self.known[rank] = Known(int(words[2]), words[3].decode("utf-8", "replace"))
        if not told:
            super().started(rank, int(words[2]))
        return rank

    def started(self, rank: int, pid: int) -> None:
        """See `Output`; here it is mpirun that runs, or the scheduler."""
        if rank == SERVICE:
            super().started(rank, pid)

    # --- what

    def near(self, kind: int, rank: int, data: bytes) -> None:
        """A local rank printed; b"" is its end."""
        super().write(kind, rank, data)
        self.nearby.hold(self.pending)

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """See `Output`; here `rank` 0 is mpirun."""
        if rank == SERVICE:
            super().write(kind, rank, data)
        elif not self._untag:
            self._plain(kind, data)
        else:
            pieces = self._untag[kind].feed(data) if data else self._untag[kind].end()
            for whose, piece in pieces:
                self._piece(kind, whose, piece)
            if not data:
                for stream in [stream for stream in self._spoken if stream[0] == kind]:
                    super().write(*stream, b"")

    def _piece(self, kind: int, rank: int | None, data: bytes) -> None:
        if rank is None or rank >= self._size:
            self._of_mpirun(kind, data)
            return
        if kind == STDERR and rank not in self.known:
            head = self._heads.pop(rank, b"") + data
            line, end, data = head.partition(b"\n")
            if not end:
                self._heads[rank] = head
                return
            if self.introduced(line) is None:
                data = head
        if data:
            self._spoken[kind, rank] = None
            super().write(kind, rank, data)

    def _plain(self, kind: int, data: bytes) -> None:
        """All ranks elsewhere and mpirun in one stream; what ranks say of themselves is taken out."""
        if kind == STDERR:
            ended, data, self._raw = not data, self._raw + data, b""
            while self._hello in data:
                before, _, rest = data.partition(self._hello)
                line, end, after = rest.partition(b"\n")
                if not end and not ended:
                    self._raw = data
                    return
                self.introduced(self._hello + line)
                data = before + after
        if data:
            self._of_mpirun(kind, data)

    def _of_mpirun(self, kind: int, data: bytes) -> None:
        """Words of mpirun: among the ranks', unless its lines are no ranks' and a document or tags are expected."""
        self.own = (self.own + data)[-_KEPT:]
        if kind == STDOUT and not self._lines:
            self._terminals[STDOUT].send(data)
        else:
            self._stderr.send(data)

    # --- slow readers

    def on_progress(self, written: Callable[[], None]) -> None:
        """See `Output`; local ranks go on as well."""

        def both() -> None:
            self.nearby.hold(self.pending)
            written()

        super().on_progress(both)


def open_desk(policy: OutputPolicy, size: int, hello: str, loop: Loop, stdout: int, console: Console) -> MpirunOutput:
    """Make directories, files and terminals.  Raises `LaunchError`; nothing was started then."""
    opened: list[Any] = [OutputFd(loop, stdout, "standard output", console.info)]
    try:
        if policy.xml_file is not None:
            from mslaunch.launcher.stdio.file_rotation import File, create

            fd = create(File(policy.xml_file, os.path.dirname(policy.xml_file), "--xml-file"))
            opened.append(OutputFd(loop, fd, policy.xml_file, console.info, owned=True))
        return MpirunOutput(policy, size, hello, {STDOUT: opened[0], STDERR: console.stderr}, console.info, *opened[1:])
    except LaunchError:
        for terminal in opened:
            terminal.close()
        raise
