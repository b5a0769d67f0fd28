"""A frame is about its node or a process there: an agent cannot speak for the ranks of another host, by any kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from histories import make_state
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import Endpoint, JobMap, Node, Placement
from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan, ServicePlan, World
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import WireError
from mslaunch.launcher.agents.connection import OF_NODE, SUBJECTS
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.events import Started
from mslaunch.launcher.job.job_actions import JobAgents
from mslaunch.launcher.job.startup import JobPlans
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.output import Output
from mslaunch.launcher.stdio.terminal import Console, OutputFd
from mslaunch.protocol import control, frames
from mslaunch.protocol.mpi import Abort, Alone, Answer, Gathering, Question, pack_abort, pack_with_blobs
from mslaunch.protocol.store_messages import PUT, StoreMessage
from mslaunch.runtime.loop import Loop

NO_RANK = frames.NO_RANK
NAMES = {value for name, value in vars(frames).items() if name.isupper() and isinstance(value, int)}
UP = sorted(kind for kind in NAMES if frames.HELLO <= kind < 128)
#: two ranks: 0 on node 0, 1 on node 1; the service is on node 0; 2 and 3 were spawned, on node 1 and node 0
ELSEWHERE = {0: (1, 2), 1: (0, 3, SERVICE)}
#: kind -> a payload that is well formed; a kind that is added needs one here, and a row in SUBJECTS
PAYLOADS = {
    frames.HELLO: control.pack_record(control.Hello("n", 1, 1, 1, "3.9", ("::1",))),
    frames.RESERVED: control.pack_record(control.Reserved((5,), 6, "t")),
    frames.REACHED: control.pack_record(control.Reached(("::1",))),
    frames.STARTED: b"77",
    frames.STDOUT: b"loss=0\n",
    frames.STDERR: b"",
    frames.EXIT: control.pack_record(ExitStatus(0)),
    frames.STDIN_TAKEN: b"0",
    frames.FAULT: b"Traceback",
    frames.TRACES: control.pack_record(control.StackTrace(1, "x", "gdb", "#0")),
    frames.STORED: control.pack_record(control.Stored()),
    frames.TOPOLOGY: b"",
    frames.NEED: b"agent.mpi.pmi.pmi_server",
    frames.JOINED: b"PMI-1",
    frames.LEFT: b"",
    frames.ABORT: pack_abort(Abort(7)),
    frames.ALONE: control.pack_record(Alone("/lib", "MPICH", True, "none")),
    frames.GATHER: pack_with_blobs(Gathering("fence", ("7.0", "7.1"))),
    frames.ASK: pack_with_blobs(Question(1, "lookup", {"family": ["pmi"], "from": ["7.1"], "names": ["a"]})),
    frames.REPLY: pack_with_blobs(Answer(1)),
    frames.SERVES: b"",
    frames.NOTICE: b"a port was taken",
    frames.ENDING: b"",
    frames.CLEANED: b"0",
    frames.FITS: b"",
    frames.ALIVE: b"",
    frames.HOLDERS: b"",
    frames.CHECKED: b"host\n",
    frames.USED: b"",
    frames.WRITE: StoreMessage(PUT, 1, "global/0", b"x").pack(),
}


class Agent:
    """A connection; `say` sends a frame as its agent."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.hello = control.Hello(node.name, 1, 2, 2, "3.9", ("127.0.0.1",))
        self.sent: list[int] = []
        self.pending, self.behind = 0, ()

    def attach(self, on_end: Callable[[Any], None], on_frame: Callable[[frames.Frame], None]) -> None:
        self.say = lambda kind, rank, payload=b"": on_frame(frames.Frame(kind, rank, payload))

    def send(self, *pieces: bytes) -> None:
        self.sent += [one.kind for one in frames.Decoder(frames.DOWN).feed(b"".join(pieces))]


class Spawner:
    """Spawns nothing."""

    def spawn(self, node: int, question: Question, done: Callable[[Answer], None]) -> None:
        done(Answer(0, "start"))

    def settled(self, number: int, error: str) -> None:
        pass


class TwoHosts:
    """A job of two hosts, whose ranks run."""

    def __init__(self, loop: Loop) -> None:
        nodes = (Node("n0", 2, "-H", local=True), Node("n1", 2, "-H"))
        self.agents = [Agent(node) for node in nodes]
        self.state = make_state(JobMap(nodes, (Placement(0, 0, 0, 0), Placement(1, 0, 1, 0)), 4), max_restarts=2)
        out, self._said = os.pipe(), os.pipe()
        self.console = Console(loop, self._said[1], quiet=False, verbose=False)
        terminals = {frames.STDOUT: OutputFd(loop, out[1], "out", self.console.info)}
        terminals[frames.STDERR] = self.console.stderr
        output = Output(OutputPolicy(), PatternValues([("n0", 0), ("n1", 1)]), terminals, self.console.info)
        agents: Any = self.agents
        self.job = JobController(
            loop, JobAgents(agents), self.state, output, JobPlans(self._plans), (0, ()), self.console
        )
        self._fds, self._terminals = (*out, *self._said), terminals.values()
        self.agents[0].say(frames.RESERVED, NO_RANK, control.pack_record(control.Reserved((5, 8, 6), 7, "t")))
        self.agents[1].say(frames.REACHED, NO_RANK, control.pack_record(control.Reached(("127.0.0.1",))))
        for node in (0, 1):
            self.agents[node].say(frames.STARTED, node, b"100")
        self.job._mpi._spawner = Spawner()
        assert self.state.table.add_world([1, 0]) == 2
        self.job._mpi.add_world(World("8", 2, ("n0", "n1"), ((1,), (0,)), sizes=(2,)))
        for rank, node in ((2, 1), (3, 0)):
            self.job.post(Started(rank, 200, node))

    def _plans(self, endpoint: Endpoint) -> list[NodePlan]:
        app, world = AppPlan(("x",), "/"), World("7", 0, ("n0", "n1"), ((0,), (1,)), sizes=(2,))
        service = ServicePlan(6, (), SERVICE)
        return [
            NodePlan((RankPlan(0, 0, ()),), (app,), (), world=world, services=(service,)),  # type: ignore[arg-type]
            NodePlan((RankPlan(1, 0, ()),), (app,), (), world=world),  # type: ignore[arg-type]
        ]

    def facts(self) -> object:
        """All that is known of the ranks."""
        ranks = [*self.state.table.ranks.values(), *self.state.table.services.members.values()]
        return [(rank.pid, rank.ended, rank.streams, rank.in_mpi, rank.aborted, rank.status) for rank in ranks]

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def two() -> Iterator[TwoHosts]:
    with Loop() as loop:
        job = TwoHosts(loop)
        yield job
        job.close()


def test_every_kind_has_a_row() -> None:
    assert set(SUBJECTS) == set(PAYLOADS) == set(UP)


@pytest.mark.parametrize("kind", UP)
@pytest.mark.parametrize("node", [0, 1])
def test_no_frame_is_taken_about_a_process_of_another_host(two: TwoHosts, kind: int, node: int) -> None:
    """Nor about one that there is not: ranks, spawned ranks, services."""
    before = two.facts()
    for number in (*ELSEWHERE[node], 99, SERVICE - 1):
        with pytest.raises(WireError, match=f"of kind {kind}"):
            two.agents[node].say(kind, number, PAYLOADS[kind])
    if not SUBJECTS[kind] & OF_NODE:
        with pytest.raises(WireError, match=f"of kind {kind}"):
            two.agents[node].say(kind, NO_RANK, PAYLOADS[kind])
    assert two.facts() == before and two.state.failure is None


@pytest.mark.parametrize("kind", [kind for kind in UP if SUBJECTS[kind] == OF_NODE])
def test_a_frame_of_a_node_is_about_no_process(two: TwoHosts, kind: int) -> None:
    for number in (1, 2):
        with pytest.raises(WireError, match=f"of kind {kind}"):
            two.agents[1].say(kind, number, PAYLOADS[kind])


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("publish", {"from": ["7.0"], "names": []}),
        ("lookup", {"from": ["7.0"], "names": []}),
        ("unpublish", {"from": ["8.1"], "names": []}),
        ("spawn", {"from": ["7.0"]}),
    ],
)
def test_members_in_a_payload_are_of_the_node_too(two: TwoHosts, what: str, fields: dict[str, list[str]]) -> None:
    question = pack_with_blobs(Question(1, what, {"family": ["pmi"], **fields}))
    with pytest.raises(WireError, match="a rank that it does not run"):
        two.agents[1].say(frames.ASK, NO_RANK, question)
    with pytest.raises(WireError, match="it has no member"):
        two.agents[1].say(frames.GATHER, NO_RANK, pack_with_blobs(Gathering("fence", ("7.0",))))
    with pytest.raises(WireError, match="nobody asked"):
        two.agents[1].say(frames.REPLY, NO_RANK, PAYLOADS[frames.REPLY])


def test_late_frames_of_a_restarted_rank_are_taken(two: TwoHosts) -> None:
    """Its node is the same: a rank that is started again stays where it is, or all begin anew with other links."""
    say = two.agents[1].say
    say(frames.EXIT, 1, control.pack_record(ExitStatus(3)))
    assert two.agents[1].sent[-1] == frames.RESTART
    say(frames.STDOUT, 1, b"the last words of the process before\n")
    say(frames.STDIN_TAKEN, 1, b"0")
    say(frames.STDOUT, 1)
    say(frames.STDERR, 1)
    say(frames.STARTED, 1, b"101")
    with pytest.raises(WireError):
        say(frames.STARTED, 1, b"102")
    assert two.state.table.ranks[1].pid == 101


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (frames.STARTED, b"0"), (frames.STARTED, b"9" * 30), (frames.STARTED, b"5"),
        (frames.STDIN_TAKEN, b"-1"), (frames.EXIT, control.pack_record(ExitStatus(256))),
        (frames.EXIT, control.pack_record(ExitStatus(-1))), (frames.EXIT, control.pack_record(ExitStatus(None, 999))),
        (frames.EXIT, control.pack_record(ExitStatus(1, None, "not started"))),
        (frames.ABORT, pack_abort(Abort(1 << 40))),
        (frames.TRACES, PAYLOADS[frames.TRACES]),
    ],
    ids=repr,
)  # fmt: skip
def test_what_no_process_does_is_refused(two: TwoHosts, kind: int, payload: bytes) -> None:
    two.state.table.ranks[1].used_mpi = True
    with pytest.raises(WireError):
        two.agents[1].say(kind, 1, payload)
    assert two.state.failure is None


def test_a_process_ends_once(two: TwoHosts) -> None:
    two.agents[1].say(frames.EXIT, 1, PAYLOADS[frames.EXIT])
    with pytest.raises(WireError):
        two.agents[1].say(frames.EXIT, 1, PAYLOADS[frames.EXIT])


def test_ports_are_reserved_once(two: TwoHosts) -> None:
    """Or all ranks would be started once more."""
    launches = two.agents[1].sent.count(frames.LAUNCH)
    for node in (0, 1):
        for ports in ((), (5, 8, 6)):
            with pytest.raises(WireError):
                two.agents[node].say(frames.RESERVED, NO_RANK, control.pack_record(control.Reserved(ports, 7, "t")))
    assert two.agents[1].sent.count(frames.LAUNCH) == launches == 1


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(UP), st.integers(-4, 4), st.booleans() | st.binary(max_size=20)), max_size=8))
def test_no_sequence_of_frames_breaks_the_launcher(said: list[tuple[int, int, bool | bytes]]) -> None:
    """Each is taken, or a WireError; and the rank of the other host is as before."""
    with Loop() as loop:
        two = TwoHosts(loop)
        other = two.state.table.ranks[0]
        for kind, number, payload in said:
            try:
                two.agents[1].say(kind, number, payload if isinstance(payload, bytes) else PAYLOADS[kind])
            except WireError:
                break
        assert (other.pid, other.ended, other.streams, other.in_mpi, other.aborted) == (100, False, 2, False, False)
        two.close()
