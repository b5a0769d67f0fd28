"""Which nodes we may use, and how many slots each has: hostfiles, -H or the cores of this host, put together.

It is handed the means to read a file, to tell whether a name is this host, and the number of cores here; it asks no
other host anything, so a node whose slots nobody said stays at None until its agent reports (`with_cores`).

The surprising things are Open MPI 4.1's, and scripts count on them: -H replaces a hostfile, it does not filter it; this
host is node 0 whatever its line; and a name is cut at its first dot, unless orte_keep_fqdn_hostnames says otherwise.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError, HostfileError
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import Allocation, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mslaunch.model import HostLine, Request

    Table = dict[str, Node]  # by name, in the order of first mention

_TRUE = frozenset(("1", "true", "yes", "t", "y", "on", "enabled"))
_KEEP_DOMAINS = "orte_keep_fqdn_hostnames"


def allocate(
    request: Request,
    read_text: Callable[[str], str],
    is_local: Callable[[str], bool],
    hostname: str,
    cores: int,
) -> Allocation:
    """The nodes that the app contexts name between them.

    An app context takes its hosts from its -H texts, else from its hostfile; one that names none may use all.  If none
    names any, the default hostfile counts, and without one this host with a slot a core.  `read_text` may raise OSError
    and UnicodeDecodeError.  Raises HostfileError, UsageError (-H), AllocationError.
    """
    if not any(app.hosts or app.hostfile is not None for app in request.apps) and request.default_hostfile is None:
        return Allocation((Node(hostname, cores, "cores", local=True),), declared=False)
    from mslaunch.plan.hostfile import parse, parse_hosts  # most launches name no host

    naming = _Naming(is_local, hostname, dict(request.mca).get(_KEEP_DOMAINS, "").lower() in _TRUE)
    files: dict[str, Table] = {}

    def file_table(path: str, option: str) -> Table:
        if path not in files:
            files[path] = _from_file(parse(_read(path, option, read_text), path), naming)
        return files[path]

    tables: list[Table | None] = []
    for app in request.apps:
        if app.hosts:
            tables.append(_from_hosts((line for text in app.hosts for line in parse_hosts(text)), naming))
        else:
            tables.append(file_table(app.hostfile, "--hostfile") if app.hostfile is not None else None)
    if all(table is None for table in tables):
        assert request.default_hostfile is not None
        tables = [file_table(request.default_hostfile, "--default-hostfile")]
    return _joined(tables, hostname, cores)


def with_cores(allocation: Allocation, cores: Mapping[str, int]) -> Allocation:
    """The same nodes, those without a number of slots given one a core; `cores` is by node name."""
    nodes = tuple(
        node._replace(slots=cores[node.name], source=f"cores of {node.name}")
        if node.slots is None and node.name in cores
        else node
        for node in allocation.nodes
    )
    return allocation._replace(nodes=nodes)


def _read(path: str, option: str, read_text: Callable[[str], str]) -> str:
    try:
        return read_text(path)
    except FileNotFoundError:
        raise HostfileError(
            f"there is no file {path}", option, "check the path; it counts from the directory of the launch"
        ) from None
    except IsADirectoryError:
        raise HostfileError(f"{path} is a directory", option, "name a file with one host a line") from None
    except UnicodeDecodeError as error:
        raise HostfileError(
            f"{path} is not text (byte {error.start})", option, "save it as plain text, UTF-8"
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise HostfileError(f"{path} cannot be read: {why}", option, "check its permissions") from None


class _Naming:
    """Which node a host's name stands for."""

    def __init__(self, is_local: Callable[[str], bool], hostname: str, keep_domains: bool) -> None:
        self._is_local = is_local
        self._hostname = hostname
        self._keep = keep_domains
        self._known: dict[str, Node] = {}

    def node(self, line: HostLine) -> Node:
        """The node of a line, with all that the line says of it."""
        bare = self._known.get(line.name)
        if bare is None:
            bare = self._known[line.name] = self._named(line.name)
        return bare._replace(
            slots=line.slots, source=line.source, max_slots=line.max_slots, user=line.user, port=line.port
        )

    def _named(self, name: str) -> Node:
        short = name if self._keep else _without_domain(name)
        if self._is_local(name) or (not self._keep and short == _without_domain(self._hostname)):
            return Node(self._hostname, None, "", local=True)
        return Node(short, None, "")


def _without_domain(name: str) -> str:
    """`aa.cluster.local` to `aa`; addresses stay whole."""
    if ":" in name or name.replace(".", "").isdigit():
        return name
    return name.partition(".")[0]


def _from_file(lines: Iterable[HostLine], naming: _Naming) -> Table:
    """One hostfile: a host on k bare lines has k slots; slots= may be said once, on its first line."""
    table: Table = {}
    for line in lines:
        new = naming.node(line)
        old = table.get(new.name)
        if old is None:
            table[new.name] = new
            continue
        if new.slots is not None:
            raise HostfileError(
                f"{_known_as(line.name, new.name)} gets its slots a second time, after {old.source}",
                line.source,
                f"give a host one line with slots=N, or a line for each slot{_domain_hint(line.name, new)}",
            )
        slots = (1 if old.slots is None else old.slots) + 1
        if old.max_slots is not None and slots > old.max_slots:
            raise HostfileError(
                f"{_known_as(line.name, new.name)} has {slots} slots now, more than its max_slots={old.max_slots}",
                line.source,
                "leave the line out, or raise max_slots",
            )
        source = f"{old.source},{line.source.rpartition(':')[2]}" if len(old.source) < 40 else old.source
        table[new.name] = _first_said(old, new)._replace(slots=slots, source=source)
    return table


def _from_hosts(lines: Iterable[HostLine], naming: _Naming) -> Table:
    """The -H texts of one app context: mentions of a host add up."""
    table: Table = {}
    for line in lines:
        new = naming.node(line)
        old = table.get(new.name)
        if old is None:
            table[new.name] = new
        else:
            slots = None if old.slots is None or new.slots is None else old.slots + new.slots
            table[new.name] = _first_said(old, new)._replace(slots=slots)
    return table


def _joined(tables: Iterable[Table | None], hostname: str, cores: int) -> Allocation:
    """The tables of all app contexts as one allocation; of a host in several, the larger number of slots counts."""
    tables = list(tables)
    nodes: Table = {}
    for table in tables:
        for name, node in (table or {}).items():
            old = nodes.get(name)
            nodes[name] = node if old is None else _larger(old, node)
    if not nodes:
        raise AllocationError(
            "no host is named", todo="add a line like node1 slots=4 to the hostfile, or use -H node1:4"
        )
    if hostname in nodes and nodes[hostname].local and nodes[hostname].slots is None:
        nodes[hostname] = nodes[hostname]._replace(slots=cores, source=f"cores of {hostname}")
    ordered = sorted(nodes.values(), key=lambda node: not node.local)  # stable: this host, then the order of mention
    usable = tuple(node for node in ordered if node.slots != 0)
    index = {node.name: at for at, node in enumerate(usable)}
    everywhere = tuple(range(len(usable)))
    apps = tuple(
        everywhere if table is None else tuple(sorted(index[name] for name in table if name in index))
        for table in tables
    )
    if not usable or not all(apps):
        who = ordered if not usable else [node for node in ordered if node.slots == 0]
        raise AllocationError(
            "all nodes are filled: " + ", ".join(f"{node.name} has 0 slots ({node.source})" for node in who[:8]),
            todo="give at least one host a slot, as slots=1 or -H HOST:1",
        )
    return Allocation(usable, declared=True, apps=() if all(app == everywhere for app in apps) else apps)


def _larger(old: Node, new: Node) -> Node:
    """Slots that nobody said (None) may be many: they count as the larger."""
    if old.slots is not None and (new.slots is None or new.slots > old.slots):
        return _first_said(new, old)
    return _first_said(old, new)


def _first_said(old: Node, new: Node) -> Node:
    """`old`, with the user and port of `new` where it said none."""
    return old._replace(
        user=old.user if old.user is not None else new.user, port=old.port if old.port is not None else new.port
    )


def _known_as(written: str, name: str) -> str:
    return name if written == name else f"{written} (the node {name})"


def _domain_hint(written: str, node: Node) -> str:
    if node.local or written == node.name:
        return ""
    return f"\nif these are two hosts, keep their domains apart with --mca {_KEEP_DOMAINS} 1"
