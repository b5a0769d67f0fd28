"""The launcher's side of MPI programs: their frames become events, notices, modules for agents, and collectives.

Most jobs have no MPI program, so what serves one is imported when its first frame arrives.  Worlds have names here, and
ranks have their numbers in frames.  A rank that loads an MPI library which it was offered no protocol for is only
mentioned, until it has come up as a singleton.  Then the job ends, since each rank would do the whole work.  Of a
Horovod that two ranks must do: one may be meant to train alone, beside other programs.
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher import job_failure
from mslaunch.launcher.job_failure import JobFailure
from mslaunch.protocol import frames
from mslaunch.protocol.control import unpack_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from mslaunch.datamodel.node_plan import World
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.launcher.mpi.collectives import Collectives
    from mslaunch.launcher.rank_names import RankNames
    from mslaunch.protocol.mpi import Answer, Question

    class WorldSpawner(Protocol):
        """Carries out MPI_Comm_spawn; made for the first of them."""

        def spawn(self, node: int, question: Question, done: Callable[[Answer], None]) -> None:
            """Start the world that a rank of `node` asks for; `done` gets the answer."""

        def settled(self, number: int, error: str) -> None:
            """All ranks of a spawned world run, or (`error`) it is being ended."""

        def ended(self, name: str) -> None:
            """One more rank of a world has ended."""


# --- events, for the state of the job


class Joined(NamedTuple):
    """A rank is in MPI_Init."""

    rank: int


class Left(NamedTuple):
    """A rank has called MPI_Finalize."""

    rank: int


class Aborted(NamedTuple):
    """A rank called MPI_Abort, or (`broken`) violates the protocol of MPI's start-up, as `text` says."""

    rank: int
    code: int
    text: str = ""
    broken: bool = False
    user: str = ""  # no rank, but this user of its host tried to join as one


class CameAlone(NamedTuple):
    """A rank runs an MPI library that it was offered no protocol for, or a Horovod, and came up as a singleton."""

    rank: int
    library: str
    family: str
    offered: str


class Stranded(NamedTuple):
    """Others wait in a collective for a rank that has ended."""

    rank: int


class Impossible(NamedTuple):
    """Ranks wait for something that cannot be done."""

    failure: JobFailure


#: those that are about one rank
OF_RANK = (Joined, Left, Aborted, CameAlone, Stranded)

# --- the job


class RunningJob(NamedTuple):
    """What MPI programs, and a spawn above all, ask of the job and do to it."""

    hosts: Sequence[str]  # by node; it grows
    names: RankNames
    running: Callable[[], Mapping[str, int]]  # live hosts, and how many ranks each has
    in_mpi: Callable[[int], bool]  # whether a rank runs, and is between MPI_Init and MPI_Finalize
    ended: Callable[[], Sequence[int]]  # the ranks that have ended
    ending: Callable[[], bool]
    send: Callable[..., None]  # node, and a frame in pieces
    full: Callable[[int], bool]  # whether too much is on its way to a node
    when_room: Callable[[int, Callable[[], None]], None]  # calls back when that is over
    post: Callable[[Any], None]  # an event
    notify: Callable[[str, Mapping[str, Any]], None]  # kind and facts, for the user
    add_agent: Callable[[AgentConnection], int]  # one more node; returns its number
    add_world: Callable[[World, Sequence[int], bool], None]  # node of each rank; whether they call MPI_Init


_MENTIONED = 16  # libraries; an agent may name more than there are


class MpiFrames:
    """The MPI frames of one job."""

    def __init__(self, job: RunningJob, make_spawner: Callable[[RunningJob], WorldSpawner] | None) -> None:
        self._job = job
        self._make_spawner = make_spawner
        self._spawner: WorldSpawner | None = None
        self._collectives: Collectives | None = None
        self._lost: list[int] = []  # nodes
        self._worlds: dict[str, World] = {}
        self._sizes: dict[str, int] = {}  # of these, which are counted once
        self._mentioned: set[str] = set()  # libraries
        self._alone: dict[int, CameAlone] = {}  # ranks with a Horovod
        self._parts: set[tuple[int, str]] = set()  # that were sent, by node
        self._on: dict[int, Callable[[int, frames.Frame], None]] = {
            frames.NEED: self._send_part,
            frames.JOINED: lambda node, frame: job.post(Joined(frame.rank)),
            frames.LEFT: lambda node, frame: job.post(Left(frame.rank)),
            frames.ABORT: self._on_abort,
            frames.ALONE: self._on_singleton,
            frames.GATHER: lambda node, frame: self._exchange().gathered(node, frame.payload),
            frames.ASK: lambda node, frame: self._exchange().asked(node, frame.payload),
            frames.REPLY: lambda node, frame: self._exchange().replied(node, frame.payload),
        }

    def on_frame(self, node: int, frame: frames.Frame) -> None:
        """One of `frames.OF_MPI` has come; raises `WireError` for one that means nothing."""
        self._on[frame.kind](node, frame)

    def add_world(self, world: World) -> None:
        """The ranks of a world are about to start."""
        self._worlds[world.name] = world._replace(preput=())  # it may be large, and is for agents only
        self._sizes[world.name] = world.size
        if self._collectives:
            self._add_to(self._collectives, world)

    def ended(self, number: int) -> None:
        """A rank has ended, and is not restarted."""
        if self._collectives:
            worlds = self._worlds.values()
            found = next((world for world in worlds if 0 <= number - world.first < self._sizes[world.name]), None)
            if found:
                self._collectives.ended(found.name, number - found.first)
                if self._spawner:
                    self._spawner.ended(found.name)

    def lost(self, node: int) -> None:
        """The connection to a node has ended."""
        self._lost.append(node)
        if self._collectives:
            self._collectives.lost(node)

    def settled(self, world: int, error: str) -> None:
        """All ranks of a spawned world run, or (`error`) it is being ended."""
        assert self._spawner
        self._spawner.settled(world, error)

    # --- collectives, names and spawns

    def _exchange(self) -> Collectives:
        """What joins and answers, made for the first rank that needs it."""
        if self._collectives is None:
            from mslaunch.launcher.mpi.collectives import Collectives

            self._collectives = Collectives(
                self._job.send,
                self._job.full,
                self._job.when_room,
                self._spawn,
                self._on_stranded,
                self._on_too_large,
            )
            for world in self._worlds.values():
                self._add_to(self._collectives, world)
            for number in self._job.ended():
                self.ended(number)
            for node in self._lost:
                self._collectives.lost(node)
        return self._collectives

    def _add_to(self, collectives: Collectives, world: World) -> None:
        number = {host: node for node, host in reversed(list(enumerate(self._job.hosts)))}
        nodes = {rank: number[host] for host, ranks in zip(world.hosts, world.ranks) for rank in ranks}
        collectives.add_world(world.name, [nodes[rank] for rank in range(len(nodes))])

    def _spawn(self, node: int, question: Question, done: Callable[[Answer], None]) -> None:
        if self._spawner is None:
            assert self._make_spawner
            self._spawner = self._make_spawner(self._job)
        self._spawner.spawn(node, question, done)

    def _on_stranded(self, world: str, rank: int) -> None:
        self._job.post(Stranded(self._worlds[world].first + rank))

    def _on_too_large(self, size: int) -> None:
        self._job.post(Impossible(JobFailure(job_failure.TOO_LARGE, {"bytes": size})))

    # --- other frames

    def _send_part(self, node: int, frame: frames.Frame) -> None:
        """An agent needs modules that did not travel with it."""
        from mslaunch.transport.bootstrap.agent_program import pack_part, part

        name = frame.payload.decode("ascii", "replace")
        if (node, name) in self._parts:
            raise WireError("it asked for a part that it has")
        try:
            sources = part(name)
        except KeyError:
            raise WireError("it asked for a part that there is not") from None
        self._parts.add((node, name))
        self._job.send(node, frames.encode(frames.PART, payload=pack_part(sources)))

    def _on_abort(self, node: int, frame: frames.Frame) -> None:
        from mslaunch.launcher.messages.host_words import named
        from mslaunch.protocol.mpi import Abort

        abort = unpack_record(Abort, frame.payload)
        if abs(abort.code) >> 32:
            raise WireError("it sent an abort with a code that no program can give")
        self._job.post(Aborted(frame.rank, *abort._replace(user=named(abort.user))))

    def _on_singleton(self, node: int, frame: frames.Frame) -> None:
        from mslaunch.frameworks.horovod import HOROVOD
        from mslaunch.launcher.messages.host_words import named
        from mslaunch.protocol.mpi import Alone

        alone = unpack_record(Alone, frame.payload)
        alone = alone._replace(library=named(alone.library), family=named(alone.family), offered=named(alone.offered))
        if alone.certain:
            event = CameAlone(frame.rank, alone.library, alone.family, alone.offered)
            if alone.family == HOROVOD.name:
                self._alone[frame.rank] = event
                if len(self._alone) == 1:
                    return
                event = self._alone[min(self._alone)]
            self._job.post(event)
        elif (
            alone.family != HOROVOD.name
            and alone.library not in self._mentioned
            and len(self._mentioned) < _MENTIONED
            and alone.offered != "none"
            and (alone.family == "Open MPI") != (alone.offered == "pmix")
        ):
            self._mentioned.add(alone.library)
            facts = {"rank": frame.rank, "library": alone.library, "family": alone.family, "offered": alone.offered}
            self._job.notify("unexpected library", facts)
