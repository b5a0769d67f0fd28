"""The page: a record of a run as one HTML file that needs no network, made with jinja2 (extra `report`).

What the templates show is prepared here and in the modules of the figures; they only place it.  All texts of a record
are escaped by jinja2, and a policy in the page forbids every style and script but its own two, known by their hashes.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.reports import bindings, lanes, overview, rank_ends, rank_grid, rankings
from mslaunch.reports.wording import duration, joined, number, plural, shortened, signal_name, size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mslaunch.reports.rank_ends import RankEnd
    from mslaunch.reports.recorded_run import RecordedAttempt, RecordedRun

MOST_ROWS = 4096  #: of the table of ranks, and of that of hosts
MOST_ATTEMPTS = 6  #: with a figure of their own: the first one and the last ones
_EVENTS = 200  # restarts and hangs in tables
_ATTEMPTS = 500  # in the table of attempts
_FOLLOWERS = 12
_FACTS = 8  # columns of the table of hosts
_TEXT = 20_000  # characters of a list of variables
MOST_COMMAND = 1 << 20  #: characters of the command: --rerun would run it, so no part is left out silently


class RankTableRow(NamedTuple):
    """A row of the table of ranks."""

    cell: str  # block and cell in the grid
    kind: str
    values: tuple[str, ...]


class FollowerRow(NamedTuple):
    """A row on the first ends after a failure: of one rank, or of all of a kind that mslaunch has ended itself."""

    kind: str
    name: str
    host: str
    text: str
    ended: str
    after: str


def render(run: RecordedRun) -> str:
    """The page.  Raises `LaunchError` if jinja2 is not installed."""
    try:
        import jinja2
    except ImportError:
        todo = "pip install 'mslaunch[report]'"
        raise LaunchError("--report needs jinja2, which is not installed here", todo=todo) from None
    from markupsafe import Markup

    templates = jinja2.PackageLoader("mslaunch.reports", "templates")
    environment = jinja2.Environment(
        loader=templates, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, script = (templates.get_source(environment, name)[0] for name in ("page.css", "page.js"))
    text = environment.get_template("page.html").render(
        style=Markup(style), script=Markup(script), policy=policy(style, script), **contents(run)
    )
    return str(text)


def policy(style: str, script: str) -> str:
    """The Content-Security-Policy that allows this style sheet and this script, and nothing that is loaded."""
    import base64
    import hashlib

    first, second = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in (style, script)
    )
    own = f"style-src 'sha256-{first}'; script-src 'sha256-{second}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def contents(run: RecordedRun) -> dict[str, Any]:
    """All that the template shows, by name."""
    last = run.last
    ends = rank_ends.ends_of(last) if last else []
    shown = _shown(run.attempts)
    command = _command(run.command)
    return {
        "run": run,
        "tone": "open" if run.running else "bad" if run.cause or run.code else "good",
        "verdict": _verdict(run, last, ends),
        "after": _after(last, ends),
        "figures": _figures(run, last),
        "overview": overview.draw(run),
        "attempts": [_attempt_row(run, attempt) for attempt in run.attempts[:_ATTEMPTS]],
        "attempts_left": max(0, len(run.attempts) - _ATTEMPTS),
        "lanes": [(attempt, lanes.draw(run, attempt)) for attempt in shown],
        "lanes_left": sum(bool(attempt.ranks) for attempt in run.attempts) - len(shown),
        "few": bool(last and len(last.ranks) <= lanes.MOST_RANKS),
        "legend": [(f"bar-{kind}", rank_ends.KINDS[kind]) for kind in rank_ends.counts(ends)],
        "followers": _followers(run, last, ends),
        "rankings": rankings.rankings(last, run.hosts) if last else [],
        "grid": rank_grid.draw(last, run.hosts) if last and len(last.ranks) > lanes.MOST_RANKS else None,
        "bindings": bindings.bindings(last, run.hosts) if last else None,
        "ranks": _rank_rows(run, ends),
        "ranks_left": max(0, len(ends) - MOST_ROWS),
        "restarts": run.restarts[:_EVENTS],
        "hangs": run.hangs[:_EVENTS],
        "events_left": max(0, len(run.restarts) - _EVENTS) + max(0, len(run.hangs) - _EVENTS),
        "hosts": _hosts(run, ends),
        "hosts_left": max(0, len(run.hosts) - MOST_ROWS),
        "command": command[:MOST_COMMAND],
        "command_left": max(0, len(command) - MOST_COMMAND),
        "environment": shortened(", ".join(run.environment), _TEXT),
        "exported": shortened(", ".join(run.exported), _TEXT),
        "duration": duration,
        "number": number,
        "size": size,
    }


def _shown(attempts: Sequence[RecordedAttempt]) -> list[RecordedAttempt]:
    """The attempts that get a figure, the last one first."""
    known = [attempt for attempt in attempts if attempt.ranks]
    if len(known) > MOST_ATTEMPTS:
        known = [known[0], *known[-MOST_ATTEMPTS + 1 :]]
    return known[::-1]


def _verdict(run: RecordedRun, last: RecordedAttempt | None, ends: Sequence[RankEnd]) -> str:
    if run.cause and run.cause.text:
        return run.cause.text
    if run.running:
        return "The record was written while the job ran"
    if run.signal:
        return f"The launcher was ended by {signal_name(run.signal)}"
    if run.code:
        return f"The launch ended with exit code {run.code}"
    if last is None:
        return "No rank was started"
    return "All ranks succeeded" if len(ends) > 1 else "The rank succeeded"


def _after(last: RecordedAttempt | None, ends: Sequence[RankEnd]) -> str:
    """One sentence on those who followed the first failure."""
    if last is None or last.failed is None:
        return ""
    counts = rank_ends.counts(ends)
    words = {
        rank_ends.FAILED: ("failed as well", "failed as well"),
        rank_ends.LOST: ("was lost", "were lost"),
        rank_ends.ENDED: ("was ended by mslaunch", "were ended by mslaunch"),
        rank_ends.GOOD: ("succeeded", "succeeded"),
        rank_ends.RUNNING: ("has no end in the record", "have no end in the record"),
        rank_ends.UNSTARTED: ("had not started", "had not started"),
    }
    parts = [f"{number(counts[kind])} {text[counts[kind] > 1]}" for kind, text in words.items() if kind in counts]
    times = [each.rank.ended for each in ends if each.rank.ended is not None]
    within = max(times, default=last.failed) - last.failed
    others = f"Of the other ranks, {joined(parts)}" if parts else ""
    return f"{others}; all was over {duration(within)} after the first failure." if others and within > 0 else others


def _figures(run: RecordedRun, last: RecordedAttempt | None) -> list[tuple[str, str]]:
    """The figures under the title: (what, value)."""
    used = {rank.host for rank in last.ranks} if last else set()
    code = "–" if run.code is None else str(run.code)
    return [
        ("ranks", number(len(last.ranks)) if last else "0"),
        ("hosts", number(len(used) or len(run.hosts))),
        ("time", duration(run.horizon)),
        ("restarts", number(len(run.restarts))),
        ("exit code", code if run.signal is None else f"{code}, {signal_name(run.signal)}"),
    ]


def _attempt_row(run: RecordedRun, attempt: RecordedAttempt) -> tuple[str, ...]:
    took = {phase: duration(high - low) for phase, low, high in attempt.phases(run.horizon)}
    cause = attempt.cause.text if attempt.cause else ""
    return (
        str(attempt.number),
        duration(attempt.began),
        *(took.get(phase, "–") for phase in ("connect", "stage", "start", "run", "end")),
        cause,
    )


def _followers(run: RecordedRun, last: RecordedAttempt | None, ends: Sequence[RankEnd]) -> list[FollowerRow]:
    """The order of ends; of many, that of ranks that failed by themselves, and then a row for each other kind."""
    if last is None or last.cause is None:
        return []
    first = last.failed
    ordered = rank_ends.in_order(ends)
    alone = (rank_ends.FIRST, rank_ends.FAILED, rank_ends.LOST)
    few = len(ends) <= _FOLLOWERS
    rows = []
    for each in [each for each in ordered if few or each.kind in alone][:_FOLLOWERS]:
        ended = each.rank.ended
        after = "first" if each.kind == rank_ends.FIRST else _after_first(ended, first)
        host = run.hosts[each.rank.host].name
        rows.append(FollowerRow(each.kind, each.rank.name, host, each.text, _time(ended), after))
    for kind, count in rank_ends.counts(ends).items() if not few else ():
        left = count - sum(row.kind == kind for row in rows)
        if left:
            rows.append(_folded([each for each in ordered if each.kind == kind][-left:], first))
    return rows


def _after_first(ended: float | None, first: float | None) -> str:
    if ended is None or first is None:
        return "–"
    return f"{duration(first - ended)} before" if ended < first else f"+{duration(ended - first)}"


def _folded(ends: Sequence[RankEnd], first: float | None) -> FollowerRow:
    """One row for ends of one kind, which are in their order."""
    times = [each.rank.ended for each in ends if each.rank.ended is not None]
    texts = joined(dict.fromkeys(each.text for each in ends[:1000]))
    at = after = "–"
    if times:
        at = duration(times[0])
        after = (
            ""
            if first is None
            else f"+{duration(max(0.0, times[0] - first))} to +{duration(max(0.0, times[-1] - first))}"
        )
    hosts = plural(len({each.rank.host for each in ends}), "host")
    return FollowerRow(ends[0].kind, plural(len(ends), "more rank"), hosts, shortened(texts, 60), at, after)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


def _rank_rows(run: RecordedRun, ends: Sequence[RankEnd]) -> list[RankTableRow]:
    """The table of ranks, by their numbers; of very many those that ended first."""
    places = {}
    for at, block in enumerate(rank_grid.blocks_of(ends, run.hosts) if len(ends) <= rank_grid.MOST_CELLS else ()):
        for cell, ranks in enumerate(block.cells):
            places[ranks[0].rank] = f"{at}.{cell}"
    chosen = list(ends) if len(ends) <= MOST_ROWS else rank_ends.in_order(ends)[:MOST_ROWS]
    rows = []
    for each in chosen:
        rank = each.rank
        values = (
            rank.name.removeprefix("rank "),
            run.hosts[rank.host].name,
            rank.cpus or "–",
            "–" if rank.pid is None else str(rank.pid),
            _time(rank.started),
            _time(rank.first_output),
            _time(rank.last_output),
            _time(rank.silence),
            "–" if rank.bytes is None else size(rank.bytes),
            _time(rank.ended),
            each.text,
            str(rank.starts),
        )
        rows.append(RankTableRow(places.get(rank, ""), each.kind, values))
    return rows


def _hosts(run: RecordedRun, ends: Sequence[RankEnd]) -> dict[str, Any]:
    """The table of hosts: facts that are the same on all are told once, the others have columns."""
    first = run.hosts[0].facts if run.hosts else {}
    alike = dict.fromkeys((name for host in run.hosts for name in host.facts), 0)  # name -> hosts that are as the first
    for host in run.hosts:
        for name, value in host.facts.items():
            alike[name] += first.get(name) == value
    same = [name for name, count in alike.items() if count == len(run.hosts)]
    differ = [name for name, count in alike.items() if count < len(run.hosts)][:_FACTS]
    by_host: dict[int, list[RankEnd]] = {}
    for each in ends:
        by_host.setdefault(each.rank.host, []).append(each)
    rows = []
    for at, host in enumerate(run.hosts[:MOST_ROWS]):
        counts = rank_ends.counts(by_host.get(at, ()))
        how = joined((f"{number(count)} {lanes.SHORT[kind]}" for kind, count in counts.items()), "and")
        facts = (shortened(host.facts.get(name, "–"), 60) for name in differ)
        slots = "–" if host.slots is None else str(host.slots)
        name = f"{host.name} (this host)" if host.local else host.name
        rows.append((name, slots, _time(host.connected), str(len(by_host.get(at, ()))), how or "–", *facts))
    return {"same": [(name, first.get(name, "")) for name in same], "differ": differ, "rows": rows}


def _command(words: Sequence[str]) -> str:
    import shlex

    return " ".join(map(shlex.quote, words))
