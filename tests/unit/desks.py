"""An output desk on screens that remember, for the tests of its rooms."""

from __future__ import annotations

from pathlib import Path

from mslaunch.datamodel.hosts import Node
from mslaunch.datamodel.jobmap import JobMap, Placement
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.output import Output
from mslaunch.launcher.stdio.terminal import OutputFd
from mslaunch.protocol.frames import STDERR, STDOUT


class Screen(OutputFd):
    """A terminal that remembers."""

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
    """The same as rooms of the desk have it."""
    return PatternValues(rows_of(ranks))


def jobmap_of(ranks: int) -> JobMap:
    """The same as a map."""
    nodes = (Node("alpha", 4, "hosts:1"), Node("beta", 4, "hosts:2", max_slots=8))
    placements = tuple(Placement(rank, 0, node, rank // 2) for rank, (_, node) in enumerate(rows_of(ranks)))
    return JobMap(nodes, placements, 8)


class Desk:
    """An output on two screens."""

    def __init__(self, policy: OutputPolicy, ranks: int = 1) -> None:
        self.notices: list[str] = []
        self.screens = {STDOUT: Screen(), STDERR: Screen()}
        self.output = Output(policy, places_of(ranks), dict(self.screens), self.notices.append)

    def seen(self) -> tuple[bytes, bytes]:
        return self.screens[STDOUT].seen, self.screens[STDERR].seen


def files(top: Path) -> dict[str, bytes]:
    """What is in the files below `top`."""
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}
