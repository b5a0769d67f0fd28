"""Startup: from HELLO to the plans of all ranks.

First addresses and ports (`Rendezvous`), and whether the hosts can start so many ranks; then the services that ranks
need at once; then the ranks, when the state says so.  All plans are made before the first is sent, so that whatever is
wrong with one is refused while nothing runs.
"""

from __future__ import annotations

import time

from mslaunch.datamodel.node_plan import is_rank
from mslaunch.errors import LinkError, counted, printable
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.frameworks.table import service_info
from mslaunch.launcher import job_failure
from mslaunch.launcher.agents.connection import meaningless
from mslaunch.launcher.agents.rendezvous import Rendezvous, RendezvousRequest
from mslaunch.launcher.job import events
from mslaunch.launcher.mpi.mpi_frames import Impossible
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint
    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.launcher.job.job_actions import JobAgents
    from mslaunch.launcher.job.rank_table import ServiceTable
    from mslaunch.launcher.job.shared_store import SharedStore
    from mslaunch.launcher.stdio.terminal import Console
    from mslaunch.plan.device_shares import DeviceShares
    from mslaunch.plan.program_steps import ProgramStep

_MOST_NOTICES, _NOTICE_BYTES = 8, 400
_FEW = 12  # ranks of a node that can be started, or will say themselves why not: the question costs a little


def _no_services(endpoint: Endpoint) -> dict[int, NodePlan]:
    return {}


class JobPlans(NamedTuple):
    """What makes the plans of a job once its addresses and ports are known."""

    ranks: Callable[[Endpoint], list[NodePlan]]  # of all nodes
    services: Callable[[Endpoint], Mapping[int, NodePlan]] = _no_services  # by node: those that start before the ranks
    rendezvous: RendezvousRequest = RendezvousRequest(0, 0)
    counts: Sequence[int] = ()  # ranks of each node
    patience: float = events.PREPARE_SECONDS  # for addresses and ports
    devices: DeviceShares | None = None  # that the ranks want; it gets the answers before `ranks` is called
    scopes: Mapping[str, Sequence[int]] = {}  # of the key store that is to be served, as `Framework.scopes`; {}: none
    steps: Sequence[ProgramStep] = ()  # in which ranks start; (): all at once


class Startup:
    """The start of one job."""

    def __init__(
        self,
        agents: JobAgents,
        post: Callable[[Any], None],
        plans: JobPlans,
        services: ServiceTable,
        console: Console,
    ) -> None:
        """`post(event)` to the state."""
        self._agents = agents
        self._post = post
        self._make = plans
        self._services = services
        self._console = console
        self.patience = plans.patience
        self.endpoint: Endpoint | None = None
        self.plans: list[NodePlan] = []
        self.services: dict[int, int] = {}  #: the node of each that may run
        self._notices: dict[int, int] = {}  # how many have come from each node
        self._first: Mapping[int, NodePlan] = {}
        self._pack: Callable[[NodePlan], bytes] = control.pack_plan
        self._began = 0.0
        self._awaited: events.AwaitPort | None = None
        self._rendezvous = Rendezvous(agents.hellos, agents.host, plans.rendezvous, agents.send, self._found)
        self._endpoint: tuple[Endpoint, str] | None = None  # with a warning, once it is known
        few = 0 if plans.devices else _FEW
        self._room = {node: count for node, count in enumerate(plans.counts) if count > few}  # not answered yet
        self._short: dict[str, dict[int, int]] = {}  # what is too little -> nodes, and how many ranks each can start
        self.on: dict[int, Callable[[int, frames.Frame], None]] = {
            frames.RESERVED: self._on_reserved,
            frames.REACHED: self._on_reached,
            frames.SERVES: self._on_serves,
            frames.NOTICE: self._on_notice,
            frames.FITS: self._on_fits,
            frames.WRITE: self._on_write,
        }
        self._store: SharedStore | None = None  # once the other answers have come

    def begin(self) -> None:
        """Ask the agents for what must be known first."""
        self._rendezvous.begin()
        devices = b" " + self._make.devices.question if self._make.devices else b""
        for node, count in self._room.items():
            self._agents.send(node, frames.encode(frames.ROOM, payload=b"%d%s" % (count, devices)))

    # --- addresses and ports, and room

    def _on_reserved(self, node: int, frame: frames.Frame) -> None:
        self._rendezvous.reserved(node, control.unpack_record(control.Reserved, frame.payload))

    def _on_reached(self, node: int, frame: frames.Frame) -> None:
        self._rendezvous.reached(node, control.unpack_record(control.Reached, frame.payload))

    def _on_fits(self, node: int, frame: frames.Frame) -> None:
        head, _, devices = frame.payload.partition(b"\n")
        fits, _, reason = head[:_NOTICE_BYTES].decode("utf-8", "replace").partition(" ")
        if node not in self._room or not (fits.isascii() and fits.isdigit()):
            raise meaningless(frame)
        if self._make.devices and int(fits) >= self._room[node]:
            try:
                self._make.devices.found(node, devices.decode("ascii"))
            except ValueError:  # also of the decoder
                raise meaningless(frame) from None
        if self._room.pop(node) > int(fits):
            self._short.setdefault(printable(reason), {})[node] = int(fits)
        self._go_on()

    def _found(self, endpoint: Endpoint, warning: str) -> None:
        self._endpoint = (endpoint, warning)
        self._go_on()

    def _go_on(self) -> None:
        """Once all have answered."""
        if self._room or self._endpoint is None:
            return
        if self._short:
            self._post(Impossible(job_failure.no_room(self._short, self._make.counts)))
        elif self._make.scopes:
            from mslaunch.launcher.job.shared_store import SharedStore

            self._store = SharedStore(self._make.scopes, self._agents.send)
            self._store.begin(self._endpoint[0].address)
        else:
            self._prepared(*self._endpoint)

    def _on_write(self, node: int, frame: frames.Frame) -> None:
        if self._store is None:
            raise meaningless(frame)
        unserved = bool(self._store.missing)
        self._store.on_frame(node, frame)
        if unserved and not self._store.missing and self._endpoint:
            endpoint, warning = self._endpoint
            self._prepared(endpoint._replace(stores=self._store.places), warning)

    def _prepared(self, endpoint: Endpoint, warning: str) -> None:
        if warning:
            self._console.info(warning)
        self.endpoint = endpoint
        self._console.verbose(_endpoint_text(endpoint))
        self._first = self._make.services(endpoint)
        self.plans = self._make.ranks(endpoint)
        if len(self.plans) > 1:
            from mslaunch.protocol.alike_plans import AlikePlans

            self._pack = AlikePlans().pack
        first = [(service.number, node) for node, plan in self._first.items() for service in plan.services]
        later = [(service.number, node) for node, plan in enumerate(self.plans) for service in plan.services]
        self.services.update((*first, *later))
        self._post(events.Prepared(tuple(first), endpoint.port))

    def give_up(self) -> None:
        """A node has not answered in time."""
        late = list(self._room) or (self._store.missing if self._store else [])
        node = self._rendezvous.silent() if self._endpoint is None else late[0]
        what = f"its agent did not answer within {counted(self.patience, 'second')}"
        self._post(events.LinkEnded(node, LinkError(what, self._agents.host(node))))

    # --- services

    def serve(self, nodes: Sequence[int]) -> None:
        """Start the services that ranks need."""
        self.time_service()
        for node in nodes:
            self._launch(node, self._first[node])

    def time_service(self) -> None:
        """A service is about to start, for the first time or again."""
        self._began = time.monotonic()

    def _on_serves(self, node: int, frame: frames.Frame) -> None:
        if is_rank(frame.rank):
            self._on_port_open(node, frame)
            return
        info = service_info(frame.rank)
        if info.listens and self.endpoint:
            known = self._services.members.get(frame.rank)
            how = "listens" if known and known.pid else "will be started when a rank connects"
            address = self.endpoint.service_address or self.endpoint.address
            at = f"at {address}, port {self.endpoint.service_port}, on {self._agents.host(node)}"
            after = f", after {time.monotonic() - self._began:.2f} s" if self._began else ""
            self._console.verbose(f"{info.title} {how} {at}{after}")
        self._post(events.Serves(frame.rank))

    def _on_notice(self, node: int, frame: frames.Frame) -> None:
        """Something that the user should know of; an honest agent has little to say."""
        self._notices[node] = self._notices.get(node, 0) + 1
        if self._notices[node] <= _MOST_NOTICES:
            text = frame.payload[:_NOTICE_BYTES].decode("utf-8", "replace")
            self._console.info(printable(f"{self._agents.host(node)}: {text}").replace("\n", " "))

    # --- ranks

    def start(self, step: int) -> None:
        """Send all agents their plans, or what they start at this step."""
        for node, plan in enumerate(self.plans):
            if self._make.steps:
                from mslaunch.plan.program_steps import part_of

                part = part_of(plan, self._make.steps, step)
            else:
                part = plan
            if part:
                self._launch(node, part)

    def await_port(self, action: events.AwaitPort) -> None:
        """Ask an agent for the port of a rank, for which others wait."""
        self._awaited, self._began = action, time.monotonic()
        payload = b"%d %d" % (action.pid, action.port)
        self._agents.send(action.node, frames.encode(frames.AWAIT, action.rank, payload))

    def _on_port_open(self, node: int, frame: frames.Frame) -> None:
        awaited = self._awaited
        if awaited is None or awaited.rank != frame.rank:
            raise meaningless(frame)
        self._awaited = None
        after = f"after {time.monotonic() - self._began:.2f} s"
        where = f"port {awaited.port} on {self._agents.host(node)}"
        self._console.verbose(f"rank {awaited.rank} listens at {where}, {after}; the next program starts")
        self._post(events.PortOpened(awaited.rank))

    def _launch(self, node: int, plan: NodePlan) -> None:
        self._agents.send(node, frames.encode(frames.LAUNCH, payload=self._pack(plan)))


def _endpoint_text(endpoint: Endpoint) -> str:
    text = f"ranks meet at {endpoint.address}, port {endpoint.port}"
    if not endpoint.service_port:
        return text
    if endpoint.service_address in ("", endpoint.address):
        return f"ranks meet at {endpoint.address}, ports {endpoint.port} and {endpoint.service_port}"
    return f"{text}, and at the scheduler's {endpoint.service_address}, port {endpoint.service_port}"
