"""The PMI server of a node: what MPICH, Intel MPI and their like ask whoever started them, answered for its ranks.

Bytes go in, bytes and calls of the launcher (`LauncherCalls`) come out; there is no descriptor and no clock here.
Nothing that a rank sends raises an error here: a command that cannot be obeyed is answered with an error, as the
protocol has it, and what is no PMI at all ends the job with a sentence that names the rank.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi import pmi1, pmi2
from mslaunch.agent.mpi.pmi.key_value_store import KeySpace
from mslaunch.agent.mpi.pmi.pmi_barriers import PmiWaits
from mslaunch.agent.mpi.pmi.pmi_client import Call, Client
from mslaunch.agent.mpi.pmi.pmi_wire import Garbled, Message, Refused
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.agent.mpi.launcher_calls import LauncherCalls
    from mslaunch.datamodel.node_plan import World


_MANY = 256  # commands of one rank that wait for their answers; threads may have some each


class PmiServer:
    """All PMI clients of one node, in both versions of the protocol."""

    def __init__(self, launcher: LauncherCalls) -> None:
        self._launcher = launcher
        self._clients: dict[int, Client] = {}
        self._waits = PmiWaits()
        self.released = self._waits.released

    def add(self, world: World, cpus: Mapping[int, Sequence[int]] = {}) -> None:
        """A world, before its first rank starts.  PMI has no word for where ranks are bound."""
        space = KeySpace(world)
        for number in space.here:
            self._clients[world.first + number] = Client(self._launcher, world.first + number, space)

    def again(self, rank: int) -> None:
        """A rank that has ended is about to be started again."""
        client = self._clients.get(rank)
        if client:
            client.space.ended.discard(client.number)
            client.space.lives[client.number] = 0
            self._clients[rank] = Client(self._launcher, rank, client.space)

    def feed(self, rank: int, data: bytes) -> None:
        """Bytes from the socket of `rank`."""
        client = self._clients.get(rank)
        if client is None or client.ignored:
            return
        try:
            for message in client.reader.feed(data):
                if not self._obey(client, message):
                    return
        except Garbled as error:
            client.fail(f"rank {rank} sent what is no PMI: {error}")

    def _obey(self, client: Client, message: Message) -> bool:
        """Whether more is listened to."""
        commands, suffix = (pmi1.COMMANDS, "_result") if message.version == 1 else (pmi2.COMMANDS, "-response")
        answer, command = commands.get(message.command, (message.command + suffix, None))
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
        return not client.ignored

    def hung_up(self, rank: int) -> None:
        """The socket of `rank` has come to its end; its process may go on."""
        if rank in self._clients:
            self._clients[rank].ignored = True

    def ended(self, rank: int) -> None:
        """The process is over: waits for it are in vain."""
        client = self._clients.get(rank)
        if client:
            client.ignored = True
            client.space.ended.add(client.number)
            self._waits.ended(client)

    def close(self) -> None:
        """All ranks have ended."""
        self._clients.clear()
        self._waits.close()
