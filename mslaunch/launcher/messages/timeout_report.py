"""What a person is told when --timeout was reached: how each rank is, and where in its program.

It only makes text; few launches need it, so it is imported when one does.  The surprising thing: where there are many
ranks, the state that most of them are in takes one line, and the others are told one by one, since it is they for
whom one looks.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.exit_text import ending
from mslaunch.plan.hosts.host_ranges import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mslaunch.datamodel.outcome import RankStatus
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.protocol.control import StackTrace

_SINGLY = 32  #: ranks in one state that have a line each
_WIDTH = 60  #: of a column, but the last


def state_text(state: JobState, seconds: float) -> str:
    """--report-state-on-timeout: rank, host, pid and state, as a table."""
    alike: dict[str, list[RankStatus]] = {}
    for status in state.statuses():
        alike.setdefault(_state_of(state, status), []).append(status)
    rows: list[tuple[int, tuple[str, ...]]] = []
    for words, statuses in alike.items():
        if len(statuses) <= _SINGLY:
            rows += ((s.rank, (_number(state, s.rank), s.host, str(s.pid or "-"), words)) for s in statuses)
        else:
            rows.append((statuses[0].rank, (*_folded(state, statuses), words)))
    table = [("rank", "node", "pid", "state"), *(row for _, row in sorted(rows))]
    return f"mslaunch: the ranks after {seconds:g} s:\n{_aligned(table)}"


def _state_of(state: JobState, status: RankStatus) -> str:
    rank = state.ranks[status.rank]
    if status.reason == "running":
        words = "running"
    elif rank.restarts and not rank.ended:
        return "being started again"
    elif status.reason:
        return "lost with its host" if status.reason == "lost" else status.reason
    else:
        words = ending(status.code, status.signal) + (", but its output is still open" if rank.streams else "")
    if rank.restarts:
        words += f", started again {rank.restarts} time{'s' if rank.restarts > 1 else ''}"
    return words


def _number(state: JobState, rank: int) -> str:
    """3, or `1 of world 2`: the column is called rank."""
    return state.worlds.name(rank).partition(" ")[2]


def _folded(state: JobState, statuses: Sequence[RankStatus]) -> tuple[str, str, str]:
    numbers = state.worlds.names(status.rank for status in statuses).partition(" ")[2]
    hosts = fold(list(dict.fromkeys(status.host for status in statuses)))
    return _cut(numbers), _cut(hosts), f"{len(statuses)} ranks"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _aligned(table: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    return "".join("  " + "  ".join([*map(str.ljust, row, widths), row[3]]) + "\n" for row in table)


def trace_text(rank: str, host: str, traced: StackTrace) -> str:
    """--get-stack-traces: a block for one process of a rank, which is called `rank`."""
    python = traced.name.startswith("python") and traced.tool != "py-spy"
    more = " (py-spy, installed there, would tell the lines of Python)" if python else ""
    head = f"mslaunch: {rank} on {host}, process {traced.pid} ({traced.name}), as {traced.tool} tells{more}:"
    return "\n".join([head, *_quoted(traced.text.splitlines())]) + "\n"


def _quoted(lines: Iterable[str]) -> Iterable[str]:
    return (f"  | {line}" for line in lines)
