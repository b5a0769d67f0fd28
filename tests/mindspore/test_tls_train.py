"""Training with TLS between all processes, as the example does it: whoever has no certificate of ours is kept out."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainings import EXAMPLES, MARKS, Launch, check_training, launch_in

pytestmark = [*MARKS, pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")]
SECRETS = {"MS_TLS_SERVER_PASSWORD": "one of\"them's", "MS_TLS_CLIENT_PASSWORD": "another $HOME"}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launch_in(tmp_path) as launch:
        yield launch


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    directory = tmp_path / "certificates"
    script = ["sh", str(EXAMPLES / "make_certificates.sh"), str(directory)]
    subprocess.run(script, env={**os.environ, **SECRETS}, check=True, timeout=60)
    return directory


def test_training_with_tls(launch: Launch, certificates: Path) -> None:
    logs = launch.directory / "logs"
    words = ["--worker_num=2", "--log_dir=logs", "--join=True", str(EXAMPLES / "net_tls.py")]
    job = launch.start(*words, TLS_DIR=str(certificates), **SECRETS)
    job.wait_for("is successfully initialized", logs / "scheduler.log")  # the ranks have met, and go on
    scheduler = launch.pid("MS_ROLE=MS_SCHED")
    assert b"net_tls.py" in Path(f"/proc/{scheduler}/cmdline").read_bytes()  # it runs the program, to be configured
    environ = Path(f"/proc/{scheduler}/environ").read_bytes().split(b"\0")
    port = next(int(word.partition(b"=")[2]) for word in environ if word.startswith(b"MS_SCHED_PORT="))
    assert_strangers_are_kept_out(port, certificates / "ca.crt")
    for pid in launch.left():
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert not any(secret.encode() in command for secret in SECRETS.values())
    assert job.end() == 0, job.said
    for rank in range(2):
        check_training((logs / f"worker_{rank}.log").read_text(), rank, 2)


def assert_strangers_are_kept_out(port: int, authority: Path) -> None:
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as wire,
        context.wrap_socket(wire) as encrypted,  # fails unless the authority is the scheduler's
        pytest.raises(ssl.SSLError, match=r"certificate.required|handshake.failure"),
    ):
        assert encrypted.version() in ("TLSv1.2", "TLSv1.3")
        encrypted.recv(1)
