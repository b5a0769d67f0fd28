"""The agent over its link: answers, the end of its ranks, and processes that are left when it is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agents import BOUND, plan, state_of, wait_gone

import mslaunch
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.host.processes import children
from mslaunch.protocol import control, frames


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_hello_describes_the_host(boot):
    hello = boot().begin()
    assert hello.host == os.uname().nodename
    assert hello.cpus == len(os.sched_getaffinity(0))
    assert hello.addresses and hello.seen_from == ""


def test_an_address_by_ssh_comes_first(boot):
    hello = boot(SSH_CONNECTION="192.0.2.1 50000 127.0.0.1 22").begin()
    assert (hello.addresses[0], hello.seen_from) == ("127.0.0.1", "192.0.2.1")


def test_a_link_local_address_by_ssh_comes_first(boot):
    hello = boot(SSH_CONNECTION="fe80::1%lo 50000 fe80::2%lo 22").begin()
    assert (hello.addresses[0], hello.seen_from) == ("fe80::2%lo", "fe80::1%lo")


def test_an_ssh_connection_of_another_host_is_not_ours(boot):
    """As srun hands it on from the login node: each host would have that one's address."""
    hello = boot(SSH_CONNECTION="192.0.2.1 50000 198.51.100.2 22").begin()
    assert hello.seen_from == "" and "198.51.100.2" not in hello.addresses


def test_a_rank_runs_and_ends(agent):
    agent.launch(plan("sh", "-c", "echo out $NUMBER; echo err >&2; exit 3", ranks=2, pty="no"))
    for rank in range(2):
        assert int(agent.expect(frames.STARTED, rank).payload) > 0
        assert agent.output(frames.STDOUT, rank) == f"out {rank}\n".encode()
        assert agent.output(frames.STDERR, rank) == b"err\n"
        assert agent.exit(rank) == ExitStatus(3, None)


def test_a_rank_that_a_signal_ends(agent):
    agent.launch(plan("sh", "-c", "kill -SEGV $$"))
    assert agent.exit(0) == ExitStatus(None, signal.SIGSEGV)


def test_the_environment_of_a_rank(boot):
    """The agent's variables without the scrubbed ones, the plan's, the rank's, and defaults."""
    agent = boot(MINE="1", STALE="1", STALE_TOO="1", SET="mine")
    agent.begin()
    sent_plan = plan("env", env=["GIVEN=a=b"], scrub=("STALE", "STALE_*"), defaults=("SET=default", "UNSET=default"))
    agent.launch(sent_plan)
    lines = set(agent.output(frames.STDOUT, 0).decode().splitlines())
    assert {"MINE=1", "GIVEN=a=b", "NUMBER=0", "SET=mine", "UNSET=default", "PWD=/"} <= lines
    assert not {"STALE=1", "STALE_TOO=1"} & lines


def test_standard_input_is_acknowledged(agent):
    """Every byte is acknowledged, also for a rank that does not exist or has ended."""
    agent.launch(plan("head", "-c", "70000", ranks=2, stdin=(0,), pty="no"))
    agent.send(frames.STDIN, 0, b"x" * 70000)
    assert len(agent.output(frames.STDOUT, 0)) == 70000
    agent.exit(0)
    agent.send(frames.STDIN, 0, b"y" * 100)
    agent.send(frames.STDIN, 7, b"z" * 1000)
    assert agent.expect(frames.STDIN_TAKEN, 7).payload == b"1000"
    taken = 0
    while taken < 70100:
        taken += int(agent.expect(frames.STDIN_TAKEN, 0).payload)
    assert taken == 70100
    assert agent.output(frames.STDOUT, 1) == b""


def test_the_end_of_standard_input(agent):
    agent.launch(plan("cat", stdin=(0,)))
    agent.send(frames.STDIN, 0, b"words")
    agent.send(frames.STDIN, 0, b"")
    assert agent.output(frames.STDOUT, 0) == b"words"
    assert agent.exit(0).code == 0


def test_ports_are_held_until_the_ranks_start(agent):
    agent.send(frames.RESERVE, payload=b"0 0")
    reserved = control.unpack_record(control.Reserved, agent.expect(frames.RESERVED).payload)
    assert len(set(reserved.ports)) == 2
    for port in reserved.ports:
        with socket.socket() as taken, pytest.raises(OSError) as caught:
            taken.bind(("", port))
        assert caught.value.errno == errno.EADDRINUSE
    agent.launch(plan("true"))
    agent.exit(0)
    for port in reserved.ports:
        with socket.socket() as free:
            free.bind(("", port))


def test_a_received_token_proves_an_address(boot):
    first, second = boot(), boot()
    first.begin()
    second.begin()
    first.send(frames.RESERVE, payload=b"0")
    reserved = control.unpack_record(control.Reserved, first.expect(frames.RESERVED).payload)
    second.send(
        frames.PROBE,
        payload=control.pack_record(
            control.Probe(
                (
                    "127.0.0.1",
                    "127.0.0.1x",
                ),
                reserved.probe,
                reserved.token,
            )
        ),
    )
    assert control.unpack_record(control.Reached, second.expect(frames.REACHED).payload).addresses == ("127.0.0.1",)
    second.send(
        frames.PROBE, payload=control.pack_record(control.Probe(("127.0.0.1",), reserved.probe, "another token"))
    )
    assert control.unpack_record(control.Reached, second.expect(frames.REACHED).payload).addresses == ()


def test_signals_for_one_rank_and_for_all(agent):
    agent.launch(
        plan("sh", "-c", 'trap "echo got" USR1; trap "exit 5" USR2; echo ready; while :; do sleep 0.02; done', ranks=2)
    )
    for rank in range(2):
        assert agent.output(frames.STDOUT, rank, 6) == b"ready\n"
    agent.send(frames.SIGNAL, 1, str(int(signal.SIGUSR1)).encode())
    assert agent.output(frames.STDOUT, 1, 4) == b"got\n"
    agent.send(frames.SIGNAL, frames.NO_RANK, str(int(signal.SIGUSR2)).encode())
    assert [agent.exit(rank).code for rank in range(2)] == [5, 5]
    assert agent.output(frames.STDOUT, 0) == b""


def test_a_missing_program_is_reported(agent):
    agent.launch(plan("no-such-program", ranks=3))
    ends = [agent.exit(rank) for rank in range(3)]
    assert len(set(ends)) == 1
    assert ends[0].code == 127 and "no-such-program" in ends[0].error


# --- the end


IGNORE = 'trap "" TERM; echo ready; while :; do sleep 0.05; done'


def _started(agent, ranks=1, script=IGNORE, **more):
    agent.launch(plan("sh", "-c", script, ranks=ranks, **more))
    pids = [int(agent.expect(frames.STARTED, rank).payload) for rank in range(ranks)]
    for rank in range(ranks):
        assert agent.output(frames.STDOUT, rank, 6) == b"ready\n"
    return pids


def test_a_rank_that_ended_before_end_was_not_asked_to(agent):
    """Nor was a rank that has ended but is not reaped when END is read: both may happen in one turn of the loop."""
    pids = _started(agent, 2)
    own = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(own, signal.SIGSTOP)
    try:
        os.kill(pids[1], signal.SIGKILL)
        wait_gone(pids[1])
        agent.send(frames.END, payload=b"0")
    finally:
        os.kill(own, signal.SIGCONT)
    assert agent.exit(1) == ExitStatus(None, signal.SIGKILL)
    assert agent.exit(0) == ExitStatus(None, signal.SIGKILL, asked=True)


def test_end_terminates_the_ranks(agent):
    _started(agent)
    agent.send(frames.END, payload=b"0.1")
    assert agent.exit(0).signal == signal.SIGKILL


def test_end_without_grace_kills_the_ranks(agent):
    _started(agent)
    agent.send(frames.END, payload=b"1000")
    agent.send(frames.END, payload=b"0")
    assert agent.exit(0).signal == signal.SIGKILL


def test_the_end_of_the_link_ends_the_ranks(agent):
    pids = _started(agent, 3, grace=0.1)
    agent.hang_up()
    assert agent.wait() == 0
    wait_gone(*pids)


def test_the_link_may_end_before_ranks_start(agent):
    agent.hang_up()
    assert agent.wait() == 0


LATE_GUARD = """\
import os, sys
sys.path.insert(0, sys.argv[1])
from mslaunch.agent import guard
guard.adopt_orphans = lambda: os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT) and True
sys.exit(guard.guarded(lambda alive, tell: None, ()))
"""


def test_the_agent_may_end_before_the_guard_is_ready():
    """On a busy host, when the link closes at once: the guard must still end what is left."""
    root = os.path.dirname(os.path.dirname(mslaunch.__file__))
    argv = [sys.executable, "-I", "-S", "-c", LATE_GUARD, root]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BOUND)
    assert (done.returncode, done.stderr) == (0, "")


MUTE_AGENT = """\
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from mslaunch.agent import main
main._say_hello = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
signal.alarm(1)
main.remote_main(0)
"""


def test_an_agent_that_is_stopped_before_it_speaks():
    """It has what is left of the time in which the launcher wants to hear from it: its guard kills it then."""
    root = os.path.dirname(os.path.dirname(mslaunch.__file__))
    argv = [sys.executable, "-I", "-S", "-c", MUTE_AGENT, root]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=BOUND)
    assert (done.returncode, done.stderr) == (128 + signal.SIGKILL, b"")


def test_the_link_may_end_while_a_rank_prints(agent):
    """Nobody reads, so the agent has stopped reading its rank; that rank is ended as well."""
    agent.launch(plan("yes"))
    pid = int(agent.expect(frames.STARTED, 0).payload)
    agent.expect(frames.STDOUT, 0)
    agent.hang_up()
    assert agent.wait() == 0
    wait_gone(pid)


def test_an_agent_that_is_killed(agent):
    """Its guard ends the ranks; the exit code of the guard says so."""
    pids = _started(agent, 2, script='setsid sh -c "trap \\"\\" TERM HUP; sleep 1000" & ' + IGNORE)
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    assert agent.wait() == 128 + signal.SIGKILL
    wait_gone(*pids)


def test_a_guard_that_is_killed(agent):
    pids = _started(agent, 2, grace=0.1)
    mine = parent_of(pids[0])
    assert parent_of(mine) == agent.process.pid
    agent.process.kill()
    wait_gone(mine, *pids)


UNGUARDED = """
import os
from mslaunch.agent.agent import serve
from mslaunch.protocol.frames import MAGIC
alive, ours = os.pipe()
names, directories = os.pipe()
os.write(ours, b"!")  # as if there were a guard, and it were ready
os.write(1, MAGIC)
serve((0, 1), (alive, directories), dict(os.environ), os.devnull)
"""


def test_an_agent_without_a_launcher_does_not_leave_orphans_to_its_guard(boot):
    """Batch systems that end a job kill the guard at any time, so also when the agent has just ended."""
    agent = boot(argv=[sys.executable, "-c", UNGUARDED])
    (pid,) = _started(agent, script='setsid sh -c "echo ready; exec sleep 1000" & wait')
    (orphan,) = children(pid)
    try:
        agent.hang_up()
        assert agent.wait() == 0
        assert state_of(orphan) == ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(orphan, signal.SIGKILL)


def test_an_agent_without_a_launcher_spares_the_next_attempt(agent):
    """Its ranks may run here already: they have the same mark, and a guard of their own."""
    mark = "MSLAUNCH_NODE=1@n0"
    _started(agent, env=(mark,), grace=0.1)
    with subprocess.Popen(["sleep", "1000"], env=dict([mark.split("=")])) as other:
        try:
            agent.hang_up()
            assert agent.wait() == 0
            assert other.poll() is None
        finally:
            other.kill()


def test_an_internal_error_is_reported(agent):
    """An unknown frame provokes it: the traceback is sent to the launcher, and the ranks are ended."""
    pids = _started(agent)
    agent.send(60)
    text = agent.expect(frames.FAULT).payload.decode()
    assert text.startswith("Traceback") and "KeyError" in text
    assert agent.wait() != 0
    wait_gone(*pids)


def test_an_agent_without_memory_says_so(agent):
    """In a sentence: a traceback would be an error of ours."""
    pids = _started(agent, stdin=(0,))
    mine = parent_of(pids[0])
    size = int(Path(f"/proc/{mine}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(mine, resource.RLIMIT_AS, (size, size))
    with contextlib.suppress(BrokenPipeError):
        for _ in range(16):  # nobody reads it
            agent.send(frames.STDIN, 0, b"x" * (1 << 20))
    assert agent.expect(frames.FAULT).payload == b"the agent has no more memory"
    assert agent.wait() != 0
    wait_gone(*pids)


def test_a_plan_and_the_byte_of_the_guard_in_one_turn(boot):
    """A delayed agent finds both at once: it must not wait for a byte that it has already read."""
    agent = boot()
    hello = agent.begin()
    os.kill(agent.process.pid, signal.SIGSTOP)
    os.kill(hello.pid, signal.SIGSTOP)
    agent.launch(plan("true"))
    os.kill(agent.process.pid, signal.SIGCONT)
    _wait_for_guard(agent.process.pid)
    os.kill(hello.pid, signal.SIGCONT)
    assert agent.exit(0).code == 0
    agent.hang_up()
    assert agent.wait() == 0


def _wait_for_guard(pid):
    """The guard is ready when it ignores signals."""
    deadline = time.monotonic() + 20
    while True:
        with open(f"/proc/{pid}/status") as file:
            (ignored,) = (int(line.split()[1], 16) for line in file if line.startswith("SigIgn"))
        if ignored & 1 << signal.SIGUSR2 - 1:
            return
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_many_plans_may_follow_the_payload(boot):
    """Directly after HELLO, while the guard gets ready."""
    for _ in range(10):
        agent = boot()
        agent.begin()
        agent.launch(plan("true", ranks=3))
        assert [agent.exit(rank).code for rank in range(3)] == [0, 0, 0]
        agent.hang_up()
        assert agent.wait() == 0


def test_descriptors_do_not_leak_into_ranks(agent):
    agent.launch(plan("sh", "-c", "ls /proc/self/fd | wc -l", ranks=4, pty="no"))
    for rank in range(4):
        assert agent.output(frames.STDOUT, rank).strip() == b"4"  # three, and the directory itself


def test_a_rank_is_a_session_of_its_own(agent):
    (pid,) = _started(agent)
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert state_of(pid) in "SRD"  # alive; D while its program is read from the disk


def test_signals_are_as_in_a_fresh_process(agent):
    """Nothing is ignored or blocked, whatever the agent itself does."""
    agent.launch(plan("grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"))
    words = agent.output(frames.STDOUT, 0).decode().split()
    assert words[::2] == ["SigBlk:", "SigIgn:"]
    assert [int(word, 16) & 0x7FFFFFFF for word in words[1::2]] == [0, 0]  # without the real-time ones
