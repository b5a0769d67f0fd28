"""The registry of detached jobs: ownership, expiry, identity of processes; --status and --stop."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mslaunch.cli.actions import job_commands
from mslaunch.cli.main import parse
from mslaunch.cli.parser.options import Show
from mslaunch.errors import LaunchError, UsageError
from mslaunch.jobs import job_file, job_registry
from mslaunch.jobs.job_registry import JobEntry, JobRegistry
from mslaunch.jobs.launcher_pid import ProcessIdentity, process
from mslaunch.jobs.private_folder import job_folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"MSLAUNCH_JOBS": str(tmp_path / "jobs")}


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends on SIGTERM."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        yield child
        child.kill()


def me() -> ProcessIdentity:
    found = process(os.getpid())
    assert found
    return found


def add(environ: dict[str, str], **facts: Any) -> JobEntry:
    given = {
        "command": ["mslaunch", "--detach", "a b"], "cwd": "/somewhere", "began": time.time(), "process": me(),
        "ranks": 4, "logs": "/somewhere/logs", "grace": 0.5, **facts,
    }  # fmt: skip
    return JobRegistry(environ).add(**given)


def ended(environ: dict[str, str], days: float = 0.0) -> JobEntry:
    return add(environ, ended=time.time() - days * 86400, code=3, how="rank 1 ended with exit code 3")


def numbers(environ: dict[str, str]) -> list[int]:
    return [entry.number for entry in JobRegistry(environ).entries()]


# --- the registry


def test_job_numbers_rise_and_are_never_reused(environ: dict[str, str]) -> None:
    assert numbers(environ) == [] and not os.path.exists(environ["MSLAUNCH_JOBS"]), "who asks makes nothing"
    assert [add(environ).number for _ in range(3)] == [1, 2, 3]
    for entry in JobRegistry(environ).entries():
        entry.remove()
    assert numbers(environ) == [] and add(environ).number == 4
    Path(environ["MSLAUNCH_JOBS"], "lock").write_text("nonsense")
    assert add(environ).number == 5


def test_jobs_that_start_together_have_different_numbers(environ: dict[str, str]) -> None:
    threads = [threading.Thread(target=add, args=[environ]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(environ) == list(range(1, 9))


def test_the_registry_is_private_to_its_user(environ: dict[str, str], tmp_path: Path) -> None:
    os.umask(os.umask(0))
    entry = add(environ)
    for path in (environ["MSLAUNCH_JOBS"], entry.folder):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    os.chmod(environ["MSLAUNCH_JOBS"], 0o750)
    with pytest.raises(LaunchError, match="a directory that you alone") as caught:
        JobRegistry(environ)
    assert caught.value.where == environ["MSLAUNCH_JOBS"] and "MSLAUNCH_JOBS" in caught.value.todo
    os.chmod(environ["MSLAUNCH_JOBS"], 0o700)
    (tmp_path / "link").symlink_to(environ["MSLAUNCH_JOBS"])
    with pytest.raises(LaunchError):
        JobRegistry({"MSLAUNCH_JOBS": str(tmp_path / "link")})


@pytest.mark.root
def test_a_registry_of_another_user_is_refused(environ: dict[str, str]) -> None:
    if os.geteuid():
        pytest.skip("NOT TESTED, needs root")
    os.mkdir(environ["MSLAUNCH_JOBS"], 0o700)
    os.chown(environ["MSLAUNCH_JOBS"], 65534, 65534)
    with pytest.raises(LaunchError, match="a directory that you alone"):
        add(environ)


def test_a_lock_that_stays_held_is_an_error(environ: dict[str, str]) -> None:
    add(environ)
    with open(os.path.join(environ["MSLAUNCH_JOBS"], "lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LaunchError, match="locked"):
            JobRegistry(environ, patience=0.05).add(command=[])


def test_old_jobs_expire_but_running_ones_never(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_registry, "KEPT", 3)
    add(environ, began=0.0)
    for days in (8, 1, 2, 3, 0):
        ended(environ, days)
    # job 2 was too old when 3 was added; 5 was the oldest when 6 was added
    assert numbers(environ) == [1, 3, 4, 6]
    os.mkdir(os.path.join(environ["MSLAUNCH_JOBS"], "new-99"))
    os.mkdir(os.path.join(environ["MSLAUNCH_JOBS"], "77"))
    add(environ)
    assert "new-99" not in os.listdir(environ["MSLAUNCH_JOBS"]) and 77 not in numbers(environ)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"began": 1, "command": [], "process": []}', "[" * 200_000])
def test_unreadable_files_are_ignored(environ: dict[str, str], text: str) -> None:
    Path(add(environ).folder, "job").write_text(text)
    assert numbers(environ) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("process", [1, 5]), ("process", [1, 5, "b"]), ("process", [0, "5", "b"]), ("process", [2**40, "5", "b"]),
     ("process", "abc"), ("began", "now"), ("began", 1e300), ("began", float("nan")), ("command", "true"),
     ("command", [1]), ("cwd", None), ("grace", "2"), ("logs", 7), ("ranks", "four"), ("running", []), ("code", 0),
     ("how", 3), ("block", 3), ("program", 3), ("layouts", [[]]), ("layouts", [[1, 2, 3]]), ("layouts", "ab")],
)  # fmt: skip
def test_facts_of_a_wrong_shape_are_no_job(environ: dict[str, str], name: str, value: object) -> None:
    file = Path(add(environ).folder, "job")
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, name: value}))
    assert numbers(environ) == [] and "no job" in job_commands.status([], environ).text
    file.write_text(json.dumps(facts))
    assert numbers(environ) == [1], "it was this fact"


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "large"])
def test_what_is_no_file_of_facts_is_not_waited_for(environ: dict[str, str], tmp_path: Path, kind: str) -> None:
    file = Path(add(environ).folder, "job")
    text = file.read_text()
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "link":
        (tmp_path / "facts").write_text(text)
        file.symlink_to(tmp_path / "facts")
    elif kind == "folder":
        file.mkdir()
    else:
        file.write_text(text + " " * (16 << 20))
    assert numbers(environ) == []


def _precious(tmp_path: Path) -> Path:
    """A directory with a file that nobody may delete."""
    found = tmp_path / "precious"
    found.mkdir(mode=0o700)
    (found / "thesis.txt").write_text("of years")
    return found


def _trap(tmp_path: Path, precious: Path) -> Path:
    """What another user has made: a registry whose jobs are links to a directory of the victim."""
    trap = tmp_path / "trap"
    facts = {"began": 1, "command": ["x"], "cwd": "/", "grace": 1, "logs": None, "process": [2**22, "5", "b"],
             "ranks": 1, "foreground": True, "running": 1}  # fmt: skip
    (precious / "job").write_text(json.dumps(facts))  # which he writes through a FIFO, or guesses to be there
    (trap / "2").mkdir(parents=True)
    (trap / "2" / "job").write_text(json.dumps(facts))
    for name in ("1", "new-1"):
        (trap / name).symlink_to(precious)
    trap.chmod(0o777)
    if not os.geteuid():
        for path in (trap, trap / "2", trap / "2" / "job"):
            os.chown(path, 65534, 65534)
    return trap


@pytest.mark.parametrize("moment", ["looked at", "listed", "read", "judged", "removed"])
def test_a_registry_that_is_swapped_for_that_of_another_user_is_left_alone(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """In /tmp another user can move a directory of his to the name at any moment, and a link in at another."""
    registry, precious = Path(environ["MSLAUNCH_JOBS"]), _precious(tmp_path)
    trap = _trap(tmp_path, precious)
    if moment != "looked at":
        add(environ, foreground=True, process=ProcessIdentity(2**22, "5", "b"))
    swapped = []

    def swap() -> None:
        if not swapped:
            swapped.append(True)
            if registry.exists():
                registry.rename(tmp_path / "away")
            trap.rename(registry)

    def before(target: Any, name: str) -> None:
        real = getattr(target, name)
        monkeypatch.setattr(target, name, lambda *words, **how: (swap(), real(*words, **how))[1])

    asked = JobRegistry(environ)
    if moment == "looked at":
        swap()
    elif moment == "removed":
        before(job_registry, "remove_folder")
    elif moment == "judged":
        before(job_registry, "ProcessIdentity")
    else:
        before(*{"listed": (os, "listdir"), "read": (job_file, "read_facts")}[moment])
    assert 2 not in [entry.number for entry in asked.entries()]
    assert swapped, "the moment came"
    assert (precious / "thesis.txt").read_text() == "of years" and (precious / "job").exists()
    assert sorted(os.listdir(registry)) == ["1", "2", "new-1"] and (registry / "2" / "job").exists()
    with pytest.raises(LaunchError, match=r"cannot be made or written|that you alone"):
        asked.add(command=[])
    assert (precious / "thesis.txt").exists() and sorted(os.listdir(registry)) == ["1", "2", "new-1"]


def test_a_link_in_the_registry_is_no_job_and_not_followed(environ: dict[str, str], tmp_path: Path) -> None:
    precious, registry = _precious(tmp_path), Path(environ["MSLAUNCH_JOBS"])
    entry = add(environ)
    (precious / "job").write_text(Path(entry.folder, "job").read_text())
    for name in ("7", "new-7"):
        (registry / name).symlink_to(precious)
    JobEntry(str(registry / "7"), {}).remove()
    JobEntry(str(registry / "7"), {}).ask_to_stop()
    assert not JobEntry(str(registry / "7"), {}).known
    add(environ)
    assert numbers(environ) == [1, 2] and sorted(os.listdir(precious)) == ["job", "thesis.txt"]


# --- processes


def test_a_process_is_identified_by_pid_and_start_time(launcher: subprocess.Popen[bytes]) -> None:
    real = process(launcher.pid)
    assert real and real.lives
    other = real._replace(start="1")
    assert not other.lives and not other.send(signal.SIGKILL) and other.wait(9)
    assert launcher.poll() is None, "the signal went nowhere"
    assert not real.wait(0.01)
    assert real.send(signal.SIGTERM) and real.wait(9), "a zombie has ended"
    launcher.wait(9)
    assert not real.lives and not real.send(signal.SIGTERM) and process(launcher.pid) is None


def test_a_process_is_waited_for_by_a_descriptor_above_1023(
    launcher: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """select() takes none of these."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    low = os.pidfd_open(launcher.pid)
    monkeypatch.setattr(os, "pidfd_open", lambda pid: fcntl.fcntl(low, fcntl.F_DUPFD, 1100))
    real = process(launcher.pid)
    try:
        assert real and not real.wait(0.01)
    finally:
        os.close(low)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_pidfd_the_pid_is_used(launcher: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    real = process(launcher.pid)
    assert real and real.send(signal.SIGTERM) and real.wait(9) and not real.lives


def test_a_job_of_another_container_is_neither_judged_nor_signalled(
    environ: dict[str, str], launcher: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id belongs to somebody else here, or to nobody; boot and start may even be the same."""
    far = me()._replace(namespace="pid:[1]")
    for found in (far, far._replace(start="1"), far._replace(pid=launcher.pid)):
        assert found.elsewhere and not found.lives and not found.send(signal.SIGKILL)
    now = time.time()
    add(environ, process=far._replace(start="1"), foreground=True, running=now)
    add(environ, process=process(launcher.pid)._replace(namespace="pid:[1]"), running=now)  # type: ignore[union-attr]
    assert numbers(environ) == [1, 2]
    assert [row.split()[1] for row in job_commands.status([], environ).text.splitlines()[1:]] == ["unknown"] * 2
    shown = job_commands.status(["2"], environ)
    assert shown.code == 0 and "job 2 may run: it was started in another container" in shown.text
    assert "--stop" not in shown.text and "launcher: process" not in shown.text
    assert JobRegistry(environ).find(str(launcher.pid)) is None
    with pytest.raises(LaunchError, match="another container") as caught:
        job_commands.stop(["2"], environ)
    assert caught.value.where == "job 2" and "--stop 2 there" in caught.value.todo
    assert launcher.poll() is None
    JobRegistry(environ).entries()[1].note(ended=1.0, code=3, how="rank 1 failed")
    assert "ended at" in job_commands.stop(["2"], environ).text


def test_a_job_of_another_boot_or_without_a_namespace_is_judged(environ: dict[str, str]) -> None:
    add(environ, process=me()._replace(namespace="pid:[1]", boot="old"))
    add(environ, process=list(me())[:3])  # of an earlier version
    add(environ, process=me()._replace(namespace=""))
    assert [entry.state for entry in JobRegistry(environ).entries()] == ["killed", "starting", "starting"]


def test_a_job_of_another_container_expires_if_nobody_listens(environ: dict[str, str]) -> None:
    far, old = me()._replace(namespace="pid:[1]"), time.time() - 8 * 86400
    entries = [add(environ, process=far, running=time.time()) for _ in range(4)]
    with socket.socket(socket.AF_UNIX) as heard, socket.socket(socket.AF_UNIX) as closed:
        for entry, bound in ((entries[0], heard), (entries[1], closed)):
            with job_folder(entry.folder) as fd:
                bound.bind(f"/proc/self/fd/{fd}/control")
        heard.listen()
        for entry in entries[:3]:
            entry.note(running=old)
        add(environ)
        assert numbers(environ) == [1, 4, 5]


# --- --status and --stop


@pytest.mark.parametrize("name", ["mslaunch", "mpirun", "mpiexec.hydra", "msrun"])
def test_status_and_stop_work_in_every_dialect(name: str, environ: dict[str, str]) -> None:
    ended(environ)
    for words in (["--status"], ["-status", "1"], ["--status=1"], ["--stop", "1"]):
        with pytest.raises(Show) as shown:
            parse(words, environ, lambda path: "", f"/usr/bin/{name}")
        assert "ended" in shown.value.text


def test_status_without_jobs(environ: dict[str, str]) -> None:
    expected = "no job runs here, and none that was detached has ended in the last 7 days"
    assert job_commands.status([], environ).text == expected


def test_status_lists_all_jobs(environ: dict[str, str]) -> None:
    long = ["msrun", "--worker_num=2", "x" * 99, "net.py"]
    add(environ, began=86400.0 * 365)
    add(environ, running=time.time(), ranks=None, command=long, program="python net.py")
    ended(environ)
    add(environ, process=me()._replace(start="1"))
    head, *rows = job_commands.status([], environ).text.splitlines()
    assert head.split() == ["JOB", "STATE", "STARTED", "ENDED", "RANKS", "PROGRAM", "COMMAND"]
    assert [row[: head.index("STARTED")].split(None, 1) for row in rows] == [
        ["1", "starting  "], ["2", "running   "], ["3", "ended, 3  "], ["4", "killed    "],
    ]  # fmt: skip
    assert [row[head.index("ENDED") : head.index("RANKS")].strip() == "-" for row in rows] == [True, True, False, True]
    assert rows[0][head.index("STARTED") :].startswith("01-01 "), "when it started, not since when it is in this state"
    assert rows[0].endswith("  4      -              mslaunch --detach 'a b'")
    assert rows[1].endswith(f"-      python net.py  {' '.join(long)}"), "not cut, for nobody knows how wide a file is"


def test_a_job_of_many_lines_has_one_row(environ: dict[str, str]) -> None:
    code = "import os\n\tprint(1)\r\v\x1b[2J"
    add(environ, command=["mslaunch", "-n", "2", "python", "-c", code], program=f"python -c '{code}'", cwd="/a\nb")
    add(environ, program="python net.py")
    head, first, second = job_commands.status([], environ).text.splitlines()
    one_line = r"import os\n\tprint(1)???[2J"
    assert first.endswith(f"python -c '{one_line}'  mslaunch -n 2 python -c '{one_line}'") and "\t" not in first
    assert second[head.index("PROGRAM") :].startswith("python net.py  ")
    assert second.index("mslaunch") == first.index("mslaunch") == head.index("COMMAND")
    shown = job_commands.status(["1"], environ).text.splitlines()
    assert f"  command: mslaunch -n 2 python -c '{one_line}'" in shown and r"  directory: /a\nb" in shown


def all_of(terminal: int) -> bytes:
    """What was written to it before all others have closed it; the kernel hands it on in pieces."""
    data = b""
    with os.fdopen(terminal, "rb", buffering=0) as file:
        try:
            while more := file.read(1 << 16):
                data += more
        except OSError:  # EIO: all have closed it
            pass
    return data


@pytest.mark.parametrize("columns", [40, 80, 120, 400])
def test_the_list_on_a_terminal_has_the_program_first(environ: dict[str, str], columns: int) -> None:
    """Two jobs of one long command line differ by their program."""
    command = ["mslaunch", "--worker_num=2", "--local_worker_num=1", "-H", "n01,n02", "--log_dir=/home/me/logs"]
    for name in ("one.py", "two.py"):
        add(environ, command=[*command, name], program=f"python {name}")
    add(environ, command=[*command, "z" * 90], program=f"python {'z' * 90}")
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    words = "from mslaunch.cli.main import command; import sys; sys.exit(command(['--status']))"
    env = {**environ, "PYTHONPATH": str(Path(job_commands.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", words], stdout=writer, env=env, check=True)
    os.close(writer)
    head, one, two, third = all_of(reader).decode().splitlines()
    assert "  python one.py" in one and "  python two.py" in two and "…" in third
    assert columns < 70 or max(map(len, (head, one, two, third))) <= columns
    assert (" ".join(command) in one) == (columns == 400)


def test_status_of_one_job_has_its_exit_code(environ: dict[str, str]) -> None:
    running, over, killed = add(environ, running=1.0), ended(environ), add(environ, process=me()._replace(start="1"))
    for entry, code, words in (
        (
            running,
            0,
            ("has been running since", "--stop 1", "launcher: process", "/somewhere/logs", running.log, "ranks: 4"),
        ),
        (over, 3, ("ended at", "exit code 3: rank 1 ended with exit code 3", "mslaunch --detach 'a b'")),
        (killed, 137, ("was killed", f"process {os.getpid()}")),
    ):
        shown = job_commands.status([str(entry.number)], environ)
        assert shown.code == code and all(word in shown.text for word in words), shown.text
    assert "--stop" not in job_commands.status(["2"], environ).text


def test_status_of_one_job_has_its_closing_block(environ: dict[str, str]) -> None:
    block = "mslaunch: rank 0 ended with exit code 2 on n01, after 0.2 s\n  | can't open\x1b\n  log: mlx/worker_0.log\n"
    add(environ, ended=time.time(), code=2, how="rank 0 ended with exit code 2 on n01", block=block)
    shown = job_commands.status(["1"], environ).text
    assert "  launcher's log: /" in shown
    assert shown.endswith(
        "  how it ended:\n    rank 0 ended with exit code 2 on n01, after 0.2 s\n      | can't open?\n"
        "      log: mlx/worker_0.log"
    )


@pytest.mark.parametrize("act", [job_commands.status, job_commands.stop])
def test_an_unknown_job_is_an_error(act: Any, environ: dict[str, str]) -> None:
    for word in ("7", "all", "../1", "01", ""):
        add(environ)
        with pytest.raises(LaunchError, match="there is no job") as caught:
            act([word], environ)
        assert "--status lists" in caught.value.todo
        assert ("a job that was not detached is forgotten when it ends" in caught.value.todo) == word.isdigit()
    with pytest.raises(UsageError):
        act(["1", "2"], environ)


def test_stop_waits_for_the_end(environ: dict[str, str], launcher: subprocess.Popen[bytes]) -> None:
    add(environ, process=process(launcher.pid), running=1.0)
    assert "was killed" in job_commands.stop(["1"], environ).text  # the launcher has recorded no end
    assert launcher.wait(9) == -signal.SIGTERM


def test_the_state_of_a_job_whose_process_was_the_command(
    environ: dict[str, str], launcher: subprocess.Popen[bytes]
) -> None:
    with subprocess.Popen(["true"]) as command:
        before = process(command.pid) or ProcessIdentity(command.pid, "0", "gone")
    entry = add(environ, process=before)
    JobRegistry(environ).entries()[0].note(process=process(launcher.pid), running=1.0)
    assert entry.state == "running" and entry.process.pid == launcher.pid
    entry = add(environ, process=before)
    assert entry.state == "killed"


def test_stop_follows_from_the_command_to_the_launcher(
    environ: dict[str, str], launcher: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as command:
        entry = add(environ, process=process(command.pid))
        send = ProcessIdentity.send

        def late(asked: ProcessIdentity, signum: int) -> bool:
            """The launcher was recorded after the job was looked up, and the command has ended."""
            if asked.pid == command.pid:
                JobRegistry(environ).entries()[0].note(process=process(launcher.pid), running=1.0)
            return send(asked, signum)

        monkeypatch.setattr(ProcessIdentity, "send", late)
        assert job_commands.stop([str(entry.number)], environ).text.startswith("job 1 was killed")
    assert launcher.wait(9) == -signal.SIGTERM


def test_stop_of_a_job_that_was_refused_meanwhile_reports_it(
    environ: dict[str, str], launcher: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = add(environ, process=process(launcher.pid))
    send = ProcessIdentity.send

    def forgotten(asked: ProcessIdentity, signum: int) -> bool:
        entry.remove()
        return send(asked, signum)

    monkeypatch.setattr(ProcessIdentity, "send", forgotten)
    assert job_commands.stop(["1"], environ).text == "job 1 ended before anything was started"


def test_stop_of_a_job_in_a_terminal_says_where_its_exit_code_is(
    environ: dict[str, str], launcher: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = add(environ, process=process(launcher.pid), running=1.0, foreground=True)
    shown = job_commands.status(["1"], environ).text
    assert "running" in shown and "launcher's log" not in shown, "it has none"
    wait = ProcessIdentity.wait

    def late(asked: ProcessIdentity, seconds: float) -> bool:
        entry.remove()
        return wait(asked, seconds)

    monkeypatch.setattr(ProcessIdentity, "wait", late)
    expected = "job 1 has ended; its exit code was given to the command that started it"
    assert job_commands.stop(["1"], environ).text == expected


def test_a_registry_that_cannot_be_made_is_an_error(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = {"MSLAUNCH_JOBS": str(tmp_path / "file" / "jobs")}
    assert JobRegistry(nowhere).entries() == []
    with pytest.raises(LaunchError, match="cannot be made or written: Not a directory") as caught:
        add(nowhere)
    assert caught.value.where == nowhere["MSLAUNCH_JOBS"] and "MSLAUNCH_JOBS" in caught.value.todo


def test_stop_of_a_job_that_has_ended_signals_no_process(environ: dict[str, str]) -> None:
    ended(environ)
    assert "ended at" in job_commands.stop(["1"], environ).text


def test_stop_waits_with_a_limit(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_commands, "_PATIENCE", 0.05)
    stubborn = "import signal, sys; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", stubborn], stdin=pipe, stdout=pipe) as child:
        assert child.stdout and child.stdout.readline() == b"ready\n"
        add(environ, process=process(child.pid), grace=0.0)
        with pytest.raises(LaunchError, match="has not done so yet") as caught:
            job_commands.stop(["1"], environ)
        assert caught.value.where == "job 1" and "second --stop 1" in caught.value.todo
        assert "see /" in caught.value.todo
        JobRegistry(environ).entries()[0].note(foreground=True)
        with pytest.raises(LaunchError) as caught:
            job_commands.stop(["1"], environ)
        assert caught.value.todo == "a second --stop 1 ends it at once", "it has no log"
        child.kill()


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("-x A=secret -x B --detach -n 1 prog A=1", "-x A=… -x B --detach -n 1 prog A=1"),
        ("--detach -x=A=secret a", "--detach -x=A=… a"),
        ("--worker_num=2 --cluster_time_out=300 net.py", "--worker_num=2 --cluster_time_out=300 net.py"),
        ("-mca mca_base_env_list TOK=secret;B=2 prog TOK=1", "-mca mca_base_env_list TOK=… prog TOK=1"),
        ("-mca mca_base_env_list C;TOK=se;B=2;ret prog", "-mca mca_base_env_list C;TOK=… prog"),
        ("-mca mca_base_env_list B=;TOK=secret prog", "-mca mca_base_env_list B=;TOK=… prog"),
        ("-x TOK=secret a : -x B=2 b TOK=1 c", "-x TOK=… a : -x B=… b TOK=1 c"),
        ("--dialect hydra -genv=A=secret -env B=c -n 1 a", "--dialect hydra -genv=A=… -env B=… -n 1 a"),
        ("--dialect hydra -genv A secret -n 1 a secret", "--dialect hydra -genv A … -n 1 a secret"),
    ],
)
def test_values_of_variables_are_not_recorded(typed: str, written: str) -> None:
    request = parse(typed.split(), {}, lambda path: "")
    assert job_commands.recorded(request, ["/bin/mslaunch", *typed.split()]) == ["mslaunch", *written.split()]
