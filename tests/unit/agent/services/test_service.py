"""A service of a kind that is no framework's, as a store of Horovod's or the head of a Ray cluster would be one."""

from __future__ import annotations

import os
import socket
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

    def notice(self, number: int, text: str) -> None:
        self.events.append(text)

    def send(self, kind: int, rank: int) -> None:
        self.events.append(kind)

    def not_started(self, rank: int, error: LaunchError) -> None:
        self.events.append(error)


def started(loop: Loop, reports: Reports, first: bool) -> tuple[Service, int]:
    """A service of whatever kind `load` returns, on a node that has had ranks; and its port."""
    context = AgentContext(loop, reports, {}, lambda: None, lambda name, then: then())
    listener = Listener()
    plan = ServicePlan(listener.port, (), SERVICE_BASE, first=first, kind=next(iter(KINDS)))
    port = ServicePort(context, plan, listener, lambda: None)
    service = Service(context, lambda: [], NodePlan((), (AppPlan(("x",), "/"),), (), services=(plan,)), plan, port)
    service.watch(True)
    service.start(early=True)
    return service, listener.port


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


def test_what_a_process_has_printed_may_be_read_after_its_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has found that it is not needed; but once the launcher has heard of it, it has to hear of its end."""

    class Prints(Store):
        def early(self, guessed: bool) -> ServiceCommand | None:
            return ServiceCommand("/bin/sh", ["sh", "-c", "echo welcome; exit 93"], {}, "/", 93)

    monkeypatch.setattr(service_module, "load", lambda row: Prints)
    reports = Reports()
    with Loop() as loop:
        service = started(loop, reports, first=True)[0]
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # the loop finds both at once
        assert loop.run(lambda: len(reports.events) == 3, 20), reports.events
        service.end(at_once=True)
    assert reports.events == ["started", SERVES, None]


@pytest.mark.parametrize("row", KINDS.values())
def test_each_kind_keeps_the_contract(row: str) -> None:
    wanted = {name for name in vars(Store) if not name.startswith("_")} - {"read", "cancel"}
    assert wanted <= set(vars(load(row)))


@pytest.mark.parametrize(
    ("first", "code", "loaded", "lost"),
    [
        (True, 0, True, "notice"),  # it has served
        (False, 7, False, "error"),  # a program of the ranks names what it serves
        (False, 93, False, "notice"),  # there is nothing to serve
        (False, 93, True, "error"),  # but a rank has loaded it
    ],
)
def test_a_port_that_is_lost(monkeypatch: pytest.MonkeyPatch, first: bool, code: int, loaded: bool, lost: str) -> None:
    """Somebody binds it while its process ends: an error where a rank needs it, and a notice else."""

    class Ends(Store):
        def early(self, guessed: bool) -> ServiceCommand | None:
            return ServiceCommand("/bin/sh", ["sh", "-c", f"exit {code}"], {}, "/", 0 if first else 93)

        def on_connection(self, pids: Sequence[int] | None) -> ServiceCommand | None:
            return self.early(False) if loaded else None

    monkeypatch.setattr(service_module, "load", lambda row: Ends)
    reports = Reports()
    with Loop() as loop:
        service, number = started(loop, reports, first)
        with socket.create_server(("127.0.0.1", number)):
            said: list[str] = []

            def heard() -> bool:
                said[:] = [str(event) for event in reports.events if f"port {number} is now in use" in str(event)]
                return bool(said)

            assert loop.run(heard, 20), reports.events
        service.end(at_once=True)
        loop.run(lambda: not service.running, 20)
    (found,) = [event for event in reports.events if str(event) in said]
    assert isinstance(found, LaunchError) == (lost == "error")
    assert f"by process {os.getpid()} (" in said[0]
