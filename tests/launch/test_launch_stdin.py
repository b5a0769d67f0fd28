"""Standard input: ranks get all of it at the speed of the slowest reader; and inputs that are not read."""

from __future__ import annotations

import hashlib
import os
import pty
import subprocess
import tempfile

import pytest
from launching import COMMAND, environment, memory_of, program, state_of, through_rsh, wait_until

LOCAL = ["--oversubscribe"]
WHERE = pytest.mark.parametrize(
    "where", [LOCAL, [*through_rsh("alpha:2", "beta:2"), "--map-by", "node"]], ids=["local", "two hosts"]
)
NOTHING = hashlib.sha256().hexdigest()


def given(data: bytes):
    """A file with `data`, at its beginning."""
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file


@WHERE
@pytest.mark.parametrize(("option", "readers"), [([], [0]), (["--stdin", "all"], [0, 1, 2]), (["--stdin", "none"], []),
                                                 (["--stdin", "2"], [2])])  # fmt: skip
def test_ranks_that_read_standard_input(start, where, option, readers):
    data = os.urandom(300_000)
    with given(data) as file:
        ended = start([*where, *option, "-n", "3", *program("digest")], stdin=file).end()
    full = f"{len(data)} {hashlib.sha256(data).hexdigest()}"
    assert ended.lines == [f"rank {rank} read {full if rank in readers else '0 ' + NOTHING}" for rank in range(3)]


@WHERE
def test_a_slow_reader_gets_everything(start, where):
    """5 MB through a pipe, to a rank that takes its time: whole, and no process grows."""
    data = os.urandom(5_000_000)
    job = start([*where, "-n", "1", *program("digest", "slow")], stdin=subprocess.PIPE)
    job.process.stdin.write(data)
    peaks = {pid: memory_of(pid) for pid, line in job.left().items() if "digest" in line}
    ended = job.end(60)
    assert ended.out.decode() == f"rank 0 read {len(data)} {hashlib.sha256(data).hexdigest()}\n"
    assert peaks and max(peaks.values()) < 60


@WHERE
def test_a_fast_and_a_slow_reader(start, where):
    data = os.urandom(1_000_000)
    script = 'test $OMPI_COMM_WORLD_RANK = 0 && exec "$@" slow; exec "$@"'
    with given(data) as file:
        ended = start(
            [*where, "-n", "2", "--stdin", "all", "sh", "-c", script, "sh", *program("digest")], stdin=file
        ).end()
    assert ended.lines == [f"rank {rank} read {len(data)} {hashlib.sha256(data).hexdigest()}" for rank in (0, 1)]


@WHERE
def test_a_rank_that_never_reads(start, where, tmp_path):
    """The writer is made to wait, once what a few buffers hold is under way."""
    job = start([*where, "-n", "1", *program("wait", tmp_path / "go")], stdin=subprocess.PIPE)
    job.expect(b"ready")
    fd = job.process.stdin.fileno()
    os.set_blocking(fd, False)
    sent = 0
    while _writable(fd):
        try:
            sent += os.write(fd, bytes(1 << 16))
        except BlockingIOError:
            continue
        assert sent < 8_000_000
    assert max(memory_of(pid) for pid, line in job.left().items()) < 60
    (tmp_path / "go").touch()
    job.process.stdin.close()
    job.process.stdin = None
    assert job.end().code == 0


def _writable(fd: int) -> bool:
    import select

    return bool(select.select([], [fd], [], 0.5)[1])


@WHERE
def test_the_end_of_an_empty_input(run, where):
    ended = run([*where, "-n", "2", *program("digest")], stdin=subprocess.DEVNULL)
    assert ended.lines == [f"rank {rank} read 0 {NOTHING}" for rank in (0, 1)]


@WHERE
def test_an_input_may_have_ended_before(start, where):
    job = start([*where, "-n", "1", *program("digest")], stdin=subprocess.PIPE)
    job.process.stdin.close()
    job.process.stdin = None
    assert job.end().out.decode() == f"rank 0 read 0 {NOTHING}\n"


@WHERE
def test_an_input_that_never_ends_does_not_hold_the_job(start, where):
    job = start([*where, "-n", "1", "true"], stdin=subprocess.PIPE)
    assert job.process.wait(20) == 0
    job.end()


def test_a_rank_may_end_without_reading_everything(start):
    with given(b"first\n" + b"x" * 3_000_000) as file:
        ended = start(["-n", "1", "sh", "-c", "read line; echo $line"], stdin=file).end()
    assert (ended.code, ended.out) == (0, b"first\n")


def test_lines_go_back_and_forth(start):
    job = start(["-n", "1", "cat"], stdin=subprocess.PIPE)
    for number in range(20):
        os.write(job.process.stdin.fileno(), b"line %d\n" % number)
        job.expect(b"line %d\n" % number)
    assert job.end().code == 0


def test_a_loop_of_a_shell_keeps_its_input(tmp_path):
    """`while read host; do mslaunch --stdin none ...; done < hosts` sees every line."""
    script = 'while read name; do "$@" -n 1 echo "$name" || exit 1; done'
    ended = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, "--stdin", "none"],
        input=b"one\ntwo\nthree\n", env=environment(), cwd=tmp_path, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert ended.stdout == b"one\ntwo\nthree\n"


def _in_terminal(words, tmp_path, foreground):
    """The command in a session of its own terminal; in the background, a group of its own.  Master fd and pid."""
    pid, master = pty.fork()
    if not pid:
        try:
            if not foreground:
                inner = os.fork()
                if inner:
                    os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
                os.setpgid(0, 0)
            os.chdir(tmp_path)
            os.execve(COMMAND[0], [*COMMAND, *words], environment())
        finally:
            os._exit(99)
    return pid, master


def _read_until(master: int, word: bytes) -> bytes:
    import select

    data = b""
    while word not in data:
        assert select.select([master], [], [], 30)[0], data
        try:
            more = os.read(master, 4096)
        except OSError:
            more = b""
        assert more, data
        data += more
    return data


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_terminal_in_the_foreground_is_read(tmp_path):
    pid, master = _in_terminal(["-n", "1", "sh", "-c", "echo begun; read line; echo got $line"], tmp_path, True)
    try:
        _read_until(master, b"begun")
        os.write(master, b"words\n")
        _read_until(master, b"got words")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(master)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_terminal_in_the_background_is_left_alone(tmp_path):
    """Reading it would stop the launcher (SIGTTIN)."""
    words = ["-n", "1", *program("wait", tmp_path / "go")]
    pid, master = _in_terminal(words, tmp_path, False)
    try:
        said = _read_until(master, b"ready")
        os.write(master, b"for the shell\n")
        rank = int(said.split(b"ready")[1].split()[0])
        assert state_of(rank) in "SRD"
        (tmp_path / "go").touch()
        wait_until(lambda: state_of(rank) in ("", "Z"))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(master)
