"""A rank of this node as a client of PMI, and the commands that it sends, each with one answer."""

from __future__ import annotations

from mslaunch.agent.mpi.pmi import pmi_wire
from mslaunch.agent.mpi.pmi.key_value_store import VALUE
from mslaunch.agent.mpi.pmi.pmi_wire import Garbled, Message, Reader, Refused
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.mpi import Abort

if TYPE_CHECKING:
    from mslaunch.agent.mpi.launcher_calls import LauncherCalls
    from mslaunch.agent.mpi.pmi.key_value_store import KeySpace


class Client:
    """One rank."""

    def __init__(self, launcher: LauncherCalls, rank: int, space: KeySpace) -> None:
        self.launcher = launcher
        self.rank = rank  # as frames have it
        self.number = rank - space.world.first  # in its world
        self.member = f"{space.world.name}.{self.number}"  # its name in the whole job
        self.space = space
        self.reader = Reader()
        self.life = 0  # how many MPI programs it has begun
        self.inside = False  # between init and finalize
        self.waiting = 0  # commands without an answer yet
        self.ignored = False  # it has aborted, or sent what is no PMI, or hung up

    def fail(self, text: str) -> None:
        """End the job, because of what the rank does."""
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
        """It went well.  Newer clients of MPICH look at `rc` first."""
        self._end((("rc", 0), *pairs))

    def refuse(self, why: str, *pairs: tuple[str, object]) -> None:
        """It did not; `why` is a word."""
        self._end((("rc", 1), ("msg" if self.message.version == 1 else "errmsg", why), *pairs))

    def close(self) -> None:
        """There is no answer to it."""
        if self._open:
            self._open = False
            self.client.waiting -= 1

    def _end(self, pairs: tuple[tuple[str, object], ...]) -> None:
        unheard = not self._open or self.client.ignored
        self.close()
        if unheard:
            return
        encode = pmi_wire.line
        if self.message.version == 2:
            encode = pmi_wire.framed
            if "thrid" in self.message.words:
                pairs = (("thrid", self.message.words["thrid"]), *pairs)
        self.client.launcher.reply(self.client.rank, encode(self._answer, pairs))

    # --- the life of an MPI program

    def init(self, version: str) -> None:
        """It begins: the rank's first, or the next one of a script."""
        client = self.client
        if client.inside:
            raise Garbled("init, though the MPI program before has not finalized")
        client.life = client.space.begin(client.number)
        client.inside = True
        client.reader.framed = version == "2"
        client.launcher.joined(client.rank, f"PMI-{version}")

    def finalize(self) -> None:
        """It is done with MPI."""
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
