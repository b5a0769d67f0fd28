"""The cpus that ranks are bound to: a strip of the cpus of a host, once for all hosts that are alike."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.hosts.host_ranges import fold
from mslaunch.reports import figure
from mslaunch.reports.figure import Figure
from mslaunch.reports.wording import coordinate, plural, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mslaunch.reports.figure import Shape
    from mslaunch.reports.recorded_run import RecordedAttempt, RecordedHost, RecordedRank

MOST_CPUS = 1024  #: of a host that are drawn
MOST_NAMED = 12  #: hosts that each have a row
MOST_ROWS = 40  #: kinds of hosts that are shown
_WIDTH = 640.0
_TEXT = 1500  # characters
_CELL, _HEIGHT = 20.0, 22.0


class BindingRow(NamedTuple):
    """Hosts whose ranks are bound in the same way."""

    hosts: str
    alike: int
    ranks: str  # the ranks of one host, or their local ranks
    text: str  # `0: 0-3, 1: 4-7`
    strip: Figure | None  # None: not bound, or not drawn


class Bindings(NamedTuple):
    """All kinds of hosts of an attempt."""

    rows: tuple[BindingRow, ...]
    left_out: int  # kinds of hosts that are not shown
    bound: bool  # at least one rank is
    local: bool  # numbers are local ranks, because a row stands for several hosts


def cpu_numbers(text: str) -> tuple[int, ...]:
    """The cpus of `0-3,8`, rising, below `MOST_CPUS`; nothing for a text that is no such list."""
    found: set[int] = set()
    for word in text.split(",") if text else ():
        low, dash, high = word.partition("-")
        high = high if dash else low
        if not all(each.isascii() and each.isdigit() and len(each) < 6 for each in (low, high)):
            return ()
        found.update(range(min(int(low), MOST_CPUS), min(int(high) + 1, MOST_CPUS)))
    return tuple(sorted(found))


def bindings(attempt: RecordedAttempt, hosts: Sequence[RecordedHost]) -> Bindings:
    """The bindings of an attempt: a row for each of few hosts, else for each kind, that of most hosts first."""
    by_host: dict[int, list[RecordedRank]] = {}
    for rank in attempt.ranks:
        by_host.setdefault(rank.host, []).append(rank)
    alike: dict[tuple[object, ...], list[int]] = {}
    for host, ranks in by_host.items():
        ranks.sort(key=lambda rank: (rank.local_rank, rank.rank))
        alike.setdefault((_cpus(hosts[host]), tuple((rank.local_rank, rank.cpus) for rank in ranks)), []).append(host)
    local = len(by_host) > MOST_NAMED and len(alike) < len(by_host)
    if not local:
        alike = {(host,): [host] for host in by_host}
    groups = sorted(alike.values(), key=len, reverse=True) if local else list(alike.values())
    rows = tuple(
        _row(number, [hosts[host] for host in group], by_host[group[0]], local)
        for number, group in enumerate(groups[:MOST_ROWS])
    )
    return Bindings(rows, max(0, len(groups) - MOST_ROWS), any(rank.cpus for rank in attempt.ranks), local)


def _cpus(host: RecordedHost) -> int:
    """How many cpus a host has, 0 if that is not known."""
    text = host.facts.get("cpus", "")
    return min(int(text), MOST_CPUS) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _row(number: int, hosts: Sequence[RecordedHost], ranks: Sequence[RecordedRank], local: bool) -> BindingRow:
    named = [(rank.local_rank if local else rank.rank, rank.cpus) for rank in ranks]
    text = ", ".join(f"{name}: {cpus or 'not bound'}" for name, cpus in named)
    strip = None
    if any(cpus for _, cpus in named):
        strip = _strip(number, max(map(_cpus, hosts)), [(name, cpu_numbers(cpus)) for name, cpus in named], local)
    names = shortened(fold([host.name for host in hosts]), _TEXT)
    return BindingRow(names, len(hosts), plural(len(ranks), "rank"), shortened(text, _TEXT), strip)


def _strip(number: int, cpus: int, ranks: Sequence[tuple[int, Sequence[int]]], local: bool) -> Figure:
    count = max([cpus, *(each[-1] + 1 for _, each in ranks if each)])
    cell = min(_CELL, _WIDTH / count)
    owners: dict[int, list[int]] = {}
    for name, each in ranks:
        for cpu in each:
            owners.setdefault(cpu, []).append(name)
    looks = {name: f"cpu-{at % 2}" for at, (name, _) in enumerate(ranks)}
    gap = 1.0 if cell > 5 else 0.3 if cell > 1.5 else 0.0
    shapes: list[Shape] = []
    for low, high, names in _runs(owners, count):
        look = "cpu-none" if not names else looks[names[0]] if len(names) == 1 else "cpu-shared"
        word = "local rank" if local else "rank"
        who = (
            f"{word}s {', '.join(map(str, names[:20]))}"
            if len(names) > 1
            else f"{word} {names[0]}"
            if names
            else "no rank"
        )
        which = f"cpu {low}" if low == high else f"cpus {low}-{high}"
        for cpu in range(low, high + 1) if gap else ():
            shapes.append(figure.rect(cpu * cell, 1, cell - gap, _HEIGHT - 2, look, f"cpu {cpu}: {who}"))
        width = (high - low + 1) * cell
        if not gap:
            shapes.append(figure.rect(low * cell, 1, width, _HEIGHT - 2, look, f"{which}: {who}"))
        text = str(names[0]) if len(names) == 1 else ""
        fits = cell if cell > 7 * len(text) + 2 else width  # in the first cell, rather than on the line between two
        if text and fits > 7 * len(text) + 2:
            shapes.append(figure.label(low * cell + (fits - gap) / 2, 15.5, text, f"on-{look}", "middle"))
    description = "; ".join(f"{name} on {len(each)} of {count} cpus" for name, each in ranks[:64])
    return Figure(
        f"cpus-{number}", "Cpus of a host", description, coordinate(_HEIGHT), tuple(shapes), coordinate(count * cell)
    )


def _runs(owners: dict[int, list[int]], count: int) -> Iterable[tuple[int, int, list[int]]]:
    """(first cpu, last cpu, ranks) for neighbours that belong to the same ranks."""
    at = 0
    while at < count:
        names = owners.get(at, [])
        end = at
        while end + 1 < count and owners.get(end + 1, []) == names:
            end += 1
        yield at, end, names
        at = end + 1
