"""What the variables of a pod say that an operator of Kubernetes has started: its role, its workers, the scheduler.

ms-operator and the Ascend operator start each pod of a job by itself, with the same command and no list of hosts.  Read
from their sources: mindspore-ai/ms-operator e361e2b, msjob_controller.go, SetClusterSpec; Ascend/mind-cluster,
component/ascend-operator, pkg/controllers/v1/env.go.  Of the latter PyTorch's pods get RANK, the number of the pod, and
LOCAL_RANK, a list; so neither may be taken for what a rank has.
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import is_number
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEDULER, SERVER = "scheduler", "server"
ALONE = "add --resource-manager none for a job of this pod alone"

_ROLES = {"MS_WORKER": "", "MS_SCHED": SCHEDULER, "MS_PSERVER": SERVER}
_REPLICAS = {"MS_WORKER": "-worker-", "MS_PSERVER": "-ps-"}  # in names of ms-operator's pods, before their number
#: a process that has one of these was started by a launcher: it is a rank, or a process of one
_OF_RANKS = ("MSLAUNCH_JOBID", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TORCHELASTIC_RUN_ID")
_ASCEND = "MINDX_TASK_ID"  # in every pod of the Ascend operator
_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # in every pod


class OperatorPod(NamedTuple):
    """One pod of a job, and the job as all of its pods see it."""

    operator: str  # for messages
    role: str  # "": it has workers; SCHEDULER, SERVER: it is one of these
    names: tuple[str, str, str, str, str]  # variables of the fields from `total` to `port`, for messages
    total: int  # workers of the job
    local: int  # workers of this pod, or of each pod
    node: int | None  # the number of this pod among those that have workers; None: nobody says
    address: str  # where workers meet
    port: int
    servers: int = 0
    number: int = 0  # of a server
    workers: bool = True  # the pod has workers; a scheduler's may have, too
    torch: bool = False  # workers meet at rank 0's port, and there is no scheduler


def detect(environ: Mapping[str, str]) -> OperatorPod | None:
    """The pod that this process runs in; None if no operator has started it, or if a launcher has started this process.

    Raises `UsageError` for variables that are missing or wrong.
    """
    if any(name in environ for name in _OF_RANKS):
        return None
    if environ.get("MS_ROLE") and (_KUBERNETES in environ or _ASCEND in environ):
        return None if is_number(environ.get("MS_NODE_ID", "")) else _mindspore(environ)
    if _ASCEND in environ and environ.get("LOCAL_WORLD_SIZE") and environ.get("MASTER_ADDR"):
        return _torch(environ)
    if _ASCEND in environ and environ.get("CM_WORKER_SIZE", "") != environ.get("CM_LOCAL_WORKER", ""):
        what = (
            "the Ascend operator has started this pod for a part of a job of TensorFlow, which mslaunch cannot divide"
        )
        raise _refusal("CM_WORKER_SIZE", what, f"start the program itself, or {ALONE}")
    return None


def _mindspore(environ: Mapping[str, str]) -> OperatorPod:
    role = environ["MS_ROLE"]
    if role not in _ROLES:
        raise _refusal("MS_ROLE", f"{role!r} is no role", f"it is MS_SCHED, MS_PSERVER or MS_WORKER; or {ALONE}")
    ascend, pod = "MS_NODE_RANK" in environ or _ASCEND in environ, environ.get("MS_NODE_ID", "")
    number = _replica(pod, _REPLICAS[role]) if role in _REPLICAS else None
    return OperatorPod(
        "the Ascend operator" if ascend else "ms-operator",
        _ROLES[role],
        (
            "MS_WORKER_NUM",
            "MS_LOCAL_WORKER",
            "MS_NODE_RANK" if ascend else "MS_NODE_ID",
            "MS_SCHED_HOST",
            "MS_SCHED_PORT",
        ),
        _count(environ, "MS_WORKER_NUM", 1),
        _count(environ, "MS_LOCAL_WORKER", 1, 1),  # ms-operator counts pods: each has one worker
        _count(environ, "MS_NODE_RANK", 0) if environ.get("MS_NODE_RANK") else None if ascend else number,
        _text(environ, "MS_SCHED_HOST"),
        _port(environ, "MS_SCHED_PORT"),
        _count(environ, "MS_SERVER_NUM", 0, 0),
        number or 0,
        role == "MS_WORKER" or (role == "MS_SCHED" and _has_devices(environ)),
    )


def _has_devices(environ: Mapping[str, str]) -> bool:
    """Whether the scheduler's pod has workers beside it, as where msrun starts both.

    Such pods of the Ascend operator have NPUs, and NPU_POD says so; before it was there, only a pod with NPUs had a
    list of them.
    """
    return environ.get("NPU_POD", str(bool(environ.get("ASCEND_VISIBLE_DEVICES")))).lower() == "true"


def _torch(environ: Mapping[str, str]) -> OperatorPod:
    return OperatorPod(
        "the Ascend operator",
        "",
        ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"),
        _count(environ, "WORLD_SIZE", 1),
        _count(environ, "LOCAL_WORLD_SIZE", 1),
        _count(environ, "RANK", 0),
        _text(environ, "MASTER_ADDR"),
        _port(environ, "MASTER_PORT"),
        torch=True,
    )


def _replica(pod: str, mark: str) -> int | None:
    """The number at the end of a pod's name; None if it is not one of these replicas."""
    _, found, number = pod.rpartition(mark)
    return int(number) if found and is_number(number) else None


def _text(environ: Mapping[str, str], name: str) -> str:
    word = environ.get(name, "").strip()
    if not word:
        raise _refusal(name, "it is not set, though this is a pod of an operator's job", ALONE)
    return word


def _count(environ: Mapping[str, str], name: str, least: int, absent: int | None = None) -> int:
    if absent is not None and not environ.get(name):
        return absent
    word = _text(environ, name)
    if not is_number(word) or int(word) < least:
        raise _refusal(name, f"{word!r} is no whole number from {least} on", f"correct the job's manifest, or {ALONE}")
    return int(word)


def _port(environ: Mapping[str, str], name: str) -> int:
    port = _count(environ, name, 1)
    if port >= 1 << 16:
        raise _refusal(name, f"there is no port {port}", f"correct the job's manifest, or {ALONE}")
    return port


def _refusal(name: str, what: str, todo: str) -> UsageError:
    return UsageError(what, name, todo)
