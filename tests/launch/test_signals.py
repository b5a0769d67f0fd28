"""Signals to the launcher; and no process is left when launcher, agent or guard is killed."""

from __future__ import annotations

import os
import pty
import resource
import select
import signal
import time
from pathlib import Path

import pytest
from launching import BOUND, COMMAND, alive, environment, parent_of, program, state_of, through_rsh, wait_until

LOCAL = ["--oversubscribe"]
REMOTE = [*through_rsh("alpha:2", "beta:2"), "--map-by", "node"]
WHERE = pytest.mark.parametrize("where", [LOCAL, REMOTE], ids=["local", "two hosts"])
TRAP = 'trap "echo terminated; exit 0" TERM; echo ready $$; while :; do sleep 0.05; done'


@WHERE
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_one_interrupt_terminates_the_ranks(start, where, name):
    """Ranks get TERM, and may still print; the exit code is 1."""
    job = start([*where, "-n", "2", "--grace", "20", "sh", "-c", TRAP])
    job.expect(b"ready", 2)
    job.send(getattr(signal, name))
    ended = job.end(10)
    assert ended.code == 1
    assert ended.out.count(b"terminated\n") == 2
    assert f"mslaunch: {name}: ending the ranks; a second signal kills them" in ended.err
    assert f"mslaunch: ended by {name}, after" in ended.err
    assert "ended by mslaunch: ranks 0-1" in ended.err


@WHERE
def test_ranks_are_killed_after_the_grace_period(start, where):
    """Such ranks ignore TERM."""
    job = start([*where, "-n", "2", "--grace", "0.3", *program("ignore_term")])
    job.expect(b"ready", 2)
    began = time.monotonic()
    job.send(signal.SIGINT)
    assert job.end(15).code == 1
    assert time.monotonic() - began >= 0.3


@WHERE
def test_a_second_interrupt_kills_at_once(start, where):
    """The second interrupt allows no grace period."""
    job = start([*where, "-n", "2", "--grace", "1000", *program("ignore_term")])
    job.expect(b"ready", 2)
    job.send(signal.SIGINT)
    line = job.process.stderr.readline()
    while b"a second signal" not in line:
        line = job.process.stderr.readline()
    job.send(signal.SIGINT)
    ended = job.end(15)
    assert ended.code == 1
    assert "SIGINT: killing the ranks" in ended.err


@WHERE
def test_a_stopped_rank_gets_sigterm(start, where):
    job = start([*where, "-n", "2", "--grace", "1000", "sh", "-c", TRAP])
    job.expect(b"ready", 2)
    for pid in job.pids():
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda pid=pid: state_of(pid) == "T")
    job.send(signal.SIGINT)
    assert job.end(15).out.count(b"terminated") == 2


@WHERE
def test_signals_are_forwarded_to_programs(start, where, tmp_path):
    job = start([*where, "-n", "2", *program("wait", tmp_path / "go")])
    job.expect(b"ready", 2)
    for name in ("SIGUSR1", "SIGUSR2", "SIGALRM"):
        job.send(getattr(signal, name))
        job.expect(f"got {name}".encode(), 2)
    (tmp_path / "go").touch()
    assert job.end().code == 0


@WHERE
def test_stop_and_continue_are_forwarded(start, where, tmp_path):
    job = start([*where, "-n", "2", *program("wait", tmp_path / "go")])
    job.expect(b"ready", 2)
    everybody = [job.pid, *job.pids()]
    for _ in range(2):
        job.send(signal.SIGTSTP)
        for pid in everybody:
            wait_until(lambda pid=pid: state_of(pid) == "T", 10)
        job.send(signal.SIGCONT)
        for pid in everybody:
            wait_until(lambda pid=pid: state_of(pid) in "SR", 10)
    (tmp_path / "go").touch()
    assert job.end().code == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_control_c_at_a_terminal():
    """The launcher alone gets it, and orders the ranks to end gently, once."""
    pid, master = pty.fork()
    if not pid:
        try:
            os.execve(COMMAND[0], [*COMMAND, "-n", "1", "--grace", "20", "sh", "-c", TRAP], environment())
        finally:
            os._exit(99)
    try:
        said = _until(master, b"ready")
        os.write(master, b"\x03")
        said += _until(master, b"ended by mslaunch")
        assert b"terminated" in said and b"killing the ranks" not in said
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    finally:
        os.close(master)


def _until(master: int, word: bytes) -> bytes:
    data = b""
    while word not in data:
        assert select.select([master], [], [], 20)[0], data
        data += os.read(master, 4096)
    return data


def test_an_ignored_hangup_stays_ignored(start, tmp_path):
    """As under nohup."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    job = start(["-n", "1", *program("wait", tmp_path / "go")], preexec_fn=ignore)
    job.expect(b"ready")
    job.send(signal.SIGHUP)
    job.send(signal.SIGUSR1)
    job.expect(b"got SIGUSR1")
    (tmp_path / "go").touch()
    assert job.end().code == 0


def test_a_stuck_terminal_does_not_delay_the_end(start):
    """The terminal is stuck and a signal ends the job: the command ends as well, and reports the lost output."""
    job = start(["-n", "1", *program("bulk", 50_000_000, 1)])
    job.expect(b"\0")
    job.send(signal.SIGTERM)
    assert job.process.wait(15) == 1
    assert "mslaunch: ended by SIGTERM, after" in job.end().err


# --- killed


@WHERE
@pytest.mark.parametrize("ranks", ["wait", "ignore_term", "daemonize"])
def test_the_launcher_is_killed(start, where, ranks):
    job = start([*where, "-n", "4", *program(ranks)])
    job.expect(b"ready", 4)
    ranks = [*job.pids(), *job.pids("daemon")]
    assert all(alive(pid) for pid in ranks)
    job.send(signal.SIGKILL)
    assert job.process.wait(BOUND) == -signal.SIGKILL
    job.wait_gone()
    assert not any(alive(pid) for pid in ranks)


def test_the_launcher_is_killed_at_any_moment(start):
    """Also while it starts."""
    for number in range(25):
        job = start([*REMOTE, "-n", "4", *program("daemonize")])
        time.sleep(number * 0.008)  # a moment, not a wait
        job.send(signal.SIGKILL)
        job.process.wait(BOUND)
        job.wait_gone()
        job.end()


@WHERE
@pytest.mark.parametrize("ranks", ["daemonize", "ignore_term"])
@pytest.mark.parametrize("who", ["agent", "guard", "both"])
def test_an_agent_or_its_guard_is_killed(start, where, who, ranks):
    """Its host is lost, and the job with it; what it held is gone, daemons of ranks as well."""
    job = start([*where, "-n", "4", *program(ranks)])
    job.expect(b"ready", 4)
    agent = parent_of(job.pids()[0])
    for pid in {"agent": [agent], "guard": [parent_of(agent)], "both": [parent_of(agent), agent]}[who]:
        os.kill(pid, signal.SIGKILL)
    ended = job.end(15)
    assert ended.code == 205
    assert "the host was lost while ranks ran there" in ended.err
    assert "lost with their host" in ended.err
    if where is REMOTE:
        assert "ended by mslaunch" in ended.err
    job.wait_gone()


def test_a_killed_agent_is_named(start):
    job = start([*REMOTE, "-n", "2", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK ready $$; while :; do sleep 0.1; done"])
    job.expect(b"ready", 2)
    (second,) = [int(line.split()[2]) for line in job.out.splitlines() if line.startswith(b"1 ")]
    os.kill(parent_of(second), signal.SIGKILL)
    ended = job.end(15)
    assert "mslaunch: the host was lost while ranks ran there on beta" in ended.err
    assert "lost with their host: rank 1" in ended.err
    assert "ended by mslaunch: rank 0" in ended.err


@WHERE
@pytest.mark.parametrize("who", ["agent", "guard"])
@pytest.mark.parametrize("ranks", ["wait", "ignore_term", "daemonize"])
def test_an_agent_or_its_guard_is_told_to_end(start, where, who, ranks):
    """As a system that goes down does: the ranks there end in order, and the launcher says why."""
    job = start([*where, "--grace", "0.5", "-n", "4", *program(ranks)])
    job.expect(b"ready", 4)
    agent = parent_of(job.pids()[0])
    os.kill(agent if who == "agent" else parent_of(agent), signal.SIGTERM)
    ended = job.end(15)
    assert ended.code == 205
    assert ended.err.count("the agent was told to end by SIGTERM") == 1
    assert "lost" not in ended.err
    job.wait_gone()


@WHERE
@pytest.mark.parametrize("what", [resource.RLIMIT_NOFILE, resource.RLIMIT_AS], ids=["descriptors", "memory"])
def test_a_guard_that_gets_nothing_more_still_ends_what_is_left(start, where, what):
    job = start([*where, "--grace", "0.2", "-n", "2", *program("daemonize")])
    job.expect(b"ready", 2)
    guards = {parent_of(parent_of(pid)) for pid in job.pids()}
    for guard in guards:
        used = 1 + max(map(int, os.listdir(f"/proc/{guard}/fd")))
        if what == resource.RLIMIT_AS:
            used = int(Path(f"/proc/{guard}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(guard, what, (used, used))
    job.send(signal.SIGTERM)
    assert job.end(15).code == 1
    job.wait_gone()


def test_an_orphan_without_the_variables_of_its_job(start):
    """`env -i` hides whose it is: it ends all the same if only the guard is killed."""
    job = start([*LOCAL, "-n", "1", "--grace", "0.2", *program("nameless")])
    job.expect(b"ready")
    (rank,), (daemon,) = job.pids(), job.pids("daemon")
    os.kill(parent_of(parent_of(rank)), signal.SIGKILL)
    assert job.end(15).code == 205
    wait_until(lambda: not alive(daemon))


def test_orphans_that_end_are_reaped(start, tmp_path):
    """The agent has adopted them, and no zombie stays while the job runs."""
    script = "(setsid sleep 0.3 >/dev/null 2>&1 & echo ready $$ daemon $!); while ! [ -e go ]; do sleep 0.05; done"
    job = start([*LOCAL, "-n", "1", "sh", "-c", script])
    job.expect(b"ready")
    (daemon,) = job.pids("daemon")
    wait_until(lambda: state_of(daemon) == "", 10)
    (tmp_path / "go").touch()
    assert job.end().code == 0


@WHERE
def test_a_rank_that_kills_its_group(start, where):
    """The rank is alone in its process group."""
    job = start(
        [*where, "-n", "2", "sh", "-c", "test $OMPI_COMM_WORLD_RANK = 0 && kill -9 0; while :; do sleep 0.1; done"]
    )
    assert job.end(15).code == 137


# --- before the ranks run


def test_interrupted_while_connecting(start, tmp_path):
    """Ctrl-C does not wait for a host that does not answer."""
    words = [*REMOTE, "--connect-timeout", "1000", "-n", "2", "touch", "started"]
    job = start(words, env={"RSH_STALL": "beta", "RSH_LOG": str(tmp_path / "log")})
    wait_until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("\n") == 2)
    job.send(signal.SIGINT)
    ended = job.end()
    assert ended.code == 1
    assert "SIGINT" in ended.err
    assert not (tmp_path / "started").exists()


def test_interrupted_while_hosts_are_asked_for_their_cores(start, tmp_path):
    """The same, for hosts without a number of slots."""
    (tmp_path / "hosts").write_text("alpha\nbeta\n")
    words = [*through_rsh(), "--connect-timeout", "1000", "--hostfile", "hosts", "touch", "started"]
    job = start(words, env={"RSH_STALL": "beta", "RSH_LOG": str(tmp_path / "log")})
    wait_until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("\n") == 2)
    job.send(signal.SIGINT)
    ended = job.end()
    assert ended.code == 1
    assert "SIGINT" in ended.err and "Traceback" not in ended.err
    assert not (tmp_path / "started").exists()
