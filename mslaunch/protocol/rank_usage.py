"""USE and USED: the question what time and memory the ranks of a node take, and the answer."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.codec import checked, integer, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RANKS = 1 << 15  # of one node that are asked about
_LARGE = 1 << 62


class RankUsage(NamedTuple):
    """Processor time and memory of all processes in a rank's session."""

    milliseconds: int  # of processor time
    memory: int  # bytes that are resident now
    processes: int


def pack_pids(pids: Sequence[int]) -> bytes:
    """The payload of USE: the process ids of ranks, which lead their sessions."""
    return pack({"pids": [str(pid) for pid in pids[:_RANKS]]})


def unpack_pids(payload: bytes) -> list[int]:
    """The same, read by the agent."""
    return [int(word) for word in unpack(payload, _RANKS)["pids"]]


def pack_usage(usage: Mapping[int, RankUsage]) -> bytes:
    """The payload of USED: by process id."""
    return pack({"ranks": [str(word) for pid, one in usage.items() for word in (pid, *one)]})


def unpack_usage(payload: bytes) -> dict[int, RankUsage]:
    """The same, read by the launcher, whom the host may tell anything; raises `WireError`."""

    def read() -> dict[int, RankUsage]:
        words = [integer(word) for word in unpack(payload, 4 * _RANKS)["ranks"]]
        if len(words) % 4 or any(not 0 <= word < _LARGE for word in words):
            raise ValueError(len(words))
        return {pid: RankUsage(*rest) for pid, *rest in zip(*[iter(words)] * 4)}

    return checked("USED", read)
