"""Another user has the port of one meeting, and borrows the proof of another meeting of the same user for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from launching import free_port
from strangers import line

SECONDS = 60.0
SECRET = b"0123456789abcdef0123456789abcdef"
GO = b'{"go": [1, [1, 1], 31337, 1]}\n'


class Borrower:
    """Hands what a caller says on to `port`, the answer back, and then speaks himself."""

    def __init__(self, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.obeyed: list[str] = []
        self._to = port
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS)
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return
            with caller, socket.create_connection(("127.0.0.1", self._to), SECONDS) as host:
                caller.settimeout(SECONDS)
                host.sendall(line(caller).encode())
                caller.sendall(line(host).encode())
                try:
                    self.obeyed.append(line(caller))  # its own proof
                    caller.sendall(GO)
                    while caller.recv(4096):
                        pass
                except (AssertionError, OSError):  # it has hung up
                    continue


def command(environ: dict[str, str], port: int, run: str) -> subprocess.Popen[str]:
    meet = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={run}"]
    return subprocess.Popen(
        [sys.executable, "-m", "mslaunch", "--dialect", "torchrun", *meet, "--rdzv-conf=join_timeout=20",
         "--no-python", "sh", "-c", "echo meets at $MASTER_PORT"],
        env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("run", ["one", "another"])
def test_the_proof_of_one_meeting_is_worthless_at_another(run: str, tmp_path: Path) -> None:
    """The run may have the same id: the endpoint differs."""
    (tmp_path / "mslaunch").mkdir()
    (tmp_path / "mslaunch" / "rendezvous-secret").write_bytes(SECRET)
    (tmp_path / "mslaunch" / "rendezvous-secret").chmod(0o600)
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    port = free_port()
    with command(environ, port, "one") as host:
        try:
            assert host.stderr
            while "waiting at" not in host.stderr.readline():  # it listens before that
                assert host.poll() is None
            borrower = Borrower(port)
            try:
                with command(environ, borrower.port, run) as guest:
                    out, err = guest.communicate(timeout=SECONDS)
            finally:
                borrower.close()
        finally:
            host.kill()
    assert (guest.returncode, out, borrower.obeyed) == (1, "", []), err
    assert "another job meets there" in err and "Traceback" not in err
