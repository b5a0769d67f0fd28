"""The services of a node: processes of the job that are no ranks, started before them or when somebody connects.

Until then a service is a `ServicePort`.  All else is a part, which travels when the first one is to be started.
"""

from __future__ import annotations

import os

from mslaunch.agent import on_demand
from mslaunch.agent.mpi.openmpi_hint import PLAIN, dynamic_names
from mslaunch.agent.ports import ServicePort
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.system_files import head_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mslaunch.agent.launcher_link import AgentContext
    from mslaunch.datamodel.node_plan import NodePlan, ServicePlan
    from mslaunch.host.free_ports import Listener

_TEXT = 1 << 16  # bytes of a program that are looked at
#: functions that run or load another program; the end of a longer name may stand for a shorter one (ld, --relax)
_STARTERS = (
    b"exec", b"posix_spawn", b"system\0", b"popen\0", b"dlopen\0", b"dlmopen\0", b"syscall\0", b"_gfortran_system",
    b"MPI_Comm_spawn", b"mpi_comm_spawn", b"wordexp\0",
)  # fmt: skip


class ServiceManager:
    """The services of one node."""

    def __init__(self, context: AgentContext, ranks: Callable[[], list[int] | None]) -> None:
        """`ranks()` are the process ids of the node's ranks; None if it never had any."""
        self._context = context
        self._pids = ranks
        self._ports: dict[int, ServicePort] = {}  # by the number of the service
        self._services: dict[int, Any] = {}  # `Service`, of those that were to be started
        self._watched = True
        self._ending = False

    @property
    def running(self) -> bool:
        """True while one of them runs, or has output that was not read yet."""
        return any(service.running for service in self._services.values())

    def add(self, plan: NodePlan, held: dict[int, Listener], python: Callable[[], bool]) -> None:
        """Add those of a plan; they take their ports out of `held`.

        `python()`: whether a program of the plan may run Python, without which no rank can need a service.
        """
        for service in plan.services:
            if service.number not in self._ports:
                self._add(plan, service, held.pop(service.port, None), python)

    def _add(self, plan: NodePlan, service: ServicePlan, listener: Listener | None, python: Callable[[], bool]) -> None:
        def start(early: bool) -> None:
            self._context.need("agent.services.service", lambda: self._start(plan, service, early))

        port = ServicePort(self._context, service, listener, lambda: start(False))
        self._ports[service.number] = port
        if service.first or (listener and names(plan, service.hint)):
            start(True)
        elif listener and python():
            port.wait()
        else:
            port.close()

    def _start(self, plan: NodePlan, service: ServicePlan, early: bool) -> None:
        number = service.number
        if number not in self._services:
            kind = on_demand.get("agent.services.service").Service
            self._services[number] = kind(self._context, self._pids, plan, service, self._ports[number])
            self._services[number].watch(self._watched)
            if self._ending:
                self._services[number].end(at_once=False)
        self._services[number].start(early)

    def restart(self, number: int) -> None:
        """One that has ended is started again, once nothing is left of its streams."""
        self._services[number].restart()

    def watch(self, on: bool) -> None:
        """Read what they print, or let them wait."""
        self._watched = on
        for service in self._services.values():
            service.watch(on)

    def end_idle(self) -> None:
        """Our ranks have ended; those that other launchers have started may still be connected."""
        for number, port in self._ports.items():
            if number in self._services:
                self._services[number].end_idle()
            else:
                port.close()

    def end(self, at_once: bool) -> None:
        """The job is ending.  While ranks may still be using them (`at_once` false) only ports are given back."""
        self._ending = True
        for port in self._ports.values():
            port.close()
        for service in self._services.values():
            service.end(at_once)


def names(plan: NodePlan, word: str) -> bool:
    """Whether a Python program of the job has `word` in its text: it will need the service that gives this hint.

    Ranks that find it at their first try meet sooner than one whose connection was reset (docs/design.md).
    """
    texts = [os.path.join(app.wdir, arg) for app in plan.apps for arg in app.argv if arg.endswith(".py")]
    return bool(word) and any(word.encode() in head_of(path, _TEXT) for path in texts)


def may_run_python(path: str, env: Mapping[str, str], wdir: str) -> bool:
    """False if the program at `path` can neither be a Python nor start one, which takes a function that it names.

    Only that of a file that the kernel runs as it is can be told: one that is linked to nothing but the system's and
    MPI's libraries, and asks none of them for a function that runs or loads another program.
    """
    if env.get("LD_PRELOAD") or env.get("LD_AUDIT"):
        return True
    try:
        fd = os.open(os.path.join(wdir, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return True
    try:
        head = os.pread(fd, 64, 0)
        asked = dynamic_names(fd, head) if head[:4] == b"\x7fELF" else b""
    except (OSError, ValueError, TypeError, LookupError, OverflowError, StopIteration):  # broken
        return True
    finally:
        os.close(fd)
    libraries = [os.fsdecode(name) for name in asked.split(b"\0") if b".so" in name]
    known = all(name.startswith((*PLAIN, "libmpi", "libpmpi")) and "python" not in name for name in libraries)
    return not asked or not known or any(word in asked for word in _STARTERS)
