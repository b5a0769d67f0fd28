"""Strangers, and commands with the secret that keep to no protocol, where commands on several hosts meet (c10d)."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from launching import free_port
from relay import UP, Relay
from strangers import cut_off, line, make_noise, send_back_its_own_proof

from mslaunch.protocol.call_proof import CALL, CALLER, HOST, CallWords, new_nonce, proof, seals
from mslaunch.protocol.sealed_records import Seals

SECONDS = 30.0
SECRET = b"0123456789abcdef0123456789abcdef"
TOKEN = blake2b(SECRET, digest_size=32).digest()
JOIN = {"join": ["other", 1, 2, 2, "none", 0, None]}
KIND = "meet-2"


class Proved:
    """A connection of a command that knows the secret, and what seals it."""

    def __init__(self, sock: socket.socket, made: Seals) -> None:
        self.sock = sock
        self._seals = made
        self._received = b""

    def __enter__(self) -> Proved:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def say(self, said: Any) -> None:
        """Bytes, or a message."""
        self.sock.sendall(self.sealed(said))

    def sealed(self, said: Any) -> bytes:
        """The same as a record, which is to be sent next."""
        data = said if isinstance(said, bytes) else json.dumps(said).encode() + b"\n"
        return b"".join(self._seals.sealer.seal(data))

    def hear(self) -> Any:
        """The next message; None at the end of the connection."""
        while b"\n" not in self._received:
            try:
                piece = self.sock.recv(4096)
            except ConnectionError:
                piece = b""
            if not piece:
                return None
            self._received += b"".join(self._seals.opener.feed(piece))
        said, _, self._received = self._received.partition(b"\n")
        return json.loads(said)


class Meeting(NamedTuple):
    """An endpoint of this host, and the environment of commands that meet there."""

    port: int
    environ: dict[str, str]

    def start(self, *words: str, join: str = "25", script: str = "echo $RANK") -> subprocess.Popen[str]:
        meet = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}"]
        argv = [sys.executable, "-m", "mslaunch", "--dialect", "torchrun", *meet, f"--rdzv-conf=join_timeout={join}"]
        return subprocess.Popen(
            [*argv, *words, "--no-python", "sh", "-c", script],
            env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def connect(self) -> socket.socket:
        """A connection with the command that listens, once it does."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), SECONDS)
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                select.select([], [], [], 0.02)

    def proved(self) -> Proved:
        """One of somebody who knows the secret."""
        sock, nonce = self.connect(), new_nonce()
        sock.sendall(f"{CALL} {nonce} peer {KIND}\n".encode())
        theirs, place, answer = line(sock).split()
        call = CallWords(nonce, theirs, "peer", KIND, place)
        assert answer == proof(HOST, TOKEN, call) and place == self.place
        sock.sendall(proof(CALLER, TOKEN, call).encode() + b"\n")
        return Proved(sock, seals(CALLER, TOKEN, call))

    @property
    def place(self) -> str:
        """The word for this meeting."""
        text = b"9:127.0.0.1%d:%d4:none" % (len(str(self.port)), self.port)
        return blake2b(text, digest_size=16).hexdigest()

    def prove_as_host(self, sock: socket.socket) -> Proved:
        """To a command that has called; it has said its first message then."""
        _, theirs, name, kind = line(sock).split()
        call = CallWords(theirs, new_nonce(), name, kind, self.place)
        sock.sendall(f"{call.host_nonce} {call.place} {proof(HOST, TOKEN, call)}\n".encode())
        assert line(sock).strip() == proof(CALLER, TOKEN, call)
        return Proved(sock, seals(HOST, TOKEN, call))


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    (tmp_path / "mslaunch").mkdir()
    (tmp_path / "mslaunch" / "rendezvous-secret").write_bytes(SECRET)
    (tmp_path / "mslaunch" / "rendezvous-secret").chmod(0o600)
    return Meeting(free_port(), {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"})


@pytest.fixture
def host(meeting: Meeting) -> Iterator[subprocess.Popen[str]]:
    """The command that listens."""
    with meeting.start() as process:
        try:
            yield process
        finally:
            process.kill()


def both_end_well(meeting: Meeting, host: subprocess.Popen[str]) -> str:
    """A command that knows the secret comes, and the job runs; what the host has said."""
    with meeting.start() as guest:
        try:
            out, err = guest.communicate(timeout=SECONDS)
        finally:
            guest.kill()
    first, said = host.communicate(timeout=SECONDS)
    assert (host.returncode, guest.returncode, first + out) == (0, 0, "0\n1\n"), (said, err)
    assert "Traceback" not in said + err
    return said


def noise(meeting: Meeting) -> None:
    for _ in range(3):
        make_noise(meeting.connect)


def without_the_secret(meeting: Meeting) -> None:
    with meeting.connect() as sock:
        nonce = new_nonce()
        sock.sendall(f"{CALL} {nonce} peer {KIND}\n".encode())
        theirs, place, _ = line(sock).split()
        sock.sendall(proof(CALLER, bytes(32), CallWords(nonce, theirs, "peer", KIND, place)).encode() + b"\n")
        sock.sendall(json.dumps(JOIN).encode() + b"\n")
        assert cut_off(sock)


def with_the_hosts_own_proof(meeting: Meeting) -> None:
    send_back_its_own_proof(meeting.connect, "peer", KIND)


def a_flood(meeting: Meeting) -> None:
    socks = [meeting.connect() for _ in range(300)]
    for sock in socks[:-8]:
        assert cut_off(sock)
    for sock in socks:
        sock.close()


@pytest.mark.parametrize("attack", [noise, without_the_secret, with_the_hosts_own_proof, a_flood])
def test_strangers_learn_nothing_and_the_others_meet(
    meeting: Meeting, host: subprocess.Popen[str], attack: Callable[[Meeting], None]
) -> None:
    attack(meeting)
    said = both_end_well(meeting, host)
    assert len(said.splitlines()) <= 7, "a few are named, not each of a flood"


ODD: list[Any] = [
    b"no json\n", b"[]\n", b"{}\n", b'{"a": 1, "b": 2}\n', b"[" * 40000 + b"\n", b"x" * 70000,
    {"join": None}, {"join": []}, {"join": ["h", "x", 2, 2, "none", 0, None]}, {"go": [1, [1, 1], 5, 1]},
    {"failed": ["h", "w", 1, 0]}, {"ready": 1}, {"over": "h"},
    {"join": ["h", 0, 2, 2, "none", 0, None]}, {"join": ["h", -5, 2, 2, "none", 0, None]}, {"join": [["h"], 1, 2]},
    {"done": 1}, {"join": ["h", 1, 2, 2, "none"]}, {"join": ["h", 1, 2, 2, "none", -1, None]},
    {"join": ["h", 1, 2, 2, "none", 0, 2]},
    b"\xff\n", {"join": ["h", float("inf"), 2, 2, "none", 0, None]},
]  # fmt: skip


@pytest.mark.parametrize("said", ODD, ids=range(len(ODD)))
def test_a_command_with_the_secret_that_says_what_has_no_meaning_is_cut_off(
    meeting: Meeting, host: subprocess.Popen[str], said: Any
) -> None:
    with meeting.proved() as odd:
        odd.say(said)
        answer = odd.hear()
        assert answer is None or "refused" in answer
    both_end_well(meeting, host)


def test_one_that_leaves_again_is_not_counted(meeting: Meeting, host: subprocess.Popen[str]) -> None:
    """It has closed its connection before the last one comes, and the host has seen that: it answers in order."""
    for _ in range(3):
        with meeting.proved() as odd:
            odd.say({"join": ["h", 1, 3, 3, "none", 0, None]})
            assert "refused" in odd.hear()
    both_end_well(meeting, host)


@contextmanager
def fake_host(meeting: Meeting, script: str = "echo $RANK") -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    """The connection of a command that has called, and that command."""
    with (
        socket.create_server(("127.0.0.1", meeting.port)) as server,
        meeting.start(script=script) as guest,
        server.accept()[0] as sock,
    ):
        yield sock, guest


@pytest.mark.parametrize(
    "go",
    [
        [0, [1, 1], 5, 1],
        [2, [1, 1], 5, 1],
        [1, [1, 0], 5, 1],
        [1, [1, 2], 5, 1],
        [1, [1, 1], 0, 1],
        [1, [1, 1], 70000, 1],
        [1, [1, 1], 5, 0],
        [1, [1, 1], 5, 2],
        [1, [1, 1], 5],
        [],
        "x",
    ],
)
def test_a_host_that_says_what_cannot_be_starts_nothing(meeting: Meeting, go: Any) -> None:
    """It knows the secret; a command that called it says so and ends."""
    with fake_host(meeting) as (sock, guest):
        try:
            proved = meeting.prove_as_host(sock)
            assert "join" in proved.hear()
            proved.say({"go": go})
            out, err = guest.communicate(timeout=SECONDS)
        finally:
            guest.kill()
    assert (guest.returncode, out) == (1, "") and "Traceback" not in err and "ended before all had come" in err


def test_a_host_without_the_secret_gets_no_proof(meeting: Meeting) -> None:
    with fake_host(meeting) as (sock, guest):
        try:
            _, theirs, name, kind = line(sock).split()
            call = CallWords(theirs, new_nonce(), name, kind, meeting.place)
            sock.sendall(f"{call.host_nonce} {call.place} {proof(HOST, bytes(32), call)}\n".encode())
            assert sock.recv(4096) == b""
            out, err = guest.communicate(timeout=SECONDS)
        finally:
            guest.kill()
    assert (guest.returncode, out) == (1, "") and "does not know our secret" in err


def test_a_command_that_is_cut_off_after_its_proof_calls_again(meeting: Meeting) -> None:
    """A host may cut it off in a flood while the proof is on its way, and has then said nothing."""
    with socket.create_server(("127.0.0.1", meeting.port)) as server, meeting.start() as guest:
        server.settimeout(SECONDS)
        try:
            for _ in range(2):
                with server.accept()[0] as sock:
                    meeting.prove_as_host(sock)
            with server.accept()[0] as sock:
                proved = meeting.prove_as_host(sock)
                assert "join" in proved.hear()
                proved.say({"refused": "there are enough"})
                out, err = guest.communicate(timeout=SECONDS)
        finally:
            guest.kill()
    assert (guest.returncode, out) == (1, "") and "there are enough" in err and "ended" not in err


def test_a_host_that_answers_byte_by_byte_is_not_waited_for(meeting: Meeting) -> None:
    """Each byte would come in time, and a line has thousands of them."""
    gone = threading.Event()

    def dribble(server: socket.socket) -> None:
        with server.accept()[0] as sock:
            while not gone.wait(0.3):
                try:
                    sock.sendall(b"0")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", meeting.port)) as server:
        thread = threading.Thread(target=dribble, args=(server,))
        thread.start()
        with meeting.start(join="1") as guest:
            try:
                out, err = guest.communicate(timeout=SECONDS)
            finally:
                gone.set()
                guest.kill()
                thread.join()
    assert (guest.returncode, out) == (1, "") and "nobody could be reached there" in err


def test_one_that_was_refused_cannot_ask_again(meeting: Meeting, host: subprocess.Popen[str]) -> None:
    """Each time it would print a line at the host."""
    with meeting.proved() as odd:
        odd.say((json.dumps({"join": ["h", 1, 3, 3, "none", 0, None]}).encode() + b"\n") * 50)
        assert cut_off(odd.sock)
    assert both_end_well(meeting, host).count("cannot take part") == 1


def test_the_words_of_another_host_are_one_line_without_control_characters(meeting: Meeting) -> None:
    with fake_host(meeting, "sleep 60") as (sock, guest):
        try:
            proved = meeting.prove_as_host(sock)
            assert "join" in proved.hear()
            proved.say({"go": [1, [1, 1], 29999, 1]})
            proved.say({"failed": ["h\x1b[2J", "all is well\nmslaunch: rank 7 ended\x07", 3, 0]})
            _, err = guest.communicate(timeout=SECONDS)
        finally:
            guest.kill()
    (text,) = (one for one in err.splitlines() if "has failed on" in one)
    assert text.startswith("mslaunch: the job has failed on h?[2J: all is well mslaunch: rank 7 ended?")
    assert guest.returncode == 1 and "\x1b" not in err and "\x07" not in err


IN_A_JOB: list[Any] = [
    {"over": "h"}, {"ready": 7}, {"go": [1, [1, 1], 5, 1]}, {"failed": ["h", "w", 1, 9]}, {"failed": ["h", "w", 1, -1]},
    {"failed": "h"}, b"no json\n", JOIN,
]  # fmt: skip


@pytest.mark.parametrize("said", IN_A_JOB, ids=range(len(IN_A_JOB)))
def test_a_command_that_says_what_has_no_meaning_while_ranks_run_is_lost_and_replaced(
    meeting: Meeting, said: Any
) -> None:
    script = "if test $TORCHELASTIC_RESTART_COUNT = 0; then exec sleep 60; fi; echo again"
    join = {"join": ["h", 1, 2, 2, "none", 1, None]}
    with meeting.start("--max-restarts=1", script=script) as host:
        try:
            with meeting.proved() as odd:
                odd.say(join)
                assert odd.hear()["go"][3] == 1
                odd.say(said)
                assert cut_off(odd.sock)
            with meeting.proved() as other:
                other.say(join)
                answer = other.hear()
                assert (answer if "go" in answer else other.hear())["go"][3] == 2  # it may be told to wait
                other.say({"done": "h"})
                out, err = host.communicate(timeout=SECONDS)
        finally:
            host.kill()
    assert (host.returncode, out) == (0, "again\n") and "Traceback" not in err, err


# --- somebody in between


def test_a_host_of_another_meeting_lends_no_proof(meeting: Meeting, host: subprocess.Popen[str]) -> None:
    """Another user has the port of one endpoint, and hands each call on to a meeting of the same user elsewhere."""
    other = meeting._replace(port=free_port())
    for words in ([], ["--rdzv-id=k"]):
        with Relay(("127.0.0.1", other.port), ("127.0.0.1", meeting.port)) as relay:
            meeting.connect().close()
            with other.start(*words) as guest:
                try:
                    out, err = guest.communicate(timeout=SECONDS)
                finally:
                    guest.kill()
            assert relay.calls == 1 and not relay.records[UP], "it has said nothing to the other meeting"
        assert (guest.returncode, out) == (1, "") and "another job meets there" in err and "Traceback" not in err
    assert "or its line names another endpoint or --rdzv-id" in both_end_well(meeting, host)


def flip(record: bytes) -> bytes:
    return record[:-2] + bytes([record[-2] ^ 1]) + record[-1:]


def repeat(record: bytes) -> bytes:
    return record + record


CHANGES = pytest.mark.parametrize("change", [flip, repeat])


@CHANGES
def test_a_host_hears_nothing_that_was_changed_on_the_way(
    meeting: Meeting, host: subprocess.Popen[str], change: Callable[[bytes], bytes]
) -> None:
    with meeting.proved() as odd:
        record = odd.sealed(JOIN)
        odd.sock.sendall(change(record))
        assert cut_off(odd.sock)
    both_end_well(meeting, host)


@CHANGES
def test_a_command_that_has_called_hears_nothing_that_was_changed_on_the_way(
    meeting: Meeting, change: Callable[[bytes], bytes]
) -> None:
    with fake_host(meeting, "sleep 60") as (sock, guest):
        try:
            proved = meeting.prove_as_host(sock)
            assert "join" in proved.hear()
            sock.sendall(change(proved.sealed({"go": [1, [1, 1], 29999, 1]})))
            out, err = guest.communicate(timeout=SECONDS)
        finally:
            guest.kill()
    assert guest.returncode and not out and "somebody in between has changed it" in err and "Traceback" not in err
