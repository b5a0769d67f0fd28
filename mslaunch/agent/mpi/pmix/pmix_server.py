"""PMIx, served: what libpmix wants of its host becomes collectives and questions, and their results its answers.

The wire-up of Open MPI's ranks on one node.  It knows no sockets and no frames: `PmixLibrary` is the library,
`LauncherCalls` is the way to everybody else.  The surprising thing: an upcall about a world that nobody has told us of
waits, since ranks hear of a spawned world over MPI itself, sooner than we do over the link.
"""

from __future__ import annotations

import os

from mslaunch.agent.mpi.pmix import callbacks
from mslaunch.agent.mpi.pmix.job_info import job_info, nudges, prefix_of
from mslaunch.agent.mpi.pmix.libpmix import PmixLibrary
from mslaunch.agent.mpi.pmix.mca_exclusions import idle_transports
from mslaunch.agent.mpi.pmix.pmix_values import BYTE_OBJECT, DATA_ARRAY, RANK, SIZE, STRING, WILDCARD, Item, first, raw
from mslaunch.agent.mpi.pmix.publish_lookup_spawn import ClientRequests, owner, said
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.cpus import usable_cpus
from mslaunch.protocol.mpi import Abort, Answer, Gathering

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.agent.mpi.launcher_calls import LauncherCalls
    from mslaunch.agent.mpi.pmix.callbacks import Upcall
    from mslaunch.agent.mpi.pmix.pmix_values import Memory
    from mslaunch.datamodel.node_plan import World
    from mslaunch.protocol.mpi import Question, Released
    from mslaunch.runtime.loop import Loop

    Member = tuple[str, int]
    Finish = Callable[[tuple[bytes, ...]], None]


#: how ranks are told what others have put: of the ways that libpmix knows, all versions have this one, and that of 4.2
#: with shared memory fails in a job's third world.  It is as fast with 16 ranks on a node.
_SETTINGS = [
    ("PMIX_MCA_gds", "hash"),
    ("HWLOC_COMPONENTS", "-gl,-opencl"),  # hwloc would look for displays, also at TCP ports, to find their GPUs
]
PATIENCE = 60.0  #: seconds that an upcall waits to hear of a world
GOODBYE = 1.0  #: seconds that the library may take to tidy up
HOLD = 30.0  #: seconds after which the library has read an answer: it does so within a turn of its own loop


class UnknownWorldError(Exception):
    """Nobody has told us of it, yet."""


class PmixServer:
    """The PMIx server of a node.  One in a life of a process."""

    def __init__(
        self,
        loop: Loop,
        uplink: LauncherCalls,
        library: str,
        folder: str,
        host: str,
        environ: Mapping[str, str],
        libmpi: str = "",
    ) -> None:
        """`library`: path of libpmix.so.2; `folder`: private, empty; `host`: our name in the worlds to come.

        `libmpi`: path of that library of the ranks, if it is known.
        """
        self._loop = loop
        self._uplink = uplink
        self._library = library
        self._folder = folder
        self._host = host
        self._environ = environ
        self._idle = idle_transports(libmpi, environ)
        self._worlds: dict[str, World] = {}
        #: collectives under way: the nth part that we gave for a key belongs to the nth release
        self._open: dict[tuple[str, tuple[str, ...]], list[Finish]] = {}
        self._groups: dict[tuple[str, tuple[str, ...]], int] = {}  # how many there were of this name
        self._waiting: list[Upcall] = []  # for a world
        self._fetching: dict[int, Question] = {}
        self._fetches = 0
        items = [
            Item("pmix.srvr.tmpdir", STRING, folder),
            Item("pmix.sys.tmpdir", STRING, folder),
            Item("pmix.hname", STRING, host),  # it finds our ranks in a world's maps by this name
            Item("pmix.srv.nspace", STRING, "mslaunch"),
            Item("pmix.srv.rank", RANK, 0),
        ]
        prefix = prefix_of(library)
        self._server = PmixLibrary(library, items, [*_SETTINGS, ("PMIX_PREFIX", prefix)] if prefix else _SETTINGS)
        self._asks = ClientRequests(self._server, uplink, self._hold)
        self._handlers: dict[str, Callable[..., None]] = {
            "connected": self._connected, "finalized": self._finalized, "abort": self._abort, "log": self._log,
            "fence": self._fence, "connect": self._join, "disconnect": self._join, "group": self._group,
            "modex": self._asks.modex, "publish": self._asks.publish, "lookup": self._asks.lookup,
            "unpublish": self._asks.unpublish, "spawn": self._asks.spawn, "fetched": self._fetched,
        }  # fmt: skip
        loop.reader(self._server.fileno(), self.listen)

    # --- the engine's face

    def add(self, world: World, cpus: Mapping[int, Sequence[int]] = {}) -> None:
        """There is this world; `world.here` is -1 if none of its ranks is ours.  `cpus`: where these are bound.

        To be told on every node, before any of its ranks starts.
        """
        if world.here >= 0 and world.hosts[world.here] != self._host:
            hosts = list(world.hosts)
            hosts[world.here] = self._host
            world = world._replace(hosts=tuple(hosts))
        self._worlds[world.name] = world
        local = world.ranks[world.here] if world.here >= 0 else ()
        places = {rank: self._server.place(cpus.get(world.first + rank, ())) for rank in local}
        # its own: what a world that ends removes, another may be making
        folder = os.path.join(self._folder, world.name)
        try:
            os.mkdir(folder, 0o700)
        except OSError as error:
            raise LaunchError(f"no directory could be made for PMIx: {error.strerror}", folder) from None
        info = job_info(world, folder, self._crowded(), places)
        self._server.register(world.name, len(local), info + self._server.topology if local else info)
        for rank in local:
            self._server.admit(world.name, rank)
        waiting, self._waiting = self._waiting, []
        for upcall in waiting:
            self._handle(upcall)

    def environment(self, rank: int) -> dict[str, str]:
        """The variables of a rank that is about to start."""
        name, member = self._member(rank)
        known = nudges(self._environ, self._library, self._crowded())
        return {**self._idle, **self._server.environment(name, member), **known}

    def released(self, whole: Released) -> None:
        """A collective is complete.  One that we have no part in is nobody's: its ranks have ended."""
        key = (whole.op, whole.members)
        queue = self._open.get(key)
        if queue:
            finish = queue.pop(0)
            if not queue:
                del self._open[key]
            finish(whole.blobs)

    def question(self, question: Question) -> None:
        """Another node wants what a rank of ours has put; it is answered when the rank has."""
        name, rank = owner(question)
        self._fetches += 1
        self._fetching[self._fetches] = question
        world = self._worlds.get(name)
        if world is None or world.here < 0 or rank not in world.ranks[world.here]:
            status = callbacks.NOT_FOUND
        else:
            status = self._server.fetch(name, rank, self._fetches)
        if status != callbacks.SUCCESS:
            self._reply(self._fetches, status, b"")

    def ended(self, rank: int) -> None:
        """A process of ours is over, so it will put nothing more."""
        member = self._member(rank)
        for number, question in list(self._fetching.items()):
            if owner(question) == member:
                self._reply(number, callbacks.NOT_FOUND, b"")

    def close(self) -> None:
        """Listen no more; all ranks have ended.  Takes milliseconds, a second at most.

        The library is not finalized, for that has been seen to wait forever: its sockets end with the process, its
        files with the folder.  But shared memory of ranks that were killed lies elsewhere, and is removed now.
        """
        self._loop.reader(self._server.fileno(), None)
        here = [world for world in self._worlds.values() if world.here >= 0]
        self._server.dismiss([(world.name, rank) for world in here for rank in world.ranks[world.here]], GOODBYE)

    # --- upcalls

    def listen(self) -> None:
        """Hear what the library has said by now."""
        for upcall in self._server.take():
            self._handle(upcall)

    def _handle(self, upcall: Upcall) -> None:
        """A world that we do not know is waited for; another thing that makes no sense is refused."""
        try:
            self._handlers[upcall.name](upcall, *upcall.arguments)
        except UnknownWorldError:
            self._waiting.append(upcall)
            self._loop.after(PATIENCE, lambda: self._forget(upcall))
        except ValueError:
            self._server.done(upcall, callbacks.BAD_PARAM)

    def _forget(self, upcall: Upcall) -> None:
        if upcall in self._waiting:
            self._waiting.remove(upcall)
            self._server.done(upcall, callbacks.NOT_FOUND)

    def _connected(self, _: Upcall, member: Member) -> None:
        self._uplink.joined(self._frame_rank(member), "PMIx")

    def _finalized(self, _: Upcall, member: Member) -> None:
        self._uplink.left(self._frame_rank(member))

    def _abort(self, upcall: Upcall, member: Member, code: int, why: str, of: Sequence[Member]) -> None:
        """MPI_Abort.  `of` may name some ranks only (none: all of its world); as with mpirun, all of the job ends."""
        self._uplink.abort(self._frame_rank(member), Abort(code, "" if why == "N/A" else why))
        self._server.done(upcall)

    def _log(self, upcall: Upcall, member: Member, items: Sequence[Item]) -> None:
        text = said(items)
        if text:
            self._uplink.log(self._frame_rank(member), text)
        self._server.done(upcall)

    # --- collectives

    def _fence(self, upcall: Upcall, members: Sequence[Member], items: Sequence[Item], blob: bytes) -> None:
        self._collect("fence", members, blob, lambda blobs: self._server.blob(upcall, b"".join(blobs)))

    def _join(self, upcall: Upcall, members: Sequence[Member], items: Sequence[Item]) -> None:
        """Connect and disconnect."""
        self._collect(upcall.name, members, b"", lambda _: self._server.done(upcall))

    def _group(self, upcall: Upcall, operation: int, name: str, members: Sequence[Member], items: list[Item]) -> None:
        """A group of processes (MPI Sessions) is made (0) or ended (1).

        Who makes it gets a number for it, the same on all nodes and no other group's.
        """
        words = self._words(members)
        op = f"group:{name}:{'destruct' if operation else 'construct'}"
        self._groups[op, words] = count = self._groups.get((op, words), 0) + 1

        def finish(blobs: tuple[bytes, ...]) -> None:
            answer = []
            if not operation:
                answer = [
                    Item("pmix.grp.ctxid", SIZE, _context(op, words, count)),
                    Item("pmix.grp.endpt", BYTE_OBJECT, b"".join(blobs)),
                    Item("pmix.grp.mbrs", DATA_ARRAY, list(members)),
                ]
            self._hold(self._server.items(upcall, answer))

        told = first(items, "pmix.grp.endpt")
        self._collect(op, members, told if isinstance(told, bytes) else b"", finish)

    def _collect(self, op: str, members: Sequence[Member], blob: bytes, finish: Finish) -> None:
        """All members of this node are in.  If that is all of them, the others need not hear of it."""
        words = self._words(members)
        if all(self._is_here(*member) for member in members):
            finish((blob,))
            return
        self._open.setdefault((op, words), []).append(finish)
        self._uplink.gather(Gathering(op, words, blob))

    def _words(self, members: Sequence[Member]) -> tuple[str, ...]:
        """As frames have them: sorted, and a world by its name where all of it is there, so that all nodes agree."""
        ranks: dict[str, set[int]] = {}
        for name, rank in members:
            ranks.setdefault(name, set()).update(range(self._world(name).size) if rank == WILDCARD else (rank,))
        words: list[str] = []
        for name, listed in sorted(ranks.items()):
            if max(listed) >= self._world(name).size:
                raise ValueError(f"world {name} has no rank {max(listed)}")
            whole = len(listed) == self._world(name).size
            words += [name] if whole else [f"{name}.{rank}" for rank in sorted(listed)]
        return tuple(words)

    def _is_here(self, name: str, rank: int) -> bool:
        world = self._world(name)
        local = world.ranks[world.here] if world.here >= 0 else ()
        return len(local) == world.size if rank == WILDCARD else rank in local

    # --- modex: what another node wants of a rank of ours

    def _fetched(self, _: Upcall, number: int, status: int, blob: bytes) -> None:
        self._reply(number, status, blob)

    def _reply(self, number: int, status: int, blob: bytes) -> None:
        question = self._fetching.pop(number, None)
        if question:  # else the rank has ended meanwhile
            error = "" if status == callbacks.SUCCESS else f"missing:{self._server.error(status)}"
            self._uplink.answer(Answer(question.number, error, {}, () if error else (blob,)))

    # --- ranks and worlds

    def _world(self, name: str) -> World:
        if name not in self._worlds:
            raise UnknownWorldError(name)
        return self._worlds[name]

    def _frame_rank(self, member: Member) -> int:
        return self._world(member[0]).first + member[1]

    def _member(self, rank: int) -> Member:
        for world in self._worlds.values():
            if world.first <= rank < world.first + world.size:
                return world.name, rank - world.first
        raise ValueError(f"no world has the rank {rank}")

    def _crowded(self) -> bool:
        local = sum(len(world.ranks[world.here]) for world in self._worlds.values() if world.here >= 0)
        return local > len(usable_cpus())

    def _hold(self, memory: Memory) -> None:
        self._loop.after(HOLD, memory.release)


def _context(op: str, words: tuple[str, ...], count: int) -> int:
    """A number of 63 bits that all nodes find by themselves, and that two groups do not share."""
    from hashlib import blake2b

    name = "\0".join((op, *words, str(count)))
    return int.from_bytes(blake2b(raw(name), digest_size=8).digest(), "big") >> 1
