"""Lists of cpus as text, `0,2-3` or `0:1`, to cpus of a topology; and the topology without the others.

The notation is that of Open MPI 4.1's --cpu-set, --cpu-list and rankfiles, found by experiment: numbers are logical
ones, of cores, or of hardware threads if those are the cpus; `0:1` is core 1 of socket 0, counted within the socket;
`0:*` and `S0` are a whole socket; `;` and `,` separate.  Blanks mean nothing.  `0:0,1` is socket 0, cores 0 and 1, as
mpirun's man page has it; mpirun 4.1.4 ignores the second number.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import Topology
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.number_ranges import bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


_NOTATION = "list logical numbers as 0,2-3; a core of a socket as 0:1, a whole socket as S0"


def listed(text: str, topology: Topology, hwthreads: bool, where: str, host: str) -> tuple[int, ...]:
    """The places in `topology.cpus` of the cpus that the text names, in logical order.

    Raises UsageError, with `where` (option or file:line), if the text is no list, or names what `host` has not.
    """
    cpus, cores = topology.cpu_row(hwthreads), topology.cpu_row(False)
    sockets = topology.row("socket") or (0,) * len(cpus)
    found: set[int] = set()
    rows: tuple[tuple[str, str, Sequence[int]], ...]  # what is wanted, its name, and the numbers there are
    for item in "".join(text.split()).split(";"):
        socket = ""
        for word in filter(None, item.split(",")):
            head, *tail = word.split(":")
            socket = head.lstrip("sS") if tail else socket
            if word[:1] in ("s", "S") and not tail:
                rows = ((word[1:], "socket ", sockets),)
            elif socket:
                inside = _inside(cores, sockets, _numbers(socket, sockets, "socket ", text, where, host))
                rows = tuple((part.lstrip("cC"), f"core {socket}:", inside) for part in tail or [head])
            else:
                rows = ((word, "hardware thread " if hwthreads else "core ", cpus),)
            for wanted, what, row in rows:
                numbers = _numbers(wanted, row, what, text, where, host)
                found.update(at for at, number in enumerate(row) if number in numbers)
    if not found:
        raise UsageError(f"{text!r} names no cpu", where, _NOTATION)
    return tuple(sorted(found))


def only(topology: Topology, places: Sequence[int]) -> Topology:
    """The machine without the cpus at other places; the objects that are left are numbered anew."""
    nodes = sorted({topology.row("numa")[at] for at in places}) if topology.numa else ()
    return Topology(
        tuple(topology.cpus[at] for at in places),
        tuple(_renumbered([row[at] for at in places]) if row else () for row in topology.objects),
        tuple(topology.numa[node] for node in nodes),
    )


def _renumbered(row: Sequence[int]) -> tuple[int, ...]:
    numbers = {old: new for new, old in enumerate(sorted(set(row)))}
    return tuple(numbers[old] for old in row)


def _inside(cores: Sequence[int], sockets: Sequence[int], chosen: Collection[int]) -> tuple[int, ...]:
    """The cores of the chosen sockets, numbered within them; -1 elsewhere."""
    inside = sorted({core for core, socket in zip(cores, sockets) if socket in chosen})
    return tuple(inside.index(core) if socket in chosen else -1 for core, socket in zip(cores, sockets))


def _numbers(word: str, rows: Sequence[int], what: str, text: str, where: str, host: str) -> Collection[int]:
    """`3`, `2-3` or `*` as numbers that are in `rows`."""
    there = {number for number in rows if number >= 0}
    if word == "*":
        return there
    found = bounds(word)
    if not found:
        raise UsageError(f"cannot read {word!r}" + (f" in {text!r}" if word != text else ""), where, _NOTATION)
    wanted = range(found[0], found[1] + 1)
    missing = next((number for number in wanted if number not in there), None)
    if missing is not None:
        most = f"0 to {max(there)}" if there else "none"
        raise UsageError(f"{host} has no {what}{missing} that we may use", where, f"there: {most}")
    return wanted
