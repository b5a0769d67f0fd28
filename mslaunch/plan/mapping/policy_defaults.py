"""The defaults of mapping and ranking: what Open MPI 4.1 does where the command line is silent.

Rules of mpirun 4.1.4, by experiment (docs/placement.md has the table).  A modifier without a policy (`--map-by :PE=2`)
means `socket`, not the default.  `--rank-by` follows the mapping only for `node`: dealing ranks round the objects of a
node in turn already is what ranking by these objects would give.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import LEVELS
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.request import Policy

_FEW = 2  # up to so many ranks are mapped by core


def settle(policy: Policy, ranks: Callable[[], int], has: Callable[[str], bool]) -> Policy:
    """The policy with `map_by`, `rank_by` and `hwthread_cpus` filled in.

    `ranks()` is the number of all ranks of the job; `has` tells whether the first node has objects of a level.  Raises
    UsageError for what cannot be mapped.
    """
    if policy.bind_to == "hwthread":
        policy = policy._replace(hwthread_cpus=True)
    map_by = policy.map_by or _default(policy, ranks, has)
    _refuse(policy, map_by)
    rank_by = policy.rank_by or ("node" if map_by == "node" else "slot")
    return policy._replace(
        map_by=map_by,
        rank_by="node" if rank_by == "board" else rank_by,
        hwthread_cpus=policy.hwthread_cpus or map_by == "hwthread",
    )


def _default(policy: Policy, ranks: Callable[[], int], has: Callable[[str], bool]) -> str:
    if policy.ppr:
        return "ppr"
    if policy.span or policy.pe:
        return "socket"
    if ranks() <= _FEW:
        return "hwthread" if policy.hwthread_cpus else "core"
    return "numa" if has("numa") else "socket"


def _refuse(policy: Policy, map_by: str) -> None:
    if map_by == "dist":
        raise UsageError(
            "mslaunch does not know how far a device is from each cpu",
            "--map-by dist",
            "use --map-by numa, or write the cpus next to the device into a rankfile",
        )
    single = map_by == "hwthread" or (map_by == "core" and not policy.hwthread_cpus)
    if policy.pe > 1 and single:
        raise UsageError(
            f"a {map_by} has no {policy.pe} cpus to give to a rank",
            f"--map-by {map_by}:PE={policy.pe}",
            f"map by something larger, as --map-by socket:PE={policy.pe} or slot:PE={policy.pe}",
        )


def topology_decides(policy: Policy) -> bool:
    """Whether the node that a rank goes to can depend on the topologies of the nodes.

    If not, a map made of slots alone has the same nodes for all ranks as one that knows the topologies; what these
    add is the object in the node.  So only the nodes of that map have to be asked.
    """
    if policy.rankfile is not None or policy.map_by == "seq":
        return False
    if policy.ppr:
        if any(level != "node" for _, level in policy.ppr):
            return True
    elif policy.span and (not policy.map_by or policy.map_by in LEVELS):
        return True
    return policy.rank_how == "span" and policy.rank_by in LEVELS and policy.rank_by != "board"
