"""Services: processes of the job that are no ranks, started before them, or when a rank first knocks at their port.

Here is what a node has of them; `service` knows one.  What they run, and whether they listen, is known by modules that
travel when one is to be started (`serving`, `listening`).  The surprising thing: a program of Python whose text has the
word mindspore is taken at it, and its scheduler is started without a knock.
"""

from __future__ import annotations

import os

from mslaunch.agent.services.service import Service, ServiceContext
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.programs import says

if TYPE_CHECKING:
    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.host.free_ports import Listener

_TEXT = 1 << 16  # bytes of a program that are looked at


class ServiceManager:
    """Those of a node."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._all: dict[int, Service] = {}

    @property
    def running(self) -> bool:
        """True while one of them runs, or has something to say."""
        return any(service.running for service in self._all.values())

    def add(self, plan: NodePlan, held: dict[int, Listener]) -> None:
        """Those of a plan; they take their ports out of `held`."""
        for told in plan.services:
            if told.number not in self._all:
                guessed = not told.first and names_mindspore(plan)
                self._all[told.number] = Service(self._context, plan, told, held.pop(told.port, None), guessed)

    def restart(self, number: int) -> None:
        """One that has ended is started again, once nothing is left of its streams."""
        self._all[number].restart()

    def watch(self, on: bool) -> None:
        """Hear what they print, or let them wait."""
        for service in self._all.values():
            service.watch(on)

    def end_idle(self) -> None:
        """Our ranks have ended; those that other launchers have started may still be connected."""
        for service in self._all.values():
            service.end_idle()

    def end(self, at_once: bool) -> None:
        """The job is ending.  While ranks may still be using them (`at_once` false) only ports are given back."""
        for service in self._all.values():
            service.end(at_once)


def names_mindspore(plan: NodePlan) -> bool:
    """Does a program of Python say that it is MindSpore's?  Then its scheduler is started without a knock.

    Workers that find one at their first try meet after 5 to 7 s; one that was reset may need 20 (docs/design.md).
    """
    texts = [os.path.join(app.wdir, word) for app in plan.apps for word in app.argv if word.endswith(".py")]
    return any(says(path, b"mindspore", _TEXT) for path in texts)
