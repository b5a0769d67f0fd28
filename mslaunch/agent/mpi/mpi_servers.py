"""The servers of MPI protocols on a node: their contract, their start for the first rank that needs one, their frames.

A server calls the launcher through `LauncherCalls`.  Its collectives carry its family before their own name, and the
numbers of its questions are odd or even by its family, so that one server never takes what belongs to the other.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.processes import family as family_of
from mslaunch.host.processes import other_users
from mslaunch.protocol import frames
from mslaunch.protocol.mpi import (
    Abort,
    Answer,
    Gathering,
    Question,
    Released,
    pack_abort,
    pack_with_blobs,
    unpack_with_blobs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Protocol

    from mslaunch.datamodel.node_plan import World
    from mslaunch.runtime.loop import Loop

    Send = Callable[[int, int, bytes], None]

    class MpiServer(Protocol):
        """Serves the ranks of one node by the protocols of one family; what a row of `protocols.PROTOCOLS` starts."""

        def add(self, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
            """A world, before any of its ranks starts; `cpus` of those of this node.  May raise `LaunchError`."""

        def begin(self, rank: int) -> dict[str, str]:
            """A rank is about to start, perhaps once more: the variables that it needs from this server."""

        def feed(self, rank: int, data: bytes) -> None:
            """Bytes from the socket of a rank, if its protocol has one; b"" at the end."""

        def distrust(self, rank: int, user: int) -> None:
            """A process of another user has written to the socket of a rank."""

        def released(self, whole: Released) -> None:
            """A collective is complete."""

        def question(self, question: Question) -> None:
            """Another node asks for what only a rank of this one knows; answered by `LauncherCalls.answer`."""

        def listen(self) -> None:
            """Take what ranks have said by now."""

        def ended(self, rank: int) -> None:
            """The process of a rank is over."""

        def close(self) -> None:
            """All ranks have ended."""


_PIECE = 1 << 16  # bytes of a library's text in one frame


class ServerContext(NamedTuple):
    """What a server is started with."""

    loop: Loop
    launcher: LauncherCalls
    environ: Mapping[str, str]  # what ranks inherit
    folder: Callable[[str], str]  # makes a private directory
    host: str  # the name of this node in worlds
    library: Any  # the `MpiLibrary` of the first rank that is served; None for ranks that speak on sockets
    commands: Mapping[str, Any]  # protocol of the family -> its commands, where ranks speak on sockets


class LauncherCalls:
    """The calls of one server to the launcher, as frames, and the way back for answers."""

    def __init__(
        self,
        send: Send,
        joined: Callable[[int, str], None],
        reply: Callable[[int, bytes], None],
        pids: Callable[[], dict[int, int]],
        family: str,
    ) -> None:
        """`send(kind, rank, payload)` a frame; `joined(rank, protocol)`; `reply(rank, data)` on its socket.

        `pids` are rank -> process id of those that run here.
        """
        self._pids = pids
        self._send = send
        self.joined = joined
        self.reply = reply
        self._prefix = f"{family} "
        self._asked: dict[int, Callable[[Answer], None]] = {}
        self._number = len(family)  # odd for PMI, even for PMIx

    def released(self, whole: Released) -> Released | None:
        """A collective as the server knows it; None if it is another server's."""
        op = whole.op
        return whole._replace(op=op[len(self._prefix) :]) if op.startswith(self._prefix) else None

    def gather(self, part: Gathering) -> None:
        """The part of this node in a collective."""
        self._send(frames.GATHER, frames.NO_RANK, pack_with_blobs(part._replace(op=self._prefix + part.op)))

    def ask(
        self,
        what: str,
        fields: Mapping[str, Iterable[str]],
        blobs: tuple[bytes, ...],
        done: Callable[[Answer], None],
    ) -> None:
        """Ask the launcher; `done` gets the answer."""
        self._number += 2
        self._asked[self._number] = done
        self._send(frames.ASK, frames.NO_RANK, pack_with_blobs(Question(self._number, what, fields, blobs)))

    def ask_spawn(self, rank: int, fields: Mapping[str, Iterable[str]], done: Callable[[Answer], None]) -> None:
        """Ask for MPI_Comm_spawn, which starts programs as our user: so all processes of the rank must be ours.

        Otherwise the job ends: the request may be that of a process without our rights.
        """
        if rank not in self._pids():
            done(Answer(0, "refused:the rank has ended"))
            return
        users = other_users(self._processes_of(rank))
        if users:
            who = f"rank {rank} asked for MPI_Comm_spawn as user {min(users)}"
            text = f"{who}, and its agent can start programs only as user {os.geteuid()}"
            self.abort(rank, Abort(1, text, broken=True))
        else:
            self.ask("spawn", fields, (), done)

    def _processes_of(self, rank: int) -> set[int]:
        """All that we and our guard have started or adopted, orphans among them, but not what other ranks have."""
        others = [pid for other, pid in self._pids().items() if other != rank]
        return set(family_of([os.getppid()])) - set(family_of(others))

    def answered(self, answer: Answer) -> None:
        """ANSWER has come; one to a question of another server is ignored."""
        done = self._asked.pop(answer.number, None)
        if done:
            done(answer)

    def answer(self, answer: Answer) -> None:
        """The answer to what another node asked."""
        self._send(frames.REPLY, frames.NO_RANK, pack_with_blobs(answer))

    def left(self, rank: int) -> None:
        """A rank has called MPI_Finalize."""
        self._send(frames.LEFT, rank, b"")

    def abort(self, rank: int, abort: Abort) -> None:
        """A rank has called MPI_Abort, or violates the protocol."""
        self._send(frames.ABORT, rank, pack_abort(abort))

    def log(self, rank: int, text: bytes) -> None:
        """Text that a library has for the user."""
        for at in range(0, len(text), _PIECE):
            self._send(frames.STDERR, rank, text[at : at + _PIECE])


class MpiServers:
    """The servers of a node, by their families."""

    def __init__(
        self,
        loop: Loop,
        environ: Mapping[str, str],
        folder: Callable[[str], str],
        make_calls: Callable[[str], LauncherCalls],
        worlds: list[tuple[World, Mapping[int, Sequence[int]]]],
    ) -> None:
        """`worlds` are those so far; for the others see `ServerContext` and `LauncherCalls`."""
        self._loop = loop
        self._environ = environ
        self._folder = folder
        self._make_calls = make_calls
        self._worlds = worlds
        self._calls: dict[str, LauncherCalls] = {}
        self.running: dict[str, MpiServer] = {}
        self._failed: dict[tuple[str, str], LaunchError] = {}  # family, and world or "" for all

    def start(
        self,
        family: str,
        make: Callable[[ServerContext], MpiServer],
        commands: Mapping[str, Any],
        world: World | None = None,
        library: Any = None,
    ) -> MpiServer:
        """The server of a family, which `make` starts if it does not run; for the rest see `ServerContext`.

        Raises `LaunchError` if `world` cannot be served, the same one for each of its ranks.
        """
        name, host = (world.name, world.hosts[world.here]) if world else ("", "")
        if family not in self.running and (family, "") not in self._failed:
            self._calls[family] = calls = self._make_calls(family)
            try:
                self.running[family] = make(
                    ServerContext(self._loop, calls, self._environ, self._folder, host, library, commands)
                )
            except LaunchError as error:
                self._failed[family, ""] = error
            for known, cpus in self._worlds:
                self._add(family, known, cpus)
        failed = self._failed.get((family, "")) or self._failed.get((family, name))
        if failed:
            raise failed
        return self.running[family]

    def add(self, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        """The ranks of a world are about to start, those of this node on these `cpus`."""
        for family in self.running:
            self._add(family, world, cpus)

    def _add(self, family: str, world: World, cpus: Mapping[int, Sequence[int]]) -> None:
        try:
            if family in self.running:
                self.running[family].add(world, cpus)
        except LaunchError as error:  # the ranks of this world are not started, the others live on
            self._failed[family, world.name] = error

    def on_frame(self, frame: frames.Frame) -> None:
        """RELEASE, ANSWER or QUESTION of the launcher."""
        if frame.kind == frames.RELEASE:
            whole = unpack_with_blobs(Released, frame.payload)
            for family, server in self.running.items():
                ours = self._calls[family].released(whole)
                if ours:
                    server.released(ours)
        elif frame.kind == frames.ANSWER:
            answer = unpack_with_blobs(Answer, frame.payload)
            for calls in self._calls.values():
                calls.answered(answer)
        else:
            question = unpack_with_blobs(Question, frame.payload)
            (family,) = question.fields["family"]
            if family in self.running:
                self.running[family].question(question)
            else:
                self._make_calls(family).answer(Answer(question.number, "missing:no server runs there"))
