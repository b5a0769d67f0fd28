"""Names that another user takes first: the directory of detached jobs in /tmp, and claims to ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from other_user import UID, as_user, interpreter, python_as, run_as

from mslaunch.agent.port_claims import claim

pytestmark = pytest.mark.usefixtures("second_user")

ROOT = Path(__file__).resolve().parents[2]
VICTIM = 61000 + os.getpid() % 3000  # its names in /tmp are those of this run of the tests
REGISTRY = Path(f"/tmp/mslaunch-{VICTIM}")
SQUATS = {
    "directory": "import os, sys; os.mkdir(sys.argv[1]); os.chmod(sys.argv[1], 0o755)",
    "open directory": "import os, sys; os.mkdir(sys.argv[1]); os.chmod(sys.argv[1], 0o777)",
    "link": "import os, sys; os.symlink('/etc', sys.argv[1])",
    "file": "import sys; open(sys.argv[1], 'w')",
}

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def run(commons: Path) -> Iterator[Run]:
    """Run the command as a user who has a home; nothing of theirs in /tmp is left."""
    shutil.copytree(ROOT / "mslaunch", commons / "lib" / "mslaunch", ignore=shutil.ignore_patterns("__pycache__"))
    home = commons / "home"
    home.mkdir()
    os.chown(home, VICTIM, VICTIM)
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home), "PYTHONPATH": str(commons / "lib")}
    env["PYTHONDONTWRITEBYTECODE"] = "1"

    def command(*words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
        line = [interpreter(), "-m", "mslaunch", *words]
        return run_as(VICTIM, line, env={**env, **more}, cwd=home)

    remove()
    yield command
    remove()


def remove() -> None:
    if REGISTRY.is_symlink() or REGISTRY.is_file():
        REGISTRY.unlink()
    shutil.rmtree(REGISTRY, ignore_errors=True)


def squat(how: str) -> None:
    assert python_as(UID, SQUATS[how], str(REGISTRY)).returncode == 0
    assert REGISTRY.lstat().st_uid == UID


@pytest.mark.parametrize("how", SQUATS)
def test_detached_jobs_go_on_though_the_directory_is_taken(run: Run, how: str) -> None:
    squat(how)
    none = run("--status")
    assert (none.returncode, none.stderr) == (0, b"") and b"no job" in none.stdout
    began = run("--detach", "-n", "1", "sleep", "1000")
    assert began.returncode == 0, began
    assert b"job 1 runs" in began.stdout
    assert b"running" in run("--status", "1").stdout
    stopped = run("--stop", "1")
    assert (stopped.returncode, stopped.stderr) == (0, b""), stopped
    assert REGISTRY.lstat().st_uid == UID


def test_a_job_is_found_in_either_place(run: Run) -> None:
    """One began before the directory was taken, and one after it was given back; their numbers differ."""
    assert run("--detach", "-n", "1", "sleep", "1000").returncode == 0
    REGISTRY.rename(f"{REGISTRY}-kept")
    try:
        squat("directory")
        assert b"job 1 runs" in run("--detach", "-n", "1", "sleep", "1000").stdout, "nobody can know the other one"
        assert run("--stop", "1").returncode == 0
        remove()
    finally:
        os.rename(f"{REGISTRY}-kept", REGISTRY)
    third = run("--detach", "-n", "1", "sleep", "1000")
    assert b"job 2 runs" in third.stdout, third
    listed = run("--status").stdout
    assert sum(b"sleep 1000" in line for line in listed.splitlines()) == 3 and listed.count(b"running") == 2
    (REGISTRY / "1").rename(REGISTRY / "7")
    for job in ("7", "2"):
        assert run("--stop", job).returncode == 0


def test_the_message_names_who_can_remove_it(run: Run, commons: Path) -> None:
    """A directory that the user has named is the only one; what the sticky bit forbids is not advised."""
    taken = commons / "jobs"
    assert python_as(UID, SQUATS["directory"], str(taken)).returncode == 0
    refused = run("--status", MSLAUNCH_JOBS=str(taken))
    assert refused.returncode == 1
    assert (
        f"it belongs to user {UID}, whom you may ask".encode() in refused.stderr and b"MSLAUNCH_JOBS" in refused.stderr
    )


def test_the_removal_of_what_the_user_has_named_is_not_advised(run: Run, commons: Path) -> None:
    """As with MSLAUNCH_JOBS=/etc."""
    (commons / "needed").mkdir(mode=0o755)
    refused = run("--status", MSLAUNCH_JOBS=str(commons / "needed"))
    assert refused.returncode == 1
    assert b"remove" not in refused.stderr and b"name another one in MSLAUNCH_JOBS" in refused.stderr


#: the old names, and some that look like ours
SQUAT_PORTS = """\
import socket, sys
held = []
for port in range(8118 - 70, 8119):
    for name in (f"mslaunch port {port}", f"mslaunch port {port} 1 0000", f"mslaunch port {port} {sys.argv[1]} 0000",
                 f"\\n@mslaunch port {port} \\n"):
        held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        held[-1].bind("\\0" + name)
print("held", flush=True)
sys.stdin.read()
"""


def test_taken_names_do_not_take_ports(run: Run) -> None:
    """msrun asks for 8118, or one a little below it."""
    squatter = as_user(UID, [interpreter(), "-c", SQUAT_PORTS, str(os.getpid())], stdin=subprocess.PIPE)
    assert squatter.stdout and squatter.stdout.readline() == b"held\n"
    try:
        ended = run("--worker_num=1", "--local_worker_num=1", "--join=True", "python3", "-c", "pass")
        assert ended.returncode == 0, ended
    finally:
        squatter.communicate(timeout=30)


#: a listener that takes no more, and a row of /proc/net/unix that gives its name to a socket of the victim
FORGE = """\
import socket, sys
port, pid, inode = sys.argv[1:]
name = f"mslaunch port {port} {pid} 0"
held = [socket.socket(socket.AF_UNIX) for _ in range(6)]
held[0].bind("\\0" + name)
held[0].listen(0)
for one in held[1:5]:
    one.setblocking(False)
    one.connect_ex("\\0" + name)
held[5].bind(f"\\0x\\n: 2 0 0 1 1 {inode} @{name}")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET], ids=["unix", "tcp"])
def test_a_claim_that_is_forged_of_what_all_can_see_takes_no_port(family: int) -> None:
    """Pid and inode of a socket of ours are no secret."""
    port = 100_000 + 2 * os.getpid() + 1  # no port: nobody else on this machine claims it
    with socket.socket(family) as ours:
        if family == socket.AF_UNIX:
            ours.bind(f"\0control of {os.getpid()}")
        words = [interpreter(), "-c", FORGE, str(port), str(os.getpid()), str(os.fstat(ours.fileno()).st_ino)]
        forger = as_user(UID, words, stdin=subprocess.PIPE)
        assert forger.stdout and forger.stdout.readline() == b"held\n"
        try:
            claim(port).close()
        finally:
            forger.communicate(timeout=30)
