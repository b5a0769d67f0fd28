"""A node's PMI: what MPICH, Intel MPI and their like ask whoever started them, answered for the ranks of this node.

Bytes go in, bytes and wishes come out (`LauncherCalls`); there is no descriptor, clock or environment here, and
nothing is known of frames.  Here is what both versions of PMI have; their wordings are in `pmi1` and `pmi2`.  The
surprising thing: nothing that a rank sends can raise here.  A command that cannot be obeyed is answered with an error,
as the protocol has it, and what is no PMI at all ends the job, with a sentence that names the rank.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi import pmi1, pmi2, pmi_wire
from mslaunch.agent.mpi.pmi.key_value_store import KEY, VALUE, Collective, KeySpace
from mslaunch.agent.mpi.pmi.pmi_wire import Garbled, Message, Reader, Refused, shown
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.mpi import Abort, Gathering

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.agent.mpi.launcher_calls import LauncherCalls
    from mslaunch.datamodel.node_plan import World
    from mslaunch.protocol.mpi import Answer, Released


_MANY = 256  # commands of one rank that wait for their answers; threads may have some each
_PROCESSES = 1 << 16  # that one spawn may ask for
_ERRCODES = 200  # as many are listed: clients have lines of 1,024 bytes, and take no list for zeros
_PORT = 8192  # characters of a name or port that is published


class Client:
    """A rank of this node."""

    def __init__(self, rank: int, place: KeySpace) -> None:
        self.rank = rank  # as frames have it
        self.number = rank - place.world.first  # in its world
        self.place = place
        self.reader = Reader()
        self.life = 0  # the MPI programs that it has begun
        self.inside = False  # between init and finalize
        self.waiting = 0  # commands without an answer yet
        self.deaf = False  # it has aborted, or sent what is no PMI, or hung up: nobody listens any more

    @property
    def member(self) -> str:
        """Its name in the whole job."""
        return f"{self.place.world.name}.{self.number}"


class Call:
    """A command of a rank, and the one answer to it."""

    def __init__(self, uplink: LauncherCalls, client: Client, message: Message, answer: str) -> None:
        self._uplink = uplink
        self.client = client
        self.message = message
        self._answer = answer
        self._open = True
        client.waiting += 1

    def done(self, *pairs: tuple[str, object]) -> None:
        """It went well."""
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
        unheard = not self._open or self.client.deaf
        self.close()
        if unheard:
            return
        if self.message.version == 1:
            self._uplink.reply(self.client.rank, pmi_wire.line(self._answer, pairs))
        else:
            thread = [("thrid", self.message.words["thrid"])] if "thrid" in self.message.words else []
            self._uplink.reply(self.client.rank, pmi_wire.framed(self._answer, (*thread, *pairs)))


class _Waiting(NamedTuple):
    collective: Collective
    place: KeySpace
    calls: dict[int, tuple[Call, tuple[tuple[str, object], ...]]]  # of each rank: its command, and what to answer


class PmiEngine:
    """The engine of one node."""

    def __init__(self, uplink: LauncherCalls) -> None:
        self.uplink = uplink
        self._clients: dict[int, Client] = {}
        self._waiting: dict[tuple[str, tuple[str, ...]], _Waiting] = {}
        self._patient: list[tuple[Call, str]] = []  # wait for an attribute of the node

    def add(self, world: World, cpus: Mapping[int, Sequence[int]] = {}) -> None:
        """A world, before its first rank starts.  Where ranks are bound, PMI has no word for."""
        place = KeySpace(world)
        for number in place.here:
            self._clients[world.first + number] = Client(world.first + number, place)

    def feed(self, rank: int, data: bytes) -> None:
        """Bytes from the socket of `rank`."""
        client = self._clients.get(rank)
        if client is None or client.deaf:
            return
        try:
            for message in client.reader.feed(data):
                if not self._obey(client, message):
                    return
        except Garbled as error:
            self._broken(client, f"rank {rank} sent what is no PMI: {error}")

    def again(self, rank: int) -> None:
        """A rank that has ended is about to be started again."""
        client = self._clients.get(rank)
        if client:
            client.place.ended.discard(client.number)
            client.place.lives[client.number] = 0
            self._clients[rank] = Client(rank, client.place)

    def hung_up(self, rank: int) -> None:
        """The socket of `rank` has come to its end; whether that is the end of the rank, `ended` says."""
        if rank in self._clients:
            self._clients[rank].deaf = True

    def ended(self, rank: int) -> None:
        """The process is over: nobody needs to wait for it."""
        client = self._clients.get(rank)
        if client is None:
            return
        client.deaf = True
        client.place.ended.add(client.number)
        for waiting in list(self._waiting.values()):
            if waiting.place is client.place:
                self._give_up(waiting)
        self._look_for_the_last(client)

    def released(self, whole: Released) -> None:
        """A collective is complete on all nodes."""
        waiting = self._waiting.pop((whole.op, whole.members), None)
        if waiting is not None:
            store = waiting.place.store(waiting.collective.life)
            for blob in whole.blobs:
                store.learn(blob)
            self._release(waiting)

    def close(self) -> None:
        """Nothing more is said."""
        self._clients.clear()
        self._waiting.clear()
        self._patient.clear()

    # --- what a rank sends

    def _obey(self, client: Client, message: Message) -> bool:
        """Whether more is listened to."""
        table = pmi1.COMMANDS if message.version == 1 else pmi2.COMMANDS
        end = "_result" if message.version == 1 else "-response"
        answer, command = table.get(message.command, (message.command + end, None))
        if client.waiting >= _MANY and message.command != "abort":
            raise Garbled(f"{message.command}, while {client.waiting} commands before it wait for their answers")
        call = Call(self.uplink, client, message, answer)
        try:
            if command is None:
                raise Refused("unknown_command")
            if not client.inside and message.command not in ("init", "abort"):
                raise Refused("not_initialized")
            command(self, call)
        except Refused as why:
            call.refuse(str(why))
        return not client.deaf

    def _broken(self, client: Client, text: str) -> None:
        client.deaf = True
        self.uplink.abort(client.rank, Abort(1, text, broken=True))

    # --- what both versions have

    def init(self, call: Call, version: str) -> None:
        """An MPI program begins; the rank's first, or the next one of a script."""
        client = call.client
        if client.inside:
            raise Garbled("init, though the MPI program before has not finalized")
        client.life = client.place.begin(client.number)
        client.inside = True
        client.reader.framed = version == "2"
        self.uplink.joined(client.rank, f"PMI-{version}")

    def finalize(self, call: Call) -> None:
        """It is done with MPI."""
        if call.client.waiting > 1:
            raise Refused("commands_are_waiting")
        call.client.inside = call.client.reader.framed = False
        call.done()
        self.uplink.left(call.client.rank)

    def abort(self, call: Call, code: str, text: str) -> None:
        """MPI_Abort."""
        call.close()
        call.client.deaf = True
        negative, digits = code.startswith("-"), code.lstrip("-")
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 1
        self.uplink.abort(call.client.rank, Abort(-value if negative else value, text[:VALUE]))

    def fence(self, call: Call, group: str) -> None:
        """The rank is in a barrier; the answer comes when all are."""
        client, place = call.client, call.client.place
        collective, tag = place.collective(client.number, client.life, group)
        waiting = self._waiting.setdefault((collective.op, collective.members), _Waiting(collective, place, {}))
        collective = waiting.collective
        if client.number in collective.inside:
            what = shown(f"{call.message.command} {group}".encode())
            raise Garbled(f"{what}, though it is in that barrier already")
        collective.inside.add(client.number)
        waiting.calls[client.number] = call, (("tag", tag),) if call.message.version == 1 else ()
        if len(collective.inside) < len(collective.here):
            self._give_up(waiting)
        elif collective.outside:
            blob = place.store(collective.life).packed(collective.members == (place.world.name,))
            self.uplink.gather(Gathering(collective.op, collective.members, blob))
        else:
            del self._waiting[collective.op, collective.members]
            self._release(waiting)

    @staticmethod
    def _release(waiting: _Waiting) -> None:
        for _, (call, pairs) in sorted(waiting.calls.items()):
            call.done(*pairs)

    def _give_up(self, waiting: _Waiting) -> None:
        """If a rank that has ended is waited for, that is an error."""
        collective, place = waiting.collective, waiting.place
        missing = sorted(place.ended & collective.here - collective.inside) if place.ended else []
        if missing and collective.inside and not collective.broken:
            collective.broken = True
            rank, first = (place.world.first + number for number in (missing[0], min(collective.inside)))
            text = f"rank {rank} has ended, and rank {first} waits for it in a barrier of PMI"
            self.uplink.abort(rank, Abort(1, text, broken=True))

    def wait(self, call: Call, key: str) -> None:
        """The rank waits for an attribute of the node that somebody here puts."""
        self._patient.append((call, key))
        self._look_for_the_last(call.client)

    def arrived(self, place: KeySpace, life: int, key: str, value: str) -> None:
        """An attribute of the node was put."""
        patient, self._patient = self._patient, []
        for call, wanted in patient:
            if (call.client.place, call.client.life, wanted) == (place, life, key):
                call.done(("found", "TRUE"), ("value", value))
            else:
                self._patient.append((call, wanted))

    def _look_for_the_last(self, client: Client) -> None:
        """If all others of the node have ended, nobody will put the attribute that some wait for."""
        place = client.place
        waiting = [call.client for call, _ in self._patient if call.client.place is place and not call.client.deaf]
        if waiting and {other.number for other in waiting} | place.ended >= place.here:
            text = f"rank {waiting[0].rank} waits for an attribute of its node, and no rank is left there to put it"
            self._broken(waiting[0], text)

    def name(self, call: Call, what: str, name: str, port: str | None = None, keys: tuple[str, ...] = ()) -> None:
        """Publish, look up or unpublish a name; `keys` are those that the answer has for what was found."""

        def done(answer: Answer) -> None:
            if answer.error or (keys and not answer.blobs):
                call.refuse(_word(answer.error or "missing"))
            else:
                found = answer.blobs[0].decode("utf-8", "surrogateescape") if keys else ""
                call.done(*((key, found) for key in keys))

        if max(len(name), len(port or "")) > _PORT:
            raise Refused("name_too_long")
        fields = {"family": ["pmi"], "from": [call.client.member], "names": [name]}
        if what == "lookup":
            fields["wait"] = []
        self.uplink.ask(what, fields, () if port is None else (port.encode("utf-8", "surrogateescape"),), done)

    def spawn(self, call: Call) -> None:
        """MPI_Comm_spawn and MPI_Comm_spawn_multiple."""
        programs, preput = pmi_wire.programs(call.message)
        total = sum(program.processes for program in programs)
        if total > _PROCESSES:
            raise Refused("too_many_processes")
        fields: dict[str, list[str]] = {
            "family": ["pmi"],
            "from": [call.client.member],
            "count": [str(len(programs))],
            "preput": preput,
        }
        for index, (argv, processes, info) in enumerate(programs):
            said = dict(zip(info[::2], info[1::2]))
            fields[f"argv.{index}"] = list(argv)
            fields[f"app.{index}"] = [str(processes), said.get("wdir", "")]
            fields[f"env.{index}"] = []
            fields[f"info.{index}"] = list(info)

        def done(answer: Answer) -> None:
            codes = ",".join([str(int(bool(answer.error)))] * total)
            pairs = [("errcodes", codes)] if total <= _ERRCODES else []
            if answer.error:
                call.refuse(_word(answer.error), *pairs)
            else:
                call.done(*(("jobid", name) for name in answer.fields.get("world", ())), *pairs)

        self.uplink.ask("spawn", fields, (), done)


def _word(error: str) -> str:
    """The word of an answer's error, for a client."""
    word = error.partition(":")[0][:KEY]
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in word) or "refused"
