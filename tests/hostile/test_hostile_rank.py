"""A rank that speaks PMI and PMIx as no library does: too much, out of order, or anything at all.

Its agent and the launcher stay up, or end the job with one sentence that names the rank; in bounded time and memory.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOUND = 60.0
#: megabytes above normal that an agent may take for a rank; the largest spawn has 4 MiB in 65,536 words
MORE = 64
RANK = r"""
import os, random, signal, socket, struct

def peak():  # megabytes of the agent, which is our parent
    lines = open(f"/proc/{os.getppid()}/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) >> 10

def say(data):
    try:
        os.write(3, data) if len(data) < 4096 else socket.socket(fileno=os.dup(3)).sendall(data)
    except OSError:
        pass

def hear_line(command):
    say(command)
    return hear()

def hear(count=1):
    heard = b""
    while heard.count(b"\n") < count:
        data = os.read(3, 1 << 16)
        if not data:
            break
        heard += data
    return heard

INIT = b"cmd=init pmi_version=1 pmi_subversion=1\n"

def init():
    say(INIT)
    hear()

def init2():
    say(b"cmd=init pmi_version=2 pmi_subversion=0\n")
    hear()

def block(words):
    return b"mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=1\nspawnssofar=1\n" + words + b"endcmd\n"
"""


def run(folder: Path, code: str, *options: str, ranks: int = 1) -> tuple[int, str, str]:
    """A job of ranks that do this; its exit code and what it says."""
    (folder / "rank.py").write_text(RANK + code)
    words = [sys.executable, "-m", "mslaunch", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *options]
    done = subprocess.run(
        [*words, sys.executable, "-S", "-u", str(folder / "rank.py")],
        capture_output=True, text=True, timeout=BOUND, check=False, stdin=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


NO_PMI = {
    "any bytes": "say(random.Random(1).randbytes(100000) + b'\\n')",
    "a line without end": "init(); say(b'cmd=' + b'a' * 70000)",
    "twice init": "init(); say(INIT)",
    "twice in a barrier": "init(); say(b'cmd=barrier_in\\n' * 2)",
    "zeros": "init(); say(b'\\0' * 70000)",
    "a length that is negative": "init2(); say(b'  -1  cmd=fullinit;')",
    "a spawn of a million words": "init(); say(block(b'x=y\\n' * 900000))",
    "a spawn without end": "init(); say(b'mcmd=spawn\\n' + b'a' * (5 << 20))",
    "a frame of 200,000 words": "init2(); say(b'%6d' % 960000 + b'a=b;' * 240000)",
    "questions without end": "init(); say(b'cmd=barrier_in group=WORLD:%d\\n' * 300 % (*range(300),))",
}


@pytest.mark.parametrize("code", NO_PMI.values(), ids=NO_PMI)
def test_words_that_are_no_pmi_end_the_job_in_a_sentence(tmp_path: Path, code: str) -> None:
    rc, out, err = run(tmp_path, f"if os.environ['PMI_RANK'] == '0': {code}\nsignal.pause()\n", ranks=2)
    assert (rc, out) == (1, "")
    assert err.count("mslaunch: rank 0 does not keep to the protocol of MPI's start-up") == 1


def test_programs_without_end_cost_little_each(tmp_path: Path) -> None:
    """One rank sits in its first MPI program, so what each program of the other one has put is kept: up to 8 MiB."""
    code = """
before = peak()
init()
if os.environ["PMI_RANK"] == "1":
    say(b"cmd=barrier_in\\n")
    signal.pause()
name = hear_line(b"cmd=get_my_kvsname\\n").split(b"kvsname=")[1].split()[0]
words = b"cmd=put kvsname=" + name + b" key=k value=v\\ncmd=finalize\\n" + INIT
for _ in range(300):
    say(words * 100)
    heard = hear(300)
assert b"msg=no_room" in heard, heard[-200:]
print("more", peak() - before, flush=True)
os.kill(os.getpid(), 9)
"""
    rc, out, err = run(tmp_path, code, ranks=2)
    assert rc == 137, err
    assert int(out.split()[1]) < MORE


def test_spawns_that_wait_are_few(tmp_path: Path) -> None:
    """Each may have 4 MiB.  The launcher, which is stopped until the others are refused, sees four of them."""
    code = """
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

init()
before = peak()
launcher = parent(parent(os.getppid()))  # of the guard of the agent
os.kill(launcher, signal.SIGSTOP)
try:
    say(block(b"arg1=" + b"x" * (1 << 20) + b"\\nargcnt=1\\n") * 20)
    heard = hear(16)
finally:
    os.kill(launcher, signal.SIGCONT)
print(heard.count(b"too_many_spawns"), heard.count(b"rc=1") + hear(4).count(b"rc=1"), flush=True)
print("more", peak() - before, flush=True)
os.kill(os.getpid(), 9)
"""
    rc, out, err = run(tmp_path, code)
    assert rc == 137, err
    limited, refused, _, more = out.split()
    assert (limited, refused) == ("16", "20") and int(more) < MORE


def test_words_that_are_no_pmix_end_at_the_port(tmp_path: Path) -> None:
    """Connections of a rank that say nothing, or anything, do not keep the others from MPI_Init."""
    compiler = shutil.which("mpicc.openmpi")
    if not compiler:
        pytest.skip("NOT TESTED, not installed: mpicc.openmpi")
    (tmp_path / "mpi.c").write_text(
        "#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); MPI_Finalize(); return 0; }\n"
    )
    program = tmp_path / "mpi"
    subprocess.run([compiler, "-o", program, tmp_path / "mpi.c"], check=True, timeout=BOUND)
    code = f"""
before, made = peak(), random.Random(1)
port = int(os.environ["PMIX_SERVER_URI41"].rpartition(":")[2])
held = []
for number in range(200):
    sock = socket.create_connection(("127.0.0.1", port))
    size = made.randrange(300)
    data = struct.pack("=iIII", -1, 0, made.choice([size, size + 1, 1 << 31]), 0) + made.randbytes(size)
    sock.sendall(b"" if number % 2 else data)
    held.append(sock)
print("more", peak() - before, flush=True)
for sock in held:
    os.set_inheritable(sock.fileno(), True)
os.execv({str(program)!r}, [{str(program)!r}])
"""
    rc, out, err = run(tmp_path, code, "--mpi", "pmix", ranks=2)
    assert rc == 0, err
    assert all(int(line.split()[1]) < MORE for line in out.splitlines())
