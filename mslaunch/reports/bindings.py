"""The cpus that ranks are bound to: a strip of the cpus of a host, once for all hosts that are alike."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.hosts.host_ranges import fold
from mslaunch.reports import figure
from mslaunch.reports.figure import Figure
from mslaunch.reports.wording import coordinate, plural, shortened
from mslaunch.reports.wording import number as number_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mslaunch.reports.figure import Shape
    from mslaunch.reports.recorded_run import RecordedAttempt, RecordedHost, RecordedRank

MOST_CPUS = 1024  #: of a host that are drawn
MOST_NAMED = 12  #: hosts that each have a row
MOST_ROWS = 40  #: kinds of hosts that are shown
MOST_OWNERS = 20  #: ranks of a cpu that are named
_WIDTH = 640.0
_TEXT = 1500  # characters
_SHOWN = 800  # ranks, of whose cpus the text of a row is made: each takes more than two characters of it
_DESCRIBED = 64  # ranks, in the description of a figure
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


class CpuOwners:
    """The ranks that each cpu of a host belongs to: their number, and the names of the first `MOST_OWNERS`.

    A set of cpus is a number with a bit for each.  The counts of all cpus are such numbers, too, one for each binary
    digit, so that a rank costs two or three operations however many cpus it is bound to.
    """

    def __init__(self) -> None:
        self._names: dict[int, list[int]] = {}
        self._full = 0  # cpus that have no room for a name
        self._digits: list[int] = []  # of the counts, the lowest first

    def add(self, name: int, cpus: int) -> None:
        """One rank, and its cpus."""
        for cpu in _members(cpus & ~self._full):
            names = self._names.setdefault(cpu, [])
            names.append(name)
            if len(names) == MOST_OWNERS:
                self._full |= 1 << cpu
        carry = cpus
        for at, digit in enumerate(self._digits):
            self._digits[at], carry = digit ^ carry, digit & carry
            if not carry:
                return
        self._digits.append(carry)

    def of(self, cpu: int) -> tuple[int, tuple[int, ...]]:
        """How many ranks a cpu belongs to, and which."""
        count = sum((digit >> cpu & 1) << at for at, digit in enumerate(self._digits))
        return count, tuple(self._names.get(cpu, ()))


def cpu_mask(text: str) -> int:
    """The cpus of `0-3,8` below `MOST_CPUS`, a bit for each; 0 for a text that is no such list."""
    found = 0
    for word in text.split(",") if text else ():
        low, dash, high = word.partition("-")
        high = high if dash else low
        if not all(each.isascii() and each.isdigit() and len(each) < 6 for each in (low, high)):
            return 0
        first, after = min(int(low), MOST_CPUS), min(int(high) + 1, MOST_CPUS)
        if first < after:
            found |= (1 << after) - (1 << first)
    return found


def _members(mask: int) -> Iterator[int]:
    """The bits that are set, rising."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


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
    shown = [*ranks[: _SHOWN // 2], *ranks[-_SHOWN // 2 :]] if len(ranks) > _SHOWN else ranks
    text = ", ".join(f"{_name(rank, local)}: {rank.cpus or 'not bound'}" for rank in shown)
    strip = _strip(number, max(map(_cpus, hosts)), ranks, local) if any(rank.cpus for rank in ranks) else None
    names = shortened(fold([host.name for host in hosts]), _TEXT)
    return BindingRow(names, len(hosts), plural(len(ranks), "rank"), shortened(text, _TEXT), strip)


def _name(rank: RecordedRank, local: bool) -> int:
    return rank.local_rank if local else rank.rank


def _strip(number: int, cpus: int, ranks: Sequence[RecordedRank], local: bool) -> Figure | None:
    """The figure of the cpus of a host; None if there is none to draw."""
    owners = CpuOwners()
    looks: dict[int, str] = {}
    words: list[str] = []
    masks = [(_name(rank, local), cpu_mask(rank.cpus)) for rank in ranks]
    count = max(cpus, *(mask.bit_length() for _, mask in masks))
    if not count:  # texts that name no cpu, on a host that says nothing of its own
        return None
    for at, (name, mask) in enumerate(masks):
        owners.add(name, mask)
        looks[name] = f"cpu-{at % 2}"
        words += [f"{name} on {bin(mask).count('1')} of {count} cpus"] * (at < _DESCRIBED)
    shapes = tuple(_shapes(owners, count, looks, "local rank" if local else "rank"))
    width = coordinate(count * min(_CELL, _WIDTH / count))
    return Figure(f"cpus-{number}", "Cpus of a host", "; ".join(words), coordinate(_HEIGHT), shapes, width)


def _shapes(owners: CpuOwners, count: int, looks: Mapping[int, str], word: str) -> Iterator[Shape]:
    cell = min(_CELL, _WIDTH / count)
    gap = 1.0 if cell > 5 else 0.3 if cell > 1.5 else 0.0
    for low, high, many, names in _runs(owners, count):
        look = "cpu-none" if not many else looks[names[0]] if many == 1 else "cpu-shared"
        who = f"{word}s {_listed(many, names)}" if many > 1 else f"{word} {names[0]}" if many else "no rank"
        which = f"cpu {low}" if low == high else f"cpus {low}-{high}"
        for cpu in range(low, high + 1) if gap else ():
            yield figure.rect(cpu * cell, 1, cell - gap, _HEIGHT - 2, look, f"cpu {cpu}: {who}")
        width = (high - low + 1) * cell
        if not gap:
            yield figure.rect(low * cell, 1, width, _HEIGHT - 2, look, f"{which}: {who}")
        text = str(names[0]) if many == 1 else ""
        fits = cell if cell > 7 * len(text) + 2 else width  # in the first cell, rather than on the line between two
        if text and fits > 7 * len(text) + 2:
            yield figure.label(low * cell + (fits - gap) / 2, 15.5, text, f"on-{look}", "middle")


def _listed(many: int, names: Sequence[int]) -> str:
    left = f" and {number_text(many - len(names))} more" if many > len(names) else ""
    return ", ".join(map(str, names)) + left


def _runs(owners: CpuOwners, count: int) -> Iterator[tuple[int, int, int, tuple[int, ...]]]:
    """(first cpu, last cpu, number of ranks, ranks) for neighbours that belong to the same ranks."""
    of = [owners.of(cpu) for cpu in range(count)]
    at = 0
    while at < count:
        end = at
        while end + 1 < count and of[end + 1] == of[at]:
            end += 1
        yield at, end, *of[at]
        at = end + 1
