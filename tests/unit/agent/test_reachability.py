"""Addresses and ports of this host, and probes over loopback that prove which host an address belongs to."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence

import pytest

from mslaunch.agent import reachability
from mslaunch.agent.port_claims import claim
from mslaunch.agent.ports import TokenListener
from mslaunch.agent.reachability import Prober
from mslaunch.host import free_ports
from mslaunch.host.free_ports import Listener
from mslaunch.host.own_addresses import addresses
from mslaunch.runtime.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


def test_addresses_are_numbers_and_loopback_is_last() -> None:
    found = addresses()
    assert "127.0.0.1" in found and len(set(found)) == len(found)
    loopback = [ipaddress.ip_address(address).is_loopback for address in found]
    assert loopback == sorted(loopback)
    assert not any(ipaddress.ip_address(address).is_link_local for address in found if ":" in address)


def test_ports_are_held_outside_the_ephemeral_range() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        low, high = map(int, file.read().split())
    held = [Listener() for _ in range(8)]
    ports = {listener.port for listener in held}
    assert len(ports) == 8 and all(1024 <= port < low or port > high for port in ports)
    for listener in held:
        with pytest.raises(OSError):
            Listener(listener.port)
        listener.close()
    again = Listener(held[0].port)
    assert again.port == held[0].port
    again.close()


def test_two_jobs_choose_different_ports() -> None:
    """The first has released its port for its scheduler, which does not listen yet."""
    free = Listener()  # at a port that no connection gets
    free.close()
    port = free.port
    first = Listener(port, moves=True, claim=claim)
    first.hand_over()
    second = Listener(port, moves=True, claim=claim)
    assert second.port != first.port == port
    second.close()
    with pytest.raises(OSError, match="in use"):
        Listener(port, claim=claim)
    first.close()
    Listener(port, claim=claim).close()


def test_a_taken_port_moves_down() -> None:
    """The next free port below is taken, also past several taken ones, but only within a limit."""
    first = Listener()
    second = Listener(first.port, moves=True)
    assert first.port - free_ports.MOVES <= second.port < first.port
    with pytest.raises(OSError, match="in use"):
        Listener(second.port)
    second.close()
    first.close()
    again = Listener(first.port, moves=True)
    assert again.port == first.port
    again.close()


@pytest.mark.parametrize(
    ("port", "tries"), [(8118, range(8117, 8054, -1)), (80, []), (1024, []), (1030, range(1029, 1023, -1)), (0, [])]
)
def test_where_a_port_may_move_to(port: int, tries: Sequence[int]) -> None:
    """Never to a privileged port, nor to a port of MindSpore's workers."""
    assert list(free_ports._below(port)) == list(tries)


def test_a_port_is_held_for_ipv4_too() -> None:
    listener = Listener()
    listener.listen()
    with pytest.raises(BlockingIOError):
        listener.accept()
    with socket.create_connection(("127.0.0.1", listener.port), 5) as caller:
        listener.accept().close()
        assert caller.recv(1) == b""
    listener.close()


def test_a_token_listener_proves_the_address(loop: Loop) -> None:
    listener = TokenListener(loop)
    found: list[list[str]] = []
    prober = Prober(loop, ["127.0.0.1", "127.0.0.2"], listener.port, listener.token, found.append)
    loop.run(lambda: bool(found))
    assert found == [found[0]] and sorted(found[0]) == ["127.0.0.1", "127.0.0.2"]
    assert not prober._open
    listener.close()
    listener.close()


def test_another_token_is_no_proof(loop: Loop) -> None:
    listener = TokenListener(loop)
    found: list[list[str]] = []
    prober = Prober(loop, ["127.0.0.1"], listener.port, "0" * 16, found.append)
    loop.run(lambda: bool(found))
    assert found == [[]] and prober
    listener.close()


def test_an_address_without_an_answer_is_no_proof(loop: Loop) -> None:
    listener = TokenListener(loop)
    listener.close()
    found: list[list[str]] = []
    probers = [Prober(loop, ["127.0.0.1"], listener.port, listener.token, found.append)]
    loop.run(lambda: bool(found))
    probers.append(Prober(loop, [], listener.port, listener.token, found.append))
    assert found == [[], []]


def test_a_silent_listener_does_not_delay_another(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listener answers nothing; the address of the other must be proved all the same."""
    monkeypatch.setattr(reachability, "PROBE_SECONDS", 0.05)
    silent = Listener()
    silent.listen()
    found: list[list[str]] = []
    prober = Prober(loop, ["127.0.0.1"], silent.port, "token", found.append)
    loop.run(lambda: bool(found))
    assert found == [[]] and not prober._open
    silent.close()
