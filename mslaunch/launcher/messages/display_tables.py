"""Tables about a job before it starts: the allocation, the map, topologies and bindings.

With --xml standard output is one document: tables go to standard error, and the map into the document.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.datamodel.jobmap import Allocation
    from mslaunch.datamodel.request import Request
    from mslaunch.plan.mapping.pipeline import Placed


def tables(request: Request, allocation: Allocation, placed: Placed, jobid: str) -> str:
    """All tables that were asked for, in the order of mpirun.

    The allocation is shown as by mpirun; with --display-table as a table of our own with users, ports and sources.
    """
    from mslaunch.plan import displays

    how = request.display_map or ("map" if request.do_not_launch else "")  # a dry run always shows it, as mpirun's
    parts = []
    if request.display_allocation:
        show = displays.show_allocation if how == "table" else displays.allocation_text
        parts.append(show(allocation))
    if request.display_topology:
        parts += (displays.show_topology(name, topology) for name, topology in placed.topologies.items())
    if how == "map" and not map_as_xml(request):
        parts.append(displays.map_text(placed.jobmap, placed.topologies, int(jobid, 16) & 0xFFFF))
    elif how and not map_as_xml(request):
        parts.append(displays.show_map(placed.jobmap, request.apps, how, placed.topologies, request.policy))
    return "".join(parts)


def map_as_xml(request: Request) -> bool:
    """Whether the map is a part of the XML document, which begins once every agent has answered."""
    return bool(request.display_map) and request.output.as_xml


def bindings(placed: Placed, pids: Mapping[str, int]) -> str:
    """--report-bindings; `pids` are those of the agents, by node."""
    from mslaunch.plan.report_bindings import binding_lines

    return "".join(line + "\n" for line in binding_lines(placed.jobmap, placed.topologies, pids, placed.unbound))
