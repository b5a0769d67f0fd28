"""torchrun's command line, run: several hosts by one command and by one each, its logs, its port, what is left."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launching import Job, Result, environment, free_port, through_rsh

SHOW = ["sh", "-c", "echo $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $GROUP_WORLD_SIZE"]


def torchrun(*words: object, **env: str) -> Job:
    return Job(["--dialect", "torchrun", *map(str, words)], environment(**env))


def run(*words: object, **env: str) -> Result:
    job = torchrun(*words, **env)
    done = job.end()
    job.wait_gone()
    return done


def test_one_command_for_all_hosts() -> None:
    done = run(*through_rsh("n1", "n2"), "--nproc-per-node=2", "--no-python", *SHOW)
    assert (done.code, done.lines) == (0, ["0 0 0 4 2", "1 1 0 4 2", "2 0 1 4 2", "3 1 1 4 2"]), done.err


def test_hosts_beyond_the_most_are_not_used() -> None:
    hosts = through_rsh("n1", "n2", "n3")
    done = run(*hosts, "--nnodes=1:2", "--no-python", *SHOW)
    assert (done.code, done.lines) == (0, ["0 0 0 2 2", "1 0 1 2 2"]), done.err
    done = run(*hosts, "--nnodes=4", "--no-python", *SHOW)
    assert done.code == 1 and "3 hosts can be used" in done.err and not done.out


def test_logs_of_several_hosts_lie_with_the_launcher(tmp_path: Path) -> None:
    words = ["--nproc-per-node=2", f"--log-dir={tmp_path}/logs", "-t", "1:1", "-r", "1", "--no-python"]
    done = run(*through_rsh("n1", "n2"), *words, "sh", "-c", "echo said by $RANK; echo $TORCHELASTIC_ERROR_FILE >&2")
    assert done.code == 0 and done.lines == ["[default1]:said by 1", "[default1]:said by 3"], done.err
    files = sorted((tmp_path / "logs").glob("*/attempt_0/*/stdout.log"))
    assert [(path.parent.name, path.read_text()) for path in files] == [(r, f"said by {r}\n") for r in "0123"]
    said = sorted(word for word in done.err.split() if word.endswith("error.json"))
    assert said == [str(path.with_name("error.json")) for path in files]


def test_one_command_on_each_host() -> None:
    words = ["--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    jobs = [torchrun(*words, f"--node-rank={node}", "--no-python", *SHOW) for node in (0, 1)]
    ends = [job.end() for job in jobs]
    assert [end.lines for end in ends] == [["0 0 0 4 2", "1 1 0 4 2"], ["2 0 1 4 2", "3 1 1 4 2"]], ends
    assert [end.code for end in ends] == [0, 0]


MEETS = """
import os, socket, sys
place = "127.0.0.1", int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    server = socket.create_server(place)
line = socket.create_connection(place)
if os.environ["RANK"] == "0":
    both = [server.accept()[0] for _ in range(2)]
    sys.stdin.read()
else:
    line.recv(1)
"""


def test_a_host_that_was_forgotten_is_told(tmp_path: Path) -> None:
    """The ranks that are here wait for the others in silence."""
    (tmp_path / "meets.py").write_text(MEETS)
    words = ["--nnodes=2", f"--master-port={free_port()}", "--no-python", sys.executable, tmp_path / "meets.py"]
    first = Job(["--dialect", "torchrun", *map(str, words)], environment(), stdin=subprocess.PIPE)
    said = first.expect_error(b"-H HOST1,HOST2\n").decode()
    assert (
        f"mslaunch: 1 of 2 ranks is here; they wait for 1 more at 127.0.0.1, {words[1][9:].replace('port=', 'port ')}\n"
        in said
    )
    assert "--node-rank (0 here, 1 there)" in said
    second = torchrun("--node-rank=1", *words)
    first.expect_error(b"all 2 are here")
    ends = [first.end(), second.end()]
    assert [end.code for end in ends] == [0, 0], ends
    for job in (first, second):
        job.wait_gone()


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(f"--master-port={port}", "--no-python", "touch", tmp_path / "ran")
    assert done.code == 1 and f"port {port} is taken by process" in done.err
    assert not (tmp_path / "ran").exists()


def test_all_ranks_again_with_a_directory_for_each_attempt(tmp_path: Path) -> None:
    script = 'echo $TORCHELASTIC_RESTART_COUNT; test $RANK != 1 || test "$TORCHELASTIC_RESTART_COUNT" = 2 || exit 5'
    words = ["--nproc-per-node=2", "--max-restarts=2", f"--log-dir={tmp_path}", "-r", "3", "--no-python"]
    done = run(*words, "sh", "-c", script)
    assert done.code == 0 and not done.out, done.err
    found = {str(path.relative_to(path.parents[2])): path.read_text() for path in tmp_path.rglob("stdout.log")}
    assert found == {f"attempt_{n}/{rank}/stdout.log": f"{n}\n" for n in range(3) for rank in range(2)}


def test_the_exception_of_a_rank_is_told_and_passed_on(tmp_path: Path) -> None:
    text = json.dumps({"message": {"message": "ValueError: so it is", "extraInfo": {"timestamp": "1"}}})
    script = f"test $RANK = 0 || {{ echo '{text}' > $TORCHELASTIC_ERROR_FILE; exit 9; }}"
    words = ["--nproc-per-node=2", f"--log-dir={tmp_path}/logs", "--no-python", "sh", "-c", script]
    done = run(*words, TORCHELASTIC_ERROR_FILE=str(tmp_path / "ours"))
    assert done.code == 1 and "exit code 9" in done.err and "ValueError: so it is" in done.err
    assert json.loads((tmp_path / "ours").read_text())["message"]["errorCode"] == 9


@pytest.mark.parametrize("text", ["", "{", "[]", '{"message": 3}', "\\377"])
def test_an_error_file_may_hold_anything(text: str, tmp_path: Path) -> None:
    script = f"printf '{text}' > $TORCHELASTIC_ERROR_FILE; exit 9"
    done = run(f"--log-dir={tmp_path}", "--no-python", "sh", "-c", script)
    assert done.code == 1 and "exit code 9" in done.err and "Traceback" not in done.err


def test_nothing_is_left_in_the_directory_for_temporary_files(tmp_path: Path) -> None:
    assert run("--nproc-per-node=2", "--no-python", "true", TMPDIR=str(tmp_path)).code == 0
    assert not list(tmp_path.iterdir())
    assert run("-r", "3", "--no-python", "echo", "kept", TMPDIR=str(tmp_path)).code == 0
    (kept,) = tmp_path.rglob("stdout.log")
    assert kept.read_text() == "kept\n" and (tmp_path / kept.relative_to(tmp_path).parts[0]).stat().st_mode & 0o77 == 0


def test_a_launcher_as_the_program_is_told(tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "torchrun").chmod(0o755)
    job = Job(["--oversubscribe", "-n", "2", str(tmp_path / "torchrun"), "t.py"], environment())
    assert "2 ranks of it are 2 jobs, not one" in job.end().err
    job = Job(["--oversubscribe", "-n", "2", sys.executable, "-m", "this"], environment())
    assert "jobs" not in job.end().err
