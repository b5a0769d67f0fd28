"""MPI_Comm_spawn on the launcher's side: from a rank's question to a new world whose ranks all run, or to an error.

Spawns wait for each other until the agents have the plans of the one before, since two would count the same slots.
Every failure is an error for the parent.  It ends the job only where other ranks would wait for ever.  Who may spawn,
and where, is for `SpawnPolicy`; what an agent hears of a failure is a word, and nothing that is known here only.
"""

from __future__ import annotations

from mslaunch.datamodel.request import AppContext
from mslaunch.errors import AllocationError, LaunchError, WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, partial
from mslaunch.launcher import job_failure
from mslaunch.launcher.job_failure import JobFailure
from mslaunch.launcher.messages.host_words import named
from mslaunch.launcher.mpi.mpi_frames import Impossible
from mslaunch.launcher.mpi.node_quota import NodeQuota
from mslaunch.launcher.mpi.spawn_policy import SpawnPolicy
from mslaunch.plan.mapping.spawn_placement import SpawnCommand, SpawnPlacement, place_spawned, understand
from mslaunch.plan.node_plans import empty_plan, make_plans, make_world
from mslaunch.protocol import frames
from mslaunch.protocol.alike_plans import AlikePlans
from mslaunch.protocol.codec import integer
from mslaunch.protocol.mpi import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.jobmap import Allocation, Endpoint, JobMap, Node
    from mslaunch.datamodel.node_plan import NodePlan, World
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.mpi.mpi_frames import RunningJob
    from mslaunch.protocol.mpi import Question

    Call = Callable[[Sequence[Node], Callable[[list[AgentConnection], list[LaunchError]], None]], None]


_MOST = 0x7FFF  # worlds: Open MPI 5 has 15 bits for their number (`node_plans.make_world`)
#: spawns of a node that wait, and their bytes.  A rank, or one of its threads, waits for one at a time
_WAITING, _WAITING_SIZE = 256, 1 << 23
#: bytes of the requests of a node whose worlds still run: their ranks may spawn, and mslaunch starts these alike
_RUNNING_SIZE = 1 << 25
_WORD, _WORLD = 60, 1000  # bytes that a word of these, and a world, take besides
_TOLD = 16  # failed spawns of a node that the user is told of

_BARRED = "no rank that has called MPI_Init runs on the launching host"
_ENDED = AppContext(("",))  # replaces a program that no longer runs


class SpawnContext(NamedTuple):
    """What the job was made of."""

    request: Request
    allocation: Allocation
    jobmap: JobMap
    environ: Mapping[str, str]
    cwd: str
    jobid: str
    endpoint: Endpoint  # the rendezvous of its own ranks
    named: Callable[[tuple[AppContext, ...]], Allocation]  # which hosts app contexts name
    call: Call  # more hosts; see `AgentPool.call`
    attempt: int = 1  # which start of all ranks this is
    secret: str = ""  # of the job's worlds


class _SpawnRequest(NamedTuple):
    """What one rank asked for; `done` gets the answer."""

    node: int
    size: int  # bytes of the question
    commands: tuple[SpawnCommand, ...]
    parent: str  # member
    like: AppContext  # that of the parent
    who: int  # the number of the parent in frames
    preput: tuple[str, ...]
    done: Callable[[Answer], None]


class _RunningWorld(NamedTuple):
    """A spawned world of which at least one rank runs."""

    number: int  # of the world
    node: int  # that has asked for it
    size: int
    running: int  # ranks


class Spawner:
    """All spawns of one job."""

    def __init__(self, context: SpawnContext, job: RunningJob) -> None:
        self._context = context
        self._job = job
        self._queue: list[_SpawnRequest] = []
        self._busy = False
        first = make_world(
            context.request, context.jobmap, context.jobid, attempt=context.attempt, secret=context.secret
        )
        self._worlds = [first]
        #: world -> the app context of each of its ranks
        self._apps = {first.name: [context.request.apps[row.app] for row in context.jobmap.placements]}
        self._starting: dict[int, tuple[_SpawnRequest, World]] = {}
        request, environ = context.request, context.environ
        self._policy = SpawnPolicy(request.spawn, context.allocation.nodes, job.in_mpi, environ, context.cwd)
        self._policy.add_world(first.first, [context.jobmap.nodes[row.node].name for row in context.jobmap.placements])
        self._payloads = AlikePlans()
        self._quota = NodeQuota(_WAITING, _WAITING_SIZE)
        self._running: dict[str, _RunningWorld] = {}  # by the names of worlds
        self._running_quota = NodeQuota(_MOST, _RUNNING_SIZE)
        self._told: dict[int, int] = {}  # node -> failed spawns

    # --- one at a time

    def spawn(self, node: int, question: Question, done: Callable[[Answer], None]) -> None:
        """A rank of `node` calls MPI_Comm_spawn; `done` gets the answer.

        Raises `WireError` if the question is malformed.
        """
        asked = self._read(node, question, done)
        if self._quota.take(node, asked.size):
            self._queue.append(asked)
            self._next()
        else:
            self._fail(asked, "start", LaunchError("too many spawns of its host wait"))

    def _read(self, node: int, question: Question, done: Callable[[Answer], None]) -> _SpawnRequest:
        try:
            commands, parent, preput = _commands(question)
            name, _, rank = parent.partition(".")
            like = self._apps[name][int(rank)]
        except (KeyError, ValueError, IndexError):
            raise WireError("it asked for more ranks in words that mean nothing here") from None
        first = next(world.first for world in self._worlds if world.name == name)
        size = sum(len(word) + _WORD for words in question.fields.values() for word in words)
        return _SpawnRequest(node, size, commands, parent, like, first + int(rank), preput, done)

    def _next(self) -> None:
        while self._queue and not self._busy:
            asked = self._queue.pop(0)
            self._quota.give(asked.node, asked.size)
            self._busy = True
            try:
                self._begin(asked)
            except LaunchError as error:
                self._refuse(asked, error)

    def _refuse(self, asked: _SpawnRequest, error: LaunchError) -> None:
        """The parent gets an error class, since MPI has nothing more for it; the user gets the reason."""
        self._busy = False
        self._fail(asked, "slots" if isinstance(error, AllocationError) else "start", error)
        self._next()

    def _fail(self, asked: _SpawnRequest, word: str, error: LaunchError) -> None:
        why = f"{error.where}: {error.what}" if error.where else error.what
        if not self._job.ending():
            facts = {
                "rank": asked.who,
                "ranks": sum(command.maxprocs for command in asked.commands),
                "program": named(asked.commands[0].argv[0]),
                "more": len(asked.commands) > 1,
                "error": named(why),
                "todo": named(error.todo.rpartition("\n")[2]),
            }
            names = self._job.names
            if _keeps_others_waiting(asked) and names.size(names.of(asked.who)[0]) > 1:
                self._job.post(Impossible(JobFailure(job_failure.SPAWN_FAILED, facts)))
            else:
                self._notify(asked.node, facts)
        asked.done(Answer(0, word))

    def _notify(self, node: int, facts: Mapping[str, Any]) -> None:
        """Tell the user of the first failures of each node."""
        self._told[node] = told = self._told.get(node, 0) + 1
        if told <= _TOLD:
            self._job.notify("spawn failed", {**facts, "last": told == _TOLD})

    # --- where

    def _check_phase(self) -> None:
        """Refuse once END has gone out to the agents: nobody would end what is started then."""
        if self._job.ending():
            raise LaunchError("the job is being ended")

    def _begin(self, asked: _SpawnRequest) -> None:
        self._check_phase()
        if len(self._worlds) >= _MOST:
            raise LaunchError(f"there are {_MOST} worlds already")
        if not all(command.argv[0] for command in asked.commands):
            raise LaunchError("no program was named")
        first = next(world for world in self._worlds if world.name == asked.parent.partition(".")[0])
        self._policy.check(asked.who, range(first.first, first.first + first.size), asked.like)
        names = self._policy.exports(asked.like)
        spawned = [understand(command, asked.like, names) for command in asked.commands]
        context, job = self._context, self._job
        jobmap = self._place(spawned, job.running())
        missing = [node for node in jobmap.nodes if node.name not in job.hosts]
        if missing:
            context.call(missing, partial(self._called, asked, spawned, jobmap))
        else:
            self._start(asked, spawned, jobmap)

    def _place(self, spawned: Sequence[SpawnPlacement], running: Mapping[str, int]) -> JobMap:
        barred, context = self._policy.barred(), self._context
        usable = self._usable(spawned, running, barred)
        try:
            return place_spawned(spawned, context.allocation, context.request.policy, running, usable)
        except AllocationError as error:
            if not barred:
                raise
            raise AllocationError(error.what, error.where, f"{_BARRED}, so none is started there") from None

    def _usable(
        self, spawned: Sequence[SpawnPlacement], running: Mapping[str, int], barred: Container[str]
    ) -> list[list[str]]:
        """The nodes for each command: those that it names, or all that are not `barred`; without those that were lost.

        Raises LaunchError for a name that is not one of these.
        """
        known = [node.name for node in self._context.allocation.nodes]
        lost = set(self._job.hosts) - set(running)
        apps = tuple(one.app for one in spawned)
        named = [[name for name in known if name not in barred]] * len(apps)
        if any(app.hosts for app in apps):
            found = self._context.named(apps)
            for number, app in enumerate(apps):
                if app.hosts:
                    mine = found.apps[number] if found.apps else range(len(found.nodes))
                    named[number] = [found.nodes[at].name for at in mine]
        unknown = next((name for names in named for name in names if name not in known), None)
        if unknown:
            todo = "name it with -H or --hostfile when the job is launched"
            raise AllocationError(f"{unknown} is not among the hosts of this job", todo=todo)
        if any(name in barred for names in named for name in names):
            raise LaunchError(_BARRED)
        return [[name for name in names if name not in lost] for names in named]

    def _called(
        self,
        asked: _SpawnRequest,
        spawned: Sequence[SpawnPlacement],
        jobmap: JobMap,
        peers: list[AgentConnection],
        errors: list[LaunchError],
    ) -> None:
        """More agents are connected, or some failed.  Those that are get the worlds so far.  The job may end by now."""
        for peer in peers:
            node = self._job.add_agent(peer)
            for world in self._worlds:
                self._launch(node, empty_plan(self._context.request, world))
        try:
            self._check_phase()
            if errors:
                raise errors[0]
            self._start(asked, spawned, jobmap)
        except LaunchError as error:
            self._refuse(asked, error)
        else:
            self._next()

    # --- the world

    def _start(self, asked: _SpawnRequest, spawned: Sequence[SpawnPlacement], jobmap: JobMap) -> None:
        job = self._job
        lost = [node.name for node in jobmap.nodes if node.name not in job.running()]
        if lost:
            raise LaunchError("the host was lost meanwhile", lost[0])
        context, number = self._context, len(self._worlds) + 1
        request = context.request
        output = request.output._replace(xterm=None)  # without windows
        request = request._replace(apps=tuple(one.app for one in spawned), stdin="none", output=output, fill=False)
        world = make_world(request, jobmap, context.jobid, number, context.attempt, secret=context.secret)._replace(
            first=job.names.end, parent=asked.parent, preput=asked.preput
        )
        plans = self._plans(request, jobmap, world)
        self._count(asked, number, world)
        self._worlds.append(world)
        self._apps[world.name] = [request.apps[row.app] for row in jobmap.placements]
        self._starting[number] = asked, world
        at = [job.hosts.index(node.name) for node in jobmap.nodes]
        nodes = [at[placement.node] for placement in jobmap.placements]
        self._policy.add_world(world.first, [jobmap.nodes[placement.node].name for placement in jobmap.placements])
        job.add_world(world, nodes, all(one.mpi for one in spawned))
        # the others first: their ranks may be told of the new ones as soon as these run
        for name in job.running():
            if job.hosts.index(name) not in at:
                self._launch(job.hosts.index(name), empty_plan(request, world))
        for node, plan in zip(at, plans):
            self._launch(node, plan)
        self._busy = False

    def _count(self, asked: _SpawnRequest, number: int, world: World) -> None:
        row = _RunningWorld(number, asked.node, asked.size + _WORLD, world.size)
        if not self._running_quota.take(row.node, row.size):
            raise LaunchError(
                "the worlds that ranks of its host have spawned and that still run take more than "
                f"{_RUNNING_SIZE >> 20} MiB of arguments and variables"
            )
        self._running[world.name] = row

    def ended(self, name: str) -> None:
        """One more rank of a world has ended; with the last, forget what only its ranks needed."""
        row = self._running.pop(name, None)
        if row is None:  # the world of the job
            return
        if row.running > 1:
            self._running[name] = row._replace(running=row.running - 1)
            return
        self._running_quota.give(row.node, row.size)
        self._worlds[row.number - 1] = self._worlds[row.number - 1]._replace(preput=())
        self._apps[name] = [_ENDED] * len(self._apps[name])  # a question in the name of one is refused, as before

    def _plans(self, request: Request, jobmap: JobMap, world: World) -> list[NodePlan]:
        """The plans of nodes with ranks of the world.  MASTER_ADDR and MASTER_PORT stay those of the job.

        A port of its own would have to be held on the host of its rank 0, and its address be probed, which takes two
        round trips.  A program that spawns ranks has MPI for what that port is for.
        """
        context, environ, cwd = self._context, self._context.environ, self._context.cwd
        return make_plans(request, jobmap, environ, cwd, context.endpoint, context.jobid, world, context.attempt)

    def _launch(self, node: int, plan: NodePlan) -> None:
        self._job.send(node, frames.encode(frames.LAUNCH, payload=self._payloads.pack(plan)))

    def settled(self, number: int, error: str) -> None:
        """All ranks of a world run, or (`error`) it is being ended."""
        asked, world = self._starting.pop(number)
        if error:
            self._fail(asked, "start", LaunchError(error))
        else:
            asked.done(Answer(0, fields={"world": [world.name]}))


def _keeps_others_waiting(asked: _SpawnRequest) -> bool:
    """Whether the other ranks would wait for ever.  Open MPI 4.1 calls itself "ompi", 5.0 "ompi5".

    The mpirun of 4.1.4 ends the job where a spawn fails, too.
    """
    return any(("pmix.pers", "ompi") in command.info for command in asked.commands)


def _commands(question: Question) -> tuple[tuple[SpawnCommand, ...], str, tuple[str, ...]]:
    """The commands, the member that asks, and what is to be put in advance; raises Key-, Value- or IndexError."""
    fields = {name: list(values) for name, values in question.fields.items()}
    (parent,), (count,) = fields["from"], fields["count"]
    commands = []
    for index in range(integer(count)):
        maxprocs, wdir = fields[f"app.{index}"]
        info = fields.get(f"info.{index}", [])
        argv = tuple(fields[f"argv.{index}"]) or ("",)
        pairs = tuple(zip(info[::2], info[1::2]))
        commands.append(SpawnCommand(argv, integer(maxprocs), wdir, tuple(fields.get(f"env.{index}", ())), pairs))
    commands[0]  # there is a command
    return tuple(commands), parent, tuple(fields.get("preput", ()))
