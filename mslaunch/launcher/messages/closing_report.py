"""The closing block on standard error: why the job failed, and what was started again.

The cause comes first, with the last lines of the rank that failed and its log file; ranks that were ended because of it
are counted, not quoted.  Quoted lines are escaped here (`with_last_words`), so that no colour or other control sequence
of a rank reaches the terminal.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.datamodel.outcome import Failure, Outcome
from mslaunch.errors import EXIT_TIMEOUT, LaunchError, counted, printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.messages.failure_text import OURS, ending, of_rank
from mslaunch.launcher.rank_names import RankNames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.datamodel.node_report import ExitStatus

_SEARCHED = 400  # lines of output that are searched for an exception
_QUOTED = 20  # lines of output that are quoted
_TRACEBACK = "Traceback (most recent call last):"
_LONGEST = 120  #: characters of an exception in a headline
_WAYS = 3  #: at most so many different ends of a restarted rank are listed
_MOST_RESTARTS = 8  #: lines about attempts, and about restarts of ranks
_REASONS = {"ended": "ended by mslaunch", "lost": "lost with their host", "not started": "not started"}


# --- the parts that the outcome keeps


def with_last_words(failure: Failure, tail: Callable[[int, int], Sequence[str]]) -> Failure:
    """`failure` with the last output of the rank or service that failed, escaped: `tail(rank, lines)`.

    The exception that ended a Python program is named in the headline, but only with exit code 1, which is Python's for
    it: a program that logs a traceback and ends with a code of its own may have another reason.
    """
    if failure.rank is None:
        return failure
    lines = [of_rank(printable(line)) for line in tail(failure.rank, _SEARCHED)]
    details = [line for line in failure.detail if not any(line in other for other in lines)]  # MPI_Abort says it twice
    what = failure.what
    if failure.code == 1 and what.endswith(" ended with exit code 1"):
        raised = exception(lines)
        what += f" ({raised})" if raised else ""
    return failure._replace(what=what, detail=(*details, *lines[-_QUOTED:]))


def exception(lines: Sequence[str]) -> str:
    """`ValueError: boom`, if `lines` end with a Python traceback; else "".

    That is the first line after the last traceback that is not indented, if it begins with the name of a class, in
    capitals.
    """
    heads = [at for at, line in enumerate(lines) if line == _TRACEBACK]
    if not heads:
        return ""
    said = next((line for line in lines[heads[-1] + 1 :] if line and not line[0].isspace()), "")
    name, colon, text = said.partition(":")
    words = name.split(".")
    if not (all(map(str.isidentifier, words)) and words[-1][0].isupper() and (text[:1] == " " or not colon)):
        return ""
    said = said.rstrip()
    return said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"


def restarts_text(name: str, host: str, past: Sequence[ExitStatus], times: int) -> str:
    """What was restarted and why, as a clause; `past`: how its processes ended."""
    ways = list(dict.fromkeys(map(ending, past)))
    how = " and ".join(ways[:_WAYS]) + (" and otherwise" if len(ways) > _WAYS else "")
    return f"{name} on {host}, which {how}" + (f", {times} times" if times > 1 else "")


# --- the block


def outcome_text(outcome: Outcome, log: str | None = None) -> str:
    """The closing block; "" if all went well and nothing was started again.  `log` is the file that says more."""
    failure = outcome.failure
    again = _again(outcome)
    ended = f", in attempt {len(outcome.attempts) + 1}" if outcome.attempts else ""
    if failure is None or failure.rank is not None or failure.code != EXIT_TIMEOUT:  # a time limit says when
        ended += f", {_after(outcome.seconds)}"
    if failure is None:
        return "\n".join([f"mslaunch: all ranks succeeded{ended}", *again]) + "\n" if again else ""
    lines = [f"mslaunch: {_what(failure)}{ended}"]
    quotes = failure.rank is not None
    lines += [f"  {'| ' if quotes and not line.startswith(OURS) else ''}{line}" for line in failure.detail]
    lines += [f"  log: {log}"] if log else []
    return "\n".join([*lines, *_others(outcome, failure.rank), *again]) + "\n"


def _what(failure: Failure) -> str:
    return f"{failure.what} on {failure.host}" if failure.host else failure.what


def _again(outcome: Outcome) -> list[str]:
    """What was started again, and why; of many the first, whose failures are nearest to the cause."""
    attempts = [
        f"attempt {attempt.number}: {_what(attempt.failure)}, {_after(attempt.seconds)}"
        f"{f'; then {attempt.changed}' if attempt.changed else ''}"
        for attempt in outcome.attempts[:_MOST_RESTARTS]
    ]
    if len(outcome.attempts) > _MOST_RESTARTS:
        attempts.append(f"and {counted(len(outcome.attempts) - _MOST_RESTARTS, 'more attempt')}")
    restarts = list(outcome.restarts[:_MOST_RESTARTS])
    if len(outcome.restarts) > _MOST_RESTARTS:
        restarts.append(counted(len(outcome.restarts) - _MOST_RESTARTS, "other"))
    return [f"  {line}" for line in (*attempts, *(f"started again: {clause}" for clause in restarts))]


def _after(seconds: float) -> str:
    if seconds < 60:
        return f"after {seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"after {hours} h {minutes:02d} min" if hours else f"after {minutes} min {rest:02d} s"


def _others(outcome: Outcome, cause: int | None) -> list[str]:
    numbers = [status.world for status in outcome.ranks]
    first = outcome.ranks[0].rank if outcome.ranks else 0
    worlds = RankNames(*(numbers.count(world) for world in range(1, max(numbers, default=1) + 1)), first=first)
    others = [rank for rank in outcome.ranks if rank.rank != cause]
    groups = {words: [rank.rank for rank in others if rank.reason == reason] for reason, words in _REASONS.items()}
    groups["failed as well"] = [rank.rank for rank in others if not rank.reason and rank.status]
    lines = [f"{words}: {worlds.names(numbers)}" for words, numbers in groups.items() if numbers]
    if not outcome.code:
        lines.append("with recovery the job went on without the failed ranks; others succeeded, so the exit code is 0")
    if cause is not None and is_service(cause):
        lines.append(service_info(cause).note)
    return [f"  {line}" for line in lines]


# --- before anything is started


def unreached_text(errors: Sequence[LaunchError], hosts: int) -> str:
    """Why the launch was refused: every host that could not be reached, once."""
    if len(errors) == 1:
        return f"mslaunch: {errors[0]}\n  nothing was started{' on the other hosts' if hosts > 1 else ''}\n"
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
