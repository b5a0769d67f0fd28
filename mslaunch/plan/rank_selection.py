"""The ranks that the user has chosen by number: who gets standard input, and who runs in a window of its own.

Where other launchers start parts of the job, a rank that is not ours is no mistake.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.datamodel.request import Request


def stdin_ranks(request: Request, size: int, first: int = 0) -> tuple[int, ...]:
    """The ranks, of the `size` from `first` on, that get the launcher's standard input.

    Raises UsageError for a rank that does not exist.
    """
    if request.stdin == "all":
        return tuple(range(first, first + size))
    if request.stdin == "none":
        return ()
    rank, whole = int(request.stdin), _whole(request, size)
    if rank >= whole:
        raise UsageError(f"there is no rank {rank} among {whole}", "--stdin", "give a rank, all, or none")
    return (rank,) if first <= rank < first + size else ()


def _whole(request: Request, size: int) -> int:
    """How many ranks may be named, where `size` are ours."""
    share = request.cluster.share
    return share.size if share and share.first is not None else size


def xterm_ranks(request: Request, size: int, first: int = 0) -> tuple[int, ...]:
    """Those of them that run in windows of their own; raises UsageError for one that does not exist."""
    text, whole = request.output.xterm, _whole(request, size)
    if text is None:
        return ()
    from mslaunch.plan.number_ranges import bounds

    ranks: list[int] = []
    for part in text.rstrip("!").split(","):
        if part.strip() == "-1":
            return tuple(range(first, first + size))
        numbers = bounds(part)
        if not numbers:
            raise UsageError(f"{part!r} is no rank", "--xterm", "give ranks, as in 0,2-3, or -1 for all of them")
        if numbers[1] >= whole:
            raise UsageError(f"there is no rank {numbers[1]} among {whole}", "--xterm", "ranks are counted from 0")
        ranks += range(numbers[0], numbers[1] + 1)
    return tuple(ranks)


def window(request: Request, rank: int) -> tuple[str, ...]:
    """The words before the program of a rank that runs in a window, those of mpirun 4.1.4."""
    hold = ("-hold",) if (request.output.xterm or "").endswith("!") else ()
    return ("xterm", "-T", f"Rank {rank}", *hold, "-e")
