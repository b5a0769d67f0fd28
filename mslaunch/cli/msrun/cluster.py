"""Which workers this command starts, their numbers, and the scheduler's address.

There are four cases: all workers run on this host; this is one of several hosts, each with a command of its own
(`Share`), or a pod whose variables say so (`cli.pods`); or -H and --hostfile name hosts, and this command starts all
of them (`plan.hosts.msrun_slots` divides the workers).  Defaults depend on the case: msrun's 8 workers make no sense
with --local_worker_num=4 alone, but do with --node_rank.
"""

from __future__ import annotations

import os

from mslaunch.cli.parser.options import POD_VARIABLES
from mslaunch.cli.parser.readers import is_number
from mslaunch.cli.pods import scheduler_address
from mslaunch.datamodel.request import Request, Share
from mslaunch.errors import UsageError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.own_addresses import source_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.cli.msrun.options import MsrunOptions

_WORKERS = 8  # the default of --worker_num and --local_worker_num
_PORT = 8118
_LOOPBACK = "127.0.0.1"
_SIMULATED = "MS_SIMULATION_LEVEL"
_MOST_SIMULATED = 128  # of one host; msrun takes more for a mistake


def placed(request: Request, own: MsrunOptions, environ: Mapping[str, str]) -> Request:
    """The request with its ranks, their hosts, and the scheduler's address."""
    cluster = request.cluster._replace(first=True, port=own.port or _PORT, moves=own.port is None)
    request = request._replace(policy=request.policy._replace(bind_to="none"), cluster=cluster)
    if own.simulation is not None or environ.get(_SIMULATED):
        return _simulated(request, own, environ)
    if has_hosts(request):
        return _on_hosts(request, own)
    if any(name in environ for name in POD_VARIABLES):
        request = _in_pod(request, own, environ)
        if request.cluster.share:
            return request
    total, local, notes = _numbers(own)
    request = _with_ranks(request, local)._replace(notes=(*request.notes, *notes))
    if local < total:
        return _shared(request, own, total, local)
    return _all_here(request, own, total)


def has_hosts(request: Request) -> bool:
    """Whether the command line names hosts."""
    return bool(request.apps[0].hosts) or request.apps[0].hostfile is not None


def log_name(request: Request, own: MsrunOptions) -> str:
    """The pattern of the workers' logs."""
    name = own.name or "worker"
    if has_hosts(request):
        return name.replace("{ip}", "%a").replace("{hostname}", "%h") + "_%r.log"
    if "{ip}" in name:
        share = request.cluster.share
        master = share.address if share else scheduler_address.resolved(own.address or _LOOPBACK, "--master_addr")
        name = name.replace("{ip}", source_address(master) or _LOOPBACK)
    name = name.replace("{hostname}", os.uname().nodename.replace("%", "%%"))
    share = request.cluster.share
    if share and share.role:
        return "scheduler.log" if share.role == "scheduler" else "server_%h.log"
    lone = request.cluster.simulated and share is not None and share.first is not None and request.apps[0].np == 1
    return name + ("_0.log" if lone else "_%r.log")  # msrun names this log so in a dry run, whatever rank is simulated


def _with_ranks(request: Request, ranks: int | None) -> Request:
    return request._replace(apps=(request.apps[0]._replace(np=ranks),))


def _numbers(own: MsrunOptions) -> tuple[int, int, list[str]]:
    """(workers in all, workers here, notes).  Raises `UsageError`."""
    said, here = own.total, own.local
    others = own.node >= 0 or own.address is not None  # other hosts may have a part of them
    notes = []
    if said is None and here is not None and not others:
        total = here
        if here != _WORKERS:
            notes = [f"--worker_num is not given, so the job has the {counted(here, 'worker')} of --local_worker_num"]
    else:
        total = said or max(_WORKERS, here or 0)
    local = here or (min(total, _WORKERS) if others else total)
    _require_at_most(total, local)
    return total, local, notes


def _require_at_most(total: int, local: int) -> None:
    if local > total:
        what = f"{local} workers here are more than {total} in all"
        raise UsageError(what, "--local_worker_num", "raise --worker_num, or lower it")


# --- this host, or a part of the job


def _all_here(request: Request, own: MsrunOptions, total: int) -> Request:
    """All workers run here.  If --master_addr is another host's, another command starts the scheduler."""
    if own.address is None:
        return request
    address = scheduler_address.resolved(own.address, "--master_addr")
    ours = scheduler_address.is_ours(address)
    if ours and (":" not in address or request.restart == "group"):
        return request  # on one host any address of it will do
    shared = _share(request, Share(total, 0, address, request.cluster.port, ours))
    if ours:  # no other command depends on the port
        return shared._replace(cluster=shared.cluster._replace(moves=request.cluster.moves))
    note = f"--master_addr={own.address} is another host: its scheduler must be started there"
    return shared._replace(notes=(*request.notes, note))


def _shared(request: Request, own: MsrunOptions, total: int, local: int) -> Request:
    """Some of the workers run here, numbered as msrun numbers those of a host; other commands start the others."""
    address = scheduler_address.resolved(own.address or _LOOPBACK, "--master_addr")
    first, port = _first(own, total, local), request.cluster.port
    beside = _started_beside(address, port) if first else ""
    master = scheduler_address.is_ours(address) and not beside
    notes = [beside] if beside else []
    if first is None:
        notes.append(
            "--node_rank is not given, so MindSpore numbers the workers once all are connected: RANK_ID is only right "
            "after init(), and logs have the number on this host"
        )
    elif total % local:
        notes.append(
            f"{total} workers are not a multiple of the {local} here: this host has workers {first} to "
            f"{first + local - 1}, so no other host may have these; or start all with one command, -H a:3,b:1"
        )
    return _share(request, Share(total, first, address, port, master))._replace(notes=(*request.notes, *notes))


def _started_beside(address: str, port: int) -> str:
    """Why a command with a --node_rank above 0 need not start the scheduler on its own host; "" if it must.

    With a loopback address the command with --node_rank=0 runs on this host too, but may not have started yet.
    """
    if scheduler_address.is_localhost(address):
        return (
            f"--master_addr is {address}, so these workers use the scheduler that the command with --node_rank=0 "
            "starts on this host"
        )
    if scheduler_address.is_ours(address) and scheduler_address.answers(address, port):
        return f"port {port} of this host has a scheduler already, which these workers use"
    return ""


def _first(own: MsrunOptions, total: int, local: int) -> int | None:
    if own.node < 0:
        return None
    first, after = own.node * local, (own.node + 1) * local
    if after > total:
        raise UsageError(
            f"host {own.node} would have workers up to {after - 1}, but there are {total}, counted from 0",
            "--node_rank",
            "hosts are counted from 0 as well; raise --worker_num, or lower --local_worker_num",
        )
    return first


def _share(request: Request, share: Share) -> Request:
    """The request of a part of a job, or of one whose scheduler has a given address."""
    if request.restart == "group" or request.min_ranks:
        raise UsageError(
            "this command cannot start workers of other hosts again",
            "--restart group" if request.restart == "group" else "--min-ranks",
            "start all hosts with one command, -H or --hostfile; or use --restart rank",
        )
    stdin = request.stdin if share.first in (0, None) else "none"
    return request._replace(cluster=request.cluster._replace(moves=False, share=share), stdin=stdin)


def _in_pod(request: Request, own: MsrunOptions, environ: Mapping[str, str]) -> Request:
    """The part that this pod has of the job of an operator of Kubernetes; without a share it has none.

    A command line that says that all workers run here is a job of its own, as with msrun.
    """
    from mslaunch.cli.pods import pod_part
    from mslaunch.cli.pods.operator_pod import detect
    from mslaunch.cli.pods.pod_notes import PodWords, SaidOfPod

    pod = None if request.resource_manager == "none" else detect(environ)
    if pod is None:
        return request
    if own.total is not None and own.total == own.local and own.address is None:
        why = f"--worker_num={own.total} --local_worker_num={own.local} without --master_addr"
        return pod_part.with_note(request, f"{why}: a job of this pod alone, whatever {pod.operator} says")
    said = SaidOfPod(own.total, own.local, own.node if own.node >= 0 else None, own.address, own.port)
    return pod_part.placed_in(request, pod, said, PodWords())


# --- several hosts


def _on_hosts(request: Request, own: MsrunOptions) -> Request:
    """This command starts all hosts; the planner decides how many workers each gets."""
    if own.node > 0:
        note = f"--node_rank={own.node} has no effect: this command starts all hosts"
        request = request._replace(notes=(*request.notes, note))
    if own.address is not None:
        request = request._replace(cluster=request.cluster._replace(host=_scheduler(request, own.address)))
    policy = request.policy._replace(map_by="slot", per_host=own.local or 0)
    return _with_ranks(request._replace(policy=policy), own.total)


def _scheduler(request: Request, host: str) -> str:
    """The host of -H that --master_addr means, else the address itself; "" means the host of the first worker."""
    from mslaunch.plan.hosts.hostfile import parse_hosts

    names = [line.name for text in request.apps[0].hosts for line in parse_hosts(text)]
    if host in names:  # it may be a name of ~/.ssh/config only
        return host
    address = scheduler_address.resolved(host, "--master_addr")
    if scheduler_address.is_localhost(address):
        return ""
    if host != address:
        return host
    for name in names:
        try:
            if scheduler_address.resolved(name, "-H") == address:
                return name
        except UsageError:  # a name of ~/.ssh/config only
            continue
    return host


# --- dry runs


def _simulated(request: Request, own: MsrunOptions, environ: Mapping[str, str]) -> Request:
    """MindSpore's dry run: workers without a scheduler; a single one may simulate any rank of thousands."""
    cluster = request.cluster._replace(first=False, moves=False, port=0, simulated=True)
    (app,) = request.apps
    level = str(environ.get(_SIMULATED) if own.simulation is None else own.simulation)
    request = request._replace(cluster=cluster, apps=(app._replace(env=((_SIMULATED, level), *app.env)),))
    rank = own.rank if own.rank >= 0 else _number(environ.get("RANK_ID", ""), -1)
    if has_hosts(request) and rank < 0:
        return _on_hosts(request, own)._replace(cluster=cluster)
    total = own.total or own.local or _WORKERS
    local = total if own.local is None else own.local
    _require_at_most(total, local)
    size = total if own.simulation is not None else _number(environ.get("RANK_SIZE", ""), total)
    first: int | None = 0
    if rank >= 0 or local > _MOST_SIMULATED:
        first, local = max(rank, 0), 1
    elif local < total:
        first = _first(own, total, local)
    request = _with_ranks(request, local)
    return request if first == 0 and size == local else _share(request, Share(size, first, _LOOPBACK, 0, False))


def _number(word: str, otherwise: int) -> int:
    return int(word) if is_number(word) else otherwise
