"""A rank of this node as a client of PMI, and its commands: each has one answer, and some ask the launcher first."""

from __future__ import annotations

import os

from mslaunch.agent.mpi.pmi import pmi_wire
from mslaunch.agent.mpi.pmi.key_value_store import KEY, VALUE
from mslaunch.agent.mpi.pmi.pmi_wire import Garbled, Message, Reader, Refused, programs
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.mpi import Abort

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.mpi.mpi_servers import LauncherCalls
    from mslaunch.agent.mpi.pmi.key_value_store import KeySpace
    from mslaunch.protocol.mpi import Answer

    Done = Callable[[Answer], None]

_PROCESSES = 1 << 16  # that one spawn may ask for
_ERRCODES = 200  # as many are listed: clients have lines of 1,024 bytes, and take no list for zeros
_SPAWNS = 4  # of one rank that wait for their answers; threads may have some each, and they may be large
_PORT = 8192  # characters of a name or port that is published


class Client:
    """One rank."""

    def __init__(self, launcher: LauncherCalls, rank: int, space: KeySpace) -> None:
        self.launcher = launcher
        self.rank = rank  # as frames have it
        self.number = rank - space.world.first  # in its world
        self.space = space
        self.reader = Reader()
        self.life = 0  # how many MPI programs it has begun
        self.inside = False  # between init and finalize
        self.waiting = 0  # commands without an answer yet
        self.spawning = 0  # spawns among them
        self.stranger: int | None = None  # the user of a process that has written to its socket without our rights
        self.ignored = False  # it has aborted, or sent what is no PMI, or hung up

    def fail(self, text: str) -> None:
        """End the job, because the rank violates the protocol."""
        self.ignored = True
        self.launcher.abort(self.rank, Abort(1, text, broken=True))


class Call:
    """A command of a rank, and the one answer to it."""

    def __init__(self, client: Client, message: Message, answer: str) -> None:
        """`answer` is the command of the answer."""
        self.client = client
        self.message = message
        self._answer = answer
        self._open = True
        client.waiting += 1

    def done(self, *pairs: tuple[str, object]) -> None:
        """The command has succeeded.  Newer clients of MPICH look at `rc` first."""
        self._end((("rc", 0), *pairs))

    def refuse(self, why: str, *pairs: tuple[str, object]) -> None:
        """The command has failed; `why` is a word."""
        self._end((("rc", 1), ("msg" if self.message.version == 1 else "errmsg", why), *pairs))

    def close(self) -> None:
        """The command gets no answer."""
        if self._open:
            self._open = False
            self.client.waiting -= 1

    def _end(self, pairs: tuple[tuple[str, object], ...]) -> None:
        heard = self._open and not self.client.ignored
        self.close()
        if heard:
            framed, words = self.message.version == 2, self.message.words
            if framed and "thrid" in words:
                pairs = (("thrid", words["thrid"]), *pairs)
            encode = pmi_wire.framed if framed else pmi_wire.line
            self.client.launcher.reply(self.client.rank, encode(self._answer, pairs))

    # --- the life of an MPI program

    def init(self, version: str) -> None:
        """An MPI program begins: the rank's first, or the next one of a script."""
        client = self.client
        if client.inside:
            raise Garbled("init, though the MPI program before has not finalized")
        client.life = client.space.begin(client.number)
        client.inside = True
        client.reader.framed = version == "2"
        client.launcher.joined(client.rank, f"pmi{version}")

    def finalize(self) -> None:
        """MPI_Finalize."""
        client = self.client
        if client.waiting > 1:
            raise Refused("commands_are_waiting")
        client.inside = client.reader.framed = False
        self.done()
        client.launcher.left(client.rank)

    def abort(self, code: str, text: str) -> None:
        """MPI_Abort."""
        self.close()
        self.client.ignored = True
        negative, digits = code.startswith("-"), code.lstrip("-")
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 1
        self.client.launcher.abort(self.client.rank, Abort(-value if negative else value, text[:VALUE]))

    # --- questions to the launcher

    def _ask(self, what: str, fields: dict[str, list[str]], blobs: tuple[bytes, ...], done: Done) -> None:
        self.client.launcher.ask(what, {**self._asker(), **fields}, blobs, done)

    def _asker(self) -> dict[str, list[str]]:
        return {"family": ["pmi"], "from": [f"{self.client.space.world.name}.{self.client.number}"]}

    def ask_name(self, what: str, name: str, port: str | None = None, keys: tuple[str, ...] = ()) -> None:
        """Publish, look up or unpublish a name; `keys` are those that the answer has for what was found."""

        def done(answer: Answer) -> None:
            if answer.error or (keys and not answer.blobs):
                self.refuse(_word(answer.error or "missing"))
            else:
                found = answer.blobs[0].decode("utf-8", "surrogateescape") if keys else ""
                self.done(*((key, found) for key in keys))

        if max(len(name), len(port or "")) > _PORT:
            raise Refused("name_too_long")
        wait: dict[str, list[str]] = {"wait": []} if what == "lookup" else {}
        blobs = () if port is None else (port.encode("utf-8", "surrogateescape"),)
        self._ask(what, {"names": [name], **wait}, blobs, done)

    def ask_spawn(self) -> None:
        """MPI_Comm_spawn and MPI_Comm_spawn_multiple."""
        if self.client.stranger is not None:
            who = f"rank {self.client.rank} asked for MPI_Comm_spawn as user {self.client.stranger}"
            self.client.fail(f"{who}, and its agent can start programs only as user {os.geteuid()}")
            return
        wanted, preput = programs(self.message)
        total = sum(program.processes for program in wanted)
        if total > _PROCESSES or self.client.spawning >= _SPAWNS:
            raise Refused("too_many_processes" if total > _PROCESSES else "too_many_spawns")
        fields = {"count": [str(len(wanted))], "preput": preput}
        for index, (argv, processes, info) in enumerate(wanted):
            wdir = dict(zip(info[::2], info[1::2])).get("wdir", "")
            fields[f"argv.{index}"] = list(argv)
            fields[f"app.{index}"] = [str(processes), wdir]
            fields[f"info.{index}"] = list(info)

        def done(answer: Answer) -> None:
            self.client.spawning -= 1
            codes = ",".join([str(int(bool(answer.error)))] * total)
            pairs = [("errcodes", codes)] if total <= _ERRCODES else []
            if answer.error:
                self.refuse(_word(answer.error), *pairs)
            else:
                self.done(*(("jobid", name) for name in answer.fields.get("world", ())), *pairs)

        self.client.spawning += 1
        self.client.launcher.ask_spawn(self.client.rank, {**self._asker(), **fields}, done)


def _word(error: str) -> str:
    """The word of an answer's error, for a client."""
    word = error.partition(":")[0][:KEY]
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in word) or "refused"
