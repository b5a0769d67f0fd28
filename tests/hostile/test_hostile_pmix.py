"""Another local user, who wants to be a rank of Open MPI: he would run programs as the user of the job (PMIx_Spawn).

He uses whatever all users may read: the kernel's tables, names of files, command lines.  libpmix believes the uid that
a client states, so his client states the victim's.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from other_user import BOUND, OUR_UID, UID, as_user, interpreter, python_as, run_as

pytestmark = pytest.mark.usefixtures("second_user")

ROOT = Path(__file__).resolve().parents[2]
RANK = r"""
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int c, char **v) { MPI_Init(&c, &v); MPI_Barrier(MPI_COMM_WORLD); puts("ready"); fflush(stdout); pause(); }
"""
#: for LD_PRELOAD: the client says that it is the victim
LIES = """
#include <stdlib.h>
#include <unistd.h>
uid_t getuid(void) { return atoi(getenv("STATED_UID")); }
uid_t geteuid(void) { return getuid(); }
gid_t getgid(void) { return getuid(); }
gid_t getegid(void) { return getuid(); }
"""
#: arguments: the library, the victim, and names of worlds; prints what was found, and who has joined
JOIN = r"""
import ctypes, glob, os, re, signal, sys

library, victim, *names = sys.argv[1:]
rows = [line.split() for line in open("/proc/net/tcp")][1:]
ports = [int(row[1][9:], 16) for row in rows if row[1][:8] == "0100007F" and row[3] == "0A" and row[7] == victim]

def hashed(name):  # as Open MPI 4.1 does, for the names of its segments
    value = 0
    for byte in name.encode():
        value = value + byte & 0xFFFFFFFF
        value = value + (value << 10) & 0xFFFFFFFF
        value ^= value >> 6
    value = value + (value << 3) & 0xFFFFFFFF
    value ^= value >> 11
    return value + (value << 15) & 0xFFFF7FFF

seen = {*os.listdir("/tmp"), *os.listdir("/dev/shm"), *(row.split()[-1] for row in open("/proc/net/unix"))}
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        seen.add(open(path, errors="replace").read())
    except OSError:
        pass
mine = [name for name in os.listdir("/dev/shm") if f".{victim}." in name]
wanted = {int(word, 16) for name in mine for word in name.split(".") if re.fullmatch("[0-9a-f]{7,8}", word)}
if not names:
    names = [name for name in (str(high << 16 | 1) for high in range(65536)) if hashed(name) in wanted]
    names += re.findall(r"[0-9]{6,10}-[0-9a-f]{32}", " ".join(seen))
print("ports", len(ports), "segments", len(wanted), "names", names, flush=True)
for port in ports:
    for name in names[:16]:
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            os.environ.update(PMIX_NAMESPACE=name, PMIX_RANK="0", PMIX_SECURITY_MODE="native", PMIX_GDS_MODULE="hash",
                              PMIX_BFROP_BUFFER_TYPE="PMIX_BFROP_BUFFER_NON_DESC", PMIX_VERSION="4.2.2")
            for kind in ("", "2", "21", "3", "4", "41"):
                os.environ[f"PMIX_SERVER_URI{kind}"] = f"mslaunch.0;tcp4://127.0.0.1:{port}"
            if ctypes.CDLL(library).PMIx_Init(ctypes.create_string_buffer(512), None, 0) == 0:
                print("JOINED as", name, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
"""
#: argument: the victim; connects to each of his ports and says nothing
KNOCK = r"""
import socket, sys
rows = [line.split() for line in open("/proc/net/tcp")][1:]
held = []
for row in rows:
    if row[1][:8] == "0100007F" and row[3] == "0A" and row[7] == sys.argv[1]:
        try:
            held.append(socket.create_connection(("127.0.0.1", int(row[1][9:], 16)), 1))
        except OSError:
            pass
print("connected", len(held), flush=True)
sys.stdin.read()
"""
#: argument: the victim; connects often to each port at which he begins to listen, and sends half of a first header
SNIPE = r"""
import os, socket, struct, sys, threading

victim = int(sys.argv[1])
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
wanted = struct.pack("=IHHIIBBBBI48x", 72, 20, 0x301, 1, 0, socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 1 << 10)

def listening():  # sock_diag(7)
    netlink.send(wanted)
    while True:
        data = netlink.recv(1 << 16)
        while data:
            size, kind = struct.unpack_from("=IH", data)
            if kind != 20:
                return
            port, address, uid = *struct.unpack_from("!H2x4s", data, 20), *struct.unpack_from("=I", data, 16 + 64)
            if uid == victim and address[:1] == b"\x7f":
                yield port
            data = data[size + 3 & ~3:]

threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
seen, held = set(), []
print("watching", flush=True)
while True:
    for port in set(listening()) - seen:
        seen.add(port)
        for _ in range(20):
            held.append(socket.socket())
            if held[-1].connect_ex(("127.0.0.1", port)) == 0:
                held[-1].send(bytes(8))
"""


class Victim:
    """A job of Open MPI that another user runs."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent", "PYTHONPATH": str(folder)}
        options = ["--oversubscribe", "--bind-to", "none", "--mpi", "pmix", "-n", "2"]
        self.process = as_user(OUR_UID, [interpreter(), "-m", "mslaunch", *options, *words], env=env)
        self.out = b""

    def expect(self, word: bytes, count: int = 2) -> None:
        assert self.process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            end = time.monotonic() + BOUND
            while self.out.count(word) < count:
                assert selector.select(end - time.monotonic()), f"no {word!r} in {self.out!r}"
                data = os.read(self.process.stdout.fileno(), 4096)
                assert data, self.process.communicate(timeout=BOUND)
                self.out += data

    def name(self) -> str:
        """The secret, which root can read."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found = [word for word in words if word.startswith(b"PMIX_NAMESPACE=")]
            if found and os.stat(f"/proc/{pid}").st_uid == OUR_UID:
                return found[0].decode().partition("=")[2]
        raise AssertionError("no rank")

    def end(self) -> str:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.communicate(timeout=BOUND)[1].decode()


@pytest.fixture
def folder(commons: Path, need: Callable[..., str]) -> Path:
    """The programs, and our package, where both users can read them."""
    shutil.copytree(ROOT / "mslaunch", commons / "mslaunch", ignore=shutil.ignore_patterns("__pycache__"))
    for name, compiler, code, *words in (
        ("rank", need("mpicc.openmpi"), RANK),
        ("lies.so", need("cc"), LIES, "-shared", "-fPIC"),
    ):
        (commons / f"{name}.c").write_text(code)
        built = [compiler, *words, "-o", str(commons / name), str(commons / f"{name}.c")]
        subprocess.run(built, check=True, capture_output=True, timeout=BOUND)
    run_as(0, ["chmod", "-R", "a+rX", str(commons)])
    return commons


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Victim]]:
    """Start a victim; it is ended with the test."""
    victims: list[Victim] = []

    def begin(*words: str) -> Victim:
        victims.append(Victim(folder, list(words) or [str(folder / "rank")]))
        return victims[-1]

    yield begin
    for victim in victims:
        victim.end()


def join(folder: Path, uid: int, *names: str) -> bytes:
    """What the client says that tries to join."""
    library = next((str(path) for path in Path("/usr/lib").glob("*/libpmix.so.2")), "")
    if not library:
        pytest.skip("NOT TESTED, not installed: libpmix2")
    env = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(folder / "lies.so"), "STATED_UID": str(OUR_UID), "HOME": "/"}
    return python_as(uid, JOIN, library, str(OUR_UID), *names, env=env).stdout


def test_what_all_can_read_does_not_make_one_a_rank(folder: Path, start: Callable[..., Victim]) -> None:
    victim = start()
    victim.expect(b"ready")
    said = join(folder, UID)
    assert b"JOINED" not in said
    assert b"ports 0" not in said and b"segments 0" not in said  # he did find something to try it with
    assert b"names []" in said
    assert victim.process.poll() is None
    assert b"JOINED" in join(folder, OUR_UID, victim.name())  # such a client can join, if it is ours


def test_another_user_who_knows_the_name_is_refused_and_ends_the_job(
    folder: Path, start: Callable[..., Victim]
) -> None:
    victim = start()
    victim.expect(b"ready")
    assert b"JOINED" not in join(folder, UID, victim.name())
    assert victim.process.wait(BOUND) == 1
    said = victim.end()
    assert f"another user (uid {UID}) tried to join the job as one of its MPI ranks on {os.uname().nodename}" in said
    assert "Traceback" not in said


def test_a_connection_of_another_user_that_says_nothing_holds_nobody_up(
    folder: Path, start: Callable[..., Victim]
) -> None:
    """libpmix reads a first message in its only thread, and waits for it without end."""
    go = folder / "go"
    wait = f'echo up; while [ ! -e "{go}" ]; do sleep 0.05; done; exec "{folder / "rank"}"'
    victim = start("sh", "-c", wait)
    victim.expect(b"up")
    words = [interpreter(), "-I", "-S", "-c", KNOCK, str(OUR_UID)]
    with as_user(UID, words, stdin=subprocess.PIPE) as stranger:
        assert stranger.stdin and stranger.stdout
        said = stranger.stdout.readline()
        assert said.startswith(b"connected ") and said != b"connected 0\n"
        go.touch()
        victim.expect(b"ready")
        stranger.stdin.close()
    said_to_user = victim.end()
    assert said_to_user.count(f"user {UID} of {os.uname().nodename} connected to a port of this job") == 1


def test_who_connects_before_the_agent_has_taken_the_port_holds_nobody_up(
    folder: Path, start: Callable[..., Victim]
) -> None:
    words = [interpreter(), "-I", "-S", "-c", SNIPE, str(OUR_UID)]
    with as_user(UID, words, stdin=subprocess.PIPE) as stranger:
        assert stranger.stdin and stranger.stdout
        assert stranger.stdout.readline() == b"watching\n"
        for _ in range(4):
            victim = start()
            victim.expect(b"ready")
            victim.end()
        stranger.stdin.close()
