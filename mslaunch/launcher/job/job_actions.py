"""Carries out the actions that the state of a job returns: frames to agents, timers, and texts for the user.

Back-pressure is here too: while the terminal does not keep up, agents pause what their ranks print; while a host takes
nothing, those that ask for more to be sent there wait.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_service
from mslaunch.errors import LinkError, WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, partial, signal
from mslaunch.launcher.agents.connection import MOST
from mslaunch.launcher.job import events
from mslaunch.protocol import frames
from mslaunch.runtime.fd_writer import HIGH, LOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Protocol

    from mslaunch.datamodel.node_plan import NodePlan
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.launcher.job.stack_collector import StackCollector
    from mslaunch.launcher.mpi.mpi_frames import MpiFrames
    from mslaunch.launcher.stdio.output import Output
    from mslaunch.launcher.stdio.stdin import Stdin
    from mslaunch.launcher.stdio.terminal import Console
    from mslaunch.protocol import control
    from mslaunch.runtime.loop import Loop, Timer

    class Starts(Protocol):
        """What is used here of a `Startup`, which uses `JobAgents`."""

        plans: list[NodePlan]

        def give_up(self) -> None:
            """A node has not answered in time."""

        def serve(self, nodes: Sequence[int]) -> None:
            """Start the services that ranks need."""

        def time_service(self) -> None:
            """A service is about to start."""

        def start(self, step: int) -> None:
            """Send all agents their plans."""

        def await_port(self, action: events.AwaitPort) -> None:
            """Ask an agent for the port of a rank."""


_LATE, _PIECE = 1 << 25, 64  # bytes; what buffers of a fast and long line hold, and what each frame costs besides


class JobAgents:
    """The agents of a running job by the number of their node; nodes of spawned ranks are added later."""

    def __init__(self, connections: Iterable[AgentConnection], suspend: Callable[[], None] = lambda: None) -> None:
        """`connections` in the order of the job's nodes; `suspend`: see `OpenLinks`."""
        self.suspend = suspend
        self._by_node = dict(enumerate(connections))
        self._on_end: Callable[[int, LinkError | None], None]
        self._on_frame: Callable[[int, frames.Frame], None]
        self._asking: AgentConnection | None = None
        self._ending = False
        self.paused = False

    def attach(
        self, on_end: Callable[[int, LinkError | None], None], on_frame: Callable[[int, frames.Frame], None]
    ) -> None:
        """Own all of them, those that are added later included; both get the number of the node first."""
        self._on_end, self._on_frame = on_end, on_frame
        for node in self._by_node:
            self._attach(node)

    def _attach(self, node: int) -> None:
        self._by_node[node].attach(partial(self._on_end, node), partial(self._on_frame, node))

    def add(self, node: int, connection: AgentConnection) -> None:
        """One more."""
        self._by_node[node] = connection
        self._attach(node)
        if self.paused:
            self.send(node, frames.encode(frames.PAUSE))

    @property
    def hellos(self) -> dict[int, control.Hello]:
        """What each said when it started."""
        return {node: connection.hello for node, connection in self._by_node.items() if connection.hello}

    def host(self, node: int) -> str:
        """The name of a node."""
        return self._by_node[node].node.name

    def local(self, node: int) -> bool:
        """Whether the agent of a node is a child of ours."""
        return self._by_node[node].node.local

    def crashed(self, node: int) -> bool:
        """The agent of a node sent a traceback of its own."""
        return self._by_node[node].crashed

    def terminated(self, node: int) -> None:
        """The agent of a node ends in order, and leaves nothing behind."""
        self._by_node[node].terminated = True

    def send(self, node: int, *pieces: bytes) -> None:
        """One frame to the agent of a node, perhaps in pieces.

        If more than enough is on its way there, whoever asks for this waits until there is room; while the job is
        being ended nobody does, and the frame is dropped.
        """
        connection = self._by_node[node]
        if self._asking and connection.pending > MOST:
            if self._ending:
                return
            from mslaunch.launcher.agents.link_room import hold

            hold(self._asking, connection)
        connection.send(*pieces)

    def full(self, node: int) -> bool:
        """More is on its way to the agent of a node than may be."""
        return self._by_node[node].pending > MOST

    def when_room(self, node: int, call: Callable[[], None]) -> None:
        """Call back once, when a node has room again or was lost."""
        from mslaunch.launcher.agents.link_room import when_room

        when_room(self._by_node[node], call)

    def asked(self, on: Callable[[int, frames.Frame], None]) -> Callable[[int, frames.Frame], None]:
        """`on`, a handler of frames that ask: what is sent meanwhile is sent for the node that asks."""

        def handle(node: int, frame: frames.Frame) -> None:
            self._asking = self._by_node[node]
            try:
                on(node, frame)
            finally:
                self._asking = None

        return handle

    def end(self) -> None:
        """The job is being ended: no node waits for another one any more, whose own end would not be seen."""
        self._ending = True
        for connection in self._by_node.values():
            if connection.behind:
                from mslaunch.launcher.agents.link_room import wait_for_itself

                wait_for_itself(connection)

    def send_all(self, frame: bytes) -> None:
        """One frame to every agent."""
        for connection in self._by_node.values():
            connection.send(frame)

    def pause(self, on: bool) -> None:
        """Let all ranks wait that print, or let them go on.

        What is under way at a PAUSE still comes: on each link at most `writer.HIGH` and what its buffers hold.
        """
        if on != self.paused:
            self.paused = on
            self.send_all(frames.encode(frames.PAUSE if on else frames.RESUME))


class BackPressure:
    """Pauses and resumes the output of the agents of one job at the reader's speed; `post(event)` to the state."""

    def __init__(self, agents: JobAgents, output: Output, post: Callable[[Any], None]) -> None:
        self._agents = agents
        self._output = output
        self._post = post
        self._late: dict[int, int] = {}  # node -> bytes that came although its ranks wait

    def came(self, node: int, data: bytes) -> None:
        """Output of a node; raises `WireError` for much of it after a PAUSE: more than was on its way then."""
        if self._agents.paused and data:
            self._late[node] = late = self._late.get(node, 0) + len(data) + _PIECE
            if late > _LATE:
                raise WireError("it goes on sending output though it was told to pause")

    def written(self) -> None:
        """Something was written."""
        self._check_reader()
        if self._output.pending > HIGH:
            self._pause(True)

    def drained(self) -> None:
        """A terminal took bytes, or has lost its reader."""
        self._check_reader()
        if self._output.pending < LOW:
            self._pause(False)

    def _check_reader(self) -> None:
        if self._output.unread:
            self._post(events.Unread())

    def _pause(self, on: bool) -> None:
        if on != self._agents.paused:
            self._late.clear()
            self._agents.pause(on)
            self._post(events.Paused(on))


class JobParts(NamedTuple):
    """What the actions of a job act on."""

    loop: Loop
    agents: JobAgents
    state: JobState
    startup: Starts
    mpi: MpiFrames
    stdin: Stdin
    output: Output
    pressure: BackPressure
    console: Console


class JobActions:
    """The actions of one job; `post(event)` to the state."""

    def __init__(self, parts: JobParts, post: Callable[[Any], None]) -> None:
        self._parts = parts
        self._send = parts.agents.send
        self._post = post
        self._timers: dict[str, Timer] = {}
        self._stacks: StackCollector | None = None
        startup, mpi = parts.startup, parts.mpi
        self._on: dict[type, Callable[[Any], None]] = {
            events.SetTimer: self._set_timer,
            events.CancelTimer: lambda action: self._timers.pop(action.timer).cancel(),
            events.GiveUpPreparing: lambda action: startup.give_up(),
            events.Serve: lambda action: startup.serve(action.nodes),
            events.Start: self._start,
            events.AwaitPort: startup.await_port,
            events.End: self._end,
            events.Idle: lambda action: self._send_all(action.nodes, frames.encode(frames.END, payload=b"idle")),
            events.Restart: self._restart,
            events.Kill: self._kill,
            events.Forward: self._forward,
            events.Warn: self._warn,
            events.Suspend: self._suspend,
            events.ResumeInput: lambda action: parts.stdin.resume(),
            events.Spawned: lambda action: mpi.settled(action.world, action.error),
            events.Trace: self._trace,
            events.ShowStacks: self._show_stacks,
            events.ReportState: self._report,
            events.GiveUp: self._give_up,
            events.DropOutput: self._drop_output,
            events.Notify: lambda action: self.notify(action.kind, action.facts),
        }

    def perform(self, action: Any) -> None:
        """Carry out one action."""
        self._on[type(action)](action)

    def stop(self) -> None:
        """The job is over: no timer fires any more."""
        for timer in self._timers.values():
            timer.cancel()
        if self._stacks:
            self._stacks.close()

    @property
    def stacks(self) -> StackCollector:
        """Those that were asked for."""
        if self._stacks is None:
            from mslaunch.launcher.job.stack_collector import StackCollector

            self._stacks = StackCollector(self._parts.state.table, self._parts.console.print)
        return self._stacks

    def notify(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Tell the user."""
        from mslaunch.launcher.messages.notices import notice_text

        table = self._parts.state.table
        self._parts.console.info(notice_text(kind, facts, table.names, table.hosts))
        self._parts.pressure.written()

    def _set_timer(self, action: events.SetTimer) -> None:
        fired = partial(self._post, events.TimerFired(action.timer))
        self._timers[action.timer] = self._parts.loop.after(action.seconds, fired)

    def _send_all(self, nodes: Sequence[int], frame: bytes) -> None:
        for node in nodes:
            self._send(node, frame)

    def _start(self, action: events.Start) -> None:
        parts, order = self._parts, self._parts.state.order
        parts.startup.start(action.step)
        if not action.step:
            parts.mpi.add_world(parts.startup.plans[0].world)
        parts.stdin.waits = order is not None and not order.reached(parts.stdin.targets)
        parts.stdin.resume()

    def _end(self, action: events.End) -> None:
        self._parts.agents.end()
        grace = 0.0 if action.now else self._parts.state.grace
        self._send_all(action.nodes, frames.encode(frames.END, payload=f"{grace:g}".encode()))
        self._parts.stdin.stop()

    def _restart(self, action: events.Restart) -> None:
        if is_service(action.rank):
            self._parts.startup.time_service()
        self._send(action.node, frames.encode(frames.RESTART, action.rank, str(action.number).encode()))

    def _kill(self, action: events.Kill) -> None:
        self._send(action.node, frames.encode(frames.SIGNAL, action.rank, str(int(signal.SIGKILL)).encode()))

    def _forward(self, action: events.Forward) -> None:
        self._parts.agents.send_all(frames.encode(frames.SIGNAL, payload=str(action.signum).encode()))

    def _warn(self, action: events.Warn) -> None:
        self.notify("warned", {"signum": action.signum, "seconds": action.seconds})
        self._parts.agents.send_all(frames.encode(frames.SIGNAL, payload=b"%d term" % action.signum))

    def _suspend(self, action: events.Suspend) -> None:
        """Ranks are stopped by SIGSTOP: in a session without a terminal the kernel ignores SIGTSTP."""
        self._parts.agents.suspend()  # us too, or the shell would wait for us

    def _trace(self, action: events.Trace) -> None:
        for node in action.nodes:
            self.stacks.begin(node)
        self._send_all(action.nodes, frames.encode(frames.TRACE, payload=f"{action.seconds:g}".encode()))

    def _show_stacks(self, action: events.ShowStacks) -> None:
        shown = self.stacks.show(action)
        self._parts.pressure.written()
        self._post(shown)

    def _report(self, action: events.ReportState) -> None:
        from mslaunch.launcher.messages.timeout_report import state_text

        table = self._parts.state.table
        self._parts.console.print(state_text(table.rank_states(), table.names, action.seconds))

    def _give_up(self, action: events.GiveUp) -> None:
        for node in action.nodes:
            host = self._parts.state.table.hosts[node]
            error = LinkError("its ranks did not end when they were killed", host)
            self._post(events.LinkEnded(node, error, given_up=True))

    def _drop_output(self, action: events.DropOutput) -> None:
        """What nobody reads goes to the log files only."""
        self._parts.output.abandon()
        self._parts.pressure.drained()
