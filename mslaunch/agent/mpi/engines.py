"""The PMI and PMIx servers of a node (engines), each started for the first rank that needs it, and their frames."""

from __future__ import annotations

from mslaunch.agent import on_demand
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.node_plan import World
    from mslaunch.runtime.loop import Loop

    Send = Callable[[int, int, bytes], None]


class Engines:
    """Those of a node; their modules must have come before one is started."""

    def __init__(
        self,
        loop: Loop,
        environ: Mapping[str, str],
        send: Send,
        joined: Callable[[int, str], None],
        reply: Callable[[int, bytes], None],
        folder: Callable[[str], str],
    ) -> None:
        """`send(kind, rank, payload)` a frame; `joined(rank, protocol)` and `reply(rank, data)` are for the engines.

        `environ` is what ranks inherit; `folder` makes a private directory.
        """
        self._loop = loop
        self._environ = environ
        self._send = send
        self._joined = joined
        self._reply = reply
        self._folder = folder
        self._worlds: list[tuple[World, Mapping[int, Sequence[int]]]] = []  # and the cpus of the ranks here
        self._running: dict[str, Any] = {}  # pmi, pmix
        self._calls: dict[str, Any] = {}  # `LauncherCalls`, by the same names
        self._failed: dict[str, LaunchError] = {}  # world, or "" for all -> why PMIx does not serve it
        self.get = self._running.get

    def add(self, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        """The ranks of a world are about to start, those of this node on these `cpus`."""
        self._worlds.append((world, cpus))
        for kind in self._running:
            self._add(kind, world, cpus)

    def start_pmi(self) -> None:
        """Start the engine of PMI."""
        module = on_demand.get("agent.mpi.pmi.pmi_server")
        assert module
        self._start("pmi", module.PmiServer(self._launcher_calls("pmi")))

    def pmix(self, library: Any, world: World) -> Any:
        """The PMIx server for the ranks of a world that use `library`; raises the same `LaunchError` for all."""
        if "pmix" not in self._running and "" not in self._failed:
            try:
                self._start("pmix", self._pmix_server(library, world.hosts[world.here]))
            except LaunchError as error:
                self._failed[""] = error
        failed = self._failed.get("") or self._failed.get(world.name)
        if failed:
            raise failed
        return self._running["pmix"]

    def _pmix_server(self, library: Any, host: str) -> Any:
        if not library.pmix:
            raise LaunchError(
                f"no libpmix.so.2 was found that belongs to {library.path or library.name}",
                todo="install it there (Debian: libpmix2), or say where it is: --mpi pmix:/PATH/libpmix.so.2",
            )
        module = on_demand.get("agent.mpi.pmix.pmix_server")
        assert module
        calls, folder = self._launcher_calls("pmix"), self._folder("pmix")
        return module.PmixServer(self._loop, calls, library.pmix, folder, host, self._environ, library.path)

    def _launcher_calls(self, kind: str) -> Any:
        from mslaunch.agent.mpi.launcher_calls import LauncherCalls

        self._calls[kind] = LauncherCalls(kind, self._send, self._joined, self._reply)
        return self._calls[kind]

    def _start(self, kind: str, engine: Any) -> None:
        self._running[kind] = engine
        for world, cpus in self._worlds:
            self._add(kind, world, cpus)

    def _add(self, kind: str, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        try:
            self._running[kind].add(world, cpus)
        except LaunchError as error:  # of PMIx: the ranks of this world are not started, the others live on
            self._failed[world.name] = error

    # --- frames of the launcher

    def released(self, payload: bytes) -> None:
        """RELEASE: a collective is complete."""
        from mslaunch.protocol.mpi import Released, unpack_with_blobs

        whole = unpack_with_blobs(Released, payload)
        for kind, calls in self._calls.items():
            ours = calls.released(whole)
            if ours:
                self._running[kind].released(ours)

    def answered(self, payload: bytes) -> None:
        """ANSWER to a question of an engine."""
        from mslaunch.protocol.mpi import Answer, unpack_with_blobs

        answer = unpack_with_blobs(Answer, payload)
        any(calls.answered(answer) for calls in self._calls.values())

    def question(self, payload: bytes) -> None:
        """QUESTION: another node wants to know what only a rank of ours does."""
        from mslaunch.protocol.mpi import Answer, Question, pack_with_blobs, unpack_with_blobs

        question = unpack_with_blobs(Question, payload)
        if "pmix" in self._running:
            self._running["pmix"].question(question)
        else:
            answer = Answer(question.number, "missing:no PMIx server runs there")
            self._send(frames.REPLY, frames.NO_RANK, pack_with_blobs(answer))

    # --- the ends of ranks

    def abort(self, rank: int, text: str) -> None:
        """End the job because a rank speaks another PMI than it must."""
        from mslaunch.protocol.mpi import Abort

        self._calls["pmi"].abort(rank, Abort(1, text, True))

    def listen(self) -> None:
        """Hear what the PMIx library has received by now."""
        if "pmix" in self._running:
            self._running["pmix"].listen()

    def ended(self, rank: int) -> None:
        """A rank will say nothing more."""
        for engine in self._running.values():
            engine.ended(rank)

    def close(self) -> None:
        """All ranks have ended."""
        for engine in self._running.values():
            engine.close()
