"""The conductor: turns frames into events, asks the state, and does what it answers.

frame -> event -> actions = state.on(event) -> act(actions).  It holds the peers, the output and the input, decides
nothing itself and knows no command line.  The surprising thing: when the terminal does not keep up, all agents
pause what their ranks print, and by that every rank slows to the reader's speed.
"""

from __future__ import annotations

import os

from mslaunch.errors import LinkError
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.launcher.agents.connection import meaningless
from mslaunch.launcher.job import events
from mslaunch.launcher.job.delayed_restarts import DelayedRestarts
from mslaunch.launcher.job.startup import Startup
from mslaunch.launcher.messages.exit_text import ending
from mslaunch.launcher.stdio.output import Output
from mslaunch.launcher.stdio.stdin import Stdin
from mslaunch.protocol import control, frames
from mslaunch.runtime.writer import HIGH, LOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.node_plan import NodePlan, World
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.agents.job_agents import JobAgents
    from mslaunch.launcher.agents.rendezvous import Endpoint, RendezvousRequest
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.launcher.mpi.coordinator import Coordinator
    from mslaunch.launcher.mpi.spawn_ranks import Spawner
    from mslaunch.launcher.stdio.console import Console
    from mslaunch.protocol.mpi import Answer, Question
    from mslaunch.runtime.loop import Loop
    from mslaunch.runtime.timers import Timer

_NOT_ENDING = 10.0  #: seconds after KILL when a rank counts as impossible to end
_TRACE_SECONDS = 10.0  #: for --get-stack-traces, on all hosts at once
_TRACES_COME = 5.0  #: seconds more until they must have arrived
_STUCK = 3.0  #: seconds that a terminal nobody reads is waited for once a signal or --timeout has ended the job


class JobController:
    """One launch, from HELLO to the last byte."""

    def __init__(
        self,
        loop: Loop,
        agents: JobAgents,
        state: JobState,
        output: Output,
        plans: Callable[[Endpoint], list[NodePlan]],
        stdin: tuple[int, Sequence[int]],
        grace: float,
        console: Console,
        *,
        restart_delay: float = 0.0,
        services: Callable[[Endpoint], Mapping[int, NodePlan]] = lambda endpoint: {},
        sought: RendezvousRequest | None = None,
        write: Callable[[int, int, bytes], None] | None = None,
        observe: Callable[[Any], None] | None = None,
    ) -> None:
        """`plans` makes those of all nodes, `services` those of services that start before the ranks, by node.

        `sought` says which ports and addresses these need; None: those of a job on one node.

        `write` takes what processes print instead of `output.write`; `observe` gets each event, after its actions.
        """
        self._loop = loop
        self._agents = agents
        self.state = state
        self._output = output
        self._write = write or output.write
        self._grace = grace
        self._console = console
        self._timers: list[Timer] = []
        self._stdin = Stdin(loop, stdin[0], stdin[1], self._send_stdin)
        self._restarts = DelayedRestarts(loop, agents.send, restart_delay)
        self._meeting: Coordinator | None = None
        self._spawning: Spawner | None = None
        self._make_spawning: Callable[[Endpoint], Spawner] | None = None
        self._observe = observe
        self._worlds: list[World] = []
        self._starting = Startup(loop, self, agents, plans, services, console, sought)
        self._on = self._handlers()
        agents.attach(self._on_end, self._on_frame)

    def _handlers(self) -> dict[int, Callable[[int, frames.Frame], None]]:
        return {
            **self._starting.on,
            frames.STARTED: self._started,
            frames.STDOUT: self._printed,
            frames.STDERR: self._printed,
            frames.EXIT: self._exited,
            frames.STDIN_TAKEN: lambda node, frame: self._stdin.taken(frame.rank, control.unpack_number(frame.payload)),
            frames.TRACES: self._traced,
            **dict.fromkeys(frames.OF_MPI, self._on_mpi_frame),
        }

    def _on_frame(self, node: int, frame: frames.Frame) -> None:
        on = self._on.get(frame.kind)
        if on is None or not self._is_known(frame.rank):
            raise meaningless(frame)
        on(node, frame)

    def _is_known(self, number: int) -> bool:
        return number in self.state.ranks or number == frames.NO_RANK or number in self._starting.services

    def _on_end(self, node: int, error: LinkError | None) -> None:
        self.event(events.LinkEnded(node, error))
        if self._meeting:
            self._meeting.lost(node)

    # --- events

    def event(self, event: Any) -> None:
        """Something has happened: do what the state answers."""
        for action in self.state.on(event):
            self._act(action)
        if self._observe:
            self._observe(event)

    def _started(self, node: int, frame: frames.Frame) -> None:
        pid = control.unpack_number(frame.payload)
        self._console.verbose(f"{self.state.name(frame.rank)} is process {pid} on {self._agents.host(node)}")
        self._output.started(frame.rank, pid)
        self.event(events.Started(frame.rank, pid, node))

    def _printed(self, node: int, frame: frames.Frame) -> None:
        self._write(frame.kind, frame.rank, frame.payload)
        if not frame.payload:
            self.event(events.StreamEnded(frame.rank))
        else:
            self.apply_back_pressure()

    def apply_back_pressure(self) -> None:
        """Something was written: agents read nothing more of their ranks while much of it waits."""
        self._check_broken_stdout()
        if self._output.pending > HIGH:
            self._agents.pause(True)

    def on_drained(self) -> None:
        """A terminal took bytes, or has lost its reader."""
        self._check_broken_stdout()
        if self._output.pending < LOW:
            self._agents.pause(False)

    def _check_broken_stdout(self) -> None:
        if self._output.unread:
            self.event(events.Unread())

    def _exited(self, node: int, frame: frames.Frame) -> None:
        ended = control.unpack_exit(frame.payload)
        self._stdin.rank_ended(frame.rank)
        self.event(events.Exited(frame.rank, node, *ended))
        if frame.rank < 0 and not ended.error:
            self._console.verbose(f"{self.state.name(frame.rank)} {ending(ended.code, ended.signal)}")
        if self._meeting and frame.rank >= 0 and self.state.ranks[frame.rank].ended:  # and not started again
            self._meeting.ended(frame.rank)

    def _on_mpi_frame(self, node: int, frame: frames.Frame) -> None:
        """Something of an MPI program, which most jobs have not."""
        if self._meeting is None:
            from mslaunch.launcher.mpi.coordinator import Coordinator

            self._meeting = Coordinator(self.send, self.event, self.notice, self.state, self._spawn)
            for world in self._worlds:
                self._meeting.add_world(world)
            for number in [number for number, rank in self.state.ranks.items() if rank.ended]:
                self._meeting.ended(number)
        self._meeting.on_frame(node, frame)

    # --- MPI_Comm_spawn

    def on_spawn(self, make: Callable[[Endpoint], Spawner]) -> None:
        """`make` makes who cares for it, should a rank ask."""
        self._make_spawning = make

    def _spawn(self, question: Question, done: Callable[[Answer], None]) -> None:
        if self._spawning is None:
            assert self._make_spawning and self._starting.endpoint
            self._spawning = self._make_spawning(self._starting.endpoint)
        self._spawning.asked(question, done)

    def send(self, node: int, frame: bytes) -> None:
        """See `spawning.Host`."""
        self._agents.send(node, frame)

    def notice(self, text: str) -> None:
        """See `spawning.Host`."""
        self._console.info(text)

    def fail_job(self, what: str, todo: str) -> None:
        """See `spawning.Host`."""
        self.event(events.Impossible(what, todo))

    def add_agent(self, peer: AgentConnection) -> int:
        """See `spawning.Host`."""
        node = self.state.add_node(peer.node.name)
        self._agents.add(node, peer)
        return node

    def add_world(self, world: World, nodes: Sequence[int], mpi: bool) -> None:
        """See `spawning.Host`."""
        self.state.add_world(nodes, mpi)
        self._output.add_world([(self.state.hosts[node], node) for node in nodes])
        self._worlds.append(world)
        assert self._meeting  # through it we have been asked
        self._meeting.add_world(world)

    # --- actions

    def _act(self, action: Any) -> None:
        if isinstance(action, events.Start):
            self._start()
        elif isinstance(action, events.Serve):
            self._starting.serve(action.nodes)
        elif isinstance(action, events.Restart):
            self._restart(action)
        elif isinstance(action, events.Idle):
            self.to_all(frames.encode(frames.END, payload=b"idle"))
        elif isinstance(action, events.Trace):
            self._trace(action.nodes)
        elif isinstance(action, events.Kill):
            self.send(action.node, frames.encode(frames.SIGNAL, action.rank, str(int(signal.SIGKILL)).encode()))
        elif isinstance(action, events.Spawned):
            assert self._spawning
            self._spawning.settled(action.world, action.error)
        elif isinstance(action, events.End):
            self._end(action.nodes, 0.0 if action.now else self._grace)
        else:
            self._on_interrupt(action)

    def _on_interrupt(self, action: Any) -> None:
        """What follows from a signal or the time limit."""
        if isinstance(action, events.Notice):
            words = "killing the ranks" if action.kill else "ending the ranks; a second signal kills them"
            self._console.info(f"{action.signal}: {words}")
        elif isinstance(action, events.Forward):
            self.to_all(frames.encode(frames.SIGNAL, payload=str(action.signum).encode()))
        elif isinstance(action, events.Suspend):
            self._loop.soon(lambda: os.kill(os.getpid(), signal.SIGSTOP))  # or the shell would wait for us
        elif isinstance(action, events.ResumeInput):
            self._stdin.resume()
        elif isinstance(action, events.ReportState):
            from mslaunch.launcher.messages.timeout_report import state_text

            self._console.print(state_text(self.state.rank_states(), self.state.worlds, action.seconds))
        else:
            tracing = _TRACE_SECONDS + _TRACES_COME if action.tracing else 0.0
            self._after(tracing + self._grace + _STUCK, self.drop_pending_output)

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once, unless the job is over by then."""
        self._timers.append(self._loop.after(seconds, callback))

    def _trace(self, nodes: Sequence[int]) -> None:
        """Ask for the stacks of all ranks on `nodes`."""
        for node in nodes:
            self.send(node, frames.encode(frames.TRACE, payload=f"{_TRACE_SECONDS:g}".encode()))
        self._after(_TRACE_SECONDS + _TRACES_COME, lambda: self.event(events.Traced(tuple(nodes))))

    def _traced(self, node: int, frame: frames.Frame) -> None:
        """TRACES: the stacks of one process, or that these were all of the node."""
        if frame.rank == frames.NO_RANK:
            self.event(events.Traced((node,)))
            return
        from mslaunch.launcher.messages.timeout_report import trace_text

        traced = control.unpack_traced(frame.payload)
        self._console.print(trace_text(self.state.worlds.name(frame.rank), self.state.hosts[node], traced))
        self.apply_back_pressure()

    def _end(self, nodes: Sequence[int], grace: float) -> None:
        for node in nodes:
            self._agents.send(node, frames.encode(frames.END, payload=f"{grace:g}".encode()))
        self._starting.stop()
        self._restarts.flush(nodes)
        self._stdin.stop()
        self._after(grace + _NOT_ENDING, self._on_kill_timeout)

    def _restart(self, again: events.Restart) -> None:
        where = f"{self.state.name(again.rank)} {again.how} on {self._agents.host(again.node)}"
        if again.rank < 0:
            self._starting.time_service()
        self._console.info(self._restarts.order(again, where))
        self.apply_back_pressure()

    def _on_kill_timeout(self) -> None:
        """No process withstands SIGKILL for long but one that hangs in the kernel: its host is given up, by name."""
        if self._agents.paused:  # they may all have ended, but for the ends of their streams
            self._after(_NOT_ENDING, self._on_kill_timeout)
            return
        for node in self.state.unfinished():
            error = LinkError("its ranks did not end when they were killed", self._agents.host(node))
            self.event(events.LinkEnded(node, error, given_up=True))

    def _start(self) -> None:
        self._starting.start()
        self._worlds.append(self._starting.plans[0].world)
        if self._meeting:  # an agent has needed a part already
            self._meeting.add_world(self._worlds[-1])
        self._stdin.resume()

    def _send_stdin(self, rank: int, data: bytes) -> None:
        self._agents.send(self.state.ranks[rank].node, frames.encode(frames.STDIN, rank, data))

    def to_all(self, frame: bytes) -> None:
        """One frame to every agent, once ranks were started."""
        if self.state.begun:
            self._agents.send_all(frame)

    def drop_pending_output(self) -> None:
        """The user wants to leave, and nobody reads what ranks print: the rest goes to the log files only."""
        self._output.abandon()
        self.on_drained()
        self._after(_STUCK, self.drop_pending_output)  # whoever stops reading later

    # --- the whole

    def run(self) -> None:
        """Until nothing is left to wait for."""
        self._starting.begin()
        self._loop.run(lambda: self.state.finished)
        self._stdin.stop()
        self._starting.stop()

    def finish(self) -> None:
        """Until every byte is out."""
        self._output.finish()
        self._loop.run(lambda: not self._output.pending)
        for timer in self._timers:
            timer.cancel()
