"""Collectives complete once and in order, names are found, and answers reach the node that asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.launcher.mpi.collectives import Collectives
from mslaunch.protocol import frames
from mslaunch.protocol.mpi import Answer, Gathering, Question, Released, pack_with_blobs, unpack_with_blobs


class Nodes:
    """Agents that only listen."""

    def __init__(self, **worlds: list[int]) -> None:
        self.sent: list[tuple[int, frames.Frame]] = []
        self.stranded: list[tuple[str, int]] = []
        self.too_large: list[int] = []
        self.full: set[int] = set()  # nodes that read nothing
        self.rooms: list[tuple[int, Callable[[], None]]] = []  # what is called once a node has room
        self.worlds = worlds
        self.spawned: list[tuple[Question, Callable[[Answer], None]]] = []
        self.exchange = Collectives(
            self._send,
            lambda node: node in self.full,
            lambda node, call: self.rooms.append((node, call)),
            lambda node, question, done: self.spawned.append((question, done)),
            lambda world, rank: self.stranded.append((world, rank)),
            self.too_large.append,
        )
        for name, nodes in worlds.items():
            self.exchange.add_world(name[1:], nodes)

    def _send(self, node: int, *pieces: bytes) -> None:
        (whole,) = frames.Decoder().feed(b"".join(pieces))
        self.sent.append((node, whole))

    def gather(self, node: int, *members: str, blob: bytes = b"", op: str = "fence") -> None:
        self.exchange.gathered(node, pack_with_blobs(Gathering(op, members, (blob,))))

    def ask(self, node: int, number: int, what: str, **fields: object) -> None:
        blobs = tuple(fields.pop("blobs", ()))  # type: ignore[arg-type]
        words = {name: list(value) for name, value in fields.items()}  # type: ignore[call-overload]
        if what != "modex" and "from" not in words and node in self.worlds["w7"]:
            words["from"] = [f"7.{self.worlds['w7'].index(node)}"]
        self.exchange.asked(node, pack_with_blobs(Question(number, what, {"family": ["pmi"], **words}, blobs)))

    def heard(self) -> list[tuple[int, Released | Answer | Question]]:
        """The frames that were sent; fails if one was sent twice."""
        read = {
            frames.RELEASE: partial(unpack_with_blobs, Released),
            frames.ANSWER: partial(unpack_with_blobs, Answer),
            frames.QUESTION: partial(unpack_with_blobs, Question),
        }
        sent, self.sent = self.sent, []
        return [(node, read[frame.kind](frame.payload)) for node, frame in sent]


def test_a_fence_is_released_when_every_node_is_in_with_all_blobs_in_the_order_of_nodes() -> None:
    nodes = Nodes(w7=[2, 0, 2])
    nodes.gather(2, "7", blob=b"two")
    assert nodes.heard() == []
    nodes.gather(0, "7", blob=b"nought")
    whole = Released("fence", ("7",), (b"nought", b"two"))
    assert nodes.heard() == [(0, whole), (2, whole)]


def test_only_the_nodes_of_members_are_waited_for() -> None:
    nodes = Nodes(w7=[0, 1, 2])
    nodes.gather(1, "7.1", "7.2")
    nodes.gather(2, "7.1", "7.2")
    assert [node for node, _ in nodes.heard()] == [1, 2]


def test_a_node_may_be_a_fence_ahead() -> None:
    nodes = Nodes(w7=[0, 1])
    for blob in (b"a", b"b"):
        nodes.gather(0, "7", blob=blob)
    for blob in (b"A", b"B"):
        nodes.gather(1, "7", blob=blob)
    blobs = [whole.blobs for node, whole in nodes.heard() if node == 0]  # type: ignore[union-attr]
    assert blobs == [(b"a", b"A"), (b"b", b"B")]


@settings(max_examples=100, deadline=None)
@given(st.permutations([(node, turn) for node in range(3) for turn in range(4)]))
def test_the_nth_parts_of_nodes_belong_together_in_any_order(order: list[tuple[int, int]]) -> None:
    nodes = Nodes(w7=[0, 1, 2])
    turns = [0, 0, 0]
    for node, _ in order:
        nodes.gather(node, "7", blob=b"%d.%d" % (node, turns[node]))
        turns[node] += 1
    found = [whole.blobs for node, whole in nodes.heard() if node == 1]  # type: ignore[union-attr]
    assert found == [tuple(b"%d.%d" % (node, turn) for node in range(3)) for turn in range(4)]


@pytest.mark.parametrize("member", ["7.²", "8", "7.2", "7.x", "", "7.", "7.01", "7.00", "7." + "9" * 5000])
def test_an_unknown_rank_violates_the_protocol(member: str) -> None:
    nodes = Nodes(w7=[0, 1])
    with pytest.raises(WireError):
        nodes.gather(0, "7", member)


def test_a_collective_without_a_member_of_the_node_violates_the_protocol() -> None:
    with pytest.raises(WireError):
        Nodes(w7=[0, 1]).gather(1, "7.0")


def test_a_collective_with_a_rank_that_has_ended_fails() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.gather(0, "7")
    assert nodes.stranded == []
    nodes.exchange.ended("7", 1)
    assert nodes.stranded == [("7", 1)]
    late = Nodes(w7=[0, 1])
    late.exchange.ended("7", 1)
    late.gather(0, "7")
    assert late.stranded == [("7", 1)]


def test_a_rank_may_end_after_its_part_has_arrived() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.gather(1, "7")
    nodes.exchange.ended("7", 1)
    assert nodes.stranded == []


def test_names_are_published_looked_up_and_removed() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.ask(0, 1, "lookup", names=["port"])
    nodes.ask(1, 2, "publish", names=["port"], **{"from": ["7.1"]}, blobs=[b"tcp"])
    nodes.ask(1, 4, "publish", names=["port"], **{"from": ["7.1"]}, blobs=[b"other"])
    nodes.ask(0, 3, "lookup", names=["port"])
    nodes.ask(1, 5, "unpublish", names=["port"], **{"from": ["7.1"]})
    nodes.ask(1, 7, "unpublish", names=["port"], **{"from": ["7.1"]})
    assert nodes.heard() == [
        (0, Answer(1, "missing:port", {"names": [], "from": []})),
        (1, Answer(2)),
        (1, Answer(4, "exists:port")),
        (0, Answer(3, "", {"names": ["port"], "from": ["7.1"]}, (b"tcp",))),
        (1, Answer(5)),
        (1, Answer(7, "missing:port")),
    ]


def test_a_name_is_removed_by_ranks_of_its_node_only() -> None:
    """Or a host could put an address of its own in the place of another host's."""
    nodes = Nodes(w7=[0, 1, 0])
    nodes.ask(0, 1, "publish", names=["ocean"], blobs=[b"honest"])
    nodes.ask(1, 2, "unpublish", names=["ocean"], **{"from": ["7.1"]})
    nodes.ask(1, 4, "publish", names=["ocean"], **{"from": ["7.1"]}, blobs=[b"hostile"])
    nodes.ask(1, 6, "lookup", names=["ocean"], **{"from": ["7.1"]})
    nodes.ask(0, 3, "unpublish", names=["ocean"], **{"from": ["7.2"]})
    assert nodes.heard() == [
        (0, Answer(1)),
        (1, Answer(2, "missing:ocean")),
        (1, Answer(4, "exists:ocean")),
        (1, Answer(6, "", {"names": ["ocean"], "from": ["7.0"]}, (b"honest",))),
        (0, Answer(3)),
    ]


def test_a_lookup_may_wait_for_its_name() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.ask(0, 1, "lookup", names=["port"], wait=["yes"])
    assert nodes.heard() == []
    nodes.ask(1, 2, "publish", names=["port"], **{"from": ["7.1"]}, blobs=[b"tcp"])
    assert (0, Answer(1, "", {"names": ["port"], "from": ["7.1"]}, (b"tcp",))) in nodes.heard()


def test_a_name_may_be_removed_by_its_first_lookup() -> None:
    """For a second MPI_Comm_accept on a port, Open MPI publishes the same name again."""
    nodes = Nodes(w7=[0, 1])
    for turn in (b"first", b"second"):
        nodes.ask(0, 1, "lookup", names=["port"], wait=["yes"], **{"from": ["7.0"]})
        nodes.ask(1, 2, "publish", names=["port"], once=["yes"], **{"from": ["7.1"]}, blobs=[turn])
        assert nodes.heard() == [(1, Answer(2)), (0, Answer(1, "", {"names": ["port"], "from": ["7.1"]}, (turn,)))]
    nodes.ask(0, 3, "unpublish", names=["port"])
    assert nodes.heard() == [(0, Answer(3, "missing:port"))]


def test_a_rank_that_has_ended_gets_no_value() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.ask(0, 1, "lookup", names=["port"], wait=["yes"], **{"from": ["7.0"]})
    nodes.exchange.ended("7", 0)
    nodes.ask(1, 2, "publish", names=["port"], once=["yes"], **{"from": ["7.1"]}, blobs=[b"tcp"])
    nodes.ask(1, 4, "lookup", names=["port"])
    assert [answer.number for _, answer in nodes.heard()] == [2, 4]  # type: ignore[union-attr]


def test_published_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.launcher.mpi.name_service.HELD", 1000)
    nodes = Nodes(w7=[0])
    for turn in range(3):
        nodes.ask(0, 1, "publish", names=["a"], **{"from": ["7.0"]}, blobs=[bytes(700)])
        nodes.ask(0, 3, "publish", names=["b"], **{"from": ["7.0"]}, blobs=[bytes(700)])
        nodes.ask(0, 5, "unpublish", names=["a"])
        assert [answer.error[:4] for _, answer in nodes.heard()] == ["", "full", ""], turn  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("publish", {"names": ["a"]}),
        ("publish", {"names": ["a"], "from": []}),
        ("lookup", {"names": ["a"], "from": ["7.1"]}),
        ("lookup", {"names": ["a"], "from": ["7"]}),
        ("unpublish", {"names": ["a"], "from": ["8.0"]}),
        ("spawn", {"from": ["7.1"]}),
        ("spawn", {"from": ["7.0", "7.0"]}),
        ("lookup", {}),
        ("unpublish", {}),
        ("modex", {}),
        ("modex", {"of": ["7"]}),
        ("lookup", {"names": ["a"], "family": []}),
    ],
    ids=str,
)
def test_malformed_requests_violate_the_protocol(what: str, fields: dict[str, list[str]]) -> None:
    with pytest.raises(WireError):
        Nodes(w7=[0, 1]).ask(0, 1, what, **fields)


def test_a_request_about_an_unknown_rank_is_answered() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.ask(0, 1, "modex", of=["9.0"])
    nodes.ask(0, 3, "modex", of=["7.2"])
    assert nodes.heard() == [(0, Answer(1, "missing:9.0")), (0, Answer(3, "missing:7.2"))]


def test_requests_to_a_lost_node_fail() -> None:
    nodes = Nodes(w7=[0, 1, 2])
    nodes.ask(0, 1, "modex", of=["7.1"])
    nodes.ask(1, 2, "modex", of=["7.2"])
    nodes.heard()
    nodes.exchange.lost(1)
    nodes.ask(0, 3, "modex", of=["7.1"])
    assert [(node, answer.number, answer.error[:8]) for node, answer in nodes.heard()] == [  # type: ignore[union-attr]
        (0, 1, "missing:"), (0, 3, "missing:"),
    ]  # fmt: skip


def test_only_the_node_that_was_asked_may_answer() -> None:
    nodes = Nodes(w7=[0, 1, 2])
    nodes.ask(0, 1, "modex", of=["7.1"])
    with pytest.raises(WireError):
        nodes.exchange.replied(2, pack_with_blobs(Answer(1, blobs=(b"false",))))


def test_a_collective_larger_than_a_frame_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents would reject the frame as garbage."""
    monkeypatch.setattr("mslaunch.launcher.mpi.collectives._LARGEST", 3 << 20)
    nodes = Nodes(w7=[0, 1, 2])
    nodes.gather(0, "7", blob=bytes(2 << 20))
    nodes.gather(1, "7", blob=bytes(2 << 20))
    assert nodes.too_large == [3 << 20]
    assert nodes.heard() == []


def test_a_request_about_a_rank_is_forwarded_and_answered() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.ask(0, 5, "modex", of=["7.1"])
    ((node, question),) = nodes.heard()
    assert (node, question.what, question.fields["of"]) == (1, "modex", ["7.1"])  # type: ignore[union-attr]
    nodes.exchange.replied(1, pack_with_blobs(Answer(question.number, blobs=(b"card",))))  # type: ignore[union-attr]
    assert nodes.heard() == [(0, Answer(5, blobs=(b"card",)))]
    with pytest.raises(WireError):
        nodes.exchange.replied(1, pack_with_blobs(Answer(question.number)))  # type: ignore[union-attr]


def test_a_spawn_is_answered_under_its_request_number() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.ask(1, 9, "spawn", count=["0"])
    ((question, done),) = nodes.spawned
    done(Answer(0, fields={"world": ["8"]}))
    assert question.number == 9
    assert nodes.heard() == [(1, Answer(9, "", {"world": ["8"]}))]


def test_unknown_requests_violate_the_protocol() -> None:
    with pytest.raises(WireError):
        Nodes(w7=[0]).ask(0, 1, "dance")


# --- bounds


def test_open_collectives_of_a_node_are_bounded() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.gather(0, "7", blob=bytes(16 << 20), op="one")
    nodes.gather(0, "7", blob=bytes(7 << 20), op="two")
    with pytest.raises(WireError, match="not complete"):
        nodes.gather(0, "7", blob=bytes(2 << 20), op="three")
    nodes.gather(1, "7", op="one")
    nodes.gather(0, "7", blob=bytes(2 << 20), op="three")


@pytest.mark.parametrize("members", [("7",), tuple(f"7.{rank}" for rank in range(1000))])
def test_the_number_of_open_collectives_is_bounded(members: tuple[str, ...]) -> None:
    """And what their names take."""
    nodes = Nodes(w7=[0, 1] * 500)
    with pytest.raises(WireError, match="not complete"):
        for number in range(1100):
            nodes.gather(0, *members, op=f"fence{number}")
    nodes.gather(1, *members, op="fence0")
    nodes.gather(0, *members, op="fence")


def test_all_open_collectives_together_fit_in_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.launcher.mpi.collectives._LARGEST", 3000)
    nodes = Nodes(w7=[0, 1, 2])
    nodes.gather(0, "7", blob=bytes(2000), op="one")
    assert nodes.too_large == []
    nodes.gather(1, "7", blob=bytes(2000), op="two")
    assert nodes.too_large == [3000]


def test_what_is_complete_is_not_counted() -> None:
    nodes = Nodes(w7=[0, 1])
    for number in range(2000):
        for node in (0, 1):
            nodes.gather(node, "7", blob=bytes(1 << 14), op=f"fence{number % 3}")
        assert len(nodes.heard()) == 2


def test_lookups_that_wait_are_bounded() -> None:
    nodes = Nodes(w7=[0, 1])
    for number in range(1030):
        nodes.ask(0, number, "lookup", names=["port"], wait=["yes"])
    nodes.ask(1, 1, "lookup", names=["port"], wait=["yes"])
    assert [(node, answer.error[:4]) for node, answer in nodes.heard()] == [(0, "full")] * 6  # type: ignore[union-attr]
    nodes.ask(0, 1, "publish", names=["port"], blobs=[b"tcp"])
    assert len(nodes.heard()) == 1026
    nodes.ask(0, 1, "lookup", names=["other"], wait=["yes"])
    assert nodes.heard() == [], "there is room again"
    nodes.exchange.ended("7", 0)
    for number in range(1024):
        nodes.ask(0, number, "lookup", names=["other"], wait=["yes"])
    assert nodes.heard() == []


def test_questions_to_another_node_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.launcher.mpi.collectives._ROUTED", 3)
    nodes = Nodes(w7=[0, 1])
    for number in range(4):
        nodes.ask(0, number, "modex", of=["7.1"], blobs=[b"x" * 1000])
    *sent, (node, refused) = nodes.heard()
    assert (node, refused.error[:4]) == (0, "full")  # type: ignore[union-attr]
    assert [question.blobs for _, question in sent] == [()] * 3, "nobody reads those"  # type: ignore[union-attr]
    nodes.exchange.replied(1, pack_with_blobs(Answer(1)))
    nodes.ask(0, 5, "modex", of=["7.1"])
    assert [node for node, _ in nodes.heard()] == [0, 1]
    nodes.exchange.lost(1)
    assert len(nodes.heard()) == 3


def test_one_name_does_not_answer_a_thousand_lookups_of_a_node_that_has_no_room() -> None:
    """Each answer may have 8 MiB, and all are due at once."""
    nodes = Nodes(w7=[0, 1])
    for number in range(1000):
        nodes.ask(0, number, "lookup", names=["large"], wait=["yes"])
    nodes.ask(1, 7, "lookup", names=["large"], wait=["yes"])
    nodes.full = {0}
    nodes.ask(1, 1, "publish", names=["large"], blobs=[bytes(1 << 20)])
    nodes.ask(1, 2, "publish", names=["other"], blobs=[b"x"])
    assert [(node, answer.number) for node, answer in nodes.heard()] == [(1, 1), (1, 7), (1, 2)]
    assert [node for node, _ in nodes.rooms] == [0], "it is called once, however often it has no room"
    nodes.rooms.pop()[1]()
    assert [node for node, _ in nodes.rooms] == [0] and nodes.heard() == []
    nodes.full = set()
    nodes.rooms.pop()[1]()
    assert [answer.number for _, answer in nodes.heard()] == list(range(1000))


def test_a_collective_names_each_member_once() -> None:
    nodes = Nodes(w7=[0, 1])
    with pytest.raises(WireError, match=r"a collective \(fence\) with a member twice"):
        nodes.gather(0, "7", "7.0", "7")
    nodes.gather(0, "7", "7.0")
    nodes.gather(1, "7", "7.0")
    assert len(nodes.heard()) == 2


class _CountedNames(dict):
    """Published names, with how often one was looked for."""

    looks = 0

    def __contains__(self, name: object) -> bool:
        self.looks += 1
        return super().__contains__(name)


def test_a_name_is_compared_with_the_lookups_that_wait_for_it_only() -> None:
    nodes = Nodes(w7=[0, 1])
    for number in range(1000):
        nodes.ask(0, number, "lookup", names=["one", f"other{number}"], wait=["yes"])
    names = nodes.exchange._names._names = _CountedNames()
    for number in range(10):
        nodes.ask(1, number, "publish", names=["ocean"], blobs=[b"x"])
        nodes.ask(1, number, "unpublish", names=["ocean"])
    assert names.looks <= 100
    nodes.ask(1, 1, "publish", names=["one", "other3"], blobs=[b"x", b"y"])
    assert [(node, answer.number) for node, answer in nodes.heard()][-1] == (0, 3)  # type: ignore[union-attr]


def test_nothing_is_kept_of_lookups_that_were_answered_or_whose_rank_has_ended() -> None:
    nodes = Nodes(w7=[0, 1])
    nodes.ask(0, 1, "lookup", names=["a", "b", "a"], wait=["yes"])
    nodes.ask(1, 2, "lookup", names=["b"], wait=["yes"])
    nodes.exchange.ended("7", 0)
    nodes.ask(1, 3, "publish", names=["b"], blobs=[b"x"])
    assert [(node, answer.number) for node, answer in nodes.heard()] == [(1, 3), (1, 2)]  # type: ignore[union-attr]
    waiting = nodes.exchange._names._waiting
    assert not (waiting._lookups or waiting._by_name or waiting._by_member)


class _CountedText(str):
    """A name of a member that counts how often names are looked at."""

    looks = 0

    def __hash__(self) -> int:
        _CountedText.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        _CountedText.looks += 1
        return super().__eq__(other)

    def partition(self, sep: str) -> Any:
        _CountedText.looks += 1
        return super().partition(sep)


@pytest.mark.parametrize("whole", [True, False], ids=["world", "ranks"])
def test_the_end_of_a_rank_looks_at_no_other_member(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """Members of an open collective may be many, and each of their ranks ends."""
    ranks = 10_000
    members = tuple(map(_CountedText, ["7"] if whole else [f"7.{rank}" for rank in range(ranks)]))
    nodes = Nodes(w7=[0] * (ranks - 1) + [1])
    part = Gathering("fence", members, (b"",))
    monkeypatch.setattr("mslaunch.launcher.mpi.collectives.unpack_with_blobs", lambda kind, payload: part)
    nodes.exchange.gathered(0, b"")
    assert _CountedText.looks <= 20 * len(members) + 20, "what a frame costs is in proportion to its size"
    _CountedText.looks = 0
    for rank in range(ranks - 1):
        nodes.exchange.ended("7", rank)
    assert nodes.stranded == [] and _CountedText.looks <= 4 * ranks
    nodes.exchange.ended("7", ranks - 1)
    assert nodes.stranded == [("7", ranks - 1)]


def test_a_collective_of_a_world_looks_at_one_ended_rank_of_each_node() -> None:
    """Such a frame is short, and may come as often as a host likes."""
    nodes = Nodes(w7=[0] * 10_000 + [1])
    for rank in range(10_000):
        nodes.exchange.ended("7", rank)
    assert len(list(nodes.exchange._gone(["7"]))) == 1


class _ReadOnce(list):
    """The nodes of a world, which are gone through once."""

    reads = 0

    def __iter__(self) -> Any:
        self.reads += 1
        return super().__iter__()


def test_the_nodes_of_a_world_are_found_once_however_many_take_part() -> None:
    world = _ReadOnce(range(100))
    nodes = Nodes(w7=world)
    assert world.reads == 1
    for node in range(100):
        nodes.gather(node, "7", blob=b"x")
    assert len(nodes.heard()) == 100
    nodes.gather(3, "7")
    assert world.reads == 1
