"""The switchboard of a node's MPI programs: who speaks PMI or PMIx with the ranks, and who hears of it.

What each program is offered says `offers`.  Engines, and the alarm for ranks that nobody serves, are parts that travel
on demand.  It knows no byte of either protocol.  The surprising thing: the line of a rank is read to its end before its
exit is told, and by an engine that may still be on its way, or an MPI_Abort would come too late.
"""

from __future__ import annotations

from mslaunch.agent import on_demand
from mslaunch.agent.mpi.pmi_socket import PmiSocket, pair
from mslaunch.agent.mpi.protocol_choice import ProtocolChoices, pmi_variables
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from mslaunch.datamodel.node_plan import World
    from mslaunch.runtime.loop import Loop
    from mslaunch.runtime.timers import Timer

    class MpiSink(Protocol):
        """Who carries frames to the launcher: the agent."""

        def send(self, kind: int, rank: int, payload: bytes) -> None:
            """One frame."""

        def pids(self) -> dict[int, int]:
            """Rank -> process id, of those that run."""

        def folder(self, name: str) -> str:
            """A private directory, empty, removed when the agent ends."""


_FIRST_LOOK = 0.05  #: seconds after which ranks that nobody serves are looked for
_SETTLED = 1.0  #: seconds after which ranks share what they share; all could be killed at the same moment
_AGAIN = 5.0  #: seconds after which a rank that has failed is not going to be started again


class MpiFrontEnd:
    """The node's side of the start-up of MPI programs."""

    def __init__(
        self,
        loop: Loop,
        sink: MpiSink,
        environ: Mapping[str, str],
        need: Callable[[str, Callable[[], None]], None],
    ) -> None:
        """`environ` is what ranks inherit; `need` goes on when a part is here."""
        self._loop = loop
        self._sink = sink
        self._environ = environ
        self._worlds: list[tuple[World, Mapping[int, Sequence[int]]]] = []  # and where its ranks are bound
        self._offered: dict[int, str] = {}  # what each rank could have: none, pmi, pmix
        self._demanded: dict[int, str] = {}  # pmi1, pmi2, or pmi: either
        self._met: dict[int, str] = {}  # ranks that contacted us -> the protocol they speak
        self._lines: dict[int, PmiSocket] = {}
        self._early: list[Callable[[], None]] = []  # what is to be heard once PMI's engine is here
        self._speakers: set[int] = set()  # the ranks that have said something until then
        self._engines: dict[str, Any] = {}  # pmi, pmix
        self._uplinks: dict[str, Any] = {}
        self._failed: dict[str, LaunchError] = {}  # world, or "" for all -> why nobody serves it with PMIx
        self._failing: dict[int, Timer] = {}  # ranks that have failed, and may be started again
        self._shared: set[bytes] = set()  # files of ranks that may not remove them
        self._watched = False
        self._alarm: Any = None
        self._need = need
        self._offers = ProtocolChoices(loop, need)
        self.prepare = self._offers.prepare

    # --- before ranks start

    def begin(self, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        """Its ranks are about to start, those of this node on these `cpus`, or only ranks elsewhere."""
        self._worlds.append((world, cpus))
        for kind in self._engines:
            self._add(kind, world, cpus)
        if world.size > 1 and not self._watched and self._offers.anything:
            self._watched = True
            self._loop.after(_FIRST_LOOK, lambda: self._need("agent.mpi.singleton", self._watch))

    def variables(self, world: World, app: int, rank: int) -> tuple[dict[str, str], int]:
        """What `rank`, of the program `app`, finds in its environment, and its end of a line (-1: it has none).

        The end is the caller's to close.  Raises `LaunchError` if its protocol cannot be served.
        """
        if self._alarm:
            self._alarm.again()
        offer = self._offers.of(world, app)
        if offer == "none":
            return {}, -1
        if rank in self._offered:
            self._again(rank)
        if not isinstance(offer, str):
            self._offered[rank] = "pmix"
            return self._pmix(offer, world).environment(rank), -1
        self._offered[rank] = "pmi"
        self._demanded[rank] = offer
        try:
            ours, child = pair()
        except OSError as error:
            what = f"no socket could be made for rank {rank}, on which it may speak PMI: {error.strerror}"
            raise LaunchError(what, todo="raise ulimit -n there, or give --mpi none if it is no MPI program") from None
        self._lines[rank] = PmiSocket(self._loop, rank, ours, self._heard)
        return pmi_variables(world, rank - world.first), child

    def _again(self, rank: int) -> None:
        """It ran before."""
        self._met.pop(rank, None)
        if rank in self._failing:
            self._failing.pop(rank).cancel()
        if "pmi" in self._engines:
            self._engines["pmi"].again(rank)

    # --- engines

    def _pmix(self, library: Any, world: World) -> Any:
        """The server, which is started for the first rank that needs it; what is wrong with it, all are told."""
        if "pmix" not in self._engines and "" not in self._failed:
            try:
                self._begin("pmix", self._server(library, world.hosts[world.here]))
            except LaunchError as error:
                self._failed[""] = error
        failed = self._failed.get("") or self._failed.get(world.name)
        if failed:
            raise failed
        return self._engines["pmix"]

    def _server(self, library: Any, host: str) -> Any:
        if not library.pmix:
            raise LaunchError(
                f"no libpmix.so.2 was found that belongs to {library.path or library.name}",
                todo="install it there (Debian: libpmix2), or say where it is: --mpi pmix:/PATH/libpmix.so.2",
            )
        module = on_demand.get("agent.mpi.pmix.pmix_server")
        assert module
        folder = self._sink.folder("pmix")
        return module.PmixServer(
            self._loop, self._uplink("pmix"), library.pmix, folder, host, self._environ, library.path
        )

    def _begin(self, kind: str, engine: Any) -> None:
        self._engines[kind] = engine
        for world, cpus in self._worlds:
            self._add(kind, world, cpus)

    def _add(self, kind: str, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        try:
            self._engines[kind].add(world, cpus)
        except LaunchError as error:  # PMIx's: its ranks are not started, and the others live on
            self._failed[world.name] = error

    def _uplink(self, kind: str) -> Any:
        from mslaunch.agent.mpi.launcher_calls import LauncherCalls

        self._uplinks[kind] = LauncherCalls(kind, self._sink.send, self._joined, self._reply)
        return self._uplinks[kind]

    def _heard(self, rank: int, data: bytes) -> None:
        """A rank speaks PMI, or (b"") has hung up; the first words bring the engine in."""
        engine = self._engines.get("pmi")
        if engine is None:
            if data or rank in self._speakers:
                self._speakers.add(rank)
                self._early.append(lambda: self._heard(rank, data))
                self._need("agent.mpi.pmi.pmi_engine", self._begin_pmi)
        elif data:
            engine.feed(rank, data)
        else:
            engine.hung_up(rank)

    def _begin_pmi(self) -> None:
        if "pmi" not in self._engines:
            module = on_demand.get("agent.mpi.pmi.pmi_engine")
            assert module
            self._begin("pmi", module.PmiEngine(self._uplink("pmi")))
        early, self._early = self._early, []
        for act in early:
            act()

    def _reply(self, rank: int, data: bytes) -> None:
        line = self._lines.get(rank)
        if line:
            line.send(data)

    def _joined(self, rank: int, protocol: str) -> None:
        if not self._met:
            self._loop.after(_SETTLED, lambda: self.failing(1))
        self._met[rank] = protocol
        demanded = self._demanded.get(rank, "pmi")
        if demanded not in ("pmi", protocol.lower().replace("-", "")):
            from mslaunch.protocol.mpi import Abort

            self._uplinks["pmi"].abort(rank, Abort(1, f"it speaks {protocol}; --mpi {demanded} was given", True))
        self._sink.send(frames.JOINED, rank, protocol.encode())

    # --- the alarm

    def _watch(self) -> None:
        module = on_demand.get("agent.mpi.singleton")
        assert module
        self._alarm = module.SingletonWatch(
            self._loop, self._served, self._met.__contains__, self._offered.get, self._alone
        )

    def _served(self) -> dict[int, int]:
        """Rank -> process id, of those that were offered anything."""
        return {rank: pid for rank, pid in self._sink.pids().items() if rank in self._offered}

    def _alone(self, rank: int, alone: Any) -> None:
        from mslaunch.protocol.mpi import pack_alone

        self._sink.send(frames.ALONE, rank, pack_alone(alone))

    # --- from the launcher

    def released(self, payload: bytes) -> None:
        """RELEASE: a collective is complete."""
        from mslaunch.protocol.mpi import unpack_released

        whole = unpack_released(payload)
        for kind, uplink in self._uplinks.items():
            ours = uplink.released(whole)
            if ours:
                self._engines[kind].released(ours)

    def answered(self, payload: bytes) -> None:
        """ANSWER to a question of ours."""
        from mslaunch.protocol.mpi import unpack_answer

        answer = unpack_answer(payload)
        any(uplink.answered(answer) for uplink in self._uplinks.values())

    def question(self, payload: bytes) -> None:
        """QUESTION: another node wants to know what only a rank of ours does."""
        from mslaunch.protocol.mpi import Answer, pack_answer, unpack_question

        question = unpack_question(payload)
        if "pmix" in self._engines:
            self._engines["pmix"].question(question)
        else:
            answer = Answer(question.number, "missing:no PMIx server runs there")
            self._sink.send(frames.REPLY, frames.NO_RANK, pack_answer(answer))

    # --- the end

    def ended(self, rank: int, failed: bool, then: Callable[[], None]) -> None:
        """The process of a rank is over: hear its last words, then tell, which may have to wait for PMI's engine."""
        if failed:
            self.failing()
        line = self._lines.pop(rank, None)
        if line:
            line.finish()
        if rank in self._speakers and "pmi" not in self._engines:
            self._early.append(lambda: self._ended(rank, failed, then))
        else:
            self._ended(rank, failed, then)

    def _ended(self, rank: int, failed: bool, then: Callable[[], None]) -> None:
        """Who waits for it in vain is told of last: how it ended is the cause, and that others wait is not.

        Nobody waits in vain for a rank that is started again.
        """
        if "pmix" in self._engines:
            self._engines["pmix"].listen()
        then()
        if failed:
            self._failing[rank] = self._loop.after(_AGAIN, lambda: self._gone(rank))
        else:
            self._gone(rank)

    def _gone(self, rank: int) -> None:
        self._failing.pop(rank, None)
        for engine in self._engines.values():
            engine.ended(rank)

    def failing(self, ranks: int | None = None) -> None:
        """A rank has failed, or all are about to be ended: some (no more than `ranks`) will not tidy up after them."""
        pids = [pid for rank, pid in self._sink.pids().items() if self._met.get(rank) == "PMI-1"]
        if pids:
            from mslaunch.agent.mpi.shm_cleanup import held

            self._shared |= held(pids[:ranks])

    def close(self) -> None:
        """Nothing runs any more."""
        if self._shared:
            from mslaunch.agent.mpi.shm_cleanup import remove

            remove(self._shared)
        for engine in self._engines.values():
            engine.close()
