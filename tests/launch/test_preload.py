"""--preload-binary, --preload-files, --set-cwd-to-session-dir: files on the hosts, and nothing that stays behind."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from launching import PROGRAMS, memory_of, parent_of, program, state_of, through_rsh, wait_until

LOCAL = ["--oversubscribe"]
WHERE = pytest.mark.parametrize("where", [LOCAL, through_rsh("alpha:8")], ids=["local", "remote"])
LOOK = 'cd "$OMPI_FILE_LOCATION" && find -L . -type f | sort && cat data/in'


@pytest.fixture
def hosts(tmp_path):
    """The environment in which each host has its own TMPDIR; all of them must be empty in the end."""
    names = ("here", "alpha", "beta")
    for name in names:
        (tmp_path / "tmp" / name).mkdir(parents=True)
    yield {"TMPDIR": str(tmp_path / "tmp" / "here"), "RSH_TMP": str(tmp_path / "tmp")}
    left = {name: os.listdir(tmp_path / "tmp" / name) for name in names}
    assert left == {name: [] for name in names}


@pytest.fixture
def files(tmp_path):
    """In the launch directory: a script `tool`, and the folder `data` with a file in it."""
    (tmp_path / "tool").write_text('#!/bin/sh\necho "$0 $* $(pwd) $PWD $OMPI_FILE_LOCATION"\n')
    (tmp_path / "tool").chmod(0o750)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in").write_text("numbers\n")
    return tmp_path


@WHERE
def test_files_are_sent_to_the_session_directory(run, hosts, files, where):
    """They keep their names; the working directory is the usual one."""
    words = ["-n", "2", "--preload-files", "data/in,tool", "sh", "-c", f"pwd; {LOOK}"]
    ended = run([*where, *words], env=hosts)
    assert ended.code == 0, ended.err
    assert ended.lines == sorted([str(files), "./data/in", "./tool", "numbers"] * 2)


def test_a_folder_and_modes(run, hosts, files):
    (files / "data" / "in").chmod(0o440)
    show = 'cd "$OMPI_FILE_LOCATION"; stat -L -c "%a %n" data/in tool'
    whole = ["--preload-files", f"data,{files}/tool", "sh", "-c", f'test -x "$OMPI_FILE_LOCATION{files}/tool"']
    assert run([*through_rsh("alpha"), *whole], env=hosts).code == 0, "a whole path keeps its folders"
    ended = run([*through_rsh("alpha"), "--preload-files", "data,tool", "sh", "-c", show], env=hosts)
    assert ended.lines == ["440 data/in", "750 tool"], ended.err


@WHERE
def test_a_program_is_sent_and_run_from_its_copy(run, hosts, files, where):
    """It runs from the copy, in the session directory of its rank, which is no other's."""
    ended = run([*where, "-n", "2", "-s", f"{files}/tool", "a b"], env=hosts)
    assert ended.code == 0, ended.err
    said = [line.split() for line in ended.lines]
    assert {tuple(words[:3]) for words in said} == {("./tool", "a", "b")}
    assert all(words[3] == words[4] == words[5] for words in said)
    places = {words[3] for words in said}
    below = hosts["TMPDIR"] if where is LOCAL else hosts["RSH_TMP"] + "/alpha"
    assert len(places) == 2 and all(os.path.dirname(os.path.dirname(place)) == below for place in places)


def test_a_program_that_only_this_host_has(run, hosts, files, tmp_path):
    """Found as it would be here: in --path, or in PATH."""
    (files / "bin").mkdir()
    (files / "tool").rename(files / "bin" / "only-here")
    where = through_rsh("alpha", "beta")
    for words, env in ((["--path", "bin"], {}), ([], {"PATH": f"{files}/bin:{os.environ['PATH']}"})):
        ended = run([*where, "-n", "2", *words, "--preload-binary", "only-here"], env={**hosts, **env})
        assert (ended.code, len(ended.lines)) == (0, 2), ended.err
    assert run([*where, "-n", "2", "only-here"], env=hosts).code == 127


@WHERE
def test_the_session_directory_as_the_working_directory(run, hosts, files, where):
    """--wdir wins over it, as in mpirun 4.1.4."""
    words = [*where, "-n", "2", "--set-cwd-to-session-dir", "--preload-files", "data"]
    ended = run([*words, "sh", "-c", 'test "$PWD" = "$OMPI_FILE_LOCATION" && echo mine > out && ls -1'], env=hosts)
    assert ended.lines == ["data", "data", "out", "out"], ended.err
    assert run([*words, "--wdir", "/", "pwd"], env=hosts).lines == ["/", "/"]
    alone = [*where, "-n", "1", "--set-cwd-to-session-dir", "sh", "-c", "ls; pwd"]
    assert "/rank.0" in run(alone, env=hosts).out.decode(), "also without files"


def test_each_program_of_a_job_sees_all_files(run, hosts, files):
    words = ["-n", "1", "--preload-files", "data", "sh", "-c", LOOK, ":", "-n", "1", "sh", "-c", LOOK]
    assert run([*LOCAL, *words], env=hosts).lines == sorted(["./data/in", "numbers"] * 2)


@WHERE
def test_nothing_is_started_without_the_files(run, hosts, tmp_path, where):
    ended = run([*where, "-n", "1", "--preload-files", "nothing", *program("touch", tmp_path / "ran")], env=hosts)
    assert (ended.code, (tmp_path / "ran").exists()) == (1, False)
    assert "--preload-files" in ended.err and f"{tmp_path}/nothing cannot be sent" in ended.err


def test_a_host_with_a_full_disk_is_named(run, hosts, files):
    (files / "tmp" / "beta").rmdir()
    ended = run([*through_rsh("alpha", "beta"), "--preload-files", "tool", *program("touch", files / "ran")], env=hosts)
    (files / "tmp" / "beta").mkdir()
    assert (ended.code, (files / "ran").exists()) == (1, False)
    assert "beta: the file tool could not be stored" in ended.err and "TMPDIR" in ended.err


def test_large_files_need_little_memory(start, hosts, tmp_path):
    """A file of 128 MiB to two hosts; the launcher and its agents stay small."""
    with open(tmp_path / "much", "wb") as file:
        file.truncate(128 << 20)
    script = 'wc -c < "$OMPI_FILE_LOCATION/much"; echo ready $PPID; exec sleep 99'
    job = start([*through_rsh("alpha", "beta"), "-n", "2", "--preload-files", "much", "sh", "-c", script], env=hosts)
    job.expect(b"ready", 2)
    assert job.out.count(str(128 << 20).encode()) == 2
    assert max(memory_of(pid) for pid in [job.pid, *job.pids()]) < 64
    job.send(signal.SIGTERM)
    assert job.end().code == 1


@WHERE
def test_nothing_is_left_when_guard_and_agent_are_killed_while_files_are_sent(start, hosts, tmp_path, where):
    """Nobody on that host is left to remove the directory: the launcher does, or a new agent."""
    with open(tmp_path / "much", "wb") as file:
        file.truncate(2 << 30)
    job = start([*where, "-n", "1", "--preload-files", "much", "true"], env=hosts)
    made = tmp_path / "tmp"
    wait_until(lambda: list(made.glob("*/mslaunch-*")))
    agent = int(next(made.glob("*/mslaunch-*")).name.split("-")[1])
    guard = parent_of(agent)
    for pid in (guard, agent):
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: (state_of(guard), state_of(agent)) == ("T", "T"))
    for pid in (guard, agent):
        os.kill(pid, signal.SIGKILL)
    ended = job.end()
    assert ended.code in (205, 255), ended.err
    job.wait_gone()


@pytest.mark.parametrize("who", ["launcher", "agent", "guard"])
@WHERE
def test_nothing_is_left_when_one_is_killed(start, hosts, files, where, who):
    job = start([*where, "-n", "1", "--preload-files", "data", *program("wait", files / "go")], env=hosts)
    job.expect(b"ready")
    agent = parent_of(job.pids()[0])
    os.kill({"launcher": job.pid, "agent": agent, "guard": parent_of(agent)}[who], signal.SIGKILL)
    assert job.end().code != 0
    job.wait_gone()


SLOW = """\
import os, select, sys
left = 2_000_000
while left:
    data = os.read(0, min(left, 1 << 16))
    if not data:  # the launcher has given it up before
        break
    os.write(1, data)
    left -= len(data)
open(sys.argv[1], "wb").close()
poll = select.poll()
poll.register(0, 0)
poll.poll()  # until the launcher closes its end
"""


@pytest.fixture
def slow(tmp_path):
    """The way to a host that takes two megabytes of a large file, and no more."""
    os.mkfifo(tmp_path / "stuck")
    with open(tmp_path / "much", "wb") as file:
        file.truncate(64 << 20)
    (tmp_path / "slow").write_text(SLOW)
    rsh = tmp_path / "slow-rsh"
    python = sys.executable
    rsh.write_text(f'#!/bin/sh\n{python} {tmp_path}/slow {tmp_path}/stuck | {python} {PROGRAMS}/rsh "$@"\n')
    rsh.chmod(0o755)
    return ["--rsh-agent", str(rsh), "--agent-python", python, "-H", "alpha", "--preload-files", "much", "true"]


def test_ctrl_c_while_files_are_sent(start, hosts, slow, tmp_path):
    """The launcher reacts, and nothing is left behind."""
    job = start(slow, env=hosts)
    open(tmp_path / "stuck", "rb").close()  # opens once the other end does, after its two megabytes
    job.send(signal.SIGINT)
    ended = job.end()
    job.wait_gone()
    assert ended.code == 1 and "ended by SIGINT before anything was started" in ended.err


def test_the_time_limit_while_files_are_sent(start, hosts, slow, tmp_path):
    job = start(["--timeout", "1", *slow], env=hosts)
    open(tmp_path / "stuck", "rb").close()
    ended = job.end()
    job.wait_gone()
    assert ended.code == 110 and "--timeout: nothing was started within 1 s" in ended.err


def test_the_launcher_is_killed_while_files_are_sent(start, hosts, slow, tmp_path):
    job = start(slow, env=hosts)
    open(tmp_path / "stuck", "rb").close()
    assert os.listdir(tmp_path / "tmp" / "alpha")
    job.process.kill()
    job.wait_gone()
