"""The launcher's end of a key store: who may write what, what the copies hear, and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import WireError
from mslaunch.frameworks.horovod import scopes
from mslaunch.launcher.job import shared_store
from mslaunch.launcher.job.shared_store import SharedStore
from mslaunch.protocol import frames
from mslaunch.protocol.store_messages import (
    DELETE,
    DONE,
    GONE,
    PUT,
    REFUSED,
    SERVE,
    SERVED,
    VALUE,
    StoreMessage,
    unpack_keys,
)

#: two ranks on node 0, one on node 2; node 1 has none
SCOPES = scopes(["a", "b", "c"], [0, 0, 2])


class Job:
    """A store and what its agents were told."""

    def __init__(self, known: Mapping[str, Sequence[int]] = SCOPES, serve: bool = True) -> None:
        self.told: list[tuple[int, StoreMessage]] = []
        self.store = SharedStore(known, self._send)
        self.store.begin("10.0.0.1")
        self.begun = dict(self.told)
        for node in sorted(self.begun) if serve else ():
            self.say(node, StoreMessage(SERVED, 1000 + node, "eth0"))
        self.told.clear()

    def _send(self, node: int, frame: bytes) -> None:
        (found,) = frames.Decoder(frames.DOWN).feed(frame)
        assert found.kind == frames.KEYS
        self.told.append((node, unpack_keys(found.payload)))

    def say(self, node: int, message: StoreMessage) -> None:
        self.store.on_frame(node, frames.Frame(frames.WRITE, frames.NO_RANK, message.pack()))

    def write(self, node: int, what: str, name: str, value: bytes = b"") -> str:
        """The answer; what else was said stays in `told`."""
        self.say(node, StoreMessage(what, 7, name, value))
        to, answer = self.told.pop()
        assert (to, answer.number) == (node, 7)
        return answer.what

    def heard(self) -> list[tuple[int, str, str, bytes]]:
        found = [(node, message.what, message.name, message.value) for node, message in self.told]
        self.told.clear()
        return found


def test_each_node_with_ranks_serves_with_a_token_of_its_own() -> None:
    job = Job(serve=False)
    assert job.begun.keys() == {0, 2} and job.store.missing == [0, 2]
    assert {message.what for message in job.begun.values()} == {SERVE}
    tokens = [message.name for message in job.begun.values()]
    assert len(set(tokens)) == 2 and {len(token) for token in tokens} == {32}
    job.say(2, StoreMessage(SERVED, 1002, "ib0"))
    assert job.store.missing == [0]
    assert job.store.places[2] == (1002, job.begun[2].name, "ib0")


def test_another_attempt_has_other_tokens() -> None:
    assert not {message.name for message in Job().begun.values()} & {message.name for message in Job().begun.values()}


def test_a_value_goes_to_the_others_before_its_writer_is_told() -> None:
    job = Job()
    job.say(0, StoreMessage(PUT, 7, "global/1", b"v"))
    assert job.told == [(2, StoreMessage(VALUE, 0, "global/1", b"v")), (0, StoreMessage(DONE, 7))]


@pytest.mark.parametrize(
    ("node", "name"),
    [(0, "global/0"), (0, "global/rank_1"), (2, "global/2"), (0, "local_a/1"), (2, "local_c/0"), (2, "cross_0/1"),
     (2, "cross_0/rank_1"), (2, "global_process_set_hash_1f/0")],
)  # fmt: skip
def test_a_host_writes_for_its_own_ranks(node: int, name: str) -> None:
    assert Job().write(node, PUT, name) == DONE


@pytest.mark.parametrize("what", [PUT, DELETE])
@pytest.mark.parametrize(
    ("node", "name"),
    [(2, "global/0"), (2, "global/rank_1"), (0, "global/2"), (2, "local_a/0"), (0, "local_c/0"), (0, "cross_0/1"),
     (2, "cross_1/0"), (0, "global/3"), (0, "global/-1"), (0, "global/x"), (0, "global/rank_"), (0, "global/0x"),
     (0, "global/" + "0" * 300)],
)  # fmt: skip
def test_no_host_writes_for_others(node: int, name: str, what: str) -> None:
    job = Job()
    assert job.write(node, what, name) == REFUSED and job.heard() == []


def test_a_name_of_a_process_set_belongs_to_its_first_writer() -> None:
    job = Job()
    name = "global_process_set_hash_1f/0"
    assert job.write(2, PUT, name, b"mine") == DONE
    job.heard()
    assert (job.write(0, PUT, name, b"other"), job.write(0, DELETE, name), job.heard()) == (REFUSED, REFUSED, [])
    assert job.write(2, DELETE, name) == DONE
    assert job.heard() == [(0, GONE, name, b""), (2, GONE, name, b"")]


def test_a_scope_is_emptied_when_all_of_it_are_done() -> None:
    """Horovod can be started once more, and does not find the addresses of before."""
    job = Job()
    for node, key in ((0, "0"), (0, "1"), (2, "2")):
        assert job.write(node, PUT, f"global/{key}", b"v") == DONE
    assert job.write(2, PUT, "cross_0/1", b"v") == DONE
    job.heard()
    assert [job.write(0, DELETE, f"global/{key}") for key in ("0", "0", "1")] == [DONE] * 3
    assert job.heard() == []
    assert job.write(2, DELETE, "global/2") == DONE
    gone = {(node, name) for node, what, name, _ in job.heard() if what == GONE}
    assert gone == {(node, f"global/{key}") for node in (0, 2) for key in "012"}


def test_bounds() -> None:
    job = Job(scopes(["a"], [0, 0]))
    assert job.write(0, PUT, "global/0", bytes(shared_store.COMPRESSED_SIZE)) == DONE
    assert job.write(0, PUT, "global/1", bytes(shared_store.COMPRESSED_SIZE + 1)) == REFUSED
    most = 2 * shared_store.NAMES_EACH
    answers = [job.write(0, PUT, f"set/{at}") for at in range(most)]
    assert answers == [DONE] * (most - 1) + [REFUSED]
    assert job.write(0, DELETE, "set/0") == DONE
    assert job.write(0, PUT, "set/x") == DONE
    held = Job(scopes(["a"], [0] * 64))
    written = sum(held.write(0, PUT, f"set/{at}", bytes(60_000)) == DONE for at in range(1000))
    assert 500 < written <= shared_store.HELD // 60_000
    assert held.write(0, PUT, "set/0", bytes(60_001)) == DONE, "in place of the value before"


def test_a_host_that_fills_the_store_leaves_the_others_their_share() -> None:
    job = Job()
    for at in range(1000):
        answer = job.write(2, PUT, f"set/{at}", bytes(60_000))
    assert answer == REFUSED
    assert job.write(0, PUT, "global/0", bytes(60_000)) == DONE


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (0, StoreMessage(SERVED, 1000, "eth0")),
        (1, StoreMessage(SERVED, 1000, "eth0")),
        (1, StoreMessage(PUT, 1, "global/0")),
        (9, StoreMessage(PUT, 1, "global/0")),
    ],
)
def test_what_no_agent_says(node: int, message: StoreMessage) -> None:
    with pytest.raises(WireError):
        Job().say(node, message)


@pytest.mark.parametrize(("port", "name"), [(0, "eth0"), (1 << 16, "eth0"), (1, "i" * 16), (1, "a\x1b[2J")])
def test_what_no_agent_says_first(port: int, name: str) -> None:
    job = Job(serve=False)
    with pytest.raises(WireError):
        job.say(0, StoreMessage(SERVED, port, name))
    with pytest.raises(WireError):
        job.say(2, StoreMessage(PUT, 1, "global/2"))


WRITES = st.lists(
    st.tuples(
        st.sampled_from([0, 2]),
        st.sampled_from([PUT, DELETE]),
        st.sampled_from(["global/0", "global/1", "global/2", "cross_0/1", "local_a/0", "set/0"]),
        st.binary(max_size=3),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(WRITES)
def test_all_copies_are_the_same(writes: list[tuple[int, str, str, bytes]]) -> None:
    """A copy is what its agent makes of what it hears, and of its own writes once they are answered."""
    job = Job()
    copies: dict[int, dict[str, bytes]] = {0: {}, 2: {}}
    for node, what, name, value in writes:
        answer = job.write(node, what, name, value)
        for to, said, changed, new in job.heard():
            if said == VALUE:
                copies[to][changed] = new
            elif said == GONE:
                copies[to].pop(changed, None)
        if answer == DONE and what == PUT:
            copies[node][name] = value
        assert copies[0] == copies[2]
        assert copies[0].keys() == job.store._names.keys()
