"""Spawning: MPI_Comm_spawn, from a rank's question to a new world whose ranks all run, or to why they do not.

Understand the commands, place their ranks on the slots that are left, call hosts that have no agent yet, tell every
agent of the world, wait until all of its ranks have started.  Ends of ranks are the state's affair.  It knows nothing
of PMI and PMIx.  The surprising thing: up to the moment when agents are told it is one spawn at a time, since a second
one would count the same slots; and whatever goes wrong is the parent's to handle, so a job never ends here.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError, LaunchError, WireError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.job.job_state import RUNNING
from mslaunch.plan.mapping.spawn_placement import SpawnCommand, SpawnPlacement, place_spawned, understand
from mslaunch.plan.node_plans import empty_plan, make_plans, make_world
from mslaunch.protocol import control, frames
from mslaunch.protocol.mpi import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from mslaunch.datamodel.hosts import Allocation, Node
    from mslaunch.datamodel.jobmap import Endpoint, JobMap
    from mslaunch.datamodel.node_plan import NodePlan, World
    from mslaunch.datamodel.request import AppContext, Request
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.protocol.mpi import Question

    Call = Callable[[Sequence[Node], Callable[[list[AgentConnection], list[LaunchError]], None]], None]

    class SpawnHost(Protocol):
        """Who runs the job: the conductor."""

        state: JobState

        def send(self, node: int, frame: bytes) -> None:
            """One frame to the agent of a node."""

        def add_agent(self, peer: AgentConnection) -> int:
            """One more agent takes part; returns the number of its node."""

        def add_world(self, world: World, nodes: Sequence[int], mpi: bool) -> None:
            """Its ranks are about to start, each on its node."""

        def notice(self, text: str) -> None:
            """Tell the user."""

        def fail_job(self, what: str, todo: str) -> None:
            """The job cannot go on."""


_MOST = 0xFFFF  # worlds: their number is half of a name (`plan.make_world`)


class SpawnContext(NamedTuple):
    """What the job was made of."""

    request: Request
    allocation: Allocation
    jobmap: JobMap
    environ: Mapping[str, str]
    cwd: str
    jobid: str
    endpoint: Endpoint  # where its own ranks meet
    named: Callable[[tuple[AppContext, ...]], Allocation]  # which hosts app contexts name
    call: Call  # more hosts; see `AgentPool.call`
    attempt: int = 1  # which start of all ranks this is


class _SpawnRequest(NamedTuple):
    """What one rank asked for."""

    commands: tuple[SpawnCommand, ...]
    parent: str  # member
    like: AppContext  # that of the parent
    who: int  # the parent, as frames have it
    preput: tuple[str, ...]
    done: Callable[[Answer], None]


class Spawner:
    """All spawns of one launch."""

    def __init__(self, job: SpawnContext, host: SpawnHost) -> None:
        self._job = job
        self._host = host
        self._queue: list[_SpawnRequest] = []
        self._busy = False
        first = make_world(job.request, job.jobmap, job.jobid, attempt=job.attempt)
        self._worlds = [first]
        #: world -> the app context of each of its ranks
        self._apps: dict[str, list[AppContext]] = {}
        self._remember(first, job.request.apps, job.jobmap)
        self._starting: dict[int, tuple[_SpawnRequest, World]] = {}

    def _remember(self, world: World, apps: Sequence[AppContext], jobmap: JobMap) -> None:
        self._apps[world.name] = [apps[placement.app] for placement in jobmap.placements]

    # --- one at a time

    def asked(self, question: Question, done: Callable[[Answer], None]) -> None:
        """A rank wants others; `done` hears of them.  Raises `WireError` for what is no such question."""
        self._queue.append(self._read(question, done))
        self._next()

    def _read(self, question: Question, done: Callable[[Answer], None]) -> _SpawnRequest:
        try:
            commands, parent, preput = _commands(question)
            world, _, rank = parent.partition(".")
            like = self._apps[world][int(rank)]
        except (KeyError, ValueError, IndexError):
            raise WireError("it asked for more ranks in words that mean nothing here") from None
        first = {one.name: one.first for one in self._worlds}[world]
        return _SpawnRequest(commands, parent, like, first + int(rank), preput, done)

    def _next(self) -> None:
        while self._queue and not self._busy:
            wish = self._queue.pop(0)
            self._busy = True
            try:
                self._begin(wish)
            except LaunchError as error:
                self._refuse(wish, error)

    def _refuse(self, wish: _SpawnRequest, error: LaunchError) -> None:
        """The parent is told, and so is the user: MPI has but a number for it."""
        self._busy = False
        self._fail(wish, "slots" if isinstance(error, AllocationError) else "start", error)
        self._next()

    def _fail(self, wish: _SpawnRequest, word: str, error: LaunchError) -> None:
        why = f"{error.where}: {error.what}" if error.where else error.what
        todo = error.todo.rpartition("\n")[2]
        if self._host.state.phase == RUNNING:
            worlds = self._host.state.worlds
            ranks = counted(sum(command.maxprocs for command in wish.commands), "rank")
            what = f"{ranks} of {wish.commands[0].argv[0]}" + (" and others" if len(wish.commands) > 1 else "")
            said = f"{worlds.name(wish.who)} could not spawn {what}: {why}" + (f" ({todo})" if todo else "")
            if _keeps_others_waiting(wish) and worlds.size(worlds.of(wish.who)[0]) > 1:
                self._host.fail_job(said, "Open MPI 4.1 tells only this rank of it, and the others would wait for ever")
            else:
                self._host.notice(said)
        wish.done(Answer(0, f"{word}:{why}"))

    # --- where

    def _check_phase(self) -> None:
        """Nobody would end what is started now: the order to end has gone out."""
        if self._host.state.phase != RUNNING:
            raise LaunchError("the job is being ended")

    def _begin(self, wish: _SpawnRequest) -> None:
        self._check_phase()
        if len(self._worlds) >= _MOST:
            raise LaunchError(f"there are {_MOST} worlds already")
        if not all(command.argv[0] for command in wish.commands):
            raise LaunchError("no program was named")
        spawned = [understand(command, wish.like) for command in wish.commands]
        job, state = self._job, self._host.state
        running = state.running()
        jobmap = place_spawned(spawned, job.allocation, job.request.policy, running, self._usable(spawned, running))
        missing = [node for node in jobmap.nodes if node.name not in state.hosts]
        if missing:
            job.call(missing, lambda peers, errors: self._called(wish, spawned, jobmap, peers, errors))
        else:
            self._start(wish, spawned, jobmap)

    def _usable(self, spawned: Sequence[SpawnPlacement], running: Mapping[str, int]) -> list[list[str]]:
        """The nodes for each command: those that it names, else all; not those that were lost."""
        nodes = self._job.allocation.nodes
        lost = set(self._host.state.hosts) - set(running)
        apps = tuple(one.app for one in spawned)
        named = [[node.name for node in nodes]] * len(apps)
        if any(app.hosts or app.hostfile for app in apps):
            found = self._job.named(apps)
            everywhere = range(len(found.nodes))
            for number, app in enumerate(apps):
                if app.hosts or app.hostfile:
                    mine = found.apps[number] if found.apps else everywhere
                    named[number] = self._known([found.nodes[at].name for at in mine])
        return [[name for name in names if name not in lost] for names in named]

    def _known(self, names: list[str]) -> list[str]:
        known = {node.name for node in self._job.allocation.nodes}
        strangers = [name for name in names if name not in known]
        if strangers:
            todo = "name it with -H or --hostfile when the job is launched"
            raise AllocationError(f"{strangers[0]} is not among the hosts of this job", todo=todo)
        return names

    def _called(
        self,
        wish: _SpawnRequest,
        spawned: Sequence[SpawnPlacement],
        jobmap: JobMap,
        peers: list[AgentConnection],
        errors: list[LaunchError],
    ) -> None:
        """More agents are there, or are not: those that came stay, and are told of the worlds before.

        By now the job may be ending.
        """
        for peer in peers:
            node = self._host.add_agent(peer)
            for world in self._worlds:
                self._launch(node, empty_plan(self._job.request, world))
        try:
            self._check_phase()
            if errors:
                raise errors[0]
            self._start(wish, spawned, jobmap)
        except LaunchError as error:
            self._refuse(wish, error)
        else:
            self._next()

    # --- the world

    def _start(self, wish: _SpawnRequest, spawned: Sequence[SpawnPlacement], jobmap: JobMap) -> None:
        state = self._host.state
        lost = [node.name for node in jobmap.nodes if node.name not in state.running()]
        if lost:
            raise LaunchError("the host was lost meanwhile", lost[0])
        request = self._request(spawned)
        number = len(self._worlds) + 1
        world = make_world(request, jobmap, self._job.jobid, number, self._job.attempt)._replace(
            first=state.worlds.end, parent=wish.parent, preput=wish.preput
        )
        plans = self._plans(request, jobmap, world)
        self._worlds.append(world)
        self._remember(world, request.apps, jobmap)
        self._starting[number] = wish, world
        at = [state.hosts.index(node.name) for node in jobmap.nodes]
        nodes = [at[placement.node] for placement in jobmap.placements]
        self._host.add_world(world, nodes, all(one.mpi for one in spawned))
        # the others first: their ranks may hear of the new ones as soon as these run
        for name in state.running():
            if state.hosts.index(name) not in at:
                self._launch(state.hosts.index(name), empty_plan(request, world))
        for node, plan in zip(at, plans):
            self._launch(node, plan)
        self._busy = False

    def _request(self, spawned: Sequence[SpawnPlacement]) -> Request:
        """The job's, with other programs; nobody reads standard input, and there are no windows."""
        request = self._job.request
        output = request.output._replace(xterm=None)
        return request._replace(apps=tuple(one.app for one in spawned), stdin="none", output=output)

    def _plans(self, request: Request, jobmap: JobMap, world: World) -> list[NodePlan]:
        """MASTER_ADDR and MASTER_PORT stay those of the job.

        A port of the world's own would have to be held on its rank 0's host, and an address be proved, which takes two
        round trips; who spawns ranks has MPI for what that port is for.
        """
        job = self._job
        return make_plans(request, jobmap, job.environ, job.cwd, job.endpoint, job.jobid, world, job.attempt)

    def _launch(self, node: int, plan: NodePlan) -> None:
        self._host.send(node, frames.encode(frames.LAUNCH, payload=control.pack_plan(plan)))

    def settled(self, number: int, error: str) -> None:
        """All ranks of a world run, or (`error`) it is being ended."""
        wish, world = self._starting.pop(number)
        if error:
            self._fail(wish, "start", LaunchError(error))
        else:
            wish.done(Answer(0, fields={"world": [world.name]}))


def _keeps_others_waiting(wish: _SpawnRequest) -> bool:
    """Open MPI 4.1 calls itself "ompi", 5.0 "ompi5"; its mpirun ends the job where a spawn fails (runs of 4.1.4)."""
    return any(("pmix.pers", "ompi") in command.info for command in wish.commands)


def _commands(question: Question) -> tuple[tuple[SpawnCommand, ...], str, tuple[str, ...]]:
    """The commands, the member that asks, and what is to be put in advance; raises Key-, Value- or IndexError."""
    fields = {name: list(values) for name, values in question.fields.items()}
    (parent,), (count,) = fields["from"], fields["count"]
    commands = []
    for index in range(int(count)):
        maxprocs, wdir = fields[f"app.{index}"]
        info = fields.get(f"info.{index}", [])
        argv = tuple(fields[f"argv.{index}"]) or ("",)
        pairs = tuple(zip(info[::2], info[1::2]))
        commands.append(SpawnCommand(argv, int(maxprocs), wdir, tuple(fields.get(f"env.{index}", ())), pairs))
    commands[0]  # there is a command
    return tuple(commands), parent, tuple(fields.get("preput", ()))
