"""--health-check: before each start of the ranks; and --check on this host, by the real command."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import on_terminal, wait_until

HERE = os.uname().nodename


@pytest.fixture
def launch(run: Any) -> Any:
    """Run a command line to its end."""
    return lambda *words, **how: run([str(word) for word in words], **how)


def test_a_command_that_succeeds_is_not_told(launch: Any) -> None:
    ended = launch("--health-check", "sh -c 'echo fine; echo fine >&2'", "-n", 2, "echo", "ran")
    assert (ended.code, ended.out, ended.err) == (0, b"ran\nran\n", "")


def test_one_that_fails_refuses_the_launch(launch: Any, tmp_path: Path) -> None:
    marker = tmp_path / "started"
    ended = launch("--health-check", "sh -c 'echo the fan stands still; exit 7'", "-n", 2, "touch", marker)
    assert (ended.code, ended.out, marker.exists()) == (255, b"", False)
    for words in (f"mslaunch: {HERE}: ", "'sh'", "exit code 7", "| the fan stands still", "nothing was started"):
        assert words in ended.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--health-check", "nothing-like-this"], "was not found"),
        (["--health-check", "sleep 1000", "--health-check-timeout", "1"], "it did not end within 1 s"),
        (["--health-check", "sh -c 'kill -9 $$'"], "exit code 137"),
    ],
)
def test_ways_to_fail(launch: Any, options: list[str], words: str) -> None:
    ended = launch(*options, "-n", 1, "true")
    assert ended.code == 255
    assert words in ended.err


def test_it_runs_before_each_attempt(launch: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = f"sh -c 'echo asked >> {log}'"
    program = f"echo rank >> {log}; test $MSLAUNCH_ATTEMPT = 2"
    ended = launch("--health-check", command, "--restart", "group", "-n", 1, "sh", "-c", program)
    assert ended.code == 0, ended.err
    assert log.read_text().split() == ["asked", "rank", "asked", "rank"]


def test_a_host_that_falls_ill_between_attempts_ends_the_job(launch: Any, tmp_path: Path) -> None:
    ill = tmp_path / "ill"
    program = f"touch {ill}; exit 5"
    ended = launch("--health-check", f"test ! -e {ill}", "--restart", "group", "-n", 1, "sh", "-c", program)
    assert ended.code == 5
    why = f"not reached again: {HERE}: the command of --health-check, 'test', failed: ended with exit code 1"
    assert why in ended.err.splitlines()[-1] and "not started again: no spare host is left" in ended.err


def test_ctrl_c_while_it_runs(start: Any, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    job = start(
        ["--health-check", f"sh -c 'echo $$ > {told}.new; mv {told}.new {told}; exec sleep 1000'", "-n", "1", "true"]
    )
    wait_until(told.exists)
    os.kill(job.pid, signal.SIGINT)
    ended = job.end()
    assert ended.code == 1
    assert "SIGINT" in ended.err
    wait_until(lambda: not Path(f"/proc/{told.read_text().strip()}").exists())


# --- --check


def test_check_finds_nothing_of_what_works(launch: Any, tmp_path: Path) -> None:
    ended = launch("--check", "-n", 2, "touch", tmp_path / "started")
    assert (ended.code, ended.err, (tmp_path / "started").exists()) == (0, "", False)
    assert ended.out.decode().startswith("mslaunch: no problem found for 2 ranks on 1 host")
    assert len(ended.out.splitlines()) == 1


def test_a_terminal_shows_what_a_long_check_does(tmp_path: Path) -> None:
    """In a line that replaces itself, and is gone before the result is printed."""
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    words = ["--check", "--health-check", f"cat {fifo}", "-n", "1", "true"]
    code, shown = on_terminal(words, b"running", lambda: fifo.write_text(""))
    assert code == 0, shown
    before, after, result = shown.decode().split("\r\x1b[K")
    assert (before, after) == ("", "running --health-check on 1 host")
    assert result.startswith("mslaunch: no problem found for 1 rank on 1 host")


def test_check_alone(launch: Any) -> None:
    ended = launch("--check")
    assert (ended.code, ended.err) == (0, "")


def test_check_of_a_launch_that_would_fail(launch: Any, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--check", "--json", "-n", 2, "-x", f"MASTER_PORT={port}", "--wdir", tmp_path / "none")
        ended = launch(*words, sys.executable, "train.py")
    found = {one["check"]: one for one in json.loads(ended.out)["findings"]}
    assert (ended.code, ended.err) == (3, "")
    assert set(found) == {"port", "directory"}
    assert f"port {port} is taken by process {os.getpid()}" in found["port"]["what"]
    assert found["directory"]["repair"][0] == f"mkdir -p {tmp_path / 'none'}"


def test_the_command_runs_in_the_same_directory_with_and_without_check(launch: Any, tmp_path: Path) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    other.mkdir()
    words = ("--health-check", f"sh -c 'pwd >> {log}'", "--wdir", other, "-n", 1, sys.executable, "-c", "pass")
    assert (launch(*words).code, launch("--check", *words).code) == (0, 0)
    first, second = log.read_text().splitlines()
    assert first == second != str(other)


def test_a_port_that_is_no_number_is_not_looked_at(launch: Any) -> None:
    assert launch("--check", "-n", 1, "-x", "MASTER_PORT=2\u00b2", "true").code == 0


def test_logs_that_cannot_be_written(launch: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    places = {
        tmp_path / "file" / "logs": (tmp_path / "file", "it is no directory"),
        Path("/proc/x"): (Path("/proc"), "No such file or directory"),  # as root, too
        tmp_path / "nowhere" / "logs": (tmp_path / "nowhere", "it is a link that leads nowhere"),
    }
    for logs, (folder, why) in places.items():
        words = ("--output-filename", logs, "-n", 1, "true")
        ended = launch("--check", *words)
        assert ended.code == 3
        assert f"nothing can be written in {folder}: {why}" in ended.out.decode()
        assert ended.out.startswith(b"mslaunch: 1 finding on this host; no rank was started")
        assert launch(*words).code != 0


def test_a_check_leaves_nothing_where_logs_go(launch: Any, tmp_path: Path) -> None:
    logs = tmp_path / "a" / "b"
    assert launch("--check", "--output-filename", logs, "-n", 1, "true").code == 0
    assert list(tmp_path.iterdir()) == []
    words = ("--dialect", "hydra", "-outfile-pattern", "a/out.txt", "-n", 1, "true")
    assert launch(*words).code == 0
    before = sorted((tmp_path / "a").iterdir())
    ended = launch(words[0], words[1], "--check", *words[2:])  # the file exists, as does its directory
    assert (ended.code, sorted((tmp_path / "a").iterdir())) == (0, before), ended


def test_the_directory_for_temporary_files_is_that_of_the_ranks(launch: Any, tmp_path: Path) -> None:
    ended = launch("--check", "--json", "-n", 1, "-x", f"TMPDIR={tmp_path}", "true")
    assert json.loads(ended.out)["hosts"][0]["facts"]["tmp"] == str(tmp_path)
    ended = launch("--check", "-n", 1, "-x", f"TMPDIR={tmp_path / 'none'}", "true")
    assert (ended.code, f"nothing can be written in {tmp_path / 'none'}" in ended.out.decode()) == (3, True)


def test_ranks_that_have_no_place(launch: Any) -> None:
    ended = launch("--check", "-n", 9, "-H", "localhost:2", "true")
    assert ended.code == 3
    text = ended.out.decode()
    assert "9 ranks asked for, 2 slots free" in text
    assert "--oversubscribe" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--check", "--do-not-launch", "true"], "--do-not-launch connects to no host"),
        (["--check", "--hostfile", "/nowhere", "true"], "there is no file /nowhere"),
        (["--check", "--health-check", "", "true"], "a command, such as"),
        (["--check", "--backend", "openmpi", "true"], "--check: not with --backend openmpi"),
    ],
)
def test_lines_that_are_refused(launch: Any, words: list[str], said: str) -> None:
    ended = launch(*words)
    assert (ended.code, ended.out) == (1, b"")
    assert said in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "--on-hang end",
        "--hang-timeout 5 --on-hang restart",
        "--warn USR1",
        "--timeout 5 --warn USR1@9",
        "--preload-files nofile",
        "--preload-binary ./nofile",
        "--fill echo {ranc}",
    ],
)
def test_what_the_launch_refuses_at_once_is_refused(launch: Any, line: str) -> None:
    words = [*line.split(), "-H", "localhost", "true"]
    ended = launch("--check", *words)
    assert ended == launch(*words)
    assert (ended.code > 0, ended.out, "Traceback" in ended.err) == (True, b"", False)


def test_standard_output_that_cannot_be_written(launch: Any) -> None:
    with open("/dev/full", "wb") as full:
        ended = launch("--check", stdout=full)
    assert (ended.code, "standard output" in ended.err) == (1, True)


def test_a_time_limit_holds_for_a_check(launch: Any) -> None:
    ended = launch("--check", "--timeout", "1", "--health-check", "sleep 1000", "true")
    assert ended.code == 110


def test_other_dialects(launch: Any, tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text("raise SystemExit('it was run')")
    lines = (
        ("--dialect", "msrun", "--worker_num=2", "--local_worker_num=2", "--check", script),
        ("--dialect", "torchrun", "--nproc-per-node=2", "--check", script),
        ("--dialect", "hydra", "-n", 2, "--check", sys.executable, script),
        ("--dialect", "hydra", "--check"),
    )
    for line in lines:
        ended = launch(*line)
        assert (ended.code, b"it was run" in ended.out) == (0, False), ended
    meeting = ("--rdzv-backend=c10d", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:29401")
    ended = launch("--dialect", "torchrun", *meeting, "--check", script, env={"HOME": str(tmp_path)})
    assert (ended.code, "-H LIST" in ended.err) == (1, True), ended
