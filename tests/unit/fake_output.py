"""The launcher's output on two fake terminals, for tests of launcher/stdio."""

from __future__ import annotations

from pathlib import Path

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.output import Output
from mslaunch.launcher.stdio.terminal import OutputFd
from mslaunch.protocol.frames import STDERR, STDOUT


class FakeOutput(OutputFd):
    """A terminal that keeps what was written."""

    def __init__(self) -> None:
        self.seen = b""
        self.failed = False
        self.closed = False

    @property
    def pending(self) -> int:
        return 0

    def send(self, data: bytes) -> None:
        self.seen += data

    def drop(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def rows_of(ranks: int) -> list[tuple[str, int]]:
    """Ranks in turn on two hosts."""
    return [(("alpha", "beta")[rank % 2], rank % 2) for rank in range(ranks)]


def places_of(ranks: int) -> PatternValues:
    """The same as values for file patterns."""
    return PatternValues(rows_of(ranks))


def jobmap_of(ranks: int) -> JobMap:
    """The same as a map."""
    nodes = (Node("alpha", 4, "hosts:1"), Node("beta", 4, "hosts:2", max_slots=8))
    placements = tuple(Placement(rank, 0, node, rank // 2) for rank, (_, node) in enumerate(rows_of(ranks)))
    return JobMap(nodes, placements, 8)


class OutputLab:
    """The output on two fake terminals."""

    def __init__(self, policy: OutputPolicy, ranks: int = 1) -> None:
        self.notices: list[str] = []
        self.terminals = {STDOUT: FakeOutput(), STDERR: FakeOutput()}
        self.output = Output(policy, places_of(ranks), dict(self.terminals), self.notices.append)

    def __del__(self) -> None:
        """Files that a test leaves open are closed with it; select() refuses the numbers that the last of many have."""
        if hasattr(self, "output"):
            self.output.close()

    def seen(self) -> tuple[bytes, bytes]:
        return self.terminals[STDOUT].seen, self.terminals[STDERR].seen


def files(top: Path) -> dict[str, bytes]:
    """What is in the files below `top`."""
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}
