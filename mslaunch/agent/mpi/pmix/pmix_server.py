"""The PMIx server of a node: upcalls of libpmix become collectives and questions, and the results become its answers.

It wires up the ranks of Open MPI.  `PmixLibrary` is the library, `LauncherCalls` the way to all other nodes.
"""

from __future__ import annotations

import os

from mslaunch.agent.mpi.pmix import libpmix_callbacks
from mslaunch.agent.mpi.pmix.client_port import ClientPort, PortTakeover
from mslaunch.agent.mpi.pmix.libpmix import PmixLibrary
from mslaunch.agent.mpi.pmix.mca_exclusions import idle_transports
from mslaunch.agent.mpi.pmix.pmix_job_info import (  # fmt: skip
    PmixWorlds,
    UnknownWorldError,
    extra_variables,
    job_info,
    member_of,
    prefix_of,
)
from mslaunch.agent.mpi.pmix.pmix_operations import PmixOperations, log_text
from mslaunch.agent.mpi.pmix.pmix_values import RANK, STRING, Item
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.mpi import Abort, Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.agent.mpi.mpi_servers import ServerContext
    from mslaunch.agent.mpi.pmix.client_port import PmixListener
    from mslaunch.agent.mpi.pmix.libpmix_callbacks import Upcall
    from mslaunch.agent.mpi.pmix.pmix_job_info import Member
    from mslaunch.agent.mpi.pmix.pmix_values import Memory
    from mslaunch.datamodel.node_plan import World
    from mslaunch.protocol.mpi import Question


#: how ranks get what others have put: of the ways that libpmix knows, all versions have this one, and that of 4.2
#: with shared memory fails in a job's third world.  It is as fast with 16 ranks on a node.
_SETTINGS = [
    ("PMIX_MCA_gds", "hash"),
    ("EVENT_NOEPOLL", "1"),  # libevent asks for events by the numbers of descriptors, which `PortTakeover` needs
    ("HWLOC_COMPONENTS", "-gl,-opencl"),  # hwloc would look for displays, also at TCP ports, to find their GPUs
]
PATIENCE = 60.0  #: seconds that an upcall waits to hear of a world
GOODBYE = 1.0  #: seconds that the library may take to tidy up
HOLD = 30.0  #: seconds after which the library has read an answer: it does so within a turn of its own loop


def start(context: ServerContext) -> PmixServer:
    """The server for the library of `context`; raises `LaunchError`."""
    library = context.library
    if not library.pmix:
        raise LaunchError(
            f"no libpmix.so.2 was found that belongs to {library.path or library.name}",
            todo="install it there (Debian: libpmix2), or say where it is: --mpi pmix:/PATH/libpmix.so.2",
        )
    return PmixServer(context, context.folder("pmix"))


class PmixServer:
    """The PMIx server of a node.  One for the whole life of a process."""

    def __init__(self, context: ServerContext, folder: str) -> None:
        """`folder`: private, empty."""
        self._loop = context.loop
        self._launcher = context.launcher
        self._context = context
        self._folder = folder
        self._idle = idle_transports(context.library.path, context.environ)
        self._worlds = PmixWorlds()
        self._waiting: list[Upcall] = []  # for a world
        self._fetching: dict[int, Question] = {}
        self._fetches = 0
        self._server, taken = _serve_alone(context.library.pmix, folder, context.host)
        self._port = ClientPort(self._loop, taken, self._worlds.names, self._stranger) if taken else None
        self._answers = self._server.answers
        operations = PmixOperations(self._answers, self._launcher, self._worlds, self._hold)
        self.released = operations.released
        self._handlers: dict[str, Callable[..., None]] = {
            "connected": self._connected, "finalized": self._finalized, "abort": self._abort, "log": self._log,
            "fence": operations.fence, "connect": operations.connect, "disconnect": operations.connect,
            "group": operations.group, "modex": operations.modex, "publish": operations.publish,
            "lookup": operations.lookup, "unpublish": operations.unpublish, "spawn": operations.spawn,
            "fetched": lambda _, number, status, blob: self._reply(number, status, blob),
        }  # fmt: skip
        self._loop.reader(self._server.fd, self.listen)

    def add(self, world: World, cpus: Mapping[int, Sequence[int]] = {}) -> None:
        """A world, on every node, before any of its ranks starts; `cpus`: where those of this node are bound.

        It comes again with ranks that start later (--ready), which then count as not bound.
        """
        if world.name in self._worlds.names():
            return
        hosts, host = list(world.hosts), self._context.host
        if world.here >= 0 and hosts[world.here] != host:
            hosts[world.here] = host  # the name by which libpmix finds the ranks of this node
            world = world._replace(hosts=tuple(hosts))
        self._worlds.add(world)
        local = self._worlds.local(world.name)
        places = {rank: self._server.place(cpus.get(world.first + rank, ())) for rank in local}
        # its own: what a world that ends removes, another may be making; without the secret, for all users can see the
        # path of a socket
        folder = os.path.join(self._folder, str(world.number))
        try:
            os.mkdir(folder, 0o700)
        except OSError as error:
            raise LaunchError(f"no directory could be made for PMIx: {error.strerror}", folder) from None
        info = job_info(world, folder, self._worlds.crowded(), places)
        self._server.register(world.name, len(local), info + self._server.topology if local else info)
        for rank in local:
            self._server.admit(world.name, rank)
        waiting, self._waiting = self._waiting, []
        for upcall in waiting:
            self._handle(upcall)

    def begin(self, rank: int) -> dict[str, str]:
        """A rank is about to start: its variables."""
        name, member = self._worlds.member_of(rank)
        context = self._context
        known = extra_variables(context.environ, context.library.pmix, self._worlds.crowded())
        return {**self._idle, **self._server.environment(name, member), **known}

    def question(self, question: Question) -> None:
        """Another node wants what a rank of ours has put; it is answered when the rank has."""
        name, rank = member_of(*question.fields["of"])
        self._fetches += 1
        self._fetching[self._fetches] = question
        here = rank in self._worlds.local(name)
        status = self._server.fetch(name, rank, self._fetches) if here else libpmix_callbacks.NOT_FOUND
        if status != libpmix_callbacks.SUCCESS:
            self._reply(self._fetches, status, b"")

    def feed(self, rank: int, data: bytes) -> None:
        """Ranks speak with libpmix, not on a socket of ours."""

    def distrust(self, rank: int, user: int) -> None:
        """Connections of another user are refused before libpmix sees them."""

    def ended(self, rank: int) -> None:
        """A process of ours is over, so it will put nothing more."""
        member = self._worlds.member_of(rank)
        for number, question in list(self._fetching.items()):
            if member_of(*question.fields["of"]) == member:
                self._reply(number, libpmix_callbacks.NOT_FOUND, b"")

    def close(self) -> None:
        """Listen no more; all ranks have ended.  Takes milliseconds, a second at most.

        The library is not finalized, for that has been seen to wait forever: its sockets end with the process, its
        files with the folder.  But shared memory of ranks that were killed lies elsewhere, and is removed now.
        """
        self._loop.reader(self._server.fd, None)
        if self._port:
            self._port.close()
        self._server.dismiss(self._worlds.all_local(), GOODBYE)

    # --- upcalls

    def listen(self) -> None:
        """Take the upcalls that the library has queued by now."""
        for upcall in self._server.take():
            self._handle(upcall)

    def _handle(self, upcall: Upcall) -> None:
        """What makes no sense is refused; a world that we do not know is waited for.

        Ranks hear of a spawned world over MPI itself, sooner than we do over the link.
        """
        try:
            self._handlers[upcall.name](upcall, *upcall.arguments)
        except UnknownWorldError:
            self._waiting.append(upcall)
            self._loop.after(PATIENCE, lambda: self._forget(upcall))
        except ValueError:
            self._answers.done(upcall, libpmix_callbacks.BAD_PARAM)

    def _forget(self, upcall: Upcall) -> None:
        if upcall in self._waiting:
            self._waiting.remove(upcall)
            self._answers.done(upcall, libpmix_callbacks.NOT_FOUND)

    def _connected(self, _: Upcall, member: Member) -> None:
        self._launcher.joined(self._worlds.rank_of(member), "pmix")

    def _finalized(self, _: Upcall, member: Member) -> None:
        self._launcher.left(self._worlds.rank_of(member))

    def _abort(self, upcall: Upcall, member: Member, code: int, why: str, of: Sequence[Member]) -> None:
        """MPI_Abort.  `of` may name some ranks only (none: all of its world); as with mpirun, all of the job ends."""
        self._launcher.abort(self._worlds.rank_of(member), Abort(code, "" if why == "N/A" else why))
        self._answers.done(upcall)

    def _log(self, upcall: Upcall, member: Member, items: Sequence[Item]) -> None:
        text = log_text(items)
        if text:
            self._launcher.log(self._worlds.rank_of(member), text)
        self._answers.done(upcall)

    # --- other users

    def _stranger(self, uid: int, knowing: bool) -> None:
        """Another user has connected to our port, and was refused; `knowing` a namespace, which none can guess."""
        ranks = sorted(map(self._worlds.rank_of, self._worlds.all_local()))
        if ranks and knowing:
            self._launcher.abort(ranks[0], Abort(1, "", broken=True, user=str(uid)))
        elif ranks:
            words = f"mslaunch: user {uid} of {self._context.host} connected to a port of this job, and was refused\n"
            self._launcher.log(ranks[0], words.encode())

    # --- modex: what another node wants of a rank of ours

    def _reply(self, number: int, status: int, blob: bytes) -> None:
        question = self._fetching.pop(number, None)
        if question:  # else the rank has ended meanwhile
            error = "" if status == libpmix_callbacks.SUCCESS else f"missing:{self._server.error(status)}"
            self._launcher.answer(Answer(question.number, error, {}, () if error else (blob,)))

    def _hold(self, memory: Memory) -> None:
        self._loop.after(HOLD, memory.release)


def _serve_alone(library: str, folder: str, host: str) -> tuple[PmixLibrary, PmixListener | None]:
    """Start the library, and take over its port."""
    takeover = PortTakeover(folder)
    try:
        return _serve(library, folder, host), takeover.listener()
    except OSError as error:
        raise LaunchError(
            f"other users of {host} cannot be kept from this library of PMIx: {error.strerror}",
            library,
            "start with --mpi pmix:PATH another",
        ) from None
    finally:
        takeover.close()


def _serve(library: str, folder: str, host: str) -> PmixLibrary:
    items = [
        Item("pmix.srvr.tmpdir", STRING, folder),
        Item("pmix.sys.tmpdir", STRING, folder),
        Item("pmix.hname", STRING, host),  # it finds our ranks in a world's maps by this name
        Item("pmix.srv.nspace", STRING, "mslaunch"),
        Item("pmix.srv.rank", RANK, 0),
    ]
    prefix = prefix_of(library)
    return PmixLibrary(library, items, [*_SETTINGS, ("PMIX_PREFIX", prefix)] if prefix else _SETTINGS)
