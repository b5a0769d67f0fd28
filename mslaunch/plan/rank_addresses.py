"""An address for each rank, for frameworks whose ranks all serve: --env-for.  Loaded only for launches that have it."""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.on_request import wanting_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.datamodel.jobmap import JobMap, RankPorts
    from mslaunch.datamodel.request import Request

_VARIABLE = 1 << 17  # bytes; the kernel takes no longer one, its name included (execve(2), MAX_ARG_STRLEN)
_AROUND = 1 << 10  # for the name, and what stands around the addresses
_SEPARATOR = 4  # bytes between two of them, in JSON


def check_requested(request: Request) -> None:
    """Raises `UsageError` where ranks could not be told each other's addresses."""
    words = wanting_ports(request.env_for)
    if words and request.cluster.share:
        what = "each of several launchers would know the addresses of its own ranks only"
        raise UsageError(what, f"--env-for {','.join(words)}", "start all ranks by one command, with -H or --hostfile")


def ports_wanted(request: Request, jobmap: JobMap) -> dict[int, int]:
    """How many ports are to be held for ranks on each node; {}: none."""
    if not wanting_ports(request.env_for) or request.cluster.simulated:
        return {}
    return {node: len(rows) for node, rows in enumerate(jobmap.by_node()) if rows}


def rank_addresses(jobmap: JobMap, held: Mapping[int, RankPorts]) -> tuple[str, ...]:
    """HOST:PORT of each rank.  Raises `UsageError` if they do not fit into a variable."""
    found = tuple(_joined(held[row.node].address, held[row.node].ports[row.local_rank]) for row in jobmap.placements)
    if sum(map(len, found)) + _SEPARATOR * len(found) > _VARIABLE - _AROUND:
        what = f"the addresses of {len(found)} ranks do not fit into a variable, which holds {_VARIABLE >> 10} KiB"
        raise UsageError(what, "--env-for", "start fewer ranks")
    return found


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
