"""What is said of a pod's part of a job: what it is, and where the command line wins over the pod's variables."""

from __future__ import annotations

from mslaunch.cli.pods import scheduler_address
from mslaunch.cli.pods.operator_pod import SCHEDULER, OperatorPod
from mslaunch.datamodel.request import Share
from mslaunch.errors import counted
from mslaunch.faststd import NamedTuple


class SaidOfPod(NamedTuple):
    """What a command line says of the part; None: nothing.  The order is that of `OperatorPod.names`."""

    total: int | None = None
    local: int | None = None
    node: int | None = None
    address: str | None = None
    port: int | None = None


class PodWords(NamedTuple):
    """The options that say this."""

    total: str = "--worker_num"
    local: str = "--local_worker_num"
    node: str = "--node_rank"
    address: str = "--master_addr"
    port: str = "--master_port"


def conflicts(pod: OperatorPod, said: SaidOfPod, words: PodWords) -> list[str]:
    """What the command line says otherwise than the pod's variables."""
    found = []
    for field, variable in zip(SaidOfPod._fields, pod.names):
        word, value = getattr(said, field), getattr(pod, field)
        if word is not None and value is not None and word != value and not (field == "address" and _same(word, value)):
            found.append(f"{getattr(words, field)} {word} wins over {variable}, which says {value}")
    return found


def _same(one: str, other: str) -> bool:
    return scheduler_address.resolved(one, "--master_addr") == scheduler_address.resolved(other, "MS_SCHED_HOST")


def summary(pod: OperatorPod, share: Share, local: int) -> str:
    """What this pod does in the job."""
    at = f"[{pod.address}]:{pod.port}" if ":" in pod.address else f"{pod.address}:{pod.port}"
    if share.role == SCHEDULER:
        return (
            f"pod of {pod.operator}: the scheduler of {counted(pod.total, 'worker')}, at {at}; messages call it rank 0"
        )
    if share.role:
        return f"pod of {pod.operator}: parameter server {pod.number}; the scheduler is at {at}"
    if share.first is None:
        part = f"{local} of {pod.total} workers, whom MindSpore numbers"
    elif local == 1:
        part = f"worker {share.first} of {pod.total}"
    else:
        part = f"workers {share.first} to {share.first + local - 1} of {pod.total}"
    where = "with the scheduler, " if share.master else "the scheduler is " if not pod.torch else "they meet "
    return f"pod of {pod.operator}: {part}; {where}at {at}"
