"""Addresses and ports of this host, and probes over loopback that prove which host an address belongs to."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.agent import reachability
from mslaunch.agent.port_claims import claim
from mslaunch.agent.reachability import Prober, TokenListener
from mslaunch.host import free_ports
from mslaunch.host.free_ports import Listener
from mslaunch.host.own_addresses import addresses
from mslaunch.protocol import address_proof
from mslaunch.protocol.control import Probe, Reached
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


@pytest.fixture
def listener(loop: Loop) -> Iterator[TokenListener]:
    made = TokenListener(loop)
    yield made
    made.close()


def probe(loop: Loop, addresses: Sequence[str], port: int, token: str) -> Reached:
    """What a prober reports; the kernel's word on the owners of sockets is there, as on the launching host."""
    found: list[Reached] = []
    prober = Prober(loop, lambda name, then: then(), Probe(tuple(addresses), port, token), found.append)
    loop.run(lambda: bool(found))
    assert not prober._open
    (answer,) = found
    return Reached(*(tuple(sorted(addresses)) for addresses in answer))


def call(loop: Loop, listener: TokenListener, said: bytes) -> tuple[socket.socket, bytes]:
    """What somebody hears who says this at once; b"": nothing, and it was hung up on."""
    caller = socket.create_connection(("127.0.0.1", listener.port), 5)
    caller.send(said)
    caller.setblocking(False)
    heard: list[bytes] = []

    def read() -> None:
        try:
            heard.append(caller.recv(200))
        except ConnectionResetError:
            heard.append(b"")

    loop.reader(caller.fileno(), read)
    loop.run(lambda: bool(heard))
    loop.reader(caller.fileno(), None)
    return caller, heard[0]


def test_a_token_listener_proves_the_address(loop: Loop, listener: TokenListener) -> None:
    """The nodes of a job may be one host, and these addresses lead back to it: the listener is of our own user."""
    found = probe(loop, ["127.0.0.1", "127.0.0.2", "127.0.0.1"], listener.port, listener.token)
    assert found == Reached(("127.0.0.1", "127.0.0.2"))
    listener.close()
    listener.close()


def test_the_token_never_travels(loop: Loop, listener: TokenListener) -> None:
    nonce = address_proof.new_secret()
    caller, said = call(loop, listener, nonce.encode())
    assert address_proof.proved_address(listener.token, nonce, said) == "127.0.0.1"
    assert listener.token.encode() not in said and len(said) < address_proof.LONGEST
    caller.close()


@pytest.mark.parametrize("said", [b"x", b"0" * 31, b"0" * 33, b"GET / HTTP/1.1\r\nHost: here.example\r\n\r\n"])
def test_whoever_says_something_else_hears_nothing(loop: Loop, listener: TokenListener, said: bytes) -> None:
    caller, heard = call(loop, listener, said)
    caller.close()
    assert heard == b"" and not listener._silent


def test_a_crowd_that_says_nothing_keeps_no_agent_out(loop: Loop, listener: TokenListener) -> None:
    crowd = []
    for _ in range(2 * reachability.CALLERS):
        crowd.append(socket.create_connection(("127.0.0.1", listener.port), 5))
        before = list(listener._silent.values())
        loop.run(lambda: list(listener._silent.values()) != before)  # noqa: B023
        assert len(listener._silent) <= reachability.CALLERS
    assert probe(loop, ["127.0.0.1"], listener.port, listener.token) == Reached(("127.0.0.1",))
    for caller in crowd:
        caller.close()


def test_a_crowd_that_stays_after_its_answers_is_bounded(loop: Loop, listener: TokenListener) -> None:
    crowd = [call(loop, listener, b"0" * address_proof.NONCE) for _ in range(reachability.CALLERS + 8)]
    assert all(said for _, said in crowd) and len(listener._answered) == reachability.CALLERS
    assert crowd[0][0].recv(1) == b"", "the oldest has made room"
    for caller, _ in crowd:
        caller.close()
    loop.run(lambda: not listener._answered)


def test_another_token_is_no_proof(loop: Loop, listener: TokenListener) -> None:
    assert probe(loop, ["127.0.0.1"], listener.port, "0" * 32) == Reached(())
    assert probe(loop, ["127.0.0.1"], listener.port, "\udc80" * 80) == Reached(()), "what a dishonest host may name"


def test_an_address_that_leads_back_to_another_user_is_no_proof(
    loop: Loop, listener: TokenListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/hostile has a second user; here we are one."""
    monkeypatch.setattr(os, "geteuid", lambda: 64321)
    assert probe(loop, ["127.0.0.1", "127.0.0.2"], listener.port, listener.token) == Reached(())


def test_an_address_without_an_answer_is_no_proof(loop: Loop, listener: TokenListener) -> None:
    listener.close()
    assert probe(loop, ["127.0.0.1"], listener.port, listener.token) == Reached(())
    assert probe(loop, [], listener.port, listener.token) == Reached(())


@pytest.mark.parametrize("token", ["", "0" * 32])
def test_a_relay_proves_the_address_at_which_it_called(
    loop: Loop, listener: TokenListener, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """It passes the nonce on to the listener at 127.0.0.1, and the answer back, from 127.0.0.5."""
    monkeypatch.setattr(reachability, "_TRANSLATED", 0.0)
    with socket.create_server(("127.0.0.5", 0)) as relay:

        def pass_on() -> None:
            with relay.accept()[0] as client, socket.create_connection(("127.0.0.1", listener.port), 5) as caller:
                caller.send(client.recv(200))
                client.send(caller.recv(200))
                client.recv(1)

        thread = threading.Thread(target=pass_on)
        thread.start()
        found = probe(loop, ["127.0.0.5"], relay.getsockname()[1], token or listener.token)
        thread.join()
    assert found == (Reached(()) if token else Reached((), ("127.0.0.5",)))


def test_a_silent_listener_does_not_delay_another(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listener answers nothing; the address of the other must be proved all the same."""
    monkeypatch.setattr(reachability, "PROBE_SECONDS", 0.05)
    silent = Listener()
    silent.listen()
    assert probe(loop, ["127.0.0.1"], silent.port, "token") == Reached(())
    silent.close()


@given(st.text(max_size=40), st.text(max_size=40), st.binary(max_size=120))
def test_only_the_token_makes_a_proof(token: str, other: str, said: bytes) -> None:
    """Whatever a stranger answers, and whatever a host calls its token."""
    nonce = address_proof.new_secret()
    assert address_proof.proved_address(token, nonce, said) == ""
    proved = address_proof.answer(token, nonce.encode(), "10.0.0.1")
    assert address_proof.proved_address(token, nonce, proved) == "10.0.0.1"
    assert address_proof.proved_address(token, nonce, proved.replace(b"10.0.0.1", b"10.0.0.2")) == ""
    assert address_proof.proved_address(token, address_proof.new_secret(), proved) == ""
    if token.rstrip("\0") != other.rstrip("\0"):
        assert address_proof.proved_address(other, nonce, proved) == ""
