"""Preparing: which frames go where, and which address is told to the ranks."""

from __future__ import annotations

from mslaunch.launcher.wireup import Endpoint, Wireup
from mslaunch.wire import frames, messages
from mslaunch.wire.messages import Hello, Reserved

ANSWER = Reserved((10001, 10002), 10003, "token")


class Lab:
    """A wire-up whose agents are this test."""

    def __init__(self, *addresses: tuple[str, ...], first: int = 0, seen: dict[int, str] | None = None) -> None:
        hellos = {
            node: Hello(f"h{node}", 1, 2, 2, "3.8.0", found, (seen or {}).get(node, ""))
            for node, found in enumerate(addresses)
        }
        self.sent: list[tuple[int, frames.Frame]] = []
        self.done: list[tuple[Endpoint, str]] = []
        hosts = [f"n{node}" for node in hellos]
        self.wireup = Wireup(hellos, first, hosts, self._send, lambda *result: self.done.append(result))
        self.wireup.begin()

    def _send(self, node: int, data: bytes) -> None:
        self.sent += [(node, frame) for frame in frames.Decoder().feed(data)]

    def candidates(self) -> list[str]:
        return messages.unpack_probe(self.sent[-1][1].payload)[0]


def test_one_node_needs_nobody() -> None:
    lab = Lab(("10.0.0.1", "127.0.0.1"))
    assert [(node, frame.kind, frame.payload) for node, frame in lab.sent] == [(0, frames.RESERVE, b"2")]
    lab.wireup.reserved(ANSWER)
    assert lab.done == [(Endpoint("127.0.0.1", 10001, 10002), "")]


def test_the_others_knock_at_the_node_of_rank_0() -> None:
    lab = Lab(("10.0.0.1",), ("10.0.0.2", "192.168.0.2", "127.0.0.1"), ("10.0.0.3",), first=1)
    assert [node for node, _ in lab.sent] == [1]
    lab.wireup.reserved(ANSWER)
    assert [(node, frame.kind) for node, frame in lab.sent[1:]] == [(0, frames.PROBE), (2, frames.PROBE)]
    assert messages.unpack_probe(lab.sent[1][1].payload) == (["10.0.0.2", "192.168.0.2", "127.0.0.1"], 10003, "token")
    lab.wireup.reached(0, ["192.168.0.2", "10.0.0.2"])
    assert lab.done == []
    lab.wireup.reached(2, ["192.168.0.2"])
    assert lab.done == [(Endpoint("192.168.0.2", 10001, 10002), "")]


def test_the_first_candidate_that_all_reach_wins() -> None:
    lab = Lab(("10.0.0.1", "192.168.0.1"), ("10.0.0.2",))
    lab.wireup.reserved(ANSWER)
    lab.wireup.reached(1, ["192.168.0.1", "10.0.0.1"])
    assert lab.done[0][0].address == "10.0.0.1"


def test_candidates_in_their_order_and_once() -> None:
    lab = Lab(("10.0.0.1", "10.1.0.1", "127.0.0.1"), (), (), seen={1: "172.16.0.9", 2: "10.1.0.1"})
    lab.wireup.reserved(ANSWER)
    assert lab.candidates() == ["10.0.0.1", "172.16.0.9", "10.1.0.1", "127.0.0.1"]
    lab = Lab(("127.0.0.1",), (), seen={0: "10.0.0.7", 1: "172.16.0.9"})
    lab.wireup.reserved(ANSWER)
    assert lab.candidates() == ["172.16.0.9", "127.0.0.1"], "loopback last; how the first node was reached says nothing"


def test_no_common_address_is_a_warning() -> None:
    lab = Lab(("10.0.0.1", "10.1.0.1"), (), (), ())
    lab.wireup.reserved(ANSWER)
    lab.wireup.reached(1, ["10.1.0.1"])
    lab.wireup.reached(2, [])
    lab.wireup.reached(3, ["10.1.0.1"])
    assert lab.done == [(Endpoint("10.1.0.1", 10001, 10002), "n2 cannot reach n0 at 10.1.0.1 (MASTER_ADDR)")]


def test_a_first_node_without_any_address_does_not_stop_the_launch() -> None:
    lab = Lab((), ())
    lab.wireup.reserved(ANSWER)
    lab.wireup.reached(1, [])
    assert len(lab.done) == 1 and "n1" in lab.done[0][1]
