"""The switchboard of a node's MPI programs: which protocol each program is offered, and who speaks it with its ranks.

PMI costs next to nothing to offer (a socket, and no engine until a rank speaks), so every rank gets it unless its
program is known to be Open MPI's: that needs a PMIx server before it starts, and must not see PMI's variables.
Engines, and the alarm for ranks that nobody serves, are parts that travel on demand.  It knows no byte of either
protocol.  The surprising thing: the line of a rank is read to its end before its exit is told, or an MPI_Abort would
come too late.
"""

from __future__ import annotations

from mslaunch.agent import parts
from mslaunch.agent.hints import may_be_openmpi
from mslaunch.agent.lines import Line, pair
from mslaunch.errors import LaunchError
from mslaunch.lean import TYPE_CHECKING
from mslaunch.wire import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from mslaunch.model import AppPlan, World
    from mslaunch.wire.loop import Loop

    Program = tuple[str, list[str], Mapping[str, str], str]

    class MpiSink(Protocol):
        """Who carries frames to the launcher: the agent."""

        def send(self, kind: int, rank: int, payload: bytes) -> None:
            """One frame."""

        def pids(self) -> dict[int, int]:
            """Rank -> process id, of those that run."""

        def folder(self, name: str) -> str:
            """A private directory, empty, removed when the agent ends."""


_FIRST_LOOK = 0.05  #: seconds after which ranks that nobody serves are looked for


class Mpi:
    """The node's side of the start-up of MPI programs."""

    def __init__(self, loop: Loop, sink: MpiSink, environ: Mapping[str, str]) -> None:
        """`environ` is what ranks inherit."""
        self._loop = loop
        self._sink = sink
        self._environ = environ
        self._worlds: list[tuple[World, Mapping[int, Sequence[int]]]] = []  # and where its ranks are bound
        self._offers: dict[tuple[str, int], Any] = {}  # world, program -> a `family.Library`, or a word
        self._offered: dict[int, str] = {}  # what each rank could have: none, pmi, pmix
        self._demanded: dict[int, str] = {}  # pmi1, pmi2, or pmi: either
        self._met: dict[int, str] = {}  # ranks that contacted us -> the protocol they speak
        self._lines: dict[int, Line] = {}
        self._early: list[tuple[int, bytes]] = []  # what ranks said before PMI's engine was here
        self._engines: dict[str, Any] = {}  # pmi, pmix
        self._uplinks: dict[str, Any] = {}
        self._needed: dict[str, list[Callable[[], None]]] = {}  # part -> what to do once it has come
        self._watched = False
        self._alarm: Any = None

    # --- before ranks start

    def prepare(self, world: World, programs: Sequence[tuple[int, AppPlan, Program]], then: Callable[[], None]) -> None:
        """Choose what the ranks of each program are offered, have what that needs, and go on with `then`.

        `programs` have their number in the job, what is planned, and (file, arguments, variables, directory).
        """
        unsure = []
        for number, app, program in programs:
            kind = app.mpi.partition(":")[0] if world.here >= 0 else "none"
            if kind == "pmix" or (kind == "auto" and may_be_openmpi(*program)):
                unsure.append((number, app, program))
            else:
                self._offers[world.name, number] = "pmi" if kind == "auto" else kind

        def look() -> None:
            for number, app, program in unsure:
                self._offers[world.name, number] = _look(app.mpi, program)
            serve = any(not isinstance(offer, str) for offer in self._offers.values())
            self.need("pmix", then) if serve else then()

        self.need("family", look) if unsure else then()

    def begin(self, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        """Its ranks are about to start, those of this node on these `cpus`, or only ranks elsewhere."""
        self._worlds.append((world, cpus))
        for engine in self._engines.values():
            engine.add(world, cpus)
        if world.size > 1 and not self._watched and set(self._offers.values()) - {"none"}:
            self._watched = True
            self._loop.after(_FIRST_LOOK, lambda: self.need("alone", self._watch))

    def variables(self, world: World, app: int, rank: int) -> tuple[dict[str, str], int]:
        """What `rank`, of the program `app`, finds in its environment, and its end of a line (-1: it has none).

        The end is the caller's to close.  Raises `LaunchError` if its protocol cannot be served.
        """
        if self._alarm:
            self._alarm.again()
        offer = self._offers.get((world.name, app), "none")
        if offer == "none":
            return {}, -1
        if not isinstance(offer, str):
            self._offered[rank] = "pmix"
            return self._pmix(offer, world).environment(rank), -1
        self._offered[rank] = "pmi"
        self._demanded[rank] = offer
        ours, child = pair()
        self._lines[rank] = line = Line(self._loop, rank, ours, self._heard)
        line.watch(True)
        return pmi_variables(world, rank - world.first), child

    # --- engines

    def _pmix(self, library: Any, world: World) -> Any:
        """The server, which is started for the first rank that needs it."""
        if "pmix" not in self._engines:
            if not library.pmix:
                raise LaunchError(
                    f"no libpmix.so.2 was found that belongs to {library.path or library.name}",
                    todo="install it there (Debian: libpmix2), or say where it is: --mpi pmix:/PATH/libpmix.so.2",
                )
            server = parts.get("pmix")
            assert server
            folder = self._sink.folder("pmix")
            name = world.hosts[world.here]
            self._begin(
                "pmix",
                server.Pmix(self._loop, self._uplink("pmix"), library.pmix, folder, name, self._environ),
            )
        return self._engines["pmix"]

    def _begin(self, kind: str, engine: Any) -> None:
        self._engines[kind] = engine
        for world, cpus in self._worlds:
            engine.add(world, cpus)

    def _uplink(self, kind: str) -> Any:
        from mslaunch.agent.uplink import Uplink

        self._uplinks[kind] = Uplink(kind, self._sink.send, self._joined, self._reply)
        return self._uplinks[kind]

    def _heard(self, rank: int, data: bytes) -> None:
        """A rank speaks PMI, or (b"") has hung up; the first words bring the engine in."""
        engine = self._engines.get("pmi")
        if engine is None:
            self._early.append((rank, data))
            if data:
                self.need("pmi", self._begin_pmi)
        elif data:
            engine.feed(rank, data)
        else:
            engine.hung_up(rank)

    def _begin_pmi(self) -> None:
        if "pmi" not in self._engines:
            module = parts.get("pmi")
            assert module
            self._begin("pmi", module.Pmi(self._uplink("pmi")))
        early, self._early = self._early, []
        for rank, data in early:
            self._heard(rank, data)

    def _reply(self, rank: int, data: bytes) -> None:
        line = self._lines.get(rank)
        if line:
            line.send(data)

    def _joined(self, rank: int, protocol: str) -> None:
        self._met[rank] = protocol
        demanded = self._demanded.get(rank, "pmi")
        if demanded not in ("pmi", protocol.lower().replace("-", "")):
            from mslaunch.wire.exchanges import Abort

            self._uplinks["pmi"].abort(rank, Abort(1, f"it speaks {protocol}; --mpi {demanded} was given", True))
        self._sink.send(frames.JOINED, rank, protocol.encode())

    # --- the alarm

    def _watch(self) -> None:
        module = parts.get("alone")
        assert module
        self._alarm = module.Watch(self._loop, self._served, self._met.__contains__, self._offered.get, self._alone)

    def _served(self) -> dict[int, int]:
        """Rank -> process id, of those that were offered anything."""
        return {rank: pid for rank, pid in self._sink.pids().items() if rank in self._offered}

    def _alone(self, rank: int, alone: Any) -> None:
        from mslaunch.wire.exchanges import pack_alone

        self._sink.send(frames.ALONE, rank, pack_alone(alone))

    # --- parts

    def need(self, name: str, then: Callable[[], None]) -> None:
        """Go on with `then` when the part `name` is here, at once if it is."""
        if parts.get(name):
            then()
            return
        waiting = self._needed.setdefault(name, [])
        waiting.append(then)
        if len(waiting) == 1:
            self._sink.send(frames.NEED, frames.NO_RANK, name.encode())

    def part(self, payload: bytes) -> None:
        """PART has come."""
        from mslaunch.wire.fields import unpack

        parts.add({name: source for name, (source,) in unpack(payload).items()})
        for name in [name for name in self._needed if parts.get(name)]:
            for then in self._needed.pop(name):
                then()

    # --- from the launcher

    def released(self, payload: bytes) -> None:
        """RELEASE: a collective is complete."""
        from mslaunch.wire.exchanges import unpack_released

        whole = unpack_released(payload)
        for kind, uplink in self._uplinks.items():
            ours = uplink.released(whole)
            if ours:
                self._engines[kind].released(ours)

    def answered(self, payload: bytes) -> None:
        """ANSWER to a question of ours."""
        from mslaunch.wire.exchanges import unpack_answer

        answer = unpack_answer(payload)
        any(uplink.answered(answer) for uplink in self._uplinks.values())

    def question(self, payload: bytes) -> None:
        """QUESTION: another node wants to know what only a rank of ours does."""
        from mslaunch.wire.exchanges import Answer, pack_answer, unpack_question

        question = unpack_question(payload)
        if "pmix" in self._engines:
            self._engines["pmix"].question(question)
        else:
            answer = Answer(question.number, "missing:no PMIx server runs there")
            self._sink.send(frames.REPLY, frames.NO_RANK, pack_answer(answer))

    # --- the end

    def ended(self, rank: int) -> None:
        """The process of a rank is over: hear its last words before anybody is told."""
        line = self._lines.pop(rank, None)
        if line:
            while line.read():
                pass
            line.close()
        for engine in self._engines.values():
            engine.ended(rank)

    def close(self) -> None:
        """Nothing runs any more."""
        for engine in self._engines.values():
            engine.close()


def _look(asked: str, program: Program) -> Any:
    """The library of a program that may be Open MPI's, or "pmi"; `asked` is auto, pmix, or pmix:PATH."""
    family = parts.get("family")
    assert family
    found = family.find(*program)
    kind, _, path = asked.partition(":")
    if kind != "pmix" and not (found and found.family == "pmix"):
        return "pmi"
    found = found or family.Library("pmix", "Open MPI", "", "", False)
    env = program[2]
    return found._replace(pmix=path or found.pmix or family.find_pmix(found, env) or family.any_pmix(env))


def pmi_variables(world: World, rank: int) -> dict[str, str]:
    """As hydra sets them (runs of 5.0.2); `rank` is that in the world."""
    here = world.ranks[world.here]
    known = {
        "PMI_FD": "3",
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(world.size),
        "MPI_LOCALRANKID": str(here.index(rank)),
        "MPI_LOCALNRANKS": str(len(here)),
    }
    if world.parent:
        known["PMI_SPAWNED"] = "1"
    return known
