"""The listener for agents that call back, against agents and against others; real sockets, one loop."""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from relay import Relay

from mslaunch.agent import call_launcher
from mslaunch.agent.call_launcher import _Callback, prove
from mslaunch.errors import WireError
from mslaunch.host.own_addresses import network_stack
from mslaunch.protocol.call_proof import (
    CALL,
    CALLER,
    HOST,
    LONGEST,
    TOKEN,
    CallWords,
    bytecode,
    new_nonce,
    proof,
    seals,
)
from mslaunch.protocol.sealed_records import Seals
from mslaunch.runtime.loop import Loop
from mslaunch.transport.call_back import AgentCall, CallListener, call_terms, token_of_host

ROOT = Path(__file__).resolve().parents[3]
KEY = bytes(range(TOKEN))


class Listening:
    """A listener, and whom it let in."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.admitted: dict[str, AgentCall] = {}
        self.tokens: Callable[[str], bytes] = lambda node: KEY
        self.listener = CallListener(loop, self.token, self.admit)
        self.port = self.listener.port

    def token(self, node: str) -> bytes:
        return self.tokens(node)

    def admit(self, node: str, call: AgentCall) -> bool:
        new = node not in self.admitted
        if new:
            self.admitted[node] = call
        return new

    def until(self, condition: object) -> None:
        assert self.loop.run(condition, 10)  # type: ignore[arg-type]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def ended(self, sock: socket.socket) -> bool:
        """Whether the listener ends the connection, having said nothing."""
        sock.setblocking(False)
        seen: list[bytes] = []

        def look() -> bool:
            try:
                if seen:
                    return True
                seen.append(sock.recv(999))
            except BlockingIOError:
                return False
            except ConnectionResetError:
                seen.append(b"")
            return True

        return self.loop.run(look, 10) and seen == [b""]


@pytest.fixture
def listening() -> Iterator[Listening]:
    with Loop() as loop:
        made = Listening(loop)
        yield made
        made.listener.close()
        for call in made.admitted.values():
            os.close(call.fd)


class Called(NamedTuple):
    """What has become of an agent's call."""

    sock: socket.socket | None
    seals: Seals | None
    why: str


def call(
    made: Listening,
    node: str,
    token: bytes = KEY,
    addresses: tuple[str, ...] = ("127.0.0.1",),
    at_home: bool = True,
    port: int = 0,
) -> Called:
    """As an agent does, in a thread of its own."""
    results: list[Called] = []
    reader, writer = os.pipe()  # the end of a thread does not wake the loop

    def agent() -> None:
        callback = _Callback(port or made.port, token, node, at_home)
        found = callback.connect(list(addresses)) or (None, None)
        results.append(Called(*found, "" if found[0] else callback.why))  # type: ignore[arg-type]
        os.close(writer)

    threading.Thread(target=agent).start()
    made.loop.reader(reader, lambda: made.loop.reader(reader, None))
    made.until(lambda: results)
    made.loop.reader(reader, None)
    os.close(reader)
    return results[0]


def test_an_agent_is_let_in_under_its_name_and_can_talk(listening: Listening) -> None:
    sock, seals, why = call(listening, "n1")
    assert sock and seals and not why
    listening.until(lambda: "n1" in listening.admitted)
    theirs = listening.admitted["n1"]
    sock.sendall(b"".join(seals.sealer.seal(b"\0frames", b"\xff")))
    assert b"".join(theirs.seals.opener.feed(os.read(theirs.fd, 99))) == b"\0frames\xff"
    os.write(theirs.fd, b"".join(theirs.seals.sealer.seal(b"back")))
    assert b"".join(seals.opener.feed(sock.recv(99))) == b"back"
    sock.close()


def test_what_an_agent_sends_cannot_be_sent_back_to_it_or_to_another(listening: Listening) -> None:
    """Each direction of each connection has a key of its own."""
    calls = [call(listening, name) for name in ("n1", "n2")]
    listening.until(lambda: len(listening.admitted) == 2)
    for one, other in (calls, calls[::-1]):
        assert one.sock and one.seals and other.seals
        record = b"".join(one.seals.sealer.seal(b"frame"))
        for opener in (one.seals.opener, other.seals.opener, listening.admitted["n2"].seals.opener):
            if opener is not listening.admitted["n2"].seals.opener or one is calls[0]:
                with pytest.raises(WireError, match="somebody in between"):
                    opener.feed(record)
        one.sock.close()


def test_an_address_that_leads_back_is_no_launchers(listening: Listening) -> None:
    """Whatever listens there is not even asked."""
    sock, _, why = call(listening, "n1", at_home=False)
    assert sock is None
    assert why == f"127.0.0.1 port {listening.port}: it is an address of this host, too, where mslaunch does not run"
    assert listening.admitted == {} and not listening.listener._callers.waiting


def test_an_address_that_leads_back_is_passed_over(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is that of the first address which does not; here nobody listens at that."""
    monkeypatch.setattr(call_launcher, "_SECONDS", 0.1)
    _, _, why = call(listening, "n1", addresses=("127.0.0.1", "255.255.255.255"), at_home=False)
    assert why.startswith(f"255.255.255.255 port {listening.port}: ")


def test_a_call_that_is_handed_on_is_refused_by_the_agent_who_says_so(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher is called at another address than the agent has called: its proof names that one."""
    monkeypatch.setattr(call_launcher, "_SECONDS", 0.1)
    with Relay(("127.0.0.2", 0), ("127.0.0.1", listening.port)) as relay:
        sock, _, why = call(listening, "n1", addresses=("127.0.0.2",), port=relay.port)
        assert sock is None
        assert why == (
            f"127.0.0.2 port {relay.port}: it hands calls on to 127.0.0.1, as address translation does, "
            "or another user's program"
        )
        sock, _, why = call(listening, "n1", addresses=("127.0.0.2", "127.0.0.1"), port=relay.port)
        assert sock is None and why.startswith("127.0.0.2 port "), "it matters more than that nobody listens elsewhere"
        assert listening.admitted == {}


def test_frames_may_follow_the_proof_at_once(listening: Listening) -> None:
    """A launcher that is slow then finds both in the socket."""
    nonce = new_nonce()
    with listening.connect() as sock:
        sock.sendall(f"{CALL} {nonce} n1 {bytecode()}\n".encode())
        listening.until(lambda: any(caller.expected for caller in listening.listener._callers.waiting))
        theirs, place, _ = sock.recv(999).decode().split()
        made = CallWords(nonce, theirs, "n1", bytecode(), place)
        sock.sendall(proof(CALLER, KEY, made).encode() + b"\n\0a frame\n")
        listening.until(lambda: "n1" in listening.admitted)
        assert os.read(listening.admitted["n1"].fd, 99) == b"\0a frame\n"


def test_a_node_has_one_connection(listening: Listening) -> None:
    first, second = call(listening, "n1").sock, call(listening, "n1").sock
    assert first and second
    assert listening.ended(second)
    first.close()
    second.close()


def test_an_agent_without_the_token_learns_that_it_is_not_known(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def tried(*words: Any) -> Any:
        """All its time is over after the first try, however long that has taken."""
        try:
            return prove(*words)
        finally:
            clock[0] += 1000.0

    monkeypatch.setattr(call_launcher, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(call_launcher, "prove", tried)
    sock, _, why = call(listening, "n1", bytes(TOKEN))
    assert sock is None
    assert why == f"127.0.0.1 port {listening.port}: somebody else listens there"
    assert listening.admitted == {}


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * (LONGEST + 1),
        f"{CALL} nonce n1\n".encode(),
        f"{CALL} nonce n1 cpython more\n".encode(),
        f"{CALL} nonce n1 cpython\nand at once its proof\n".encode(),
        bytes(range(256)),
    ],
)
def test_others_are_cut_off_and_told_nothing(said: bytes, listening: Listening) -> None:
    with listening.connect() as sock:
        sock.sendall(said)
        assert listening.ended(sock)


def test_a_wrong_proof_is_cut_off(listening: Listening) -> None:
    """Also that of the launcher, sent back, and one for another node, another bytecode or another address."""
    right = CallWords("", "", "n1", bytecode(), "127.0.0.1")
    for role, odd, end in (
        (HOST, right, b"\n"),
        (CALLER, right._replace(name="n2"), b"\n"),
        (CALLER, right._replace(kind="x"), b"\n"),
        (CALLER, right._replace(place="127.0.0.2"), b"\n"),
        (CALLER, right, b"x"),
    ):
        nonce = new_nonce()
        with listening.connect() as sock:
            sock.sendall(f"{CALL} {nonce} n1 {bytecode()}\n".encode())
            sock.setblocking(False)
            answer: list[bytes] = []

            def look(sock: socket.socket = sock, answer: list[bytes] = answer) -> bool:
                try:
                    answer.append(sock.recv(999))
                except BlockingIOError:
                    return False
                return True

            listening.until(look)
            theirs, place, sent = answer[0].decode().split()
            nonces = {"caller_nonce": nonce, "host_nonce": theirs}
            assert (place, sent) == ("127.0.0.1", proof(HOST, KEY, right._replace(**nonces)))
            sock.sendall(proof(role, KEY, odd._replace(**nonces)).encode() + end)
            assert listening.ended(sock)
    assert listening.admitted == {}


def test_a_flood_of_mute_connections_keeps_no_agent_out(listening: Listening) -> None:
    mute = [listening.connect() for _ in range(300)]
    sock, _, why = call(listening, "n1")
    assert sock and not why
    assert len(listening.listener._callers.waiting) <= 8
    for one in (sock, *mute):
        one.close()


@pytest.mark.parametrize("last", [False, True], ids=["others are to come", "the last one"])
def test_a_proof_that_has_come_counts_though_a_flood_follows(listening: Listening, last: bool) -> None:
    """The callers of a flood are accepted before the proof was read, which is what no caller can prevent."""
    callers = listening.listener._callers
    with listening.connect() as sock:
        nonce = new_nonce()
        sock.sendall(f"{CALL} {nonce} n1 {bytecode()}\n".encode())
        listening.until(lambda: callers.waiting and callers.waiting[0].expected)
        theirs, place, _ = sock.recv(999).decode().split()
        sock.sendall(proof(CALLER, KEY, CallWords(nonce, theirs, "n1", bytecode(), place)).encode() + b"\n")
        admit = callers._admit

        def admit_and_close(*call: Any) -> None:
            admit(*call)
            if last:
                listening.listener.close()

        callers._admit = admit_and_close  # type: ignore[method-assign]
        flood = [listening.connect() for _ in range(8)]
        for _ in flood:
            callers._accept()
        assert "n1" in listening.admitted
        assert len(callers.waiting) == (0 if last else 8)
        for one in flood:
            one.close()


AGENT = """\
import sys
from mslaunch.agent import call_launcher
print(call_launcher._become_agent(sys.argv[1], {}))
"""


def prove_as_launcher(server: socket.socket) -> tuple[socket.socket, Seals]:
    """To the next agent that calls."""
    sock = server.accept()[0]
    with sock.makefile("r") as lines:
        _, theirs, name, kind = lines.readline().split()
        call = CallWords(theirs, new_nonce(), name, kind, "127.0.0.1")
        sock.sendall(f"{call.host_nonce} {call.place} {proof(HOST, KEY, call)}\n".encode())
        assert lines.readline().strip() == proof(CALLER, KEY, call)
    return sock, seals(HOST, KEY, call)


def test_an_agent_that_is_cut_off_after_its_proof_calls_again() -> None:
    """A launcher may cut it off in a flood while the proof is on its way."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        terms = call_terms(server.getsockname()[1], KEY, "=n1", "ADDRESS", ["127.0.0.1"]).decode().strip()
        with subprocess.Popen([sys.executable, "-c", AGENT, terms], cwd=ROOT, stdout=subprocess.PIPE) as agent:
            try:
                prove_as_launcher(server)[0].close()
                sock, ours = prove_as_launcher(server)
                with sock:
                    program = zlib.compress(marshal.dumps({"": "import os; os.write(1, b'it runs')"}))
                    sock.sendall(b"".join(ours.sealer.seal(b"%d\n" % len(program), program)))
                    sock.settimeout(10)
                    assert sock.recv(99) == b"it runs"
            finally:
                agent.kill()


def test_an_agent_that_is_always_cut_off_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        terms = call_terms(server.getsockname()[1], KEY, "=n1", "ADDRESS", ["127.0.0.1"]).decode().strip()
        code = AGENT.replace("print", "call_launcher._SECONDS = 0.0; print")
        with subprocess.Popen([sys.executable, "-c", code, terms], cwd=ROOT, stdout=subprocess.PIPE) as agent:
            try:
                prove_as_launcher(server)[0].close()
                said, _ = agent.communicate(timeout=10)
            finally:
                agent.kill()
    assert said.startswith(b"127.0.0.1 port ") and (b"ended the connection" in said or b"reset" in said)


def test_a_mute_connection_is_ended(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mslaunch.transport.proved_callers._SECONDS", 0.05)
    with listening.connect() as sock:
        assert listening.ended(sock)


def test_nobody_listens_after_the_end(listening: Listening) -> None:
    with listening.connect() as sock:
        listening.until(lambda: listening.listener._callers.waiting)
        listening.listener.close()
        assert listening.ended(sock)
    with pytest.raises(ConnectionRefusedError):
        listening.connect()


def test_the_terms_are_a_line_that_any_locale_reads() -> None:
    assert call_terms(5000, b"\1\2", "NODE", "ADDRESS", ["10.0.0.1", "fd00::1"]) == (
        f"5000 0102 NODE {network_stack()} ADDRESS 10.0.0.1 fd00::1\n".encode("ascii")
    )


def test_a_host_that_knows_its_own_token_is_no_other_host(listening: Listening) -> None:
    listening.tokens = partial(token_of_host, KEY)
    assert not call(listening, "n2", token=token_of_host(KEY, "n1")).sock
    assert not listening.admitted
    found = call(listening, "n1", token=token_of_host(KEY, "n1"))
    assert found.sock
    listening.until(lambda: listening.admitted)
    found.sock.close()
    assert list(listening.admitted) == ["n1"]


def test_a_host_that_knows_its_own_token_is_not_the_launcher_of_another_host(listening: Listening) -> None:
    """It listens, and has no other token than its own, whatever name the agent says."""
    listening.tokens = lambda node: token_of_host(KEY, "n1")
    found = call(listening, "n2", token=token_of_host(KEY, "n2"))
    assert not found.sock and "somebody else listens there" in found.why


@given(st.lists(st.text(), unique=True, max_size=8))
def test_each_host_has_a_token_of_its_own(nodes: list[str]) -> None:
    tokens = {token_of_host(KEY, node) for node in nodes}
    assert len(tokens) == len(nodes) and all(len(token) == TOKEN for token in tokens) and KEY not in tokens
