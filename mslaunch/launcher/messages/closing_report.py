"""The closing block on standard error: why the job failed, and what was started again.

The cause comes first, with the last lines of the rank that failed and its log file; ranks that were ended because of it
are counted, not quoted.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.datamodel.outcome import Outcome
from mslaunch.errors import LaunchError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.rank_names import RankNames

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_RESTARTS = 8  #: lines about attempts, and about restarts of ranks
_OURS = ("not started again: ", "not reached again: ")  # lines that are not quoted from a rank


def outcome_text(outcome: Outcome, log: str | None = None) -> str:
    """The closing block; "" if all went well and nothing was started again.  `log` is the file that says more."""
    failure = outcome.failure
    again = _again(outcome)
    if failure is None:
        head = f"mslaunch: all ranks succeeded{_in_attempt(outcome)}, {_after(outcome.seconds)}"
        return "\n".join([head, *again]) + "\n" if again else ""
    where = f" on {failure.host}" if failure.host else ""
    lines = [f"mslaunch: {failure.what}{where}{_in_attempt(outcome)}, {_after(outcome.seconds)}"]
    quotes = failure.rank is not None
    lines += [f"  {'| ' if quotes and not line.startswith(_OURS) else ''}{line}" for line in failure.detail]
    if log:
        lines.append(f"  log: {log}")
    lines += _others(outcome, failure.rank)
    return "\n".join([*lines, *again]) + "\n"


def _in_attempt(outcome: Outcome) -> str:
    return f", in attempt {len(outcome.attempts) + 1}" if outcome.attempts else ""


def _again(outcome: Outcome) -> list[str]:
    """What was started again, and why; of many the first, whose failures are nearest to the cause."""
    lines = []
    for attempt in outcome.attempts[:_MOST_RESTARTS]:
        what, host = attempt.failure.what, attempt.failure.host
        where = f" on {host}" if host else ""
        changed = f"; then {attempt.changed}" if attempt.changed else ""
        lines.append(f"  attempt {attempt.number}: {what}{where}, {_after(attempt.seconds)}{changed}")
    if len(outcome.attempts) > _MOST_RESTARTS:
        lines.append(f"  and {counted(len(outcome.attempts) - _MOST_RESTARTS, 'more attempt')}")
    lines += [f"  started again: {clause}" for clause in outcome.restarts[:_MOST_RESTARTS]]
    if len(outcome.restarts) > _MOST_RESTARTS:
        lines.append(f"  started again: {counted(len(outcome.restarts) - _MOST_RESTARTS, 'other')}")
    return lines


def _after(seconds: float) -> str:
    if seconds < 60:
        return f"after {seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"after {hours} h {minutes:02d} min" if hours else f"after {minutes} min {rest:02d} s"


def _others(outcome: Outcome, cause: int | None) -> list[str]:
    lines = []
    worlds = _worlds(outcome)
    others = [rank for rank in outcome.ranks if rank.rank != cause]
    for reason, words in (
        ("ended", "ended by mslaunch"),
        ("lost", "lost with their host"),
        ("not started", "not started"),
    ):
        numbers = [rank.rank for rank in others if rank.reason == reason]
        if numbers:
            lines.append(f"  {words}: {worlds.names(numbers)}")
    failed = [rank for rank in others if not rank.reason and rank.status]
    if failed:
        lines.append(f"  failed as well: {worlds.names(rank.rank for rank in failed)}")
    if not outcome.code:
        lines.append(
            "  with recovery the job went on without the failed ranks; others succeeded, so the exit code is 0"
        )
    if cause is not None and is_service(cause):
        lines.append(f"  {service_info(cause).note}")
    return lines


def _worlds(outcome: Outcome) -> RankNames:
    numbers = [status.world for status in outcome.ranks]
    first = outcome.ranks[0].rank if outcome.ranks else 0
    return RankNames(*(numbers.count(number) for number in range(1, max(numbers, default=1) + 1)), first=first)


def unreached_text(errors: Sequence[LaunchError], hosts: int) -> str:
    """Why the launch was refused: every host that could not be reached, once."""
    if len(errors) == 1:
        head = f"mslaunch: {errors[0]}"
        return f"{head}\n  nothing was started{' on the other hosts' if hosts > 1 else ''}\n"
    lines = [f"mslaunch: {len(errors)} of {hosts} hosts could not be used; nothing was started"]
    shown: dict[str, list[LaunchError]] = {}
    for error in errors:
        shown.setdefault(_without_host(error), []).append(error)
    for alike in shown.values():
        lines.append(f"  {_wheres(alike)}: {alike[0].what}")
        lines += [f"    {line}" for line in alike[0].todo.splitlines()]
        if any((error.what, error.todo) != (alike[0].what, alike[0].todo) for error in alike):
            lines.append("    (the same for the others)")
    return "\n".join(lines) + "\n"


def _without_host(error: LaunchError) -> str:
    """Its text without the name and address of the host: hosts with the same error are listed together."""
    import re

    text = re.sub(r"\b\d+\.\d+\.\d+\.\d+\b", "ADDRESS", f"{error.what}\n{error.todo}")
    host = error.where.partition(" (")[0]
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", text) if host else text


def _wheres(errors: Sequence[LaunchError]) -> str:
    """n[02-04] (user root, port 22)."""
    from mslaunch.plan.hosts.host_ranges import fold

    parts = [error.where.partition(" (") for error in errors]
    ways = {way for _, _, way in parts}
    names = fold(sorted(name for name, _, _ in parts))
    return f"{names} ({ways.pop()}" if len(ways) == 1 and "" not in ways else names
