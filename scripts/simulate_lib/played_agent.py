"""One played agent: what an agent says on its link, frame by frame, without a process, a rank or a clock of its own.

It speaks with the modules of the real protocol.  Only what it would find out about its host is made up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mslaunch.datamodel.node_report import ExitStatus, Topology
from mslaunch.errors import WireError
from mslaunch.protocol import codec, control, frames
from mslaunch.protocol.call_proof import bytecode
from mslaunch.protocol.mpi import Gathering, Released, pack_with_blobs, unpack_with_blobs
from mslaunch.protocol.program_request import ASKS

CORES = 8
LAUNCHER = "192.0.2.1"  # as the hosts see it
EXITED = control.pack_record(ExitStatus(code=0))
ENDED = control.pack_record(ExitStatus(signal=15, asked=True))
PORT = 20000
_EACH, _ONE = tuple(range(CORES)), (0,) * CORES
#: a socket with eight cores
TOPOLOGY = Topology(_EACH, (_EACH, _EACH, _EACH, _EACH, _ONE, _ONE, _ONE, _ONE), (0,))
_TOPOLOGY = control.pack_topology(TOPOLOGY)


class Traits(NamedTuple):
    """What is special about some hosts; an index counts the hosts from 0."""

    late_each: int = 0  # every so many hosts, one answers late; 0: none
    late: float = 0.0  # seconds
    refuse_each: int = 0  # every so many hosts, one refuses the connection
    silent: int = -1  # the host that never answers
    dies: int = -1  # the host whose link breaks when it is told to
    lines: int = 0  # that each rank prints when it is told to
    check_each: int = 1000  # every so many agents, one reads the keys of a fence, as a real one would

    def is_late(self, index: int) -> bool:
        return bool(self.late_each) and index % self.late_each == self.late_each - 1

    def refuses(self, index: int) -> bool:
        return bool(self.refuse_each) and index % self.refuse_each == self.refuse_each - 1


def address_of(index: int) -> str:
    """An address of its own for each of 16 million hosts."""
    return f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}"


def key_of(rank: int) -> str:
    return f"bc-{rank}"


def value_of(rank: int) -> str:
    """Some 30 bytes, what a rank of MPICH puts in MPI_Init over TCP."""
    return f"description#node{rank}$port#{PORT}$"


def line_of(rank: int, number: int) -> bytes:
    return b"rank %d prints line %d, of the length that lines of a log have, more or less\n" % (rank, number)


class PlayedAgent:
    """The agent of the host `index`; `send(bytes)` writes to its link."""

    __slots__ = (
        "_decoder", "_described", "_program_left", "_send", "_traits", "ended", "fences", "found", "greeted", "index",
        "launched", "ranks", "world",
    )  # fmt: skip

    def __init__(self, index: int, program: int, traits: Traits, send: Callable[[bytes], None]) -> None:
        """`program`: the bytes that come first, once it has asked for them."""
        self.index = index
        self._traits = traits
        self._send = send
        self._program_left = program
        self._decoder = frames.Decoder(frames.DOWN)
        self._described = self.greeted = False
        self.ranks: list[int] = []
        self.world = ""
        self.launched = self.ended = False
        self.fences = 0  # that are complete
        self.found = 0  # keys that were looked up, and had the value that they should

    def ask(self) -> None:
        """An interpreter runs, and asks for the agent's program; not on the host that never answers."""
        if self._traits.silent != self.index:
            self._send(b"\0%s%s\n" % (ASKS.encode(), bytecode().encode()))

    def hello(self) -> None:
        """The interpreter runs the agent."""
        pid = 1000 + self.index
        found = control.Hello(
            f"host{self.index}",
            pid,
            CORES,
            CORES,
            "3.11.7",
            (address_of(self.index),),
            LAUNCHER,
            f"/tmp/mslaunch-{pid}",
        )
        said = frames.MAGIC + frames.encode(frames.HELLO, payload=control.pack_record(found))
        if self._described:
            said += frames.encode(frames.TOPOLOGY, payload=_TOPOLOGY)
        self.greeted = True
        self._send(said)

    def feed(self, data: bytes) -> None:
        """Bytes from the launcher; raises WireError for what is none of its frames."""
        if self._program_left:
            taken = min(self._program_left, len(data))
            self._program_left -= taken
            data = data[taken:]
        for frame in self._decoder.feed(data):
            self._receive(frame)
        if not (self._program_left or self.greeted or self._silent):
            self.hello()

    @property
    def _silent(self) -> bool:
        """It does not answer, or not yet."""
        return self._traits.silent == self.index or self._traits.is_late(self.index)

    def _receive(self, frame: frames.Frame) -> None:
        if frame.kind == frames.LEASE:
            if not frame.payload:
                self._send(frames.encode(frames.ALIVE))
        elif frame.kind == frames.DESCRIBE:
            self._describe()
        elif frame.kind == frames.RESERVE:
            count = len(control.unpack_ports(frame.payload))
            held = control.Reserved(tuple(range(PORT, PORT + count)), PORT - 1, "token")
            self._send(frames.encode(frames.RESERVED, payload=control.pack_record(held)))
        elif frame.kind == frames.PROBE:
            probe = control.unpack_record(control.Probe, frame.payload)
            mine = tuple(address for address in probe.addresses if address != LAUNCHER)
            self._send(frames.encode(frames.REACHED, payload=control.pack_record(control.Reached(mine))))
        elif frame.kind == frames.ROOM:
            self._send(frames.encode(frames.FITS, payload=frame.payload.partition(b" ")[0]))
        elif frame.kind == frames.LAUNCH:
            self._launch(frame.payload)
        elif frame.kind == frames.RELEASE:
            self._released(frame.payload)
        elif frame.kind == frames.END:
            self.end(ENDED)
        elif frame.kind == frames.CLEANUP:
            self._send(frames.encode(frames.CLEANED, payload=b"0"))
        elif frame.kind not in (frames.PART, frames.PAUSE, frames.RESUME):
            raise WireError(f"the played agents have no answer to a frame of kind {frame.kind}")

    def _describe(self) -> None:
        """It comes right behind the bootstrap."""
        self._described = True
        if self.greeted:
            self._send(frames.encode(frames.TOPOLOGY, payload=_TOPOLOGY))

    def _launch(self, payload: bytes) -> None:
        """LAUNCH: all ranks run at once.  Only what is needed here is made of the plan."""
        fields = codec.unpack(payload, len(payload) + 1)
        self.ranks = [int(word) for word in fields["ranks"]]
        (self.world,) = fields["world.name"]
        self.launched = True
        self._send(b"".join(frames.encode(frames.STARTED, rank, b"%d" % (50000 + rank)) for rank in self.ranks))

    # --- what ranks do, when they are told to

    def fence(self) -> None:
        """The first rank of the node calls PMI_Init, puts a value, and waits in a fence of all."""
        rank = self.ranks[0]
        blob = codec.pack({key_of(rank): [value_of(rank)]})
        part = pack_with_blobs(Gathering("pmi fence", (self.world,), (blob,)))
        joined = b"".join(frames.encode(frames.JOINED, each, b"pmi") for each in self.ranks)
        self._send(joined + frames.encode(frames.GATHER, payload=part))

    def _released(self, payload: bytes) -> None:
        self.fences += 1
        if self.index % self._traits.check_each:
            return
        whole = unpack_with_blobs(Released, payload)
        values = {key: value for blob in whole.blobs for key, (value,) in codec.unpack(blob).items()}
        wanted = self.ranks[0]
        neighbour = next((rank for rank in (wanted + len(self.ranks), 0) if key_of(rank) in values), -1)
        if values.get(key_of(neighbour)) != value_of(neighbour):
            raise WireError(f"the fence has not brought the value of the neighbour of rank {wanted}")
        self.found += 1

    def print(self) -> None:
        """Each rank prints its lines, as its buffer would send them: together."""
        lines = self._traits.lines
        for rank in self.ranks:
            self._send(frames.encode(frames.STDOUT, rank, b"".join(line_of(rank, number) for number in range(lines))))

    def end(self, status: bytes = EXITED) -> None:
        """All ranks end; those that were in MPI finalize before that, unless they are ended."""
        if self.ended or not self.launched:
            return
        self.ended = True
        left = self.fences and status == EXITED
        said = []
        for rank in self.ranks:
            said += [frames.encode(frames.LEFT, rank)] if left else []
            said += [frames.encode(kind, rank) for kind in (frames.STDOUT, frames.STDERR)]
            said += [frames.encode(frames.EXIT, rank, status)]
        self._send(b"".join(said))
