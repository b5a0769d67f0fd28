"""What answers at an SSH port, or passes the packets on, announces more than it may, or goes on and on.

The client runs in a process of its own, whose memory is looked at: with the newest paramiko and with the oldest one.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "ssh"))

from sshd import SshLab  # noqa: E402

pytestmark = pytest.mark.sshd
BOUND = 60.0  # seconds
ROOM = 8  #: MiB that a connection may cost: a few packets of 256 KiB, the threads, and what Python keeps
HUGE = 0xFFFFFFFC  # bytes; a multiple of all block sizes with the 4 of the length
ZEROS = bytes(1 << 16)
#: opens a link to a host, says `up` once the command there runs, and how the link ended and how much memory it took
DIAL = """
import os, sys
from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.transport.ssh import reach_host, user_keys
from mslaunch.transport.ssh.paramiko_transport import transport_class
from mslaunch.transport.ssh.ssh_link import make_links

def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) >> 10 for line in file if line.startswith("VmHWM:"))

transport_class()
before = most()
name, home, port = sys.argv[1:]
nodes = [Node(name, 1, "test", port=int(port) or None)]
[link] = make_links(nodes, "cat", LinkPolicy(timeout=30.0), {"HOME": home, "PATH": os.environ["PATH"]}, print)
link.begin()
os.write(link.writer, b"up\\n")
try:
    while said := os.read(link.reader, 100):
        sys.stdout.buffer.write(said)
        sys.stdout.flush()
except ConnectionResetError:
    pass
assert link.wait(60)
print(link.failure())
print(most() - before)
"""
#: a ProxyCommand: it carries bytes on; once the FIFO has a byte, it says that a packet of HUGE bytes comes, and more
BETWEEN = f"""
import os, select, socket, sys
host, port, fifo = sys.argv[1:]
far, go = socket.create_connection((host, int(port))), os.open(fifo, os.O_RDWR)
while True:
    for source in select.select([0, far, go], [], [])[0]:
        data = far.recv(65536) if source is far else os.read(source, 65536)
        if source == go:
            data = {struct.pack(">I", HUGE)!r}
            while True:
                os.write(1, data)
                data = bytes(65536)
        if not data:
            sys.exit()
        far.sendall(data) if source == 0 else os.write(1, data)
"""


PYTHONS = ["newest", "oldest"]  # by the paramiko that they have


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    found = sys.executable if request.param == "newest" else os.environ.get("MSLAUNCH_TEST_LOWEST_PYTHON")
    if not found:
        pytest.skip("NOT TESTED, no environment with the lowest versions: scripts/test hostile")
    return found


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SshLab]:
    made = SshLab(tmp_path)
    yield made
    made.close()


@contextmanager
def listener(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a host that talks to one caller until that hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        waiting.settimeout(BOUND)

        def serve() -> None:
            host, _ = waiting.accept()
            with host:
                try:
                    talk(host)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(waiting.getsockname()[1])
        thread.join(BOUND)
        assert not thread.is_alive()


def dial(python: str, name: str, home: Path, port: int = 0) -> subprocess.Popen[str]:
    environ = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(home)}
    words = [python, "-c", DIAL, name, str(home), str(port)]
    return subprocess.Popen(words, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def end(child: subprocess.Popen[str]) -> tuple[str, int]:
    """How the link ended, and how many MiB it took."""
    try:
        out, _ = child.communicate(timeout=BOUND)
    finally:
        child.kill()
        child.wait()
    *said, grown = out.splitlines()
    return "\n".join(said), int(grown)


def huge_packet(host: socket.socket) -> None:
    host.sendall(b"SSH-2.0-listener\r\n" + struct.pack(">I", HUGE))
    while True:
        host.sendall(ZEROS)


def endless_line(host: socket.socket) -> None:
    while True:
        host.sendall(b"x" * (1 << 16))


def endless_lines(host: socket.socket) -> None:
    while True:
        host.sendall(b"welcome, " * 2000 + b"\r\n")


def endless_version(host: socket.socket) -> None:
    host.sendall(b"SSH-2.0-")
    endless_line(host)


@pytest.mark.parametrize(
    ("talk", "why"),
    [
        (huge_packet, "key exchange: it announced an SSH packet of more than 256 KiB"),
        (endless_line, "key exchange: it sent more than 64 KiB before its SSH version"),
        (endless_lines, "key exchange: it sent more than 64 KiB before its SSH version"),
        (endless_version, "key exchange: it sent more than 64 KiB before its SSH version"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_a_listener_that_announces_or_says_too_much(
    python: str, tmp_path: Path, talk: Callable[[socket.socket], None], why: str
) -> None:
    with listener(talk) as port:
        said, grown = end(dial(python, "127.0.0.1", tmp_path, port))
    assert why in said
    assert grown < ROOM


@pytest.mark.parametrize(
    ("python", "cipher"),
    [(python, f"aes{bits}-ctr") for python in PYTHONS for bits in (128, 256)] + [("newest", "aes128-gcm@openssh.com")],
    indirect=["python"],  # the oldest paramiko has no GCM
)
@pytest.mark.parametrize("mac", ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512"])
def test_a_packet_that_somebody_in_between_announces_after_login(
    python: str, lab: SshLab, tmp_path: Path, cipher: str, mac: str
) -> None:
    """Its length is clear text with GCM and encrypt-then-MAC; otherwise it becomes a number that nobody knows."""
    host = lab.sshd(known=False)
    lab.known_hosts(f"inside {host.known_line.split(' ', 1)[1]}")
    fifo, between = tmp_path / "go", tmp_path / "between.py"
    os.mkfifo(fifo)
    between.write_text(BETWEEN)
    proxy = f"{sys.executable} {between} {host.address} {host.port} {fifo}"
    lab.config(f"Host evil\n HostKeyAlias inside\n Ciphers {cipher}\n MACs {mac}\n ProxyCommand {proxy}\n")
    child = dial(python, "evil", lab.home)
    assert child.stdout
    assert child.stdout.readline() == "up\n"
    fifo.write_bytes(b"!")
    said, grown = end(child)
    assert "the connection was lost: " in said
    if "gcm" in cipher or "etm" in mac:
        assert "it announced an SSH packet of more than 256 KiB" in said
    assert grown < ROOM
