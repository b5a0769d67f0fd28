"""Several nodes with PMI engines and a fake launcher: collectives go from one to the other at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mslaunch.agent.mpi.pmi import pmi1, pmi2
from mslaunch.agent.mpi.pmi.pmi_server import PmiServer
from mslaunch.datamodel.node_plan import World
from mslaunch.protocol.mpi import Abort, Answer, Gathering, Released


class Ear:
    """Records the messages of one node's engine."""

    def __init__(self, job: Job, node: int) -> None:
        self.job = job
        self.node = node
        self.gathered = 0

    def reply(self, rank: int, data: bytes) -> None:
        self.job.replies.setdefault(rank, []).append(data)

    def gather(self, part: Gathering) -> None:
        self.gathered += 1
        self.job.gather(self.node, part)

    def ask(
        self,
        what: str,
        fields: Mapping[str, Sequence[str]],
        blobs: tuple[bytes, ...],
        done: Callable[[Answer], None],
    ) -> None:
        self.job.asked.append((what, {key: list(values) for key, values in fields.items()}, blobs))
        self.job.open.append(done)

    def ask_spawn(self, rank: int, fields: Mapping[str, Sequence[str]], done: Callable[[Answer], None]) -> None:
        self.ask("spawn", fields, (), done)

    def joined(self, rank: int, protocol: str) -> None:
        self.job.said.append(f"{rank} joined {protocol}")

    def left(self, rank: int) -> None:
        self.job.said.append(f"{rank} left")

    def abort(self, rank: int, abort: Abort) -> None:
        self.job.aborts.append((rank, abort))


class Job:
    """The engines of some nodes, and their messages."""

    def __init__(self, *ranks: Sequence[int], name: str = "77", first: int = 0, **said: object) -> None:
        """`ranks`: of each node."""
        self.replies: dict[int, list[bytes]] = {}
        self.asked: list[tuple[str, dict[str, list[str]], tuple[bytes, ...]]] = []
        self.open: list[Callable[[Answer], None]] = []
        self.said: list[str] = []
        self.aborts: list[tuple[int, Abort]] = []
        self.parts: dict[tuple[str, tuple[str, ...]], dict[int, bytes]] = {}
        self.first = first
        size = sum(map(len, ranks))
        self.ears = [Ear(self, node) for node in range(len(ranks))]
        commands = {"pmi1": pmi1.COMMANDS, "pmi2": pmi2.COMMANDS}
        self.nodes = [PmiServer(ear, commands) for ear in self.ears]
        self.node_of = {first + rank: node for node, here in enumerate(ranks) for rank in here}
        self.node_of_rank = {rank: node for node, here in enumerate(ranks) for rank in here}
        hosts = tuple(f"n{node}" for node in range(len(ranks)))
        self.world = World(name, first, hosts, tuple(map(tuple, ranks)), sizes=(size,), slots=8)._replace(**said)
        for node, engine in enumerate(self.nodes):
            engine.add(self.world._replace(here=node))

    def gather(self, node: int, part: Gathering) -> None:
        parts = self.parts.setdefault((part.op, part.members), {})
        assert node not in parts, "one part a node"
        parts[node] = b"".join(part.blobs)
        ranks = [int(member.partition(".")[2]) for member in part.members if "." in member]
        wanted = {self.node_of_rank[rank] for rank in ranks} or set(self.node_of_rank.values())
        if set(parts) == wanted:
            del self.parts[part.op, part.members]
            whole = Released(part.op, part.members, tuple(blob for _, blob in sorted(parts.items())))
            for each in sorted(wanted):
                self.nodes[each].released(whole)

    def send(self, rank: int, data: bytes) -> bytes:
        """The reply to `data` of `rank`."""
        before = len(self.replies.get(rank, []))
        self.nodes[self.node_of[rank]].feed(rank, data)
        return b"".join(self.replies.get(rank, [])[before:])

    def say(self, rank: int, text: str) -> str:
        """The same for one line of PMI-1."""
        return self.send(rank, text.encode() + b"\n").decode().rstrip("\n")

    def say2(self, rank: int, text: str) -> str:
        """The same for a message of PMI-2, without the lengths; several answers are separated by a blank."""
        return _bodies(self.send(rank, b"%-6d" % len(text.encode()) + text.encode()))

    def begin(self, *ranks: int) -> None:
        for rank in ranks or self.node_of:
            assert self.say(rank, "cmd=init pmi_version=1 pmi_subversion=1").startswith("cmd=response_to_init rc=0 ")

    def begin2(self, *ranks: int) -> None:
        for rank in ranks or self.node_of:
            assert self.say(rank, "cmd=init pmi_version=2 pmi_subversion=0").startswith("cmd=response_to_init rc=0 ")

    def end(self, rank: int) -> None:
        """The process of `rank` has ended."""
        engine = self.nodes[self.node_of[rank]]
        engine.feed(rank, b"")
        engine.ended(rank)

    def last(self, rank: int) -> str:
        return self.replies[rank][-1].decode().strip()


def _bodies(data: bytes) -> str:
    found = []
    while data:
        size = int(data[:6])
        found.append(data[6 : 6 + size].decode())
        data = data[6 + size :]
    return " ".join(found)
