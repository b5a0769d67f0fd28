"""--top, --stacks, --logs and --rerun: what a running job says of itself, to its user only."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import Job, Result, environment, through_rsh, wait_until

from mslaunch.jobs import control_socket
from mslaunch.jobs.job_registry import JobRegistry

WAITS = ["sh", "-c", "echo step 1 of $RANK; read line < gate; echo over; exit 0"]


class JobCommands:
    """A registry and a directory of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = environment(MSLAUNCH_JOBS=str(folder / "jobs"))
        os.mkfifo(folder / "gate")
        self.jobs: list[Job] = []
        self.gate = -1

    def start(self, *words: object) -> Job:
        job = Job(["--oversubscribe", *map(str, words)], self.env, cwd=self.folder)
        self.jobs.append(job)
        return job

    def run(self, *words: str) -> Result:
        return Job(list(words), self.env, cwd=self.folder).end()

    def entered(self) -> Any:
        """The entry of the only job, once it is there and its launcher listens."""
        wait_until(lambda: any(control_socket.listens(e.folder) for e in JobRegistry(self.env).entries()))
        return JobRegistry(self.env).entries()[0]

    def open_gate(self, ranks: int) -> None:
        """Let so many go on, also those that do not read yet: what it holds stays there while it is open here."""
        self.gate = os.open(self.folder / "gate", os.O_RDWR)
        os.write(self.gate, b"\n" * ranks)


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    made = JobCommands(tmp_path)
    yield made
    for job in made.jobs:
        job.destroy()
    if made.gate >= 0:
        os.close(made.gate)


def test_a_job_in_a_terminal_can_be_asked(desk: JobCommands) -> None:
    job = desk.start("-n", 2, "--output-filename", "logs", *WAITS)
    job.expect(b"step 1", 2)
    entry = desk.entered()
    for name in (str(entry.number), str(job.pid)):
        top = desk.run("--top", name)
        head, columns, *rows = top.out.decode().splitlines()
        assert top.code == 0 and head.startswith(f"job {entry.number}: 2 of 2 ranks running, attempt 1"), top
        assert columns.split()[:4] == ["RANK", "HOST", "PID", "STATE"] and len(rows) == 2
        assert [row.split()[0] for row in rows] == ["0", "1"] and all("running" in row for row in rows)
        assert all(row.endswith(f"step 1 of {rank}") for rank, row in enumerate(rows)), "printed in the first second"
    stacks = desk.run("--stacks", str(entry.number))
    assert stacks.code == 0, stacks
    assert re.search(r"^  ranks 0-1, of which rank 0 on \S+, process \d+ \(sh\)", stacks.out.decode(), re.M), stacks
    assert "running" in desk.run("--status").out.decode()
    assert desk.run("--logs", str(entry.number), "-r", "1").out == b"step 1 of 1\n"
    assert "launcher's log" not in desk.run("--status", str(entry.number)).out.decode()
    stopped = desk.run("--stop", str(entry.number))
    assert (stopped.code, stopped.err) == (
        0,
        "",
    ) and b"has ended; its exit code was given to the command" in stopped.out, stopped
    assert job.end().code == 1 and JobRegistry(desk.env).entries() == []
    for option in ("--logs", "--top", "--status", "--stop"):
        gone = desk.run(option, str(entry.number))
        assert gone.code == 1 and gone.err.startswith(f"mslaunch: {option}: there is no job '{entry.number}'"), gone
        assert "is forgotten when it ends" in gone.err and "--output-filename" in gone.err


def test_time_and_memory_are_those_of_all_hosts(desk: JobCommands) -> None:
    code = "import os; held = b'x' * (100 << 20); print('step', flush=True)\nwhile True: pass"
    words = ["-n", 2, *through_rsh("alpha:1", "beta:1"), sys.executable, "-S", "-c", code]
    job = desk.start(*words)
    job.expect(b"step", 2)
    entry = desk.entered()
    rows: list[list[str]] = []

    def busy() -> bool:
        rows[:] = [row.split() for row in desk.run("--top", str(entry.number)).out.decode().splitlines()[2:]]
        return len(rows) == 2 and all(float(row[4]) > 5 for row in rows)

    wait_until(busy, tell=lambda: f"{rows}")
    assert {row[1] for row in rows} == {"alpha", "beta"}
    assert all(row[5] == "%" and 100 < float(row[6]) < 400 and row[7] == "MB" for row in rows), rows


def test_two_who_ask_at_once_see_the_same_load(desk: JobCommands) -> None:
    job = desk.start("-n", 1, sys.executable, "-S", "-c", "print('step', flush=True)\nwhile True: pass")
    job.expect(b"step")
    folder = desk.entered().folder
    wait_until(lambda: control_socket.ask(folder, {"ask": "top"})["ranks"][0]["cpu"] > 5)
    fd = os.open(folder, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for client in (first, second):
            client.connect(f"/proc/self/fd/{fd}/control")
        for client in (first, second):
            client.sendall(b'{"ask": "top"}\n')
        loads = [json.loads(client.makefile().readline())["ranks"][0]["cpu"] for client in (first, second)]
    os.close(fd)
    assert loads[0] == loads[1] > 5


def test_logs_are_followed_until_the_job_has_ended(desk: JobCommands) -> None:
    job = desk.start("-n", 2, "--output-filename", "logs", *WAITS)
    job.expect(b"step 1", 2)
    entry = desk.entered()
    follow = Job(["--logs", str(entry.number), "-f"], desk.env, cwd=desk.folder)
    follow.expect(b"step 1", 2)
    desk.open_gate(2)
    assert sorted(follow.end().out.decode().splitlines()) == [
        "[0] over",
        "[0] step 1 of 0",
        "[1] over",
        "[1] step 1 of 1",
    ]
    assert job.end().code == 0


def test_a_detached_job_answers_too(desk: JobCommands) -> None:
    assert desk.run("--detach", "-q", "-n", "1", *WAITS).out == b"1\n"
    try:
        desk.entered()
        top = desk.run("--top", "1").out.decode()
        assert "step 1 of 0" in top and "running" in top
    finally:
        desk.run("--stop", "1")
    gone = desk.run("--top", "1")
    assert gone.code == 1 and gone.err.startswith("mslaunch: job 1: it has ended")


def test_the_entry_of_a_launcher_that_was_killed_goes(desk: JobCommands) -> None:
    job = desk.start("-n", 1, *WAITS)
    job.expect(b"step 1")
    desk.entered()
    job.send(signal.SIGKILL)
    job.end()
    assert JobRegistry(desk.env).entries() == [] and b"no job" in desk.run("--status").out


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, and unshare (util-linux)")
def test_a_job_can_be_asked_but_not_judged_from_another_container(desk: JobCommands) -> None:
    """Containers may share the registry and have process ids of their own."""
    job = desk.start("-n", 1, "--output-filename", "logs", *WAITS)
    job.expect(b"step 1")
    number = str(desk.entered().number)

    def there(*words: str) -> tuple[int, str]:
        stage = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "mslaunch"]
        done = subprocess.run([*stage, *words], env=desk.env, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    assert "unknown" in there("--status")[1]
    assert "it was started in another container" in there("--status", number)[1]
    code, said = there("--stop", number)
    assert code == 1 and f"call mslaunch --stop {number} there" in said
    assert "1 of 1 rank running" in there("--top", number)[1]
    assert there("--logs", number) == (0, "step 1 of 0\n")
    assert "running" in desk.run("--status").out.decode(), "it is still known here"
    desk.open_gate(1)
    assert job.end().code == 0


@pytest.mark.parametrize("words", [("--top",), ("--top", "7"), ("--stacks", "x"), ("--logs", "1", "-x"), ("--logs",),
                                   ("--logs", "1", "-r", "a"), ("--rerun",), ("--rerun", "none.json")])  # fmt: skip
def test_what_is_wrong_is_said_in_one_message(desk: JobCommands, words: tuple[str, ...]) -> None:
    done = desk.run(*words)
    assert done.code == 1 and done.out == b"" and done.err.startswith("mslaunch: ") and "Traceback" not in done.err


def test_strangers_and_nonsense_do_not_disturb_the_job(desk: JobCommands) -> None:
    job = desk.start("-n", 1, *WAITS)
    job.expect(b"step 1")
    folder = desk.entered().folder
    held = []
    fd = os.open(folder, os.O_RDONLY)
    deep = b"[" * 4_000 + b"\n"
    for said in (b"", b"{", b"[]\n", b"nonsense\n", b"x" * 100_000, b'{"ask": "rm"}\n', deep, *[b""] * 20):
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"/proc/self/fd/{fd}/control")
        client.settimeout(20)
        try:
            client.sendall(said)
        except OSError:  # it has been closed
            pass
        held.append(client)
    for client in held[:7]:
        if client is not held[0] and client is not held[1]:
            try:
                client.recv(4096)  # an answer, or the end
            except ConnectionResetError:
                pass
    for client in held:
        client.close()
    os.close(fd)
    assert control_socket.ask(folder, {"ask": "top"})["ranks"][0]["line"] == "step 1 of 0"
    desk.open_gate(1)
    assert job.end().code == 0


_ASKS = """
import os, socket, sys
os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
with socket.socket(socket.AF_UNIX) as asks:
    asks.connect(sys.argv[2])
    try:
        asks.sendall(b'{"ask": "top"}\\n')
        os.write(1, asks.recv(1 << 16))
    except ConnectionError:  # it was closed, before or after
        pass
"""


def _answer_to(user: int, folder: Path) -> bytes:
    """What a user gets; raises CalledProcessError if not even the socket is reached."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        words = [sys.executable, "-S", "-c", _ASKS, str(user), f"/proc/self/fd/{fd}/control"]
        return subprocess.run(words, pass_fds=[fd], stdout=subprocess.PIPE, timeout=30, check=True).stdout
    finally:
        os.close(fd)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_user_gets_no_answer(desk: JobCommands, tmp_path: Path) -> None:
    """Not even if the socket can be reached: the kernel says who calls."""
    job = desk.start("-n", 1, *WAITS)
    job.expect(b"step 1")
    folder = Path(desk.entered().folder)
    ways = {path: path.stat().st_mode for path in folder.parents if path.is_relative_to(tmp_path.parents[2])}
    try:
        for path in (folder, *ways):
            path.chmod(0o755)
        (folder / "control").chmod(0o777)
        assert b'"ranks"' in _answer_to(os.geteuid(), folder)  # so that it is the user that decides
        assert _answer_to(65534, folder) == b""
    finally:
        for path, mode in (*ways.items(), (folder, 0o700)):
            path.chmod(mode)
    desk.open_gate(1)
    assert job.end().code == 0


def test_a_run_can_be_run_again_from_its_record(desk: JobCommands) -> None:
    script = 'echo "$RANK $KEY $PWD"'
    env = {**desk.env, "KEY": "sesame-4711"}
    words = ["-n", "2", "--oversubscribe", "-x", "KEY=sesame-4711", "--record", "rec", "sh", "-c", script]
    first = Job(words, env, cwd=desk.folder).end()
    record = json.loads((desk.folder / "rec" / "run.json").read_text())
    again = Job(["--rerun", str(desk.folder / "rec"), "--timeout", "60"], env, cwd="/").end()
    assert (again.code, again.lines) == (first.code, first.lines) == (0, sorted(first.lines))
    second = json.loads((desk.folder / "rec" / "run.json").read_text())
    kept = ("rank", "host", "local_rank", "app", "cpus")
    assert [[rank[key] for key in kept] for rank in second["attempts"][0]["ranks"]] == [
        [rank[key] for key in kept] for rank in record["attempts"][0]["ranks"]
    ]
    assert second["exported"] == record["exported"] == ["KEY"] and second["cwd"] == record["cwd"]
    assert second["command"][1:3] == ["--timeout", "60"]
    for words in (["true"], ["--"], ["-n", "1", "true"]):
        other = Job(["--rerun", str(desk.folder / "rec"), *words], env, cwd="/").end()
        assert other.code == 1 and other.out == b"" and "is more than options" in other.err, other
    without = {name: value for name, value in env.items() if name != "KEY"}
    refused = Job(["--rerun", str(desk.folder / "rec")], without, cwd="/").end()
    assert refused.code == 1 and "the value of KEY" in refused.err


def test_a_value_of_x_is_put_back_wherever_it_stood(desk: JobCommands) -> None:
    env = {**desk.env, "DATA": "/data of all"}
    words = ["-n", "1", "-x", "DATA", "--record", "rec", "echo", "--dir=/data of all/x", "/data of all", "a=…(b"]
    first = Job(words, env, cwd=desk.folder).end()
    text = (desk.folder / "rec" / "run.json").read_text()
    assert "/data of all" not in text and "--dir=…(DATA)/x" in text
    again = Job(["--rerun", str(desk.folder / "rec")], env, cwd="/").end()
    assert first.out == again.out == "--dir=/data of all/x /data of all a=…(b\n".encode()
    refused = Job(["--rerun", str(desk.folder / "rec")], desk.env, cwd="/").end()
    assert refused.code == 1 and "the value of DATA" in refused.err


def test_a_record_of_somebody_else_does_no_harm(desk: JobCommands) -> None:
    (desk.folder / "deep").write_text("[" * 200_000)
    (desk.folder / "empty").write_text("")
    facts = {"schema": 1, "command": ["mslaunch", "-n", "1", "true"], "cwd": "/"}
    for name, wrong in (
        ("odd", {"cwd": "/\ud800"}), ("nul", {"cwd": "/\0"}), ("words", {"command": ["mslaunch", "\ud800"]}),
        ("loop", {"command": ["mslaunch", "--rerun", "loop"]}), ("line", {"cwd": "/no\nmslaunch: all is well"}),
    ):  # fmt: skip
        (desk.folder / name).write_text(json.dumps({**facts, **wrong}))
    for name in ("deep", "empty", "gate", "nowhere", "odd", "nul", "words", "loop", "line"):
        done = Job(["--rerun", name], desk.env, cwd=desk.folder).end()
        assert done.code == 1 and done.err.startswith(f"mslaunch: --rerun {name}: "), done
        assert "Traceback" not in done.err and "\nmslaunch" not in done.err
    (desk.folder / "python").write_text(json.dumps({**facts, "command": []}))
    assert "was started from Python" in Job(["--rerun", "python"], desk.env, cwd=desk.folder).end().err
