"""The PMI server of a node: it answers the commands of MPICH, Intel MPI and their relatives, in both versions of PMI.

Bytes go in, bytes and calls of the launcher (`LauncherCalls`) come out; there is no descriptor and no clock.  Nothing
that a rank sends raises an error here.  A command that cannot be carried out is answered with an error, as the protocol
has it, and what is no PMI at all ends the job with a sentence that names the rank.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi.key_value_store import KeySpace
from mslaunch.agent.mpi.pmi.pmi_barriers import PmiWaits
from mslaunch.agent.mpi.pmi.pmi_client import Call, Client
from mslaunch.agent.mpi.pmi.pmi_wire import Garbled, Message, Refused
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.mpi import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.agent.mpi.mpi_servers import LauncherCalls, ServerContext
    from mslaunch.datamodel.node_plan import World
    from mslaunch.protocol.mpi import Question

    Commands = Mapping[str, tuple[str, Callable[[PmiWaits, Call], None]]]


_MANY = 256  # commands of one rank that wait for their answers; threads may have some each


def start(context: ServerContext) -> PmiServer:
    """The server of this node."""
    return PmiServer(context.launcher, context.commands)


class PmiServer:
    """All PMI clients of one node."""

    def __init__(self, launcher: LauncherCalls, commands: Mapping[str, Commands]) -> None:
        """`commands` of pmi1 and pmi2: each with the command of its answer, and what carries it out."""
        self._launcher = launcher
        self._commands = commands
        self._clients: dict[int, Client] = {}
        self._waits = PmiWaits()
        self.released = self._waits.released

    def add(self, world: World, cpus: Mapping[int, Sequence[int]] = {}) -> None:
        """A world, before its first rank starts.  PMI has no word for where ranks are bound.

        It comes again with ranks that start later (--ready).
        """
        if any(client.space.world == world for client in self._clients.values()):
            return
        space = KeySpace(world)
        for number in space.here:
            self._clients[world.first + number] = Client(self._launcher, world.first + number, space)

    def begin(self, rank: int) -> dict[str, str]:
        """A rank is about to start, perhaps once more."""
        client = self._clients.get(rank)
        if client:
            client.space.ended.discard(client.number)
            client.space.lives[client.number] = 0
            self._clients[rank] = Client(self._launcher, rank, client.space)
        return {}

    def feed(self, rank: int, data: bytes) -> None:
        """Bytes from the socket of `rank`; b"": it has come to its end, and the process may go on."""
        client = self._clients.get(rank)
        if client is None or client.ignored:
            return
        client.ignored = not data
        try:
            for message in client.reader.feed(data):
                self._carry_out(client, message)
                if client.ignored:
                    return
        except Garbled as error:
            client.fail(f"rank {rank} sent what is no PMI: {error}")

    def distrust(self, rank: int, user: int) -> None:
        """A rank has dropped our rights: nothing is started for it with them."""
        if rank in self._clients:
            self._clients[rank].stranger = user

    def _carry_out(self, client: Client, message: Message) -> None:
        unknown = message.command + ("_result" if message.version == 1 else "-response"), None
        answer, command = self._commands.get(f"pmi{message.version}", {}).get(message.command, unknown)
        if message.version == 1 and message.command == "init":
            answer, command = "response_to_init", self._init
        if client.waiting >= _MANY and message.command != "abort":
            raise Garbled(f"{message.command}, while {client.waiting} commands before it wait for their answers")
        call = Call(client, message, answer)
        try:
            if command is None:
                raise Refused("unknown_command")
            if not client.inside and message.command not in ("init", "abort"):
                raise Refused("not_initialized")
            command(self._waits, call)
        except Refused as why:
            call.refuse(str(why))

    def _init(self, _: PmiWaits, call: Call) -> None:
        """The first line of an MPI program says which version it speaks, in that of PMI-1."""
        version = call.message.need("pmi_version")
        if f"pmi{version}" not in self._commands:
            raise Refused("unknown_version")
        call.init(version)
        call.done(("pmi_version", version), ("pmi_subversion", "2" if version == "1" else "0"))

    def question(self, question: Question) -> None:
        """PMI has no questions of one node to another."""
        self._launcher.answer(Answer(question.number, "missing:PMI has nothing to ask for"))

    def listen(self) -> None:
        """Sockets are read until their end, before a rank counts as ended."""

    def ended(self, rank: int) -> None:
        """The process of a rank is over: waits for it are in vain."""
        client = self._clients.get(rank)
        if client:
            client.ignored = True
            client.space.ended.add(client.number)
            self._waits.ended(client)

    def close(self) -> None:
        """All ranks have ended."""
        self._clients.clear()
        self._waits.close()
