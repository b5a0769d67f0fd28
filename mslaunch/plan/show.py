"""What --display-map and --display-allocation print: plain tables for people.

The layout is ours, not Open MPI's; scripts that want facts have --do-not-launch and the log directory.  Records in,
text out; it prints nothing itself.  The surprising thing: ranks are folded to ranges, so 64 ranks by node are
written as the stride they have.
"""

from __future__ import annotations

from mslaunch.lean import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mslaunch.model import Allocation, AppContext, JobMap, Node, Placement


def show_allocation(allocation: Allocation) -> str:
    """The nodes, their slots, and who said so; ends in a line end."""
    rows = [("node", "slots", "most", "reached", "slots from")]
    for node in allocation.nodes:
        slots = "a slot a core" if node.slots is None else str(node.slots)
        rows.append((node.name, slots, "-" if node.max_slots is None else str(node.max_slots), _way(node), node.source))
    known = [node.slots for node in allocation.nodes if node.slots is not None]
    more = "" if len(known) == len(allocation.nodes) else " and the cores of the others"
    head = f"allocation: {_count(len(allocation.nodes), 'node')}, {_count(sum(known), 'slot')}{more}"
    return _table(head, rows)


def show_map(jobmap: JobMap, apps: Sequence[AppContext]) -> str:
    """Which ranks of which program run on which node, and their bindings; ends in a line end."""
    by_row: dict[tuple[int, int], list[Placement]] = {}
    for placement in jobmap.placements:
        by_row.setdefault((placement.node, placement.app), []).append(placement)
    rows = [("node", "slots", "ranks", "cpus", "program")]
    before = -1
    for (at, app), here in sorted(by_row.items()):
        node = jobmap.nodes[at]
        name, slots = ("", "") if at == before else (node.name, "?" if node.slots is None else str(node.slots))
        rows.append((name, slots, fold_ranks(placement.rank for placement in here), _cpus(here), _program(apps, app)))
        before = at
    ranks, nodes = _count(len(jobmap.placements), "rank"), _count(len(jobmap.nodes), "node")
    over = ", oversubscribed" if jobmap.oversubscribed else ""
    return _table(f"map: {ranks} on {nodes}, {_count(jobmap.slots, 'slot')} in all{over}", rows)


def fold_ranks(ranks: Iterable[int]) -> str:
    """Rising numbers in short: 0 1 2 5 is `0-2,5`, and 0 4 8 12 is `0-12/4` (every fourth)."""
    numbers = list(ranks)
    parts = []
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 0
        end = at + 1
        while end < len(numbers) and step > 0 and numbers[end] - numbers[end - 1] == step:
            end += 1
        if end - at < (2 if step == 1 else 3):
            end = at + 1
            parts.append(str(numbers[at]))
        else:
            parts.append(f"{numbers[at]}-{numbers[end - 1]}" + (f"/{step}" if step != 1 else ""))
        at = end
    return ",".join(parts)


def _way(node: Node) -> str:
    if node.local:
        return "here"
    user = f"{node.user}@" if node.user is not None else ""
    port = f":{node.port}" if node.port is not None else ""
    name = f"[{node.name}]" if port and ":" in node.name else node.name
    return f"{user}{name}{port}"


def _cpus(placements: Sequence[Placement]) -> str:
    """The cpus of each rank; `+` joins those of one."""
    if not any(placement.cpus for placement in placements):
        return "not bound"
    if all(len(placement.cpus) == 1 for placement in placements):
        return fold_ranks(placement.cpus[0] for placement in placements)
    return ",".join("+".join(map(str, placement.cpus)) or "-" for placement in placements)


def _program(apps: Sequence[AppContext], app: int) -> str:
    words = apps[app].argv if app < len(apps) else ()
    text = " ".join(word if word.isprintable() and word and " " not in word else repr(word) for word in words)
    return text if len(text) <= 48 else text[:47] + "…"


def _table(head: str, rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([head, *("  " + line for line in lines)]) + "\n"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
