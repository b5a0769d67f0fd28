"""Which streams of a rank are kept in files, shown, and shown with a prefix, where its local rank says so (torchrun).

With `StreamPolicy` files have the bytes as they were printed, and only streams that are also kept get a prefix on the
terminal.  A rank that is not to be shown is kept all the same.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.frames import STDOUT

if TYPE_CHECKING:
    from mslaunch.datamodel.request import OutputPolicy, StreamPolicy
    from mslaunch.launcher.stdio.file_patterns import PatternValues


class StreamChoice:
    """The answers for each stream; services have none of these files, and are not shown."""

    def __init__(self, policy: StreamPolicy, places: PatternValues) -> None:
        self._policy = policy
        self._places = places
        self._known: dict[tuple[int, int], tuple[bool, bool, bool]] = {}

    def kept(self, kind: int, rank: int) -> bool:
        """Whether a file keeps it."""
        return self._of(kind, rank)[0]

    def shown(self, kind: int, rank: int) -> bool:
        """Whether it reaches the terminal."""
        return self._of(kind, rank)[1]

    def prefixed(self, kind: int, rank: int) -> bool:
        """Whether its lines have a prefix there."""
        return self._of(kind, rank)[2]

    def _of(self, kind: int, rank: int) -> tuple[bool, bool, bool]:
        if is_service(rank):
            return False, False, False
        if (kind, rank) not in self._known:
            policy, local = self._policy, self._places.local_rank(rank)
            bit = 1 if kind == STDOUT else 2
            tee, redirected = (bool(_bits(pairs, local) & bit) for pairs in (policy.tee, policy.redirects))
            visible = policy.shown is None or local in policy.shown
            self._known[kind, rank] = tee or redirected, visible and (tee or not redirected), tee
        return self._known[kind, rank]


def _bits(pairs: tuple[tuple[int, int], ...], local: int) -> int:
    return next((bits for rank, bits in pairs if rank in (-1, local)), 0)


def stream_choice(policy: OutputPolicy, places: PatternValues | None) -> StreamChoice | None:
    """What `policy` says of single streams; None if it says nothing."""
    return StreamChoice(policy.streams, places) if policy.streams and places else None
