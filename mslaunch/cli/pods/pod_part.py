"""The part of a job that one pod has to start, where an operator of Kubernetes has started the pod (`operator_pod`).

What the command line says wins over the pod's variables, word by word, and a note says so.  A command line that names
hosts is a job of its own.
"""

from __future__ import annotations

from mslaunch.cli.pods import scheduler_address
from mslaunch.cli.pods.operator_pod import ALONE, SCHEDULER, OperatorPod, detect
from mslaunch.cli.pods.pod_notes import PodWords, SaidOfPod, conflicts, summary
from mslaunch.datamodel.request import LocalBinding, Policy, Request, Share
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def of_others(request: Request, environ: Mapping[str, str]) -> Request:
    """The request of a pod's part, for the command lines of mpirun and hydra; as it is if this is no such pod."""
    if request.resource_manager == "none" or request.cluster.share:
        return request
    pod = detect(environ)
    if pod is None:
        return request
    if request.names_hosts:
        return with_note(request, f"hosts are named, so this is a job of its own, whatever {pod.operator} says")
    refusals = (
        (len(request.apps) > 1, "':'", "a pod of an operator's job has one program"),
        (request.cluster.host, "--scheduler", f"{pod.operator} says where the scheduler is"),
        (request.backend, "--backend", "it would start a job of this pod alone"),
    )
    for refused, where, what in refusals:
        if refused:
            raise UsageError(what, where, f"leave it out, or {ALONE}")
    return placed_in(request, pod, SaidOfPod(local=_ranks(request)), PodWords(local="-n"))


def _ranks(request: Request) -> int | None:
    """How many the command line asks for on this host: -n, or -N and its like."""
    number, ppr = request.apps[0].np, request.policy.ppr
    if number is None and ppr:
        if any(kind != "node" for _, kind in ppr):
            raise UsageError("the number of ranks of this pod must be known", "--map-by", "add -n N")
        return ppr[0][0]
    return number


def placed_in(request: Request, pod: OperatorPod, said: SaidOfPod, words: PodWords) -> Request:
    """The request of this pod's part; what `said` has wins, and `words` are the options that say it."""
    if request.restart == "group" or request.min_ranks:
        word = "--restart group" if request.restart == "group" else "--min-ranks"
        raise UsageError("this pod cannot start workers of other pods again", word, f"use --restart rank, or {ALONE}")
    notes = conflicts(pod, said, words)
    pod = pod._replace(**{name: value for name, value in said._asdict().items() if value is not None})
    address = scheduler_address.resolved(pod.address, words.address if said.address else pod.names[3])
    role = "" if pod.workers else pod.role
    if role and request.cluster.program == "light":
        raise UsageError("the pod's own program is its scheduler", "--scheduler-runs light", "leave it out")
    first = None if role else _first(pod, said, words)
    local = 1 if role else pod.local
    if pod.torch:
        share = Share(pod.total, first, address, 0, False, True, meeting=pod.port)
    else:
        share = Share(pod.total, first, address, pod.port, pod.role == SCHEDULER and not role, True, role)
    servers = request.cluster.servers or (0 if share.master else pod.servers)  # those of the job have pods of their own
    cluster = request.cluster._replace(first=True, moves=False, servers=servers)
    apps = (request.apps[0]._replace(np=local),)
    stdin = request.stdin if first in (0, None) else "none"
    policy = _policy(request, share)
    made = request._replace(apps=apps, policy=policy, cluster=cluster._replace(share=share), stdin=stdin)
    return with_note(made, summary(pod, share, local), *notes)


def _policy(request: Request, share: Share) -> Policy:
    """How the pod's processes are bound: a scheduler as the command line says of schedulers."""
    policy = request.policy._replace(map_by="", ppr=()) if request.policy.ppr else request.policy
    if not share.role or not policy.local:
        return policy
    cpus, numa = request.cluster.cpus, policy.local.scheduler
    if share.role != SCHEDULER or not (cpus or numa):
        return policy._replace(local=None)
    return policy._replace(local=LocalBinding(cpus=(cpus,) if cpus else (), numa=(numa,) if numa else ()))


def _first(pod: OperatorPod, said: SaidOfPod, words: PodWords) -> int | None:
    """The number of the pod's first worker; None: MindSpore numbers them."""
    total, local = pod.total, pod.local
    if local > total:
        where = words.local if said.local else pod.names[1]
        raise UsageError(f"{local} workers here are more than {total} in all", where, f"see {pod.names[0]}")
    if pod.node is None:
        return 0 if local == total else None
    if (pod.node + 1) * local > total:
        what = f"pod {pod.node} would have workers up to {(pod.node + 1) * local - 1}, but there are {total}"
        todo = f"pods are counted from 0; see {pod.names[0]} and {pod.names[1]}, or --worker_num and --local_worker_num"
        raise UsageError(what, words.node if said.node is not None else pod.names[2], todo)
    return pod.node * local


def with_note(request: Request, *notes: str) -> Request:
    """The request with these as well."""
    return request._replace(notes=(*request.notes, *notes))
