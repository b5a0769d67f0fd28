"""The report after --timeout: the state of each rank."""

from __future__ import annotations

from mslaunch.errors import counted, printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.programs import script_of
from mslaunch.launcher.messages.closing_report import exception
from mslaunch.launcher.messages.failure_text import ending
from mslaunch.plan.hosts.host_ranges import fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.outcome import RankStatus
    from mslaunch.launcher.rank_names import RankNames

_SINGLY = 32  #: up to so many ranks in the same state get a line each; more share one
_WIDTH = 60  #: of a column but the last


def state_text(rows: Sequence[tuple[RankStatus, str]], worlds: RankNames, seconds: float) -> str:
    """--report-state-on-timeout: rank, host, pid and state as a table; `rows` has the state of each rank in words."""
    alike: dict[str, list[RankStatus]] = {}
    for status, words in rows:
        alike.setdefault(words, []).append(status)
    lines: list[tuple[int, tuple[str, ...]]] = []
    for words, statuses in alike.items():
        if len(statuses) <= _SINGLY:
            lines += (
                (s.rank, (worlds.name(s.rank).partition(" ")[2], s.host, str(s.pid or "-"), words)) for s in statuses
            )  # `3`, or `1 of world 2`: the column is called rank
        else:
            lines.append((statuses[0].rank, (*_folded(worlds, statuses), words)))
    table = [("rank", "node", "pid", "state"), *(line for _, line in sorted(lines))]
    return f"mslaunch: the ranks after {seconds:g} s:\n{_aligned(table)}"


def state_of(status: RankStatus, restarts: int, ended: bool, streams: int) -> str:
    """The state of a rank in words; `streams` is how many of its streams are open."""
    if status.reason == "running":
        words = "running"
    elif restarts and not ended:
        return "being started again"
    elif status.reason:
        return "lost with its host" if status.reason == "lost" else status.reason
    else:
        words = ending(status) + (", but its output is still open" if streams else "")
    return words + (f", started again {counted(restarts, 'time')}" if restarts else "")


def _folded(worlds: RankNames, statuses: Sequence[RankStatus]) -> tuple[str, str, str]:
    numbers = worlds.names(status.rank for status in statuses).partition(" ")[2]
    hosts = fold(list(dict.fromkeys(status.host for status in statuses)))
    return _cut(numbers), _cut(hosts), f"{len(statuses)} ranks"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _aligned(table: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    return "".join("  " + "  ".join([*map(str.ljust, row, widths), row[3]]) + "\n" for row in table)


def traceback_text(name: str, seconds: float, lines: Sequence[str], argv: Sequence[str], in_mpi: bool) -> str:
    """The rank `name`, which runs `argv`, has printed a traceback so long before the end; `lines` are its last ones."""
    raised = exception(list(map(printable, lines)))
    text = f"{name} printed a traceback {seconds:.0f} s before" + (f" ({raised})" if raised else "")
    script = script_of(argv) if in_mpi else ""
    return text + (f"; {argv[0]} -m mpi4py {script} would have ended the job" if script else "")
