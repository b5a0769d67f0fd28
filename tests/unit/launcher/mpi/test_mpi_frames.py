"""Frames of MPI programs become events, notices and answers, and nothing that an agent sends breaks the launcher."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_plan import World
from mslaunch.errors import WireError
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.messages.notices import notice_text
from mslaunch.launcher.mpi import mpi_frames as events
from mslaunch.launcher.mpi.mpi_frames import MpiFrames, RunningJob
from mslaunch.protocol import frames
from mslaunch.protocol.control import pack_record
from mslaunch.protocol.mpi import (
    Abort,
    Alone,
    Answer,
    Gathering,
    Question,
    pack_abort,
    pack_with_blobs,
    unpack_part,
    unpack_with_blobs,
)

LIBRARY = "/opt/lib/libmpi.so.40"


class Refusing:
    """A spawner without slots."""

    def spawn(self, node: int, question: Question, done: Any) -> None:
        done(Answer(0, "slots:none"))

    def settled(self, number: int, error: str) -> None:
        raise AssertionError(number)


class Agents:
    """The agents of two hosts, with two ranks of world 7 each; they only receive."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, frames.Frame]] = []
        self.events: list[Any] = []
        self.notices: list[str] = []
        nodes = tuple(Node(f"n{number}", 2, "-H") for number in range(2))
        self.state = JobState(JobMap(nodes, tuple(Placement(rank, 0, rank // 2, rank % 2) for rank in range(4)), 4))
        table = self.state.table
        job = RunningJob(
            table.hosts, table.names, table.running, table.in_mpi, lambda: [], lambda: False, self._send,
            lambda node: False, lambda node, call: None, self.events.append, self._notify, lambda agent: 0,
            lambda world, nodes, mpi: None,
        )  # fmt: skip
        self.mpi = MpiFrames(job, lambda job: Refusing())
        self.mpi.add_world(World("7", 0, ("n0", "n1"), ((0, 1), (2, 3)), sizes=(4,)))

    def _send(self, node: int, *pieces: bytes) -> None:
        (whole,) = frames.Decoder().feed(b"".join(pieces))
        self.sent.append((node, whole))

    def _notify(self, kind: str, facts: Any) -> None:
        self.notices.append(notice_text(kind, facts, self.state.table.names, self.state.table.hosts))

    def say(self, node: int, kind: int, rank: int = frames.NO_RANK, payload: bytes = b"") -> None:
        self.mpi.on_frame(node, frames.Frame(kind, rank, payload))


def alone(family: str, certain: bool, offered: str) -> bytes:
    return pack_record(Alone(LIBRARY, family, certain, offered))


def test_frames_of_ranks_become_events() -> None:
    agents = Agents()
    agents.say(0, frames.JOINED, 1, b"PMI-1")
    agents.say(0, frames.LEFT, 1)
    agents.say(1, frames.ABORT, 3, pack_abort(Abort(7, "why", False)))
    agents.say(1, frames.ALONE, 2, alone("Open MPI", True, "pmi"))
    assert agents.events == [
        events.Joined(1), events.Left(1), events.Aborted(3, 7, "why"),
        events.CameAlone(2, LIBRARY, "Open MPI", "pmi"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "offered", "notices"),
    [("Open MPI", "pmi", 1), ("MPICH", "pmix", 1), ("Open MPI", "pmix", 0), ("MPICH", "pmi", 0), ("MPICH", "none", 0)],
)
def test_an_unexpected_library_is_mentioned_once(family: str, offered: str, notices: int) -> None:
    agents = Agents()
    for rank in range(4):
        agents.say(rank // 2, frames.ALONE, rank, alone(family, False, offered))
    assert agents.events == [] and len(agents.notices) == notices
    if notices:
        head = f"rank 0 has loaded {family} ({LIBRARY}), which was not expected; if it comes up alone, "
        assert agents.notices[0].startswith(head)


def test_two_ranks_with_a_lone_horovod_are_an_error() -> None:
    """One may be meant to be alone: the first of several programs, or a rank that evaluates what others train."""
    agents = Agents()
    for rank, certain in ((3, False), (3, True), (3, True), (1, False)):
        agents.say(rank // 2, frames.ALONE, rank, alone("Horovod", certain, "pmix"))
    assert agents.events == [] and agents.notices == []
    agents.say(0, frames.ALONE, 1, alone("Horovod", True, "pmi"))
    assert agents.events == [events.CameAlone(1, LIBRARY, "Horovod", "pmi")]


def test_a_host_that_names_many_libraries_is_not_quoted_for_ever() -> None:
    agents = Agents()
    for number in range(100):
        agents.say(0, frames.ALONE, 0, pack_record(Alone(f"/lib{number}", "Open MPI", False, "pmi")))
    assert len(agents.notices) == 16


def test_a_missing_rank_is_named_by_its_number_in_frames() -> None:
    """A spawned world counts from its first."""
    agents = Agents()
    assert agents.state.table.add_world([0, 1]) == 4
    agents.mpi.add_world(World("8", 4, ("n0", "n1"), ((0,), (1,)), sizes=(2,), parent="7.0"))
    agents.say(0, frames.GATHER, payload=pack_with_blobs(Gathering("fence", ("8",))))
    agents.mpi.ended(3)
    assert agents.events == []
    agents.mpi.ended(5)
    assert agents.events == [events.Stranded(5)]


def test_a_rank_of_no_world_is_nobodys() -> None:
    agents = Agents()
    agents.say(0, frames.GATHER, payload=pack_with_blobs(Gathering("fence", ("7",))))
    agents.mpi.ended(4)
    assert agents.events == []


def test_parts_are_sent_on_request() -> None:
    agents = Agents()
    agents.say(1, frames.NEED, payload=b"agent.mpi.pmi.pmi_server")
    ((node, frame),) = agents.sent
    assert node == 1 and frame.kind == frames.PART
    sources = unpack_part(frame.payload)
    assert all(name.startswith("mslaunch.") for name in sources)
    assert {name for name, source in sources.items() if not source} == {"mslaunch.agent.mpi.pmi"}, "its package"
    with pytest.raises(WireError, match="a part that it has"):
        agents.say(1, frames.NEED, payload=b"agent.mpi.pmi.pmi_server")
    agents.say(0, frames.NEED, payload=b"agent.mpi.pmi.pmi_server")
    for name in (b"", b"../pmi", b"\xff"):
        with pytest.raises(WireError, match="a part that there is not"):
            agents.say(1, frames.NEED, payload=name)


def test_requests_are_answered_to_their_sender() -> None:
    agents = Agents()
    agents.say(1, frames.ASK, payload=pack_with_blobs(Question(5, "spawn", {"family": ["pmi"], "from": ["7.2"]})))
    agents.say(1, frames.ASK, payload=pack_with_blobs(Question(7, "modex", {"family": ["pmi"], "of": ["7.0"]})))
    agents.mpi.lost(0)
    answers = [
        (node, unpack_with_blobs(Answer, frame.payload)) for node, frame in agents.sent if frame.kind == frames.ANSWER
    ]
    assert answers == [(1, Answer(5, "slots:none")), (1, Answer(7, "missing:the host was lost"))]


def test_a_host_lost_before_the_first_collective_is_missing_in_it() -> None:
    agents = Agents()
    agents.mpi.lost(0)
    agents.say(1, frames.ASK, payload=pack_with_blobs(Question(7, "modex", {"family": ["pmi"], "of": ["7.0"]})))
    answers = [
        (node, unpack_with_blobs(Answer, frame.payload)) for node, frame in agents.sent if frame.kind == frames.ANSWER
    ]
    assert answers == [(1, Answer(7, "missing:7.0, whose host was lost"))]


def test_a_collective_larger_than_a_frame_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.launcher.mpi.collectives._LARGEST", 3)
    agents = Agents()
    agents.say(0, frames.GATHER, payload=pack_with_blobs(Gathering("fence", ("7",), (b"four",))))
    (event,) = agents.events
    assert isinstance(event, events.Impossible)


@given(st.sampled_from(frames.OF_MPI), st.integers(-1, 3), st.binary(max_size=200))
def test_garbage_is_a_wire_error(kind: int, rank: int, payload: bytes) -> None:
    agents = Agents()
    try:
        agents.say(0, kind, rank, payload)
    except WireError:
        pass
    assert len(agents.events) + len(agents.notices) <= 1
