"""Others call while a launcher waits for agents to call back: they get nothing, and the launch goes on without them.

srun is played by a script that holds its tasks back until the others have called: it gets the program and the token on
its standard input, and runs them for each node, as srun(1) does.
"""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from relay import DOWN, UP, Alter, Relay, pass_on
from strangers import cut_off, make_noise, send_back_its_own_proof

from mslaunch.protocol.call_proof import CALL, CALLER, CallWords, bytecode, new_nonce, proof

NODES = ("n1", "n2")
SRUN = f"""#!/bin/sh
printf '%s' "$*" >asked
cat >given.part && mv given.part given
read -r _ <go
while [ "$1" != "$PYTHON" ]; do shift; done
for node in {" ".join(NODES)}; do SLURMD_NODENAME=$node SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 "$@" <given & done
wait
"""
SECONDS = 30.0


class Waiting(NamedTuple):
    """A launcher that waits for its agents, and what is in the terms by which they call."""

    process: subprocess.Popen[str]
    directory: Path
    port: int
    token: bytes

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), SECONDS)

    def end(self) -> tuple[int, list[str]]:
        """Let the agents start; how the launch ends, and what its ranks printed."""
        return self.end_saying()[:2]

    def end_saying(self) -> tuple[int, list[str], str]:
        """The same, and what the launcher said."""
        (self.directory / "go").write_text("go\n")
        out, err = self.process.communicate(timeout=SECONDS)
        assert "Traceback" not in err
        return self.process.returncode, sorted(out.split()), err


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    os.mkfifo(tmp_path / "go")
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"}
    environ = {**os.environ, **job, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": sys.executable}
    words = [sys.executable, "-m", "mslaunch", "--agent-python", sys.executable, "sh", "-c", "echo $RANK"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while not (tmp_path / "given").exists():
                assert process.poll() is None and time.monotonic() < deadline, process.communicate()
                select.select([], [], [], 0.01)  # the file appears whole
            yield Waiting(process, tmp_path, *terms(tmp_path))
        finally:
            process.kill()
            os.close(os.open(tmp_path / "go", os.O_RDWR))  # srun may wait for that


def terms(directory: Path) -> tuple[int, bytes]:
    """The port and the token, which are behind the program."""
    size = re.search(r"\bn=(\d+)", (directory / "asked").read_text())
    assert size
    port, token, *_ = (directory / "given").read_bytes()[int(size[1]) :].decode().split(" ")
    return int(port), bytes.fromhex(token)


def through(waiting: Waiting, alter: Alter) -> Relay:
    """A relay that agents call instead of the launcher, at the same address."""
    relay = Relay(("127.0.0.1", 0), ("127.0.0.1", waiting.port), alter)
    given = waiting.directory / "given"
    mark = f"{waiting.port} {waiting.token.hex()} "
    given.write_bytes(
        given.read_bytes().replace(mark.encode(), mark.replace(str(waiting.port), str(relay.port)).encode())
    )
    return relay


def noise(waiting: Waiting) -> None:
    make_noise(waiting.connect)


def without_the_token(waiting: Waiting) -> None:
    with waiting.connect() as sock:
        nonce = new_nonce()
        sock.sendall(f"{CALL} {nonce} n1 {bytecode()}\n".encode())
        theirs, place, answer = sock.recv(4096).decode().split()
        assert waiting.token.hex() not in answer
        sock.sendall(proof(CALLER, bytes(32), CallWords(nonce, theirs, "n1", bytecode(), place)).encode() + b"\n")
        assert cut_off(sock)


def with_the_launchers_own_proof(waiting: Waiting) -> None:
    send_back_its_own_proof(waiting.connect, "n1", bytecode())


def under_another_name(waiting: Waiting) -> None:
    """A process of the job, which knows the token, for a node that the job has not."""
    with waiting.connect() as sock:
        nonce = new_nonce()
        sock.sendall(f"{CALL} {nonce} n3 {bytecode()}\n".encode())
        theirs, place, _ = sock.recv(4096).decode().split()
        sock.sendall(proof(CALLER, waiting.token, CallWords(nonce, theirs, "n3", bytecode(), place)).encode() + b"\n")
        assert cut_off(sock)


def a_line_that_does_not_end(waiting: Waiting) -> None:
    with waiting.connect() as sock:
        sock.sendall(f"{CALL} {new_nonce()} ".encode())
        assert cut_off(sock)


@pytest.mark.parametrize(
    "attack", [noise, without_the_token, with_the_launchers_own_proof, under_another_name, a_line_that_does_not_end]
)
def test_the_launch_goes_on(attack: Callable[[Waiting], None], waiting: Waiting) -> None:
    attack(waiting)
    assert waiting.end() == (0, ["0", "1"])


def test_a_flood_that_stays_does_not_keep_the_agents_out(waiting: Waiting) -> None:
    flood = [waiting.connect() for _ in range(300)]
    assert waiting.end() == (0, ["0", "1"])
    for sock in flood:
        sock.close()


def test_nobody_listens_once_all_have_called(waiting: Waiting) -> None:
    assert waiting.end() == (0, ["0", "1"])
    with pytest.raises(ConnectionRefusedError):
        waiting.connect()


def test_the_token_is_on_no_command_line_and_in_no_environment(waiting: Waiting) -> None:
    token = waiting.token.hex().encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            try:
                assert token not in Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:  # it has ended, or is another user's
                continue
    assert waiting.end()[0] == 0


# --- somebody in between


def test_whoever_passes_all_on_changes_nothing(waiting: Waiting) -> None:
    with through(waiting, pass_on) as relay:
        assert waiting.end() == (0, ["0", "1"])
        assert relay.calls == 2 and min(relay.records.values()) >= 4, "two agents, and more than their programs"


def flip(record: bytes) -> list[bytes]:
    return [record[:-5] + bytes([record[-5] ^ 1]) + record[-4:]]


def shorten(record: bytes) -> list[bytes]:
    size = int.from_bytes(record[:4], "big") - 1
    return [size.to_bytes(4, "big") + record[4:-1]]


def repeat(record: bytes) -> list[bytes]:
    return [record, record]


@pytest.mark.parametrize("change", [flip, shorten, repeat])
@pytest.mark.parametrize(
    ("direction", "number"), [(DOWN, 0), (DOWN, 1), (UP, 0), (UP, 1)], ids=["program", "down", "hello", "up"]
)
def test_whoever_changes_a_record_ends_the_connection_and_no_more(
    waiting: Waiting, direction: str, number: int, change: Callable[[bytes], list[bytes]]
) -> None:
    """The program of an agent, a frame to it, what it says first and later; each is seen by the side that it is for."""

    def alter(way: str, at: int, record: bytes) -> list[tuple[str, bytes]]:
        return [(way, one) for one in (change(record) if (way, at) == (direction, number) else [record])]

    with through(waiting, alter):
        code, out, err = waiting.end_saying()
    assert code and out in ([], ["0"], ["1"], ["0", "1"])
    assert "what has arrived is not what was sent: somebody in between has changed it" in err, err


def test_a_record_that_is_sent_back_is_refused(waiting: Waiting) -> None:
    def reflect(way: str, at: int, record: bytes) -> list[tuple[str, bytes]]:
        return [(way, record), (DOWN, record)] if (way, at) == (UP, 0) else [(way, record)]

    with through(waiting, reflect):
        code, _, err = waiting.end_saying()
    assert code and "somebody in between has changed it" in err, err


@pytest.mark.parametrize(("direction", "number"), [(DOWN, 0), (DOWN, 1), (UP, 0), (UP, 1)])
def test_whoever_cuts_the_connection_loses_the_host(waiting: Waiting, direction: str, number: int) -> None:
    def cut(way: str, at: int, record: bytes) -> list[tuple[str, bytes]] | None:
        return None if (way, at) == (direction, number) else [(way, record)]

    with through(waiting, cut):
        code, _, err = waiting.end_saying()
    assert code and "  n" in err, err


def test_whoever_leaves_out_the_end_of_a_program_starts_nothing(waiting: Waiting) -> None:
    def half(way: str, at: int, record: bytes) -> list[tuple[str, bytes]] | None:
        if (way, at) != (DOWN, 0):
            return [(way, record)] if not (way == DOWN and at) else None
        return [(way, record[: len(record) // 2])]

    with through(waiting, half):
        code, out, err = waiting.end_saying()
    assert (bool(code), out) == (True, []) and "no agent started there" in err, err
