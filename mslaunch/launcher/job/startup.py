"""Starting: from the agents' HELLO to the plans of all ranks, and what must be known and run before that.

Addresses and ports (`wireup`), then the services that ranks need at once, then the ranks.  It sends plans and does not
read them; the state says when.  The surprising thing: all plans are made before the first is sent, so that what cannot
be told to ranks is refused while nothing runs, and not only the services.
"""

from __future__ import annotations

import time

from mslaunch.errors import LinkError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.agents.rendezvous import Endpoint, Rendezvous, RendezvousRequest
from mslaunch.launcher.job import events
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.launcher.agents.job_agents import JobAgents
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.launcher.stdio.console import Console
    from mslaunch.runtime.loop import Loop
    from mslaunch.runtime.timers import Timer

    class StartupHost(Protocol):
        """Who conducts them."""

        state: JobState

        def event(self, event: Any) -> None:
            """Something has happened."""

        def send(self, node: int, frame: bytes) -> None:
            """One frame to the agent of a node."""


PREPARE_SECONDS = 10.0  #: for addresses and ports, on all hosts together
SERVE_SECONDS = 30.0  #: for services that are started before the ranks


class Startup:
    """Of one launch."""

    def __init__(
        self,
        loop: Loop,
        ranks: StartupHost,
        agents: JobAgents,
        plans: Callable[[Endpoint], list[NodePlan]],
        services: Callable[[Endpoint], Mapping[int, NodePlan]],
        console: Console,
        sought: RendezvousRequest | None,
    ) -> None:
        """For `plans`, `services` and `sought` see `JobController`."""
        self._loop = loop
        self._ranks = ranks
        self._agents = agents
        self._make_plans = plans
        self._make_first = services
        self._console = console
        self.endpoint: Endpoint | None = None
        self.plans: list[NodePlan] = []
        self.services: set[int] = set()  #: that an agent may speak of
        self._first: Mapping[int, NodePlan] = {}
        self._began = 0.0
        self._limit: Timer = loop.after(PREPARE_SECONDS, self._not_prepared)
        self._wireup = Rendezvous(
            agents.hellos,
            agents.host,
            sought or RendezvousRequest(0, 0),
            agents.send,
            self._prepared,
        )
        self.on: dict[int, Callable[[int, frames.Frame], None]] = {
            frames.RESERVED: lambda node, frame: self._wireup.reserved(node, control.unpack_reserved(frame.payload)),
            frames.REACHED: lambda node, frame: self._wireup.reached(node, control.unpack_addresses(frame.payload)),
            frames.SERVES: self._serves,
        }

    def begin(self) -> None:
        """Ask for ports and addresses."""
        self._wireup.begin()

    def stop(self) -> None:
        """Wait for nothing any more."""
        self._limit.cancel()

    # --- addresses and ports

    def _prepared(self, endpoint: Endpoint, warning: str) -> None:
        self._limit.cancel()
        if warning:
            self._console.info(warning)
        self.endpoint = endpoint
        self._console.verbose(_told(endpoint))
        self._first = self._make_first(endpoint)
        self.plans = self._make_plans(endpoint)
        first = [(service.number, node) for node, plan in self._first.items() for service in plan.services]
        later = [service.number for plan in self.plans for service in plan.services]
        self.services.update((number for number, _ in first), later)
        self._ranks.event(events.Prepared(tuple(first)))

    def _not_prepared(self) -> None:
        node = self._wireup.silent()
        error = LinkError(f"its agent did not answer within {PREPARE_SECONDS:g} seconds", self._agents.host(node))
        self._ranks.event(events.LinkEnded(node, error))

    # --- services

    def serve(self, nodes: Sequence[int]) -> None:
        """Start those that ranks need."""
        self.time_service()
        self._limit = self._loop.after(SERVE_SECONDS, self._unserved)
        for node in nodes:
            self._launch(node, self._first[node])

    def time_service(self) -> None:
        """The scheduler is being told to start, for the first time or once more."""
        self._began = time.monotonic()

    def _serves(self, node: int, frame: frames.Frame) -> None:
        if service_info(frame.rank).listens and self.endpoint:
            known = self._ranks.state.services.members.get(frame.rank)
            how = "listens" if known and known.pid else "will be started when a rank knocks"
            address = self.endpoint.service_address or self.endpoint.address
            at = f"at {address}, port {self.endpoint.service_port}, on {self._agents.host(node)}"
            after = f", after {time.monotonic() - self._began:.2f} s" if self._began else ""
            self._console.verbose(f"{self._ranks.state.name(frame.rank)} {how} {at}{after}")
        self._ranks.event(events.Serves(frame.rank))

    def _unserved(self) -> None:
        state = self._ranks.state
        names = " and ".join(map(state.name, state.services.awaited))
        what = (
            "does not listen" if all(service_info(one).listens for one in state.services.awaited) else "are not ready"
        )
        self._console.info(f"{names} {what} after {SERVE_SECONDS:g} s; the ranks are started all the same")
        self._ranks.event(events.Unserved())

    # --- ranks

    def start(self) -> None:
        """Tell all agents their plans."""
        self._limit.cancel()
        for node, plan in enumerate(self.plans):
            self._launch(node, plan)

    def _launch(self, node: int, plan: NodePlan) -> None:
        self._agents.send(node, frames.encode(frames.LAUNCH, payload=control.pack_plan(plan)))


def _told(endpoint: Endpoint) -> str:
    text = f"ranks meet at {endpoint.address}, port {endpoint.port}"
    if not endpoint.service_port:
        return text
    if endpoint.service_address in ("", endpoint.address):
        return f"ranks meet at {endpoint.address}, ports {endpoint.port} and {endpoint.service_port}"
    return f"{text}, and at the scheduler's {endpoint.service_address}, port {endpoint.service_port}"
