"""Patterns of file names and of line prefixes: each `%` and the letter after it stand for a value.

The letters are those of hydra 5.0.2 as observed (%g counts the worlds from 0, %p the hosts) and %a, which is msrun's
{ip}; `line_prefix` and `log_layouts` add letters of their own.  A letter that means nothing is refused before the job
begins; hydra fails at the first line that a rank prints.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.host.own_addresses import source_address
from mslaunch.launcher.rank_names import RankNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import JobMap, Node
    from mslaunch.protocol.control import Hello

    Host = tuple[Node, "Hello | None"]

LETTERS = "rgpha%"
_LOCALHOST = "127.0.0.1"


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """`pattern` with each `%` and its letter replaced by the letter's value; raises `KeyError` for another letter."""
    text, percent, rest = pattern.partition("%")
    while percent:
        text += values[rest[:1]]
        more, percent, rest = rest[1:].partition("%")
        text += more
    return text


def check(pattern: str, where: str) -> None:
    """Raises `UsageError`, which names `where`, for a letter that means nothing."""
    try:
        fill(pattern, dict.fromkeys(LETTERS, ""))
    except KeyError as error:
        what = f"%{error.args[0]} means nothing" if error.args[0] else "nothing follows its last %"
        todo = (
            "write %r for the rank, %g the group (0), %p the number of the host, %h its name, %a its address, "
            "%% for a percent sign"
        )
        raise UsageError(f"cannot read the pattern {pattern!r}: {what}", where, todo) from None


class PatternValues:
    """What the letters stand for.  `rows` has for each rank its host and the number of that host, world after world.

    `first` is the number of the first rank, `service` the row of services; `addresses` gives that of a host by number.
    """

    def __init__(
        self,
        rows: Iterable[tuple[str, int]],
        first: int = 0,
        service: tuple[str, int] | None = None,
        addresses: Callable[[int], str] | None = None,
    ) -> None:
        self._rows = list(rows)
        self._service = service or self._rows[0]
        self._addresses = addresses
        self._local: list[int] = []  # the local ranks, up to the last that was asked for
        self._on_host: dict[tuple[int, tuple[str, int]], int] = {}  # world and host -> how many of these
        self.ranks = range(first, first + len(self._rows))  #: the numbers of all ranks
        self.worlds = RankNames(len(self._rows), first=first)

    def of(self, rank: int) -> dict[str, str]:
        """The value of each letter for a rank or a service.

        For our own patterns only: %w is the world, from 1, and %l the local rank of a rank.
        """
        if is_service(rank):
            (host, node), world, own = self._service, 1, service_info(rank).name
        else:
            (host, node), (world, number) = self._rows[rank - self.ranks.start], self.worlds.of(rank)
            own = str(number)
        address = self._addresses(node) if self._addresses else host
        known = {"r": own, "g": str(world - 1), "p": str(node), "h": host, "a": address, "%": "%", "w": str(world)}
        return known if is_service(rank) else {**known, "l": str(self.local_rank(rank))}

    def local_rank(self, rank: int) -> int:
        """The number of a rank among those of its host, in its world."""
        while len(self._local) <= rank - self.ranks.start:
            at = len(self._local)
            host = self.worlds.of(self.ranks.start + at)[0], self._rows[at]
            self._local.append(self._on_host.get(host, 0))
            self._on_host[host] = self._local[at] + 1
        return self._local[rank - self.ranks.start]

    def add_world(self, rows: Iterable[tuple[str, int]]) -> range:
        """Add the ranks of a world; returns their numbers."""
        before = self.ranks.stop
        self._rows += rows
        self.ranks = range(self.ranks.start, self.ranks.start + len(self._rows))
        self.worlds.add(self.ranks.stop - before)
        return range(before, self.ranks.stop)


def values_of_job(jobmap: JobMap, addresses: Callable[[int], str] | None) -> PatternValues:
    """The values for a map; `addresses` gives those of hosts by their index in it."""
    rows = [(jobmap.nodes[placement.node].name, placement.node) for placement in jobmap.placements]
    service = (jobmap.nodes[jobmap.service].name, jobmap.service) if jobmap.service >= 0 else None
    return PatternValues(rows, jobmap.first, service, addresses)


# --- %a


def addresses_of(hosts: Sequence[Host], master: str = "") -> Callable[[int], str]:
    """The address that stands for each host, by its index in the map: the one it was called by, or its first.

    It is for display; `agents.rendezvous` checks what ranks can reach.  No name service is asked.  `master` is
    `Share.address`, where several launchers meet.  A job on this host alone is at 127.0.0.1, as with msrun.
    """
    if master:
        own = source_address(master) or _LOCALHOST  # unreachable, which the launch reports later
        return lambda node: own
    if len(hosts) == 1 and hosts[0][0].local:
        return lambda node: _LOCALHOST
    return [_address(host, hosts) for host in hosts].__getitem__


def _address(host: Host, hosts: Sequence[Host]) -> str:
    """For the launcher's own host: the address that other agents were called from, if it is one of its own."""
    node, hello = host
    own = hello.addresses if hello else ()
    if ":" in node.name or node.name.replace(".", "").isdigit():
        return node.name
    if node.local:
        seen = (other.seen_from for _, other in hosts if other)
        return next((address for address in seen if address in own), own[0] if own else _LOCALHOST)
    return own[0] if own else node.name
