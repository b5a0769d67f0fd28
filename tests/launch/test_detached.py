"""Detached jobs: the command returns once the ranks run; the job is found, asked and ended later, or ends by itself.

Ranks say their process ids in files and wait at FIFOs, so that nothing here depends on how fast anything is.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from launching import ROOT, program, through_rsh, wait_until

from mslaunch.jobs.job_registry import JobEntry, JobRegistry

BLOCKED = ["sh", "-c", 'echo $$ > pid.$OMPI_COMM_WORLD_RANK; echo ready; read line < gate; echo "$line"; exit $line']


@pytest.fixture
def jobs(tmp_path):
    """The registry of the test."""
    return {"MSLAUNCH_JOBS": str(tmp_path / "jobs")}


@pytest.fixture
def detach(start, jobs, tmp_path):
    """`detach(words)` starts a job whose command has returned; gives the command's result and the job's entry."""
    os.mkfifo(tmp_path / "gate")
    left = []

    def begin(*words, code=0):
        job = start(["--detach", *words], env=jobs)
        left.append(job)
        ended = job.end()
        assert ended.code == code, ended
        entries = JobRegistry(jobs).entries()
        return ended, entries[-1] if entries else None

    yield begin
    for entry in JobRegistry(jobs).entries():
        entry.process.send(signal.SIGKILL)
    for job in left:
        job.wait_gone()


@pytest.fixture
def ask(run, jobs):
    """`ask("--status", "1")`: the command's result."""
    return lambda *words: run(list(words), env=jobs)


def wait_for_end(entry: JobEntry) -> JobEntry:
    assert entry.process.wait(30)
    entry.reload()
    return entry


def answer(tmp_path: Path, text: str, ranks: int) -> None:
    """Let all ranks that wait at the FIFO continue."""
    for rank in range(ranks):
        wait_until((tmp_path / f"pid.{rank}").exists)
    with open(tmp_path / "gate", "w", encoding="ascii") as gate:
        gate.write(text * ranks)


def test_no_file_of_the_registry_has_the_value_of_a_variable(detach, ask, tmp_path):
    words = ["-mca", "mca_base_env_list", "TOK=very-secret;B=2;C=more-secret"]
    _, entry = detach(*words, "-n", "1", "sh", "-c", 'echo "$TOK" > got; echo $$ > pid.0; read line < gate')
    answer(tmp_path, "0\n", 1)
    wait_for_end(entry)
    assert (tmp_path / "got").read_text() == "very-secret\n"
    files = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    assert len(files) >= 3 and not [path for path in files if b"secret" in path.read_bytes()]
    assert "TOK=…" in ask("--status", "1").out.decode()


def test_the_command_returns_when_all_ranks_run_and_stop_ends_them(detach, ask, tmp_path):
    ended, entry = detach("--oversubscribe", "-n", "2", "--output-filename", "logs", *BLOCKED)
    pid = entry.process.pid
    assert ended.err == "" and ended.out.decode() == (
        f"mslaunch: job 1 runs, its launcher is process {pid}, logs are in {tmp_path}/logs; "
        "ask with mslaunch --status 1, end it with mslaunch --stop 1\n"
    )
    assert os.getsid(pid) not in (pid, os.getsid(0)), "no terminal is its own, nor can become so"
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (1, 2)} == {entry.log}
    shown = ask("--status", "1")
    assert shown.code == 0 and b"job 1 has been running since" in shown.out and b"ranks: 2" in shown.out
    assert b" running " in ask("--status").out
    stopped = ask("--stop", "1")
    assert stopped.code == 0 and b"exit code 1: stopped by --stop\n" in stopped.out
    assert not entry.process.lives
    shown = ask("--status", "1")
    assert shown.code == 1 and b"how it ended:\n    stopped by --stop, after " in shown.out
    assert b"SIGTERM" not in shown.out and b"      ended by mslaunch: ranks 0-1\n" in shown.out
    assert "ended by mslaunch: ranks 0-1" in Path(entry.log).read_text()


def test_a_job_that_others_than_stop_have_ended(detach, ask):
    _, entry = detach("-n", "1", *BLOCKED)
    entry.process.send(signal.SIGTERM)
    wait_for_end(entry)
    assert b"exit code 1: ended by SIGTERM" in ask("--status", "1").out


def test_status_says_why_a_job_failed(detach, ask, tmp_path):
    """Also of a quiet job, in whose log there is no block."""
    script = "echo $$ > pid.0; read line < gate; echo 'ValueError: boom' >&2; exit 7"
    _, entry = detach("-q", "-n", "1", "--output-filename", "logs", "sh", "-c", script)
    answer(tmp_path, "\n", 1)
    wait_for_end(entry)
    shown = ask("--status", "1").out.decode()
    assert f"launcher's log: {entry.log}" in shown
    lines = shown.partition("  how it ended:\n    rank 0 ended with exit code 7 on ")[2].splitlines()
    assert lines[1] == "      | ValueError: boom" and lines[2].startswith("      log: logs/"), shown
    assert Path(entry.log).read_text() == "ValueError: boom\n"


@pytest.mark.parametrize(("text", "code", "how"), [("0\n", 0, "all ranks succeeded"), ("3\n", 3, "rank 0 ")])
def test_a_job_ends_by_itself_and_its_end_is_known_later(detach, ask, tmp_path, text, code, how):
    _, entry = detach("-n", "1", *BLOCKED)
    answer(tmp_path, text, 1)
    wait_for_end(entry)
    assert (entry.state, entry.facts["code"], entry.facts["ranks"]) == ("ended", code, 1)
    assert how in entry.facts["how"]
    assert f"ready\n{text}" in Path(entry.log).read_text(), "what the terminal would have shown"
    shown = ask("--status", "1")
    assert shown.code == code and how.encode() in shown.out
    assert ask("--stop", "1").code == 0


def test_the_registry_has_the_command_line_and_is_private(detach, ask, tmp_path):
    _, entry = detach("-x", "PASSWORD=secret", "-n", "1", *BLOCKED)
    text = Path(entry.folder, "job").read_text()
    assert "secret" not in text and json.loads(text)["command"][:4] == ["mslaunch", "--detach", "-x", "PASSWORD=…"]
    assert stat.S_IMODE(os.stat(entry.folder).st_mode) == 0o700 == stat.S_IMODE((tmp_path / "jobs").stat().st_mode)
    assert stat.S_IMODE(os.stat(entry.log).st_mode) == 0o600
    ask("--stop", "1")


def test_quiet_prints_the_number_alone(detach, ask):
    for number in (b"1\n", b"2\n"):
        assert detach("-q", "-n", "1", *BLOCKED)[0].out == number
    for job in ("1", "2"):
        ask("--stop", job)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-n", "1", "no-such-program"], 127),
        (["-n", "1", "--scheduler", ":{taken}", "true"], 1),
        (["-n", "1", "--output-filename", "gate", "true"], 1),
        (["-n", "9", "--hostfile", "gone", "true"], 1),
        (["-n", "1", "--wdir", "/nowhere", "true"], 126),
        ([*through_rsh("alpha", agent="false_agent"), "-n", "1", "true"], None),
    ],
    ids=["program", "port", "files", "hostfile", "directory", "host"],
)
def test_errors_are_the_same_as_without_detach(detach, run, jobs, words, code):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [word.format(taken=taken.getsockname()[1]) for word in words]
        as_ever = run(words, env=jobs)
        refused, entry = detach(*words, code=as_ever.code)
    assert code in (None, refused.code) and refused.out == b""
    assert [line.partition(", after")[0] for line in refused.err.splitlines()] == [
        line.partition(", after")[0] for line in as_ever.err.splitlines()
    ]
    assert entry is None, "nothing was started, and nothing is in the list"


def test_arguments_are_no_scripts(detach, tmp_path):
    (tmp_path / "tool").write_text("#!/usr/bin/env python3\nprint()\n")
    (tmp_path / "tool").chmod(0o755)
    for words in (["./tool", "epochs=3"], ["python3", "-c", "print(1)", "gone.py"], ["python3", "tool", "gone.py"]):
        _, entry = detach("-n", "1", *words)
        assert wait_for_end(entry).facts["code"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--detach", "-n", "1", "python3", "gone.py"],
        ["--detach", "-n", "1", "true", ":", "-n", "1", "python3", "gone.py"],
        ["--worker_num=1", "gone.py"],
        ["--worker_num=1", "--join=False", "gone/net.py", "--epochs", "3"],
    ],
    ids=" ".join,
)
def test_a_missing_script_is_refused(run, jobs, tmp_path, words):
    """Otherwise python would start, and report it only in a log."""
    refused = run(words, env=jobs)
    assert refused.code == 127
    assert f"mslaunch: there is no file {tmp_path}/gone" in refused.err
    assert not JobRegistry(jobs).entries() and not list(tmp_path.glob("*.log"))


@pytest.mark.parametrize(
    "words",
    [
        ["--detach", "-H", "localhost:2", "-n", "2", "python3", "gone.py"],
        ["--detach", *through_rsh("alpha", "beta"), "-n", "2", "python3", "-u", "gone.py"],
        ["--worker_num=2", "-H", "localhost:2", "--log_dir=logs", "gone.py"],
    ],
    ids=["here", "elsewhere", "msrun"],
)
def test_a_script_that_an_agent_does_not_find_is_refused(run, jobs, tmp_path, words):
    """It counted as a job that runs, whose reason nobody saw."""
    refused = run(words, env=jobs)
    assert refused.code == 127 and refused.out == b"", refused
    assert refused.err.count(f"there is no file {tmp_path}/gone.py for python") == 1, refused.err
    assert "not started: ranks 0-1" in refused.err
    assert not JobRegistry(jobs).entries()


@pytest.mark.parametrize("closed", [(1,), (0, 1), (0, 1, 2), ()], ids=str)
def test_a_standard_output_that_takes_nothing(start, jobs, ask, tmp_path, closed):
    os.mkfifo(tmp_path / "gate")
    with open("/dev/full", "wb") as full:
        words = ["--detach", "-n", "1", *BLOCKED]
        job = start(words, env=jobs, stdout=full, preexec_fn=lambda: [*map(os.close, closed)])
    ended = job.end()
    assert ended.code == 0 and ("job 1 runs" in ended.err) == (not closed), ended
    assert ask("--status", "1").code == 0
    answer(tmp_path, "3\n", 1)
    wait_for_end(JobRegistry(jobs).entries()[0])
    assert ask("--status", "1").code == 3


def test_a_list_that_is_not_read_or_cannot_be_kept(start, jobs):
    with open("/dev/full", "wb") as full:
        ended = start(["--status"], env=jobs, stdout=full).end()
    assert (ended.code, ended.err) == (1, "mslaunch: standard output: cannot be written: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    ended = start(["--status"], env=jobs, stdout=writer).end()
    os.close(writer)
    assert (ended.code, ended.err) == (0, "")


def test_messages_before_the_ranks_run_are_shown(detach, ask):
    ended, entry = detach("--verbose", "-x", "NO_SUCH_VARIABLE", "--report-pid", "+", "-n", "1", *BLOCKED)
    assert "-x NO_SUCH_VARIABLE: the variable is not set here" in ended.err and "ranks meet at" in ended.err
    assert f"{entry.process.pid}\n" in ended.err, "not that of the command, which is gone"
    ask("--stop", "1")


@pytest.fixture
def stuck(start, jobs, tmp_path):
    """`stuck(then)` starts a launch that hangs before anything is started: the job of the command, and its entry."""

    def begin(then="sleep 1000"):
        agent = tmp_path / "agent"
        os.mkfifo(tmp_path / "called")
        agent.write_text(f"#!/bin/sh\n: > {tmp_path}/called\nexec {then}\n")
        agent.chmod(0o755)
        words = ["--detach", "--rsh-agent", str(agent), "--connect-timeout", "1000", "-H", "alpha", "true"]
        job = start(words, env=jobs)
        with open(tmp_path / "called", "rb") as called:
            called.read()
        return job, JobRegistry(jobs).entries()[0]

    return begin


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_before_the_ranks_run_ends_the_launch(stuck, jobs, name):
    job, entry = stuck()
    assert entry.state == "starting"
    job.send(getattr(signal, name))
    ended = job.end()
    assert (ended.code, ended.out) == (1, b"") and f"ended by {name} before anything was started" in ended.err
    job.wait_gone()
    assert not JobRegistry(jobs).entries()


def test_a_signal_before_the_launch_takes_any_waits(jobs, tmp_path):
    program = """
import os, signal, sys
from mslaunch.cli.main import parse
from mslaunch.datamodel.outcome import Outcome
from mslaunch.host.files import read_text
from mslaunch.jobs.detach import detach

def launch(observe, ready):
    os.kill(os.getpid(), signal.SIGINT)
    return Outcome(0, ())

request = parse(["--detach", "-n", "1", "true"], os.environ, read_text)
sys.exit(detach(request, ["mslaunch"], os.environ, "/", launch, lambda act: act()))
"""
    env = {**os.environ, "MSLAUNCH_JOBS": str(tmp_path / "own"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_launcher_that_is_killed_before_the_ranks_run(stuck, ask):
    job, entry = stuck("cat")  # it ends with its input
    entry.process.send(signal.SIGKILL)
    ended = job.end()
    assert ended.code == 1 and "job 1: the launcher was killed before all ranks ran" in ended.err
    job.wait_gone()
    assert ask("--status", "1").code == 137


def test_a_command_that_is_killed_leaves_a_job_that_can_be_ended(stuck, ask):
    job, entry = stuck()
    job.send(signal.SIGKILL)
    job.end()
    assert entry.process.lives and b"starting" in ask("--status").out
    stopped = ask("--stop", "1")
    assert b"nothing was started" in stopped.out
    job.wait_gone()


def test_a_launcher_that_is_killed_leaves_no_rank(start, jobs, ask, tmp_path):
    os.mkfifo(tmp_path / "gate")
    job = start(["--detach", "--oversubscribe", "-n", "2", *BLOCKED], env=jobs)
    assert job.end().code == 0
    (entry,) = JobRegistry(jobs).entries()
    assert len(job.left()) > 2
    entry.process.send(signal.SIGKILL)
    job.wait_gone()
    shown = ask("--status", "1")
    assert shown.code == 137 and b"was killed" in shown.out
    assert b"was killed" in ask("--stop", "1").out


def test_stop_kills_ranks_that_ignore_sigterm(detach, ask):
    _, entry = detach("--grace", "0.2", "--output-filename", "logs", "-n", "1", *program("ignore_term"))
    assert ask("--stop", "1").code == 0
    assert not entry.process.lives


def test_jobs_of_msrun_are_in_the_registry(run, jobs, ask, tmp_path):
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "net.py").write_text("print('line', open('gate').read(1), flush=True)\n")
    words = ["--worker_num=1", "--local_worker_num=1", "--sim_level=1", "--log_dir=logs", "python3", "net.py"]
    ended = run(words, env=jobs)
    assert ended.code == 0 and b"job 1 runs, its launcher is process" in ended.out, ended
    (entry,) = JobRegistry(jobs).entries()
    with open(tmp_path / "gate", "w", encoding="ascii") as gate:
        gate.write("7")
    wait_for_end(entry)
    assert entry.facts["code"] == 0 and (tmp_path / "logs" / "worker_0.log").read_text() == "line 7\n"
    assert b"--worker_num=1" in ask("--status", "1").out


def test_the_openmpi_backend_cannot_be_detached(run, jobs):
    ended = run(["--backend", "openmpi", "--detach", "-n", "1", "true"], env=jobs)
    assert ended.code == 1 and "--backend: a job of an installed Open MPI cannot be detached" in ended.err
