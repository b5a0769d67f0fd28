"""The user-space switch, fed by hand: sockets stand for TAP devices, and the clock is an argument."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "cluster_lib" / "switch.py"
ALL = b"\xff" * 6


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("cluster_switch", PROGRAM)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class Wire:
    """Three hosts a, b, c at a switch."""

    def __init__(self, module, delay=0.0, loss=0.0):
        pairs = {name: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for name in "abc"}
        self.hosts = {name: ours for name, (ours, _) in pairs.items()}
        self.taps = {name: theirs for name, (_, theirs) in pairs.items()}
        for sock in (*self.hosts.values(), *self.taps.values()):
            sock.setblocking(False)
        self.ports = {name: tap.fileno() for name, tap in self.taps.items()}
        self.switch = module.Switch(self.ports, delay, loss)
        self.drain = module.drain

    def address(self, name):
        return bytes([2, 0, 0, 0, 0, ord(name)])

    def send(self, source, target, text, now=0.0):
        to = self.address(target) if isinstance(target, str) else target
        self.switch.take(self.ports[source], to + self.address(source) + text, now)

    def got(self):
        """What each host has received: name -> texts."""
        found = {}
        for name, sock in self.hosts.items():
            with contextlib.suppress(BlockingIOError):
                while True:
                    text = sock.recv(2000)[12:]
                    found.setdefault(name, []).append(text)
        return found

    def close(self):
        for sock in (*self.hosts.values(), *self.taps.values()):
            sock.close()


@pytest.fixture
def wire(module):
    made = []

    def make(**kwargs):
        made.append(Wire(module, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_it_floods_until_it_has_learnt(wire):
    w = wire()
    w.send("a", "b", b"1")
    assert w.switch.deliver(0) is None
    assert w.got() == {"b": [b"1"], "c": [b"1"]}
    w.send("b", "a", b"2")
    w.send("a", "b", b"3")
    w.send("c", ALL, b"4")
    w.switch.deliver(0)
    assert w.got() == {"a": [b"2", b"4"], "b": [b"3", b"4"]}


def test_a_frame_waits_once_and_none_overtakes(wire):
    w = wire(delay=0.010)
    w.send("a", ALL, b"1", now=1.0)
    assert w.switch.deliver(1.005) == pytest.approx(0.005)
    assert w.got() == {}
    assert w.switch.obey("delay 1") == "ok"
    w.send("a", ALL, b"2", now=1.005)  # due before the first
    assert w.switch.deliver(1.007) == pytest.approx(0.003)
    assert w.switch.deliver(1.010) is None
    assert w.got()["b"] == [b"1", b"2"]


def test_cut_stops_both_ways_and_what_is_under_way(wire):
    w = wire(delay=0.010)
    w.send("a", ALL, b"0", now=0.0)
    assert w.switch.obey("cut b") == "ok"
    w.send("a", ALL, b"1", now=0.0)
    w.send("b", ALL, b"2", now=0.0)
    w.switch.deliver(1.0)
    assert w.got() == {"c": [b"0", b"1"]}
    assert w.switch.obey("heal b") == "ok"
    w.send("a", ALL, b"3", now=1.0)
    w.switch.deliver(2.0)
    assert w.got() == {"b": [b"3"], "c": [b"3"]}


@pytest.mark.parametrize(
    ("verb", "got"), [("cut-to", {"a": [b"2"], "c": [b"1", b"2"]}), ("cut-from", {"b": [b"1"], "c": [b"1"]})]
)
def test_a_cut_in_one_direction(wire, verb, got):
    w = wire()
    assert w.switch.obey(f"{verb} b") == "ok"
    w.send("a", ALL, b"1")
    w.send("b", ALL, b"2")
    w.switch.deliver(0)
    assert w.got() == got
    assert w.switch.obey("heal b") == "ok"
    w.send("a", "b", b"3")
    w.switch.deliver(0)
    assert w.got()["b"] == [b"3"]


def test_loss(wire):
    w = wire(loss=1.0)
    w.send("a", ALL, b"1")
    w.switch.deliver(0)
    assert w.got() == {}
    assert w.switch.obey("loss 0") == "ok"
    w.send("a", ALL, b"2")
    w.switch.deliver(0)
    assert w.got() == {"b": [b"2"], "c": [b"2"]}


def test_half_the_frames_are_lost_at_half_loss(wire):
    w = wire(loss=0.5)
    for _ in range(2000):
        w.send("a", "a", b"x")  # to itself: taken, and delivered to nobody
    assert 800 < w.switch.dropped < 1200  # a fair coin is outside once in 10^18


def test_commands_that_are_none(wire):
    w = wire()
    assert w.switch.obey("cut nobody") == "no such command or port"
    assert w.switch.obey("sing") == "no such command or port"
    with pytest.raises(ValueError, match="could not convert"):
        w.switch.obey("delay soon")
    assert w.switch.obey("status") == "ok 0 frames passed, 0 dropped"


def test_draining_stops_at_an_empty_port_and_takes_a_burst_at_most(wire, module):
    w = wire()
    for _ in range(module.BURST + 1):
        try:
            w.hosts["a"].send(ALL + w.address("a") + b"x")
        except BlockingIOError:  # the socket's queue is shorter than a burst on some kernels
            break
    assert w.drain(w.switch, w.ports["a"])
    taken = len(w.switch.waiting)
    assert 0 < taken <= module.BURST
    assert w.drain(w.switch, w.ports["a"])
    assert w.drain(w.switch, w.ports["b"])


def test_a_host_that_is_gone_does_not_stop_the_others(wire):
    w = wire()
    w.hosts["b"].close()
    w.send("a", ALL, b"1")
    w.switch.deliver(0)
    assert w.hosts["c"].recv(99)[12:] == b"1"
    assert w.switch.dropped == 1
    del w.hosts["b"]


def test_links_of_one_port_and_between_two(wire):
    w = wire()
    for name in "abc":
        w.send(name, ALL, b"hello")  # the switch learns where they are
    w.switch.deliver(0)
    w.got()
    assert w.switch.obey("delay 20 a") == "ok"
    assert w.switch.obey("delay 5 a b") == "ok"
    assert w.switch.obey("loss 100 b c") == "ok"
    assert w.switch.obey("delay 5 a x") == "no such port"
    for source, target in ("ab", "ac", "ca", "bc", "cb"):
        w.send(source, target, f"{source}{target}".encode())
    assert w.switch.deliver(0.0) == pytest.approx(0.005)
    assert w.got() == {}
    assert w.switch.deliver(0.006) == pytest.approx(0.014)
    assert w.got() == {"b": [b"ab"]}  # what the slower link holds is not waited for
    assert w.switch.deliver(0.021) is None
    assert w.got() == {"c": [b"ac"], "a": [b"ca"]}
    assert w.switch.obey("delay 0") == "ok"  # of all
    w.send("a", "c", b"now", now=0.03)
    w.switch.deliver(0.03)
    assert w.got() == {"c": [b"now"]}
