"""Which workers this command starts, what numbers they have, and where they meet: msrun's arithmetic of hosts.

Three ways: all workers are here; or this is one of several hosts, each with a command of its own (`Share`); or -H and
--hostfile name hosts, and this command starts them all (then `plan.hosts.msrun_slots` deals them out).  What a number
that nobody said means depends on the way: msrun's default of 8 here makes no sense to who says --local_worker_num=4
alone, and all the sense of the world to who says --node_rank as well, as its tutorials do.
"""

from __future__ import annotations

import os

from mslaunch.cli.msrun import scheduler_address
from mslaunch.datamodel.request import Share
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.source_address import source_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.cli.msrun.options import MsrunOptions
    from mslaunch.datamodel.request import Request

_WORKERS = 8  # --worker_num of msrun, and --local_worker_num, where nobody says
_PORT = 8118
_LOOPBACK = "127.0.0.1"
_SIMULATED = "MS_SIMULATION_LEVEL"
_MOST_SIMULATED = 128  # of one host; msrun takes more for a slip


def placed(request: Request, own: MsrunOptions, environ: Mapping[str, str]) -> Request:
    """The request with its ranks, where they are, and where the scheduler is."""
    policy = request.policy._replace(bind_to="none")
    cluster = request.cluster._replace(first=True, port=_PORT if own.port is None else own.port, moves=own.port is None)
    request = request._replace(policy=policy, cluster=cluster)
    if own.simulation is not None or environ.get(_SIMULATED):
        return _simulated(request, own, environ)
    if has_hosts(request):
        return _on_hosts(request, own)
    total, local, notes = _numbers(own)
    request = _with_ranks(request, local)._replace(notes=(*request.notes, *notes))
    if local < total:
        return _shared(request, own, total, local)
    return _all_here(request, own, total)


def has_hosts(request: Request) -> bool:
    """Does the command line name hosts?"""
    return bool(request.apps[0].hosts) or request.apps[0].hostfile is not None


def log_name(request: Request, own: MsrunOptions) -> str:
    """The pattern of the workers' logs."""
    name = own.name or "worker"
    if has_hosts(request):
        return name.replace("{ip}", "%a").replace("{hostname}", "%h") + "_%r.log"
    if "{ip}" in name:
        master = scheduler_address.resolved(own.address or _LOOPBACK, "--master_addr")
        name = name.replace("{ip}", source_address(master) or _LOOPBACK)
    name = name.replace("{hostname}", os.uname().nodename.replace("%", "%%"))
    share = request.cluster.share
    lone = request.cluster.simulated and share is not None and share.first is not None and request.apps[0].np == 1
    return name + ("_0.log" if lone else "_%r.log")  # of a dry run msrun names the log, not the rank that is played


def _with_ranks(request: Request, ranks: int | None) -> Request:
    return request._replace(apps=(request.apps[0]._replace(np=ranks),))


def _numbers(own: MsrunOptions) -> tuple[int, int, list[str]]:
    """Workers in all, and here; and what is worth a note.  Raises `UsageError`."""
    said, here = own.total, own.local
    others = own.node >= 0 or own.address is not None  # other hosts may have a part of them
    notes = []
    if said is None and here is not None and not others:
        total = here
        if here != _WORKERS:
            notes = [f"--worker_num is not given, so the {here} of --local_worker_num are all there are"]
    else:
        total = said or max(_WORKERS, here or 0)
    local = here or (min(total, _WORKERS) if others else total)
    if local > total:
        raise UsageError(
            f"{local} workers here are more than {total} in all",
            "--local_worker_num",
            "raise --worker_num, or lower it",
        )
    return total, local, notes


# -------------------------------------------------------------------------------------------- this host, or a part


def _all_here(request: Request, own: MsrunOptions, total: int) -> Request:
    """All workers are ours.  An address that is another host's is where somebody else has started a scheduler."""
    if own.address is None:
        return request
    address = scheduler_address.resolved(own.address, "--master_addr")
    if scheduler_address.is_ours(address):
        if ":" not in address or request.restart == "group":
            return request  # on one host any address of it will do
        shared = _share(request, Share(total, 0, address, request.cluster.port, True))
        return shared._replace(cluster=shared.cluster._replace(moves=request.cluster.moves))  # nobody else counts on it
    note = f"--master_addr={own.address} is another host: no scheduler is started here, one must be there"
    share = Share(total, 0, address, request.cluster.port, False)
    return _share(request, share)._replace(notes=(*request.notes, note))


def _shared(request: Request, own: MsrunOptions, total: int, local: int) -> Request:
    """Some of the workers, numbered as msrun does on each host; other commands start the others."""
    address = scheduler_address.resolved(own.address or _LOOPBACK, "--master_addr")
    first, port = _first(own, total, local), request.cluster.port
    beside = _started_beside(address, port) if first else ""
    master = scheduler_address.is_ours(address) and not beside
    request = _share(request, Share(total, first, address, port, master))
    notes = [*request.notes, *filter(None, [beside])]
    if first is None:
        notes.append(
            "--node_rank is not given, so MindSpore numbers the workers when all have met: RANK_ID is theirs after "
            "init() alone, and logs have the number on this host"
        )
    elif total % local:
        notes.append(
            f"{total} workers are no multiple of the {local} here: workers of this host are {first} to "
            f"{first + local - 1}, see that no other host has these; or start all with one command, -H a:3,b:1"
        )
    return request._replace(notes=tuple(notes))


def _started_beside(address: str, port: int) -> str:
    """Why a command that is not the first one need not start the scheduler on its own host; "" if there is no reason.

    With a loopback address the first one must be run here as well, but perhaps only at this very moment.
    """
    if scheduler_address.is_loopback(address):
        return (
            f"--master_addr is {address}, so these workers meet the others at the scheduler that the command with "
            "--node_rank=0 starts on this host"
        )
    if scheduler_address.is_ours(address) and scheduler_address.answers(address, port):
        return f"there is a scheduler at port {port} of this host already: these workers go there"
    return ""


def _first(own: MsrunOptions, total: int, local: int) -> int | None:
    """The number of the first worker here."""
    node = own.node
    if node < 0:
        return None
    if (node + 1) * local > total:
        raise UsageError(
            f"workers of host {node} would go up to {(node + 1) * local - 1}, and there are {total}, counted from 0",
            "--node_rank",
            "hosts are counted from 0, too; raise --worker_num, or lower --local_worker_num",
        )
    return node * local


def _share(request: Request, share: Share) -> Request:
    """The rest of a request for a part of a job, or one whose scheduler has an address that was said."""
    if request.restart == "group" or request.min_ranks:
        raise UsageError(
            "workers of other hosts are not ours to start again",
            "--restart group" if request.restart == "group" else "--min-ranks",
            "start all hosts with one command, -H or --hostfile; or use --restart rank",
        )
    stdin = request.stdin if share.first in (0, None) else "none"
    cluster = request.cluster._replace(moves=False, share=share)
    return request._replace(cluster=cluster, stdin=stdin)


# --------------------------------------------------------------------------------------------------- several hosts


def _on_hosts(request: Request, own: MsrunOptions) -> Request:
    """All hosts with this command; how many each gets is told when they are known."""
    notes = list(request.notes)
    if own.node > 0:
        notes.append(f"--node_rank={own.node} has no effect: this command starts all hosts")
    cluster = request.cluster
    if own.address is not None:
        cluster = cluster._replace(host=_scheduler(request, own.address))
    policy = request.policy._replace(map_by="slot", per_host=own.local or 0)
    request = request._replace(policy=policy, cluster=cluster, notes=tuple(notes))
    return _with_ranks(request, own.total)


def _scheduler(request: Request, host: str) -> str:
    """The host of -H that --master_addr means, as it is written there; else as it is; "": that of the first worker."""
    from mslaunch.plan.hosts.hostfile import parse_hosts

    names = [line.name for text in request.apps[0].hosts for line in parse_hosts(text)]
    if host in names:  # perhaps a name of ~/.ssh/config alone
        return host
    address = scheduler_address.resolved(host, "--master_addr")
    if scheduler_address.is_loopback(address):
        return ""
    if host != address:
        return host
    for name in names:
        try:
            if scheduler_address.resolved(name, "-H") == address:
                return name
        except UsageError:  # a name of ~/.ssh/config alone
            continue
    return host


# --------------------------------------------------------------------------------------------------------- dry runs


def _simulated(request: Request, own: MsrunOptions, environ: Mapping[str, str]) -> Request:
    """MindSpore's dry run: workers of this host that meet nobody; one alone may play any rank of thousands."""
    cluster = request.cluster._replace(first=False, moves=False, port=0, simulated=True)
    app = request.apps[0]
    level = str(environ.get(_SIMULATED) if own.simulation is None else own.simulation)
    request = request._replace(cluster=cluster, apps=(app._replace(env=((_SIMULATED, level), *app.env)),))
    rank = own.rank if own.rank >= 0 else _number(environ.get("RANK_ID", ""), -1)
    if has_hosts(request) and rank < 0:
        return _on_hosts(request, own)._replace(cluster=cluster)
    total = own.total or own.local or _WORKERS
    local = total if own.local is None else own.local
    if local > total:
        raise UsageError(f"{local} workers here are more than {total} in all", "--local_worker_num", "lower it")
    size = total if own.simulation is not None else _number(environ.get("RANK_SIZE", ""), total)
    first: int | None = 0
    if rank >= 0 or local > _MOST_SIMULATED:
        first, local = max(rank, 0), 1
    elif local < total:
        first = _first(own, total, local)
    request = _with_ranks(request, local)
    return request if first == 0 and size == local else _share(request, Share(size, first, _LOOPBACK, 0, False))


def _number(word: str, otherwise: int) -> int:
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else otherwise
