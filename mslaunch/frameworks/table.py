"""The table of frameworks, and the sum of what its rows ask for.

Sources: the frameworks' own code, and runs of it (docs/frameworks.md).
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.contract import NODE, RANK, Blank, Framework, ProgramInfo, RankInfo, ServiceInfo
from mslaunch.frameworks.horovod import HOROVOD
from mslaunch.frameworks.jax import JAX
from mslaunch.frameworks.mindspore import MINDSPORE
from mslaunch.frameworks.openmpi import OPENMPI
from mslaunch.frameworks.torch import TORCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mslaunch.datamodel.node_plan import ServicePlan
    from mslaunch.datamodel.request import ServicePolicy
    from mslaunch.frameworks.contract import Variables

FRAMEWORKS: tuple[Framework, ...] = (OPENMPI, TORCH, MINDSPORE, JAX, HOROVOD)

#: words, as `Framework.words`, of those whose rows are only loaded where they are asked for (`on_request`)
THREADED = {"TensorFlow": ("tensorflow", "keras"), "Paddle": ("paddle",)}

#: numbers of one task or pod, which mslaunch does not set, and ranks would take for theirs: whose, and their names.  A
#: launch that uses the hosts of a batch system also removes what tells of the agents' own tasks there (`Grant.scrub`)
OUTER_LAUNCHES: dict[str, tuple[str, ...]] = {
    # srun(1), "OUTPUT ENVIRONMENT VARIABLES"; torch, JAX and Lightning read them
    "a step of Slurm": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID",
                        "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_*"),
    "a task of PBS": ("PBS_TASKNUM", "PBS_NODENUM", "PBS_VNODENUM"),
    "a task of LSF": ("LSB_DJOB_TASKID", "JSM_NAMESPACE_*"),  # read by Lightning's LSFEnvironment
    "a task of Flux": ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"),  # flux-environment(7)
    "a task of PALS": ("PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_NODEID"),
    "mpirun_rsh of MVAPICH": ("MV2_COMM_WORLD_*",),  # read by Accelerate and Legate
    "deepspeed": ("LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"),  # deepspeed/launcher/launch.py
    # launch/controllers/collective.py; --env-for sets them
    "paddle.distributed.launch": ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS",
                                  "PADDLE_CURRENT_ENDPOINT", "PADDLE_MASTER", "PADDLE_GLOBAL_*", "PADDLE_LOCAL_*",
                                  "PADDLE_RANK_IN_NODE", "PADDLE_NNODES"),
    "a launcher of oneCCL": ("CCL_LOCAL_RANK", "CCL_LOCAL_SIZE"),
}  # fmt: skip
#: what must not be inherited from a launch around this one: names, and NAME* patterns
SCRUB = tuple(name for names in (*(one.scrub for one in FRAMEWORKS), *OUTER_LAUNCHES.values()) for name in names)
#: patterns of the launcher's variables that ranks on all hosts get
FORWARD = tuple(name for framework in FRAMEWORKS for name in framework.forward)
#: "NAME=value" for a rank that is not bound and has its host for itself
LONE = tuple(word for framework in FRAMEWORKS for word in framework.lone)
#: of these defaults a rank gets none if it has been given one
TOGETHER = tuple(name for framework in FRAMEWORKS for name in framework.together)
#: the variables that get the addresses at which ports are wanted, on the hosts of rank 0 and of the services
PORT = next((framework.port for framework in FRAMEWORKS if framework.port), "")
SERVICE_PORT = next((framework.service_port for framework in FRAMEWORKS if framework.service_port), "")
#: so many have a port of their own on the host of rank 0: those of `RankInfo.own_ports`, in this order
OWN_PORTS = sum(framework.own_port for framework in FRAMEWORKS)


class Template:
    """Variables as "NAME=value", with room for the numbers of a rank and of its node where the `Blank`s are.

    To fill one in takes a tenth of the time that it takes to ask all frameworks about one more rank.
    """

    def __init__(self, known: Variables) -> None:
        values = list(known.values())
        self._words = [f"{name}=" if isinstance(value, Blank) else f"{name}={value}" for name, value in known.items()]
        self._ranks = [at for at, value in enumerate(values) if value is RANK]
        self._nodes = [at for at, value in enumerate(values) if value is NODE]

    def filled(self, rank: int, node: int) -> list[str]:
        """The variables of one rank."""
        words = self._words.copy()
        number = str(rank)
        for at in self._ranks:
            words[at] += number
        for at in self._nodes:
            words[at] += str(node)
        return words


def job_template(place: RankInfo) -> Template:
    """The variables of all ranks of a node, or of nodes that are alike; `place` is that of any of them."""
    found = [framework.job(seen) for framework, seen in with_own_ports(place)]
    return Template(merged([*found, *(framework.job(place) for framework in _requested(place))]))


def rank_template(place: RankInfo) -> Template:
    """Those of one rank, or of ranks that are alike."""
    return Template(merged([framework.rank(place) for framework in (*FRAMEWORKS, *_requested(place))]))


def job_env(place: RankInfo) -> list[str]:
    """ "NAME=value" for all ranks of a node; `place` is that of any of them."""
    return job_template(place).filled(place.rank, place.node)


def rank_env(place: RankInfo) -> list[str]:
    """ "NAME=value" for one rank."""
    return rank_template(place).filled(place.rank, place.node)


def with_own_ports(place: RankInfo) -> Iterator[tuple[Framework, RankInfo]]:
    """Each framework, and the place as it sees it: with the port that is its own."""
    ports = iter(place.own_ports)
    for framework in FRAMEWORKS:
        yield framework, place._replace(own_port=next(ports, 0)) if framework.own_port else place


def app_env(program: ProgramInfo) -> list[str]:
    """ "NAME=value" for all ranks of a program."""
    return _words(framework.program(program) for framework in FRAMEWORKS)


def _requested(place: RankInfo) -> tuple[Framework, ...]:
    if not place.asked:
        return ()
    from mslaunch.frameworks.on_request import requested

    return requested(place.asked)


def defaults(size: int, given: Sequence[Mapping[str, str]], restarts: bool) -> list[str]:
    """ "NAME=value" for ranks that have no value of their own; for the arguments see `Framework.defaults`."""
    return _words(framework.defaults(size, given, restarts) for framework in FRAMEWORKS)


def services(place: RankInfo, policy: ServicePolicy) -> tuple[ServicePlan, ...]:
    """All services that the frameworks ask for; `place` is that of any rank."""
    return tuple(plan for framework in FRAMEWORKS for plan in framework.services(place, policy))


def store_scopes(hosts: Sequence[str], nodes: Sequence[int]) -> dict[str, Sequence[int]]:
    """All scopes of the key store; for the arguments see `Framework.scopes`."""
    return {name: members for one in FRAMEWORKS for name, members in one.scopes(hosts, nodes).items()}


def service_info(number: int) -> ServiceInfo:
    """About the service with this id.  Raises KeyError if no framework has services."""
    for framework in FRAMEWORKS:
        if framework.service:
            return framework.service(number)
    raise KeyError(number)


def _words(parts: Iterable[Variables]) -> list[str]:
    return [f"{name}={value}" for name, value in merged(parts).items()]


def merged(parts: Iterable[Variables]) -> Variables:
    """The variables of all parts.  Raises ValueError if two of them set one variable differently."""
    listed = list(parts)
    found: dict[str, object] = {}
    for part in listed:
        found.update(part)
    if len(found) < sum(map(len, listed)):
        _check_alike(listed)
    return found


def _check_alike(parts: Iterable[Variables]) -> None:
    found: dict[str, object] = {}
    for part in parts:
        for name, value in part.items():
            other = found.setdefault(name, value)
            if other is not value and str(other) != str(value):
                raise ValueError(f"two frameworks set {name}, to {str(other)!r} and {str(value)!r}")


def unbound_in(text: str) -> str:
    """The framework that this text of a program names, if its ranks are not bound by default; "" if none."""
    known = (*((one.name, one.words) for one in FRAMEWORKS), *THREADED.items())
    return next((name for name, words in known if any(_names(text, word) for word in words)), "")


def _names(text: str, word: str) -> bool:
    """`torch`, `torch.nn` and `torch_geometric` name torch; `torchvision` and `mytorch` do not."""
    at = text.find(word)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(word) : at + len(word) + 1]
        if not (before.isalnum() or before == "_" or after.isalnum()):
            return True
        at = text.find(word, at + 1)
    return False
