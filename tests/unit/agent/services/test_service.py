"""A service of a kind that is no framework's, as a store of Horovod's or the head of a Ray cluster would be one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pytest

from mslaunch.agent.launcher_link import AgentContext
from mslaunch.agent.ports import ServicePort
from mslaunch.agent.services import service as service_module
from mslaunch.agent.services.service import KINDS, Service
from mslaunch.agent.services.service_kind import ProgramOfRanks, ServiceCommand
from mslaunch.datamodel.node_plan import SERVICE_BASE, AppPlan, NodePlan, ServicePlan
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.errors import LaunchError
from mslaunch.faststd import load
from mslaunch.host.free_ports import Listener
from mslaunch.protocol.frames import SERVES
from mslaunch.runtime.loop import Loop

LISTENS = "exec python3 -c \"import os, socket; s = socket.create_server(('', int(os.environ['PORT']))); s.accept()\""


class Store:
    """The kind: a program that listens; it may be started before the ranks or for the first of them."""

    def __init__(self, own: ProgramOfRanks) -> None:
        self._own = own

    def early(self, guessed: bool) -> ServiceCommand | None:
        env = {**os.environ, **dict(word.split("=", 1) for word in self._own.service.env)}
        return ServiceCommand("/bin/sh", ["sh", "-c", LISTENS], env, "/")

    def on_connection(self, pids: Sequence[int] | None) -> ServiceCommand | None:
        return self.early(False)

    def watchdog(self, loop: Loop, give_up: Callable[[LaunchError], None], command: ServiceCommand) -> Store:
        return self

    def read(self, data: bytes) -> None:
        pass

    def cancel(self) -> None:
        pass

    def not_installed(self, command: ServiceCommand) -> LaunchError:
        return LaunchError("the store is not installed")


class Reports:
    """What the launcher hears."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def output(self, kind: int, rank: int, data: bytes) -> None: ...

    def exited(self, rank: int, status: ExitStatus) -> None:
        self.events.append(status.signal)

    def started(self, rank: int, pid: int) -> None:
        self.events.append("started")

    def send(self, kind: int, rank: int) -> None:
        self.events.append(kind)

    def not_started(self, rank: int, error: LaunchError) -> None:
        self.events.append(error)


def test_a_kind_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "store", "its row")
    monkeypatch.setattr(service_module, "load", lambda row: Store)
    reports = Reports()
    with Loop() as loop:
        context = AgentContext(loop, reports, {}, lambda: None, lambda name, then: then())
        listener = Listener()
        plan = ServicePlan(listener.port, (f"PORT={listener.port}",), SERVICE_BASE, first=True, kind="store")
        port = ServicePort(context, plan, listener, lambda: None)
        node = NodePlan((), (AppPlan(("x",), "/"),), (), services=(plan,))
        service = Service(context, lambda: None, node, plan, port)
        service.watch(True)
        service.start(early=True)
        assert loop.run(lambda: SERVES in reports.events, 20)
        service.end(at_once=True)
        assert loop.run(lambda: not service.running, 20)
    assert reports.events == ["started", SERVES, 15]


@pytest.mark.parametrize("row", KINDS.values())
def test_each_kind_keeps_the_contract(row: str) -> None:
    wanted = {name for name in vars(Store) if not name.startswith("_")} - {"read", "cancel"}
    assert wanted <= set(vars(load(row)))
