"""The allocation: the nodes of a job and their slots, from hostfiles, -H, a rankfile or the cores of this host.

No host is asked anything: a node whose slots nobody gave has None until its agent reports (`Allocation.with_cores`).

Rules of Open MPI 4.1 that scripts count on: -H replaces a hostfile and does not filter it, unless it points into it
(`host_names`); this host is node 0 whatever its line; a rankfile makes the allocation, each of its lines a slot, of
the hosts that -H or a hostfile allow.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.datamodel.request import DEFAULT_SLOTS, NO_HOSTFILE
from mslaunch.errors import AllocationError, HostfileError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.hosts.host_names import KEEP_DOMAINS, chosen, first_said, in_order, left_out, local_first, naming_of
from mslaunch.plan.hosts.hostfile import parse, parse_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import HostLine
    from mslaunch.datamodel.request import AppContext, Request
    from mslaunch.plan.hosts.host_names import HostNames, Table


class _Listed(NamedTuple):
    """The hosts of one hostfile or -H."""

    table: Table
    order: tuple[str, ...]  # their names, mention by mention


def allocate_named(
    request: Request,
    read_text: Callable[[str], str],
    is_local: Callable[[str], bool],
    here: Node,
    base: Sequence[Node] = (),
) -> Allocation:
    """The nodes that the app contexts name between them, or the default hostfile, or the rankfile; `here` is this host.

    Relative hosts without a hostfile are chosen from `base`, or are this host.

    An app context takes its hosts from its -H texts, else from its hostfile; one that names none may use all.
    `read_text` may raise OSError and UnicodeDecodeError.  Raises HostfileError, UsageError (-H), AllocationError.
    """
    files = [(app.hostfile, "--hostfile") for app in request.apps if app.hostfile is not None]
    if not files and request.default_hostfile not in (None, NO_HOSTFILE):
        files = [(request.default_hostfile, "--default-hostfile")]
    naming = naming_of(request, is_local, here.name)
    sources = _Sources(read_text, naming, files, base or (here,))
    listed = [sources.of(app) for app in request.apps]
    if request.policy.rankfile is not None:
        return _by_rankfile(request, sources, naming, listed)
    named = any(listed)
    if not named:
        listed[0] = sources.file(*files[0])
    default = int(dict(request.mca).get(DEFAULT_SLOTS, 0))
    joined = _joined(listed, here, named, request.policy.map_by == "seq", default)
    if request.policy.per_host is None:
        return joined
    from mslaunch.plan.hosts.msrun_slots import shared

    return shared(joined, request)


# ------------------------------------------------------------------------------------------------ hostfiles and -H


class _Sources:
    """What hostfiles and -H say, each file read once; `named` are those of all app contexts, or the default one."""

    def __init__(
        self,
        read_text: Callable[[str], str],
        naming: HostNames,
        named: Sequence[tuple[str, str]],
        others: Sequence[Node],
    ) -> None:
        self._read_text = read_text
        self._naming = naming
        self._named = named
        self._others = others
        self._files: dict[str, _Listed] = {}

    def of(self, app: AppContext) -> _Listed | None:
        """The hosts that an app context names."""
        if app.sequence:
            return self._hosts(app.sequence, app)
        if app.hosts:
            return self._hosts([line for text in app.hosts for line in parse_hosts(text)], app)
        return self.file(app.hostfile, "--hostfile") if app.hostfile is not None else None

    def file(self, path: str, option: str) -> _Listed:
        """The hosts of a hostfile."""
        if path not in self._files:
            self._files[path] = _from_file(parse(self.text(path, option), path), self._naming)
        return self._files[path]

    def base(self, app: AppContext) -> Table:
        """The hosts that relative ones are chosen from."""
        if app.hostfile is not None:
            return self.file(app.hostfile, "--hostfile").table
        if not self._named:
            return {node.name: node for node in self._others}
        table: Table = {}
        for path, option in self._named:
            table = {**self.file(path, option).table, **table}
        return table

    def text(self, path: str, option: str) -> str:
        """What is in a file; raises HostfileError if it cannot be read."""
        try:
            return self._read_text(path)
        except FileNotFoundError:
            why = f"there is no file {path}", "check the path; it counts from the directory of the launch"
        except IsADirectoryError:
            why = f"{path} is a directory", "name a text file, with one host or rank a line"
        except UnicodeDecodeError as error:
            why = f"{path} is not text (byte {error.start})", "save it as plain text, UTF-8"
        except (OSError, ValueError) as error:
            why = (
                f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
                "name a text file that you may read",
            )
        raise HostfileError(why[0], option, why[1])

    def _hosts(self, lines: Sequence[HostLine], app: AppContext) -> _Listed:
        """The -H texts of one app context: mentions of a host add up, relative hosts keep the slots of their file."""
        table: Table = {}
        order: list[str] = []
        for line in lines:
            if line.name[0] == "+":
                base = {name: node for name, node in self.base(app).items() if not node.spare}
                order += (node.name for node in chosen(line, base))
                table.update(in_order(lines, base))
            elif line.name[0] != "^":
                new = self._naming.node(line)
                order.append(new.name)
                table[new.name] = _added(table[new.name], new) if new.name in table else new
        without = [line for line in lines if line.name[0] == "^"]
        if without:
            table = table or self.base(app)
            gone = left_out(without, table, self._naming)
            table = {name: node for name, node in table.items() if name not in gone}
            order = [name for name in order or table if name not in gone]
        return _Listed(table, tuple(order))


def _from_file(lines: Iterable[HostLine], naming: HostNames) -> _Listed:
    """One hostfile: a host on k bare lines has k slots; slots= may be said once, on its first line.

    max_slots= alone is the number of slots as well on the first line of a host, and nothing else on a later one.
    """
    table: Table = {}
    order = []
    for line in lines:
        new = naming.node(line)
        order.append(new.name)
        old = table.get(new.name)
        first = new._replace(slots=new.max_slots) if new.slots is None else new
        table[new.name] = _again(old, new, line) if old else first
    return _Listed(table, tuple(order))


def _again(old: Node, new: Node, line: HostLine) -> Node:
    """A host that the file has named before."""
    who = new.name if line.name == new.name else f"{line.name} (the node {new.name})"
    if new.slots is not None:
        apart = f"\nif these are two hosts, keep their domains apart with --mca {KEEP_DOMAINS} 1"
        hint = "" if new.local or who == new.name else apart
        raise HostfileError(
            f"{who} gets its slots a second time, after {old.source}",
            line.source,
            f"give a host one line with slots=N, or a line for each slot{hint}",
        )
    slots = (1 if old.slots is None else old.slots) + 1
    most = old.max_slots if new.max_slots is None else new.max_slots
    if most is not None and slots > most:
        what = f"{who} has {counted(slots, 'slot')} now, more than its max_slots={most}"
        raise HostfileError(what, line.source, "leave the line out, or raise max_slots")
    source = f"{old.source},{line.source.rpartition(':')[2]}" if len(old.source) < 40 else old.source
    return first_said(old, new)._replace(slots=slots, max_slots=most, source=source)


def _added(old: Node, new: Node) -> Node:
    """Two mentions of a host in -H."""
    slots = None if old.slots is None or new.slots is None else old.slots + new.slots
    return first_said(old, new)._replace(slots=slots)


# ------------------------------------------------------------------------------------------------ one allocation of all


def _joined(listed: Sequence[_Listed | None], here: Node, apart: bool, in_sequence: bool, default: int) -> Allocation:
    """The lists of all app contexts as one allocation.

    `apart`: an app context keeps to its own list; `default`: slots of a host for which none are given, 0 for its cores.
    """
    nodes = _together(listed)
    if not nodes:
        raise AllocationError(
            "no host is named", todo="add a line like node1 slots=4 to the hostfile, or use -H node1:4"
        )
    if default:
        bare = {name: node for name, node in nodes.items() if node.slots is None}
        nodes |= {name: node._replace(slots=default, source=DEFAULT_SLOTS) for name, node in bare.items()}
    if here.name in nodes and nodes[here.name].local and nodes[here.name].slots is None:
        nodes[here.name] = nodes[here.name]._replace(slots=here.slots, source=f"cores of {here.name}")
    spares = tuple(node for node in nodes.values() if node.spare and node.slots != 0)
    usable = tuple(node for node in local_first(nodes) if node.slots != 0 and not node.spare)
    index = {node.name: at for at, node in enumerate(usable)}
    apps = _per_app(listed if apart else (), index)
    if spares and not (usable and all(apps)):
        what = f"all hosts are spares: {', '.join(node.name for node in spares[:8])}"
        raise AllocationError(what, spares[0].source, "a spare only replaces a host that is lost; name others as well")
    if not usable or not all(apps):
        who = [node for node in local_first(nodes) if node.slots == 0]
        raise AllocationError(
            "all nodes are filled: " + ", ".join(f"{node.name} has 0 slots ({node.source})" for node in who[:8]),
            todo="give at least one host a slot, as slots=1 or -H HOST:1",
        )
    orders = [one.order if one else () for one in listed] if in_sequence else ()
    sequences = tuple(tuple(index[name] for name in order if name in index) for order in orders)
    return Allocation(usable, declared=True, apps=apps, sequences=sequences, spares=spares)


def _together(listed: Sequence[_Listed | None]) -> Table:
    """The nodes of all lists, those of -H first.

    Of a host in several, the last -H that gives a number of slots counts, else the first hostfile (4.1.4).
    """
    nodes: Table = {}
    for one in sorted(_different(listed), key=lambda one: all(node.source != "-H" for node in one.table.values())):
        for name, node in one.table.items():
            old = nodes.get(name, node)
            said = node if node.source == "-H" and node.slots is not None else old
            spare = node.spare and old.spare  # who names it otherwise wants to use it
            nodes[name] = first_said(old, node)._replace(slots=said.slots, source=said.source, spare=spare)
    return nodes


def _different(listed: Sequence[_Listed | None]) -> list[_Listed]:
    """Each list once, for app contexts share that of a hostfile."""
    return list({id(one): one for one in listed if one}.values())


def _per_app(listed: Sequence[_Listed | None], index: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """The nodes of each app context; none, if all may use all."""
    everywhere = tuple(range(len(index)))
    own = {id(one): tuple(sorted(index[name] for name in one.table if name in index)) for one in _different(listed)}
    apps = tuple(own[id(one)] if one else everywhere for one in listed)
    return () if all(app == everywhere for app in apps) else apps


def _by_rankfile(
    request: Request, sources: _Sources, naming: HostNames, listed: Sequence[_Listed | None]
) -> Allocation:
    """The hosts of the rankfile, with a slot a line; where hosts are named as well, only these may be used."""
    from mslaunch.plan.hosts.rankfile import parse_ranks, resolve

    path = request.policy.rankfile or ""
    listed_ranks = parse_ranks(sources.text(path, "--rankfile"), path)
    table, lines = resolve(listed_ranks, naming, lambda: sources.base(request.apps[0]))
    known = {name: node for one in listed if one for name, node in one.table.items()}
    nodes = tuple(
        first_said(node, known[node.name])._replace(max_slots=known[node.name].max_slots, spare=False)
        if node.name in known
        else node
        for node in local_first(table)
    )
    index = {node.name: at for at, node in enumerate(nodes)}
    ranks = tuple(line._replace(node=index[name]) for name, line in lines)
    spares = tuple(node for node in known.values() if node.spare and node.name not in index and node.slots != 0)
    return Allocation(nodes, declared=True, apps=_per_app(listed, index), ranks=ranks, spares=spares)
