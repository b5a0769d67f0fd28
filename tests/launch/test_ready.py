"""--ready: programs that start once the one before them listens at a port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from launching import through_rsh

#: listens at a port when a line comes on its standard input, and tells each connection that it is there; it ends
#: after as many connections as its second argument says
HEAD = """
import os, socket, sys
os.write(1, b"head\\n")
sys.stdin.readline()
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    server.accept()[0].sendall(b"hello")
"""
#: connects once: who comes too early fails
WORKER = """
import os, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as client:
    said = f'rank {os.environ["RANK"]} of {os.environ["WORLD_SIZE"]} {client.recv(9).decode()}\\n'
    os.write(1, said.encode())
"""
#: waits for its end, or for a line
WAIT = "import sys; print('ready', flush=True); sys.stdin.readline()"


def python(text: str, *words: object) -> list[str]:
    return [sys.executable, "-S", "-c", text, *map(str, words)]


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port that is free, and that nobody else takes: the kernel gives out others while this one is bound."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as found:
        yield found


def head(port: int, connections: int) -> list[str]:
    return ["-n", "1", "--ready", str(port), *python(HEAD, port, connections)]


@pytest.mark.parametrize("hosts", [[], through_rsh("alpha:1", "beta:4")], ids=["here", "two hosts"])
def test_workers_start_when_the_head_listens(start, port, hosts):
    words = [*hosts, "--verbose", *head(port, 3), ":", "-n", "3", *python(WORKER, port)]
    job = start(words, stdin=subprocess.PIPE)
    job.expect(b"head")
    assert job.process.stdin
    job.process.stdin.write(b"listen\n")
    job.process.stdin.flush()
    ended = job.end()
    assert ended.code == 0, ended.err
    assert ended.lines == ["head", *(f"rank {rank} of 4 hello" for rank in (1, 2, 3))]
    assert f"rank 0 listens at port {port} on " in ended.err


@pytest.mark.parametrize("dialect", ["mpirun", "hydra"])
def test_the_port_of_the_job(run, dialect):
    """{master_port} is free on rank 0's host, and known to all ranks."""
    words = ["--dialect", dialect, "--fill", "-n", "1", "--ready", "{master_port}", *python(HEAD, "{master_port}", 1)]
    ended = run([*words, ":", "-n", "1", *python(WORKER, "{master_port}")])
    assert (ended.code, ended.lines) == (0, ["head", "rank 1 of 2 hello"]), ended.err


def test_each_program_waits_for_the_one_before(run, port):
    with held_port() as second:
        text = WORKER + HEAD.replace("argv[1]", "argv[2]").replace("argv[2])):", "argv[3])):")
        words = [*head(port, 1), ":", "-n", "1", "--ready", str(second), *python(text, port, second, 1)]
        ended = run([*words, ":", "-n", "1", *python(WORKER, second)])
    lines = ["head", "head", "rank 1 of 3 hello", "rank 2 of 3 hello"]
    assert (ended.code, ended.lines) == (0, lines), ended.err


def test_a_daemon_of_the_head_counts(run, port):
    """It has left the session and the family of the rank, as the servers that `ray start` leaves behind."""
    leaves = f"""
import os, signal, sys
if not os.fork():
    os.setsid()
    if not os.fork():
        exec({HEAD!r})
        os._exit(0)
    os._exit(0)
os.wait()
signal.pause()
"""
    words = ["--timeout", "25", "-n", "1", "--ready", str(port), *python(leaves, port, 1)]
    ended = run([*words, ":", "-n", "1", *python(WORKER + "sys.exit(7)", port)])
    assert (ended.code, ended.lines) == (7, ["head", "rank 1 of 2 hello"]), ended.err


def test_the_port_of_another_process_does_not_count(run):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = ["-n", "1", "--ready", str(port), "--ready-timeout", "0.5", *python("input()")]
        ended = run(
            ["--stdin", "none", *words[:-1], "import signal; signal.pause()", ":", "-n", "1", "echo", "started"]
        )
    assert (ended.code, ended.out) == (110, b""), ended.err
    assert f"port {port} is held by process " in ended.err and "but not by rank 0, which is waited for" in ended.err
    assert f"rank 0 did not listen at port {port} within 0.5 seconds (--ready-timeout) on " in ended.err
    assert "not started: rank 1" in ended.err


@pytest.mark.parametrize(("code", "expected"), [(0, 1), (3, 3)])
def test_a_head_that_ends_first_ends_the_job(run, port, code, expected):
    words = ["-n", "1", "--ready", str(port), "sh", "-c", f"exit {code}", ":", "-n", "2", "echo", "started"]
    ended = run(words)
    assert (ended.code, ended.out) == (expected, b"")
    assert f"rank 0, for whose port {port} the next program waits, ended with exit code {code} on " in ended.err
    assert "not started: ranks 1-2" in ended.err


def test_a_head_that_is_started_again(run, port, tmp_path):
    text = f"""
import os, pathlib, sys
if os.environ["MSLAUNCH_ATTEMPT"] == "1":
    sys.exit(3)
exec({HEAD!r})
"""
    words = ["--restart", "rank", "-n", "1", "--ready", str(port), *python(text, port, 1)]
    ended = run([*words, ":", "-n", "1", *python(WORKER, port)])
    assert (ended.code, ended.lines) == (0, ["head", "rank 1 of 2 hello"]), ended.err


def test_a_group_that_is_started_again(run, port):
    text = f"""
import os, sys
if os.environ["MSLAUNCH_ATTEMPT"] == "1":
    sys.exit(3)
exec({HEAD!r})
"""
    words = ["--restart", "group", "-n", "1", "--ready", str(port), *python(text, port, 1)]
    ended = run([*words, ":", "-n", "1", *python(WORKER, port)])
    assert (ended.code, ended.lines) == (0, ["head", "rank 1 of 2 hello"]), ended.err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait(start, port, signum):
    job = start(["-n", "1", "--ready", str(port), *python("import signal; print('ready', flush=True); signal.pause()"),
                 ":", "-n", "2", "echo", "started"])  # fmt: skip
    job.expect(b"ready")
    job.send(signum)
    ended = job.end()
    assert (ended.code, ended.out) == (1, b"ready\n"), ended.err
    assert "not started: ranks 1-2" in ended.err


def test_a_time_limit_ends_the_wait(run, port):
    words = ["--timeout", "3", "--report-state-on-timeout", "-n", "1", "--ready", str(port)]
    ended = run([*words, "sleep", "60", ":", "-n", "1", "echo", "started"])
    assert (ended.code, ended.out) == (110, b"")
    assert ended.err.count("not started") == 2, "in the table, and in the closing block"


def test_a_lost_host_ends_the_wait(start, port):
    """That of the head, whose agent is killed."""
    words = [*through_rsh("alpha:1", "beta:1"), "-n", "1", "--ready", str(port)]
    program = "import os, signal; os.write(1, b'ready %d %d\\n' % (os.getpid(), os.getppid())); signal.pause()"
    job = start([*words, *python(program), ":", "-n", "1", "echo", "started"])
    job.expect(b"\n")
    os.kill(int(job.out.split()[2]), signal.SIGKILL)
    ended = job.end()
    assert ended.code == 205 and b"started" not in ended.out, ended.err


def test_input_waits_for_its_rank(run, port, tmp_path):
    """Ranks that start later miss nothing of it."""
    path = tmp_path / "input"
    path.write_text("listen\n" + "x" * 200_000)
    text = WORKER + "os.write(1, b'%d\\n' % len(sys.stdin.read()))"
    now = HEAD.replace("sys.stdin.readline()", "")
    words = [
        "--stdin",
        "1",
        "-n",
        "1",
        "--ready",
        str(port),
        *python(now, port, 1),
        ":",
        "-n",
        "1",
        *python(text, port),
    ]
    with path.open() as stdin:
        ended = run(words, stdin=stdin)
    assert (ended.code, ended.lines) == (0, ["200007", "head", "rank 1 of 2 hello"]), ended.err


def test_nothing_waits_for_the_last_program(run):
    ended = run(["-n", "1", "--ready", "6379", "touch", "x"])
    assert ended.code == 1 and len(ended.err.splitlines()) == 2
    assert ended.err.startswith("mslaunch: --ready 6379: no program follows this one")
