"""The controller of a job: makes events of the agents' frames, asks the state, and has its actions carried out."""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_RANK, is_service
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.agents.connection import ASKING, is_about, meaningless
from mslaunch.launcher.job import events
from mslaunch.launcher.job.job_actions import BackPressure, JobActions, JobParts
from mslaunch.launcher.job.job_state import ENDING
from mslaunch.launcher.job.startup import Startup
from mslaunch.launcher.mpi.mpi_frames import MpiFrames, RunningJob
from mslaunch.launcher.stdio.stdin import Stdin
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mslaunch.datamodel.jobmap import Endpoint
    from mslaunch.datamodel.node_plan import World
    from mslaunch.errors import LinkError
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.job.job_actions import JobAgents
    from mslaunch.launcher.job.job_records import JobWatcher
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.launcher.job.startup import JobPlans
    from mslaunch.launcher.mpi.spawn_ranks import Spawner
    from mslaunch.launcher.stdio.output import Output
    from mslaunch.launcher.stdio.terminal import Console
    from mslaunch.runtime.loop import Loop

_PIDS = 1 << 31
_FIRST_OUTPUT = 1 << 20  # bytes


class FirstOutput:
    """What processes print until the job can be asked about its ranks (`jobs.live_job`), up to 1 MiB."""

    def __init__(self) -> None:
        self.wanted = True
        self._room = _FIRST_OUTPUT
        self._frames: list[frames.Frame] = []

    def keep(self, frame: frames.Frame) -> None:
        """The next output; what is too much is not kept, and nothing after it."""
        self._room -= len(frame.payload)
        self.wanted = self._room >= 0
        if self.wanted:
            self._frames.append(frame)

    def take(self) -> list[frames.Frame]:
        """All of it, once."""
        kept, self._frames, self.wanted = self._frames, [], False
        return kept


class JobController:
    """One job, from HELLO to the last byte of its output."""

    def __init__(
        self,
        loop: Loop,
        agents: JobAgents,
        state: JobState,
        output: Output,
        plans: JobPlans,
        stdin: tuple[int, Sequence[int]],
        console: Console,
        *,
        write: Callable[[int, int, bytes], None] | None = None,
        make_spawner: Callable[[Endpoint, RunningJob], Spawner] | None = None,
        records: JobWatcher | None = None,
    ) -> None:
        """`stdin`: a descriptor and its ranks; `write`, or `records` that sees events as well, replaces `output`."""
        self._loop = loop
        self.agents = agents
        self.state = state
        self._output = output
        self.write = records.write if records else write or output.write
        self._console = console
        self._make_spawner = make_spawner
        self._records = records
        self._crashes: dict[tuple[str, str], list[str]] = {}  # errors of agents -> hosts
        self.first_output = FirstOutput()
        self._stdin = Stdin(loop, stdin[0], stdin[1], self._send_stdin)
        self._pressure = BackPressure(agents, output, self.post)
        self.on_drained = self._pressure.drained
        self._startup = Startup(agents, self.post, plans, state.table.services, console)
        self._mpi = MpiFrames(self._running_job(), self._spawner)
        parts = JobParts(loop, agents, state, self._startup, self._mpi, self._stdin, output, self._pressure, console)
        self._actions = JobActions(parts, self.post)
        self.on: dict[int, Callable[[int, frames.Frame], None]] = {
            **self._startup.on,
            frames.STARTED: self._on_started,
            **dict.fromkeys((frames.STDOUT, frames.STDERR), self._on_output),
            frames.EXIT: self._on_exit,
            frames.STDIN_TAKEN: self._on_stdin_taken,
            frames.TRACES: self._on_traces,
            frames.ENDING: self._on_ending,
            **dict.fromkeys(frames.OF_MPI, self._mpi.on_frame),
        }
        self.on.update((kind, agents.asked(self.on[kind])) for kind in ASKING)
        agents.attach(self._on_link_ended, self._on_frame)

    # --- agents

    def _on_frame(self, node: int, frame: frames.Frame) -> None:
        on, number = self.on.get(frame.kind), frame.rank
        rank = self.state.table.ranks.get(number)
        runs = rank.node if rank else self._startup.services.get(number)
        if on is None or not is_about(frame, here=runs == node):
            raise meaningless(frame)
        on(node, frame)

    def _on_link_ended(self, node: int, error: LinkError | None) -> None:
        self.post(events.LinkEnded(node, error))
        cause = self.state.failure
        if error and self.agents.crashed(node) and not (cause and cause.facts.get("error") is error):
            alike = self._crashes.setdefault((error.what, error.todo), [])
            alike.append(self.agents.host(node))
            if len(alike) == 1:
                self._console.info(str(error))  # not the cause, but to be reported; the hosts that follow at the end
        self._mpi.lost(node)

    def post(self, event: Any) -> None:
        """Something has happened: carry out what the state answers."""
        for action in self.state.on(event):
            self._actions.perform(action)
        if self._records:
            self._records.observe(event)

    # --- frames

    def _on_started(self, node: int, frame: frames.Frame) -> None:
        pid, table = control.unpack_number(frame.payload), self.state.table
        member = (table.services.members if is_service(frame.rank) else table.ranks).get(frame.rank)
        if not 0 < pid < _PIDS or (member and member.pid is not None and not member.ended):
            raise meaningless(frame)
        self._console.verbose(f"{table.names.name(frame.rank)} is process {pid} on {table.hosts[node]}")
        self._output.started(frame.rank, pid)
        self.post(events.Started(frame.rank, pid, node, self._loop.now()))

    def _on_output(self, node: int, frame: frames.Frame) -> None:
        self._pressure.came(node, frame.payload)
        if self.first_output.wanted:
            self.first_output.keep(frame)
        self.write(frame.kind, frame.rank, frame.payload)
        if frame.payload:
            self._pressure.written()
        else:
            self.post(events.StreamEnded(frame.rank))

    def _on_exit(self, node: int, frame: frames.Frame) -> None:
        status = control.unpack_record(ExitStatus, frame.payload)
        if not self._is_possible(frame.rank, status):
            raise meaningless(frame)
        if status.error:
            from mslaunch.launcher.messages.host_words import status_of

            status = status_of(status, self.agents.local(node))
        self._stdin.rank_ended(frame.rank)
        self.post(events.Exited(frame.rank, node, status, self._loop.now()))
        table = self.state.table
        if is_service(frame.rank) and not status.error:
            from mslaunch.launcher.messages.failure_text import ending

            self._console.verbose(f"{table.names.name(frame.rank)} {ending(status)}")
        if frame.rank in table.ranks and table.ranks[frame.rank].ended:  # and is not restarted
            self._mpi.ended(frame.rank)

    def _is_possible(self, number: int, status: ExitStatus) -> bool:
        """A process ends once, with a status that processes have; one that runs cannot have failed to start."""
        rank = self.state.table.ranks.get(number)
        if rank and rank.reason != "lost" and (rank.ended or (status.error and rank.pid is not None)):
            return False
        return 0 <= (status.code or 0) < 256 and 0 <= (status.signal or 0) < 128

    def _on_stdin_taken(self, node: int, frame: frames.Frame) -> None:
        size = control.unpack_number(frame.payload)
        if not self._stdin.may_take(frame.rank, size):
            raise meaningless(frame)
        self._stdin.taken(frame.rank, size)

    def _on_traces(self, node: int, frame: frames.Frame) -> None:
        """The stack of a process, or that these were all of the node."""
        if not self._actions.stacks.take(node):
            raise meaningless(frame)
        if frame.rank != NO_RANK:
            trace = control.unpack_record(control.StackTrace, frame.payload)
            self._actions.stacks.came(frame.rank, node, trace)
        elif self._actions.stacks.over(node):
            self.post(events.Traced((node,)))

    def collect_stacks(self, done: Callable[[str], None]) -> None:
        """Look at what all ranks do, and end nothing: `done` gets the text once, within 6 s; at the end at the latest.

        It is called from the loop, perhaps before this returns.
        """
        if self.state.finished:  # a round that the end has cut short would never be over
            done("mslaunch: no rank runs\n")
            return
        self._actions.stacks.asked.append(done)
        self.post(events.StacksAsked())

    def _on_ending(self, node: int, frame: frames.Frame) -> None:
        self.agents.terminated(node)
        self.post(events.AgentEnding(node))

    def _send_stdin(self, rank: int, data: bytes) -> None:
        """To all ranks goes one copy, and nothing more while it waits for one of them."""
        node = self.state.table.ranks[rank].node
        self.agents.send(node, frames.header(frames.STDIN, len(data), rank), data)
        if self.agents.full(node):
            self._stdin.hold()
            self.agents.when_room(node, self._stdin.release)

    # --- MPI_Comm_spawn

    def _running_job(self) -> RunningJob:
        table = self.state.table
        return RunningJob(
            table.hosts, table.names, table.running, table.in_mpi, table.ended, lambda: self.state.phase == ENDING,
            self.agents.send, self.agents.full, self.agents.when_room, self.post, self._notify, self._add_agent,
            self._add_world,
        )  # fmt: skip

    def _spawner(self, job: RunningJob) -> Spawner:
        assert self._make_spawner and self._startup.endpoint
        return self._make_spawner(self._startup.endpoint._replace(stores={}, rank_ports={}), job)

    def _notify(self, kind: str, facts: Any) -> None:
        self._actions.notify(kind, facts)

    def _add_agent(self, connection: AgentConnection) -> int:
        node = self.state.table.add_node(connection.node.name)
        self.agents.add(node, connection)
        return node

    def _add_world(self, world: World, nodes: Sequence[int], mpi: bool) -> None:
        table = self.state.table
        table.add_world(nodes, mpi)
        self._output.add_world([(table.hosts[node], node) for node in nodes])
        self._mpi.add_world(world)

    # --- the whole

    def run(self) -> None:
        """Until nothing is left to wait for."""
        self.post(events.Began(self._startup.patience))
        self._startup.begin()
        self._loop.run(lambda: self.state.finished)
        self._stdin.stop()

    def finish(self) -> None:
        """Until all output is written."""
        for (what, _), hosts in self._crashes.items():
            if len(hosts) > 1:
                from mslaunch.plan.hosts.host_ranges import fold

                self._console.info(f"{fold(sorted(hosts[1:]))}: {what}, too")
        self._output.finish()
        self._loop.run(lambda: not self._output.pending)
        self._actions.stop()
