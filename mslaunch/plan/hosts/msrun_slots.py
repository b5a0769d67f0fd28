"""The number of ranks on each host as msrun and torchrun count them: a number for each, or slots, or even shares.

It becomes the slots of the allocation, which mapping then fills.  A host of -H without a number has one slot for
mpirun; here it has none of its own if no host of that -H has a number, and such hosts share what is left evenly.
"""

from __future__ import annotations

from mslaunch.errors import UsageError, counted
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.jobmap import Allocation, Node
    from mslaunch.datamodel.request import Request

_WORKERS = 8  # in all, where nobody says
_SHOWN = 8


def shared(allocation: Allocation, request: Request) -> Allocation:
    """The allocation with the slots that `policy.per_host` asks for.  Raises `UsageError` if numbers do not add up."""
    each, total = request.policy.per_host, request.apps[0].np
    nodes = allocation.nodes
    if each and request.policy.nodes:
        return _nodes_of_torchrun(allocation, each, *request.policy.nodes)
    if each:
        _check_each(len(nodes), each, total)
        return _with(allocation, [each] * len(nodes), "--local_worker_num", each)
    bare = _are_bare(request.apps[0].hosts)
    unsaid = [_is_unsaid(node, bare) for node in nodes]
    said = sum(node.slots or 0 for node, open_ in zip(nodes, unsaid) if not open_)
    if not any(unsaid):
        if total is not None and total > said:
            raise _too_few(nodes, said, total)
        return allocation
    each, more = divmod(max(0, (_WORKERS if total is None else total) - said), sum(unsaid))
    shares = iter([each + (at < more) for at in range(sum(unsaid))])  # the first get one more if it is not even
    slots = [next(shares) if open_ else node.slots or 0 for node, open_ in zip(nodes, unsaid)]
    return _with(allocation, slots, "an even share", max(slots))


def _nodes_of_torchrun(allocation: Allocation, each: int, fewest: int, most: int) -> Allocation:
    """--nnodes MIN:MAX and --nproc-per-node: the first MAX hosts; those after them are spares."""
    nodes = allocation.nodes
    if len(nodes) < fewest:
        what = f"it asks for {counted(fewest, 'host')}, and {counted(len(nodes), 'host')} can be used"
        raise UsageError(what, "--nnodes", "name more hosts, or lower it")
    used = nodes[: most or len(nodes)]
    allocation = allocation._replace(nodes=used, spares=(*nodes[len(used) :], *allocation.spares))
    return _with(allocation, [each] * len(used), "--nproc-per-node", each)


def _check_each(hosts: int, each: int, total: int | None) -> None:
    if total is None:
        return
    todo = "change one of the numbers; or give each host its own, as in -H node01:3,node02:1"
    if total > hosts * each:
        have = f"{counted(hosts, 'host')} with {counted(each, 'worker')} each"
        what = f"{have} make {hosts * each}, and {total} are asked for"
        raise UsageError(what, "--worker_num", f"name more hosts, or {todo}")
    if total % each:
        what = f"{counted(total, 'worker')} cannot be {each} on each host"
        raise UsageError(what, "--local_worker_num", todo)


def _too_few(nodes: Sequence[Node], said: int, total: int) -> UsageError:
    each = ", ".join(f"{node.name} {node.slots}" for node in nodes[:_SHOWN]) + ", …" * (len(nodes) > _SHOWN)
    what = f"{total} workers are asked for, and the slots of the hosts are {said} ({each})"
    return UsageError(what, "--worker_num", "lower it, give hosts more slots, or say --local_worker_num")


def _is_unsaid(node: Node, bare: bool) -> bool:
    """Whether nobody has said how many slots this host has; `bare`: no -H did."""
    if node.source == "-H":
        return bare
    return node.slots is None or node.source.startswith("cores of ")


def _are_bare(texts: Sequence[str]) -> bool:
    """Whether these -H name each host once, and no number."""
    from mslaunch.plan.hosts.host_ranges import split

    entries = [entry.strip() for text in texts for entry in split(text) if entry.strip()]
    numbers = any(entry.rpartition("]")[2].count(":") == 1 for entry in entries)
    return not numbers and len(set(entries)) == len(entries)


def _with(allocation: Allocation, slots: Sequence[int], source: str, spare: int) -> Allocation:
    nodes = tuple(
        node._replace(slots=many, max_slots=None, source=source) if node.slots != many else node
        for node, many in zip(allocation.nodes, slots)
    )
    spares = tuple(
        node
        if node.slots is not None and source not in ("--local_worker_num", "--nproc-per-node")
        else node._replace(slots=spare)
        for node in allocation.spares
    )
    return allocation._replace(nodes=nodes, spares=spares)
