"""The wire-up of a node's MPI programs: what each rank is offered, and which engine serves it.

`ProtocolChoices` decides what a program is offered.  The engines, and the search for singletons, are modules that
travel on demand.  The launcher is sent, in this order: MPI_Abort, the exit, that others wait for the rank in vain.
"""

from __future__ import annotations

from mslaunch.agent import on_demand
from mslaunch.agent.mpi.engines import Engines
from mslaunch.agent.mpi.protocol_choice import ProtocolChoices, pmi_variables
from mslaunch.agent.ranks.pmi_socket import PmiSocket
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.agent.mpi.engines import Send
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
        """`need` goes on when a module is here; `pids` are rank -> process id of those that run.

        For the others see `Engines`.
        """
        self._loop = loop
        self._need = need
        self._send = send
        self._pids = pids
        self._offered: dict[int, str] = {}  # rank -> pmi, pmix
        self._demanded: dict[int, str] = {}  # pmi1, pmi2, or pmi: either
        self._joined: dict[int, str] = {}  # ranks that contacted us -> the protocol they speak
        self._sockets: dict[int, PmiSocket] = {}
        self._failing: dict[int, Timer] = {}  # ranks that have failed, and may be started again
        self._shared: set[bytes] = set()  # files of ranks that may not remove them
        self._singletons: Any = None  # a `SingletonWatch`
        self._watched = False  # or it is on its way
        self.engines = Engines(loop, environ, send, self._has_joined, self._reply, folder)
        self._choices = ProtocolChoices(loop, need)
        self.prepare = self._choices.prepare

    # --- before ranks start

    def begin(self, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        """Its ranks are about to start, those of this node on these `cpus`, or only ranks elsewhere."""
        self.engines.add(world, cpus)
        if world.size > 1 and not self._watched and self._choices.anything:
            self._watched = True
            self._loop.after(_FIRST_LOOK, lambda: self._need("agent.mpi.singleton", self._watch))

    def variables(self, world: World, app: int, rank: int) -> tuple[dict[str, str], PmiSocket | None]:
        """What `rank`, of the program `app`, finds in its environment, and the socket on which it may speak PMI.

        Raises `LaunchError` if its protocol cannot be served.
        """
        if self._singletons:
            self._singletons.again()
        offer = self._choices.of(world, app)
        if offer == "none":
            return {}, None
        if rank in self._offered:
            self._forget(rank)
        if not isinstance(offer, str):
            self._offered[rank] = "pmix"
            return self.engines.pmix(offer, world).environment(rank), None
        self._offered[rank] = "pmi"
        self._demanded[rank] = offer
        try:
            socket = PmiSocket(self._loop, rank, self._received)
        except OSError as error:
            what = f"no socket could be made for rank {rank}, on which it may speak PMI: {error.strerror}"
            raise LaunchError(what, todo="raise ulimit -n there, or give --mpi none if it is no MPI program") from None
        self._sockets[rank] = socket
        return pmi_variables(world, rank - world.first), socket

    def _forget(self, rank: int) -> None:
        """It is started again."""
        self._joined.pop(rank, None)
        if rank in self._failing:
            self._failing.pop(rank).cancel()
        pmi = self.engines.get("pmi")
        if pmi:
            pmi.again(rank)

    # --- while they run

    def _received(self, rank: int, data: bytes) -> bool:
        """A rank speaks PMI, or (b"") has hung up; its first words bring the engine in."""
        if data and not self.engines.get("pmi"):
            self._need("agent.mpi.pmi.pmi_server", self._start_pmi)
        engine = self.engines.get("pmi")
        if engine is None:
            return not data
        if data:
            engine.feed(rank, data)
        else:
            engine.hung_up(rank)
        return True

    def _start_pmi(self) -> None:
        if not self.engines.get("pmi"):
            self.engines.start_pmi()
            self._loop.soon(self._resume)

    def _resume(self) -> None:
        for socket in list(self._sockets.values()):
            socket.resume()

    def _reply(self, rank: int, data: bytes) -> None:
        if rank in self._sockets:
            self._sockets[rank].send(data)

    def _has_joined(self, rank: int, protocol: str) -> None:
        if not self._joined:
            self._loop.after(_SETTLED, lambda: self.failing(1))
        self._joined[rank] = protocol
        demanded = self._demanded.get(rank, "pmi")
        if demanded not in ("pmi", protocol.lower().replace("-", "")):
            self.engines.abort(rank, f"it speaks {protocol}; --mpi {demanded} was given")
        self._send(frames.JOINED, rank, protocol.encode())

    def _watch(self) -> None:
        module = on_demand.get("agent.mpi.singleton")
        assert module
        self._singletons = module.SingletonWatch(
            self._loop,
            lambda: {rank: pid for rank, pid in self._pids().items() if rank in self._offered},
            self._joined.__contains__,
            self._offered.get,
            self._alone,
        )

    def _alone(self, rank: int, alone: Any) -> None:
        from mslaunch.protocol.control import pack_record

        self._send(frames.ALONE, rank, pack_record(alone))

    # --- the end

    def before_exit(self, failed: bool) -> None:
        """What ranks have said by now is sent before the exit of one of them."""
        if failed:
            self.failing()
        self.engines.listen()

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
        self.engines.ended(rank)

    def failing(self, ranks: int | None = None) -> None:
        """Ranks are about to be killed: note the shared memory that (no more than `ranks` of) them would leave."""
        pids = [pid for rank, pid in self._pids().items() if self._joined.get(rank) == "PMI-1"]
        if pids:
            from mslaunch.agent.mpi.shm_cleanup import held

            self._shared |= held(pids[:ranks])

    def close(self) -> None:
        """Nothing runs any more."""
        if self._shared:
            from mslaunch.agent.mpi.shm_cleanup import remove

            remove(self._shared)
        self.engines.close()
