"""The wire-up of a node's MPI programs: what each rank is offered, and which server answers it.

`ProtocolChoices` decides what a program is offered.  The servers and the search for singletons travel on demand.  The
launcher is sent, in this order: MPI_Abort, the exit, that others wait for the rank in vain.
"""

from __future__ import annotations

from mslaunch.agent import on_demand
from mslaunch.agent.mpi.protocols import PROTOCOLS, ProtocolChoices, load_server, pmi_variables, server_module
from mslaunch.agent.ranks.pmi_socket import PmiSocket
from mslaunch.errors import LaunchError, reason
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.agent.mpi.mpi_servers import MpiServer, MpiServers, Send
    from mslaunch.agent.mpi.protocols import Offer
    from mslaunch.agent.mpi.shm_cleanup import SharedFile
    from mslaunch.datamodel.node_plan import World
    from mslaunch.runtime.loop import Loop, Timer

_FIRST_LOOK = 0.05  #: seconds after which singletons are looked for
_SETTLED = 1.0  #: seconds after which ranks share what they share; all could be killed at the same moment
_AGAIN = 5.0  #: seconds after which a rank that has failed is not going to be started again


class MpiWireUp:
    """The node's side of the start-up of MPI programs."""

    def __init__(
        self,
        loop: Loop,
        environ: Mapping[str, str],
        need: Callable[[str, Callable[[], None]], None],
        send: Send,
        pids: Callable[[], dict[int, int]],
        folder: Callable[[str], str],
    ) -> None:
        """`environ` is what ranks inherit; `need` goes on when a module is here; `send(kind, rank, payload)` a frame.

        `pids` are rank -> process id of those that run; `folder` makes a private directory.
        """
        self._loop = loop
        self._environ = environ
        self._need = need
        self._send = send
        self._pids = pids
        self._folder = folder
        self._worlds: list[tuple[World, Mapping[int, Sequence[int]]]] = []  # and the cpus of the ranks here
        self._offers: dict[int, Offer] = {}  # by rank
        self._joined: dict[int, str] = {}  # ranks that contacted us -> the protocol they speak
        self._sockets: dict[int, PmiSocket] = {}
        self._failing: dict[int, Timer] = {}  # ranks that have failed, and may be started again
        self._shared: set[SharedFile] = set()  # files of ranks that may not remove them
        self._singletons: Any = None  # a `SingletonWatch`
        self._watched = False  # or it is on its way
        self._servers: MpiServers | None = None  # made for the first that is started
        self._choices = ProtocolChoices(loop, need)
        self.prepare = self._choices.prepare

    # --- before ranks start

    def begin(self, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        """Its ranks are about to start, those of this node on these `cpus`, or only ranks elsewhere."""
        self._worlds.append((world, cpus))
        if self._servers:
            self._servers.add(world, cpus)
        if self._choices.sure:  # once the ranks are started: a server takes as long to load as their libraries
            self._loop.soon(lambda: self._need(server_module("pmi"), self._start_pmi))

    def variables(self, world: World, app: int, rank: int) -> tuple[dict[str, str], PmiSocket | None]:
        """What `rank`, of the program `app`, finds in its environment, and the socket on which it may speak PMI.

        Raises `LaunchError` if its protocol cannot be served.
        """
        if self._singletons:
            self._singletons.again()
        elif world.size > 1 and not self._watched and self._choices.anything:
            self._watched = True
            self._loop.after(_FIRST_LOOK, self._look)
        offer = self._choices.of(world, app)
        if offer is None:
            return {}, None
        self._offers[rank] = offer
        self._joined.pop(rank, None)
        if rank in self._failing:  # it is started again
            self._failing.pop(rank).cancel()
        if offer.library:
            return self._start_server(offer.family, world, offer.library).begin(rank), None
        server = self._running().get("pmi")
        given = server.begin(rank) if server else {}
        try:
            socket = PmiSocket(self._loop, rank, self._received)
        except OSError as error:
            what = f"no socket could be made on which a rank may speak PMI: {reason(error)}"
            raise LaunchError(what, todo="raise ulimit -n there, or give --mpi none if it is no MPI program") from None
        self._sockets[rank] = socket
        return {**given, **(offer.spares or {}), **pmi_variables(world, rank - world.first)}, socket

    # --- servers

    def _running(self) -> Mapping[str, MpiServer]:
        return self._servers.running if self._servers else {}

    def _all_servers(self) -> MpiServers:
        if self._servers is None:
            from mslaunch.agent.mpi.mpi_servers import LauncherCalls, MpiServers

            calls = partial(LauncherCalls, self._send, self._has_joined, self._reply, self._pids)
            self._servers = MpiServers(self._loop, self._environ, self._folder, calls, self._worlds)
        return self._servers

    def _start_server(self, family: str, world: World | None = None, library: Any = None) -> MpiServer:
        return self._all_servers().start(family, *load_server(family), world, library)

    def on_frame(self, frame: frames.Frame) -> None:
        """RELEASE, ANSWER or QUESTION of the launcher."""
        self._all_servers().on_frame(frame)

    # --- while they run

    def _received(self, rank: int, data: bytes) -> bool:
        """A rank speaks PMI, or (b"") has hung up; the first words of any rank start the server."""
        if data and self._sockets[rank].descriptors:
            report_broken(self._send, rank, f"rank {rank} sent descriptors where PMI is spoken")
            self._sockets[rank].close()
            return True
        if data and "pmi" not in self._running():
            self._need(server_module("pmi"), self._start_pmi)
        server = self._running().get("pmi")
        if server:
            stranger = self._sockets[rank].stranger
            if stranger is not None:
                server.distrust(rank, stranger)
            server.feed(rank, data)
        return not data or server is not None

    def _start_pmi(self) -> None:
        if "pmi" not in self._running():
            self._start_server("pmi")
            self._loop.soon(self._resume)

    def _resume(self) -> None:
        for socket in list(self._sockets.values()):
            socket.resume()

    def _reply(self, rank: int, data: bytes) -> None:
        if rank in self._sockets:
            self._sockets[rank].send(data)

    def _has_joined(self, rank: int, name: str) -> None:
        if not self._joined:
            self._loop.after(_SETTLED, lambda: self.failing(1))
        self._joined[rank] = name
        title, demanded = PROTOCOLS[name].title, self._offers[rank].demanded
        if demanded not in ("", name):
            report_broken(self._send, rank, f"it speaks {title}; --mpi {demanded} was given")
        self._send(frames.JOINED, rank, title.encode())

    def _look(self) -> None:
        """Where all ranks have ended by now, nothing is sent for."""
        self._watched = bool(self._pids())
        if self._watched:
            self._need("agent.mpi.singleton", self._watch)

    def _watch(self) -> None:
        self._singletons = on_demand.get("agent.mpi.singleton").SingletonWatch(
            self._loop, self._pids, self._joined, self._offers, self._alone, self._need
        )

    def _alone(self, rank: int, alone: Any) -> None:
        from mslaunch.protocol.control import pack_record

        self._send(frames.ALONE, rank, pack_record(alone))

    # --- the end

    def before_exit(self, failed: bool) -> None:
        """What ranks have said by now is sent before the exit of one of them."""
        if failed:
            self.failing()
        for server in self._running().values():
            server.listen()

    def after_exit(self, rank: int, failed: bool) -> None:
        """That others wait for the rank is sent after its exit, which is the cause.

        Nobody waits in vain for a rank that is started again.
        """
        self._sockets.pop(rank, None)
        if failed:
            self._failing[rank] = self._loop.after(_AGAIN, lambda: self._gone(rank))
        else:
            self._gone(rank)

    def _gone(self, rank: int) -> None:
        self._failing.pop(rank, None)
        for server in self._running().values():
            server.ended(rank)

    def failing(self, ranks: int | None = None) -> None:
        """Ranks are about to be killed: note the shared memory that (no more than `ranks` of) them would leave."""
        pids = [pid for rank, pid in self._pids().items() if self._joined.get(rank) == "pmi1"]
        if pids:
            from mslaunch.agent.mpi.shm_cleanup import held

            self._shared |= held(pids[:ranks])

    def close(self) -> None:
        """Nothing runs any more."""
        if self._shared:
            from mslaunch.agent.mpi.shm_cleanup import remove

            remove(self._shared)
        for server in self._running().values():
            server.close()


def report_broken(send: Callable[[int, int, bytes], None], rank: int, text: str) -> None:
    """End the job, because of what a rank does."""
    from mslaunch.protocol.mpi import Abort, pack_abort

    send(frames.ABORT, rank, pack_abort(Abort(1, text, broken=True)))
