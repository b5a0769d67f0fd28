"""Binding of ranks to cpus: what --bind-to, PE=n and --cpu-set ask for, else the default of Open MPI 4.1.

Rules of mpirun 4.1.4, found by experiment on synthetic topologies (HWLOC_SYNTHETIC), which
tests/compat/test_binding_against_mpirun.py repeats.  By default one or two ranks get a core each, more get the NUMA
domain they were mapped to.  A default that cannot be met is not applied, without a message; only what somebody asked
for is refused.

Programs that name a framework with threads of its own are not bound by default (`unbound_programs`): all of its threads
would share one core.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.jobmap import Placement
from mslaunch.datamodel.node_report import LEVELS
from mslaunch.errors import AllocationError, UsageError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import unbound_in

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.datamodel.node_report import Topology
    from mslaunch.datamodel.request import AppContext, Policy, Request

UNBOUND = ("none", "board")  #: mpirun takes board for a policy, and binds nothing
CPU_LIST = "cpu-list"  #: --bind-to cpu-list: every rank gets all cpus of --cpu-list
ORDERED = "cpu-list:ordered"  #: the first rank of a node gets the first cpu of the list, and so on


def wants_binding(policy: Policy, jobmap: JobMap) -> bool:
    """Whether ranks may get cpus, so that topologies are needed; if not, `bind` need not be called.

    They may not where that was asked for, where all are bound already (by a rankfile), and where nobody asked for
    anything and there are more ranks than slots, in plain local mode more than cores.
    """
    if policy.local is not None:
        return True
    if all(placement.cpus for placement in jobmap.placements):
        return False
    if policy.cpu_set or policy.rankfile is not None:
        return True
    return policy.bind_to not in UNBOUND and (bool(_asked(policy)) or not jobmap.oversubscribed)


def check(policy: Policy) -> None:
    """Raises UsageError for what contradicts itself, whatever the machines are."""
    cpu = "hwthread" if uses_hwthreads(policy) else "core"
    if policy.pe and policy.bind_to not in ("", "none", cpu):
        raise UsageError(
            f"PE={policy.pe} gives each rank {counted(policy.pe, 'cpu')}, which cannot be one {policy.bind_to}",
            f"--bind-to {policy.bind_to}",
            f"with PE=n only --bind-to {cpu} can be said, and is what happens if nothing is",
        )
    if policy.bind_to in (CPU_LIST, ORDERED) and not policy.cpu_set:
        raise UsageError("no cpus are listed", f"--bind-to {policy.bind_to}", "add --cpu-list 0,1 with logical numbers")


def uses_hwthreads(policy: Policy) -> bool:
    """Whether a cpu is a hardware thread: as said, and whenever ranks are mapped or bound to those."""
    return policy.hwthread_cpus or "hwthread" in (policy.bind_to, policy.map_by)


def unbound_programs(request: Request, cwd: str, read: Callable[[str], bytes]) -> dict[int, str]:
    """App context -> why its ranks are not bound, as `net.py names torch`; `read` gives the first bytes of a file.

    Empty if the user has said anything about binding or about the objects to map by.  Searched are Python scripts
    (words that end in .py) as the launching host has them, and the words after -m and -c; a program that a shell script
    starts is not found.
    """
    policy = request.policy
    said = policy.bind_to or policy.pe or policy.cpu_set or policy.map_by not in ("", "slot", "node", "ppr", "seq")
    if said or policy.rankfile is not None or policy.local:
        return {}
    found: dict[int, str] = {}
    for number, app in enumerate(request.apps):
        for word, text in _texts(app, cwd, read):
            framework = unbound_in(text)
            if framework:
                found.setdefault(number, f"{word} names {framework}")
    return found


def _texts(app: AppContext, cwd: str, read: Callable[[str], bytes]) -> Iterator[tuple[str, str]]:
    """What a program runs: the name of each text, and the text."""
    for before, word in zip(("", *app.argv), app.argv):
        if before in ("-m", "-c"):
            yield before, word
        elif word.endswith(".py"):
            path = os.path.join(cwd, app.wdir or "", word)
            yield word.rpartition("/")[2], read(path).decode("utf-8", "replace")


def usable(policy: Policy, topologies: Mapping[str, Topology]) -> dict[str, Topology]:
    """The machines as --cpu-set leaves them; mapping and `bind` need these, the displays the whole ones.

    Numbers are logical: of cores, or with `uses_hwthreads` of hardware threads.  Raises UsageError for a list that
    cannot be read, and for cpus that a node has not (mpirun 4.1.4 ends without a message).
    """
    if not policy.cpu_set or policy.rankfile is not None:  # a rankfile names cpus of the whole machine
        return dict(topologies)
    from mslaunch.plan.cpu_lists import listed, only

    threads = uses_hwthreads(policy)
    return {
        name: only(topology, listed(policy.cpu_set, topology, threads, "--cpu-set", name))
        for name, topology in topologies.items()
    }


def bind(jobmap: JobMap, policy: Policy, topologies: Mapping[str, Topology], unbound: Container[int] = ()) -> JobMap:
    """Fills `cpus` of the placements that have none yet; `topologies` are what `usable` returned, by node name.

    Ranks of the app contexts `unbound` stay as they are.

    Raises UsageError for a policy that contradicts itself or a level that a node has not, AllocationError where more
    ranks than cpus would be bound to an object and overload-allowed was not said.  Where it was the default that
    cannot be met, the ranks of that node stay unbound.
    """
    check(policy)
    if not wants_binding(policy, jobmap):
        return jobmap
    if policy.local is not None:
        from mslaunch.plan.binding_by_local_rank import bind_locally

        return bind_locally(jobmap, policy.local, topologies)
    placements = list(jobmap.placements)
    known: dict[tuple[int, tuple[tuple[str, int], ...]], list[tuple[int, ...]]] = {}  # of nodes that are alike
    for node, here in zip(jobmap.nodes, jobmap.by_node()):
        mine = [row for row in here if not row.cpus and row.app not in unbound]
        topology = topologies.get(node.name)
        if not topology or not topology.cpus:
            _cannot(policy, node.name, "it does not tell its cpus")
            continue
        alike = id(topology), tuple(row.locale for row in mine)
        if alike not in known:
            bound = _NodeBinding(node.name, topology, policy, len(placements)).bound(mine)
            known[alike] = [tuple(sorted(topology.cpus[place] for place in places)) for places in bound]
        for row, cpus in zip(mine, known[alike]):
            rank, app, at, local_rank, _, locale, memory = row
            placements[rank] = Placement._make((rank, app, at, local_rank, cpus, locale, memory))
    return jobmap._replace(placements=tuple(placements))


def _cannot(policy: Policy, host: str, why: str) -> None:
    """Raises UsageError unless binding was nobody's wish, or only a wish."""
    mapped = f"--map-by {policy.map_by}" if policy.map_by in LEVELS else ""
    asked = f"--cpu-set {policy.cpu_set}" if policy.cpu_set else _asked(policy) or mapped
    if asked and not policy.if_supported:
        raise UsageError(
            f"ranks on {host} cannot be bound: {why}", asked, "use --bind-to none, or add :if-supported to the policy"
        )


def _asked(policy: Policy) -> str:
    """The option that asked for binding to something; PE=n counts as asking for cpus."""
    if policy.bind_to:
        return f"--bind-to {policy.bind_to}"
    return f"PE={policy.pe}" if policy.pe else ""


class _NodeBinding:
    """One node while its ranks are bound: the objects of the level, how many cpus each has, and how many ranks."""

    def __init__(self, name: str, topology: Topology, policy: Policy, ranks: int) -> None:
        self._name = name
        self._topology = topology
        self._policy = policy
        self._cpus = topology.cpu_row(uses_hwthreads(policy))
        self._everything = tuple(range(len(topology.cpus)))
        self._free = self._everything if policy.cpu_set else ()  # what ranks get that are not bound
        self._level = self._which(ranks)
        self._objects = _objects(topology, self._level) if self._level in LEVELS else []
        self._room = [len({self._cpus[place] for place in places}) for places in self._objects]
        self._load = [0] * len(self._objects)
        self._below: dict[tuple[str, int], list[int]] = {}  # by locale: the objects of the level that it meets

    def bound(self, rows: Sequence[Placement]) -> list[tuple[int, ...]]:
        """The places of each rank's cpus."""
        if self._level == CPU_LIST:
            return [self._everything for _ in rows]
        if self._level == ORDERED:
            return self._in_order(len(rows))
        if not self._objects:
            if self._level in LEVELS:
                _cannot(self._policy, self._name, f"there is no {self._level}, only {_levels(self._topology)}")
            return [self._free for _ in rows]
        try:
            return [self._place(row, len(rows)) for row in rows]
        except AllocationError:
            if _asked(self._policy):
                raise
            return [self._free for _ in rows]

    def _which(self, ranks: int) -> str:
        """The level that is bound to; "" for none."""
        policy = self._policy
        nothing_said = not (policy.bind_to or policy.pe or policy.map_by in LEVELS)
        if policy.cpu_set and (nothing_said or policy.bind_to in UNBOUND):
            return CPU_LIST  # in mpirun the list is a policy of its own
        if policy.bind_to:
            return policy.bind_to
        if policy.map_by in LEVELS and not policy.pe:
            return policy.map_by
        if policy.pe or ranks <= 2:
            return "hwthread" if uses_hwthreads(policy) else "core"
        return next((level for level in ("numa", "socket") if self._topology.row(level)), "")

    def _place(self, row: Placement, ranks: int) -> tuple[int, ...]:
        mapped_here = row.locale[0] == self._level
        numbers = [self._near(row.locale[1])] if mapped_here else self._from(self._emptiest(row.locale))
        for number in numbers:
            self._load[number] += 1
            if self._load[number] > self._room[number] and not self._may_overload():
                raise self._refusal(number, ranks)
        return tuple(place for number in numbers for place in self._objects[number])

    def _near(self, number: int) -> int:
        """The object that the rank was mapped to; if that is full the next one with room, else the one before."""
        ways = (*range(number, len(self._objects)), *range(number - 1, -1, -1))
        return next((way for way in ways if self._load[way] < self._room[way]), number)

    def _emptiest(self, locale: tuple[str, int]) -> int:
        """Of the objects below, at or above the locale, the first of those with the fewest ranks."""
        if locale not in self._below:
            row = self._topology.row(locale[0]) if locale[0] else ()
            self._below[locale] = [
                number
                for number, places in enumerate(self._objects)
                if not row or any(row[place] == locale[1] for place in places)
            ]
        return min(self._below[locale], key=self._load.__getitem__)

    def _from(self, first: int) -> list[int]:
        """This object, and with PE=n those after it until there are n cpus."""
        numbers, cpus = [first], self._room[first]
        while cpus < self._policy.pe:
            if numbers[-1] + 1 == len(self._objects):
                raise AllocationError(
                    f"there are no {self._policy.pe} free cpus for another rank on {self._name}, "
                    f"which has {sum(self._room)}",
                    f"PE={self._policy.pe}",
                    "ask for fewer ranks a node, or a smaller PE=n",
                )
            numbers.append(numbers[-1] + 1)
            cpus += self._room[numbers[-1]]
        return numbers

    def _in_order(self, ranks: int) -> list[tuple[int, ...]]:
        """A cpu of the list for each rank."""
        cpus = sorted(set(self._cpus))
        if ranks > len(cpus):
            raise AllocationError(
                f"{ranks} ranks on {self._name}, and --cpu-list {self._policy.cpu_set} names "
                f"{counted(len(cpus), 'cpu')}",
                f"--bind-to {ORDERED}",
                "list a cpu for each rank of a node, or ask for fewer ranks",
            )
        return [tuple(place for place in self._everything if self._cpus[place] == cpu) for cpu in cpus[:ranks]]

    def _may_overload(self) -> bool:
        """As said; --oversubscribe says it for the default (and PE=n), but not for a --bind-to beside it."""
        return self._policy.overload or (bool(self._policy.oversubscribe) and not self._policy.bind_to)

    def _refusal(self, number: int, ranks: int) -> AllocationError:
        """For an object that would get more ranks than it has cpus, on a node with so many."""
        fewer = "fewer ranks a node" + (" or a smaller PE=n" if self._policy.pe else "")
        left = f" of --cpu-set {self._policy.cpu_set}" if self._policy.cpu_set else ""
        return AllocationError(
            f"{ranks} ranks on {self._name}: {self._load[number]} of them would be bound to "
            f"{self._level} {number}{left}, which has {counted(self._room[number], 'cpu')}",
            _asked(self._policy),
            f"ask for {fewer}, use --bind-to none, or allow it with --bind-to {self._level}:overload-allowed",
        )


def _objects(topology: Topology, level: str) -> list[list[int]]:
    """The places of the cpus of each object of the level, by its number."""
    row = topology.row(level)
    objects: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    for place, number in enumerate(row):
        objects[number].append(place)
    return objects


def _levels(topology: Topology) -> str:
    return ", ".join(level for level in LEVELS if topology.row(level))
