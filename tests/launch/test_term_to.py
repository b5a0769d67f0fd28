"""Who gets SIGTERM when a job is ended (--term-to), how long it has then, and what --warn sends before --timeout."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from launching import state_of, through_rsh, wait_until

from mslaunch.host.processes import children

LOCAL = ["--oversubscribe"]
REMOTE = [*through_rsh("alpha:1", "beta:1"), "--map-by", "node"]
WHERE = pytest.mark.parametrize("where", [LOCAL, REMOTE], ids=["local", "two hosts"])

#: a trainer and its data loader, in one process group; the trainer saves only while its loader lives
TRAINER = """\
import os, signal, sys
def save(signum, frame):
    signal.sigtimedwait([signal.SIGCHLD], float((sys.argv[1:] or [0.2])[0]))  # or until the loader has ended
    alive = os.waitpid(pid, os.WNOHANG)[0] == 0
    os.write(1, b"saved\\n" if alive else b"loader lost\\n")
    os._exit(0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
prepared, tell = os.pipe()
pid = os.fork()
if not pid:
    signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"loader terminated\\n"), os._exit(0)))
    os.write(tell, b"!")
    while True:
        signal.pause()
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"warned\\n"))
os.read(prepared, 1)
os.write(1, b"ready\\n")  # both can be signalled
while True:
    signal.pause()
"""


@pytest.fixture
def trainer(tmp_path):
    (tmp_path / "net.py").write_text(TRAINER)
    return [sys.executable, "-S", "net.py"]


def interrupted(job):
    job.expect(b"ready\n", 2)
    job.send(signal.SIGINT)
    return job.end(15)


@WHERE
def test_a_rank_gets_sigterm_before_its_helpers(start, trainer, where):
    """It can save its work, and its helpers get theirs once it has ended."""
    ended = interrupted(start([*where, "-n", "2", "--grace", "20", *trainer]))
    assert (ended.code, ended.out.count(b"saved")) == (1, 2), ended
    assert b"loader lost" not in ended.out
    assert ended.out.count(b"loader terminated") == 2


@WHERE
def test_the_group_of_a_rank_gets_sigterm(start, trainer, where):
    ended = interrupted(start([*where, "-n", "2", "--grace", "20", "--term-to", "group", *trainer, "10"]))
    assert ended.code == 1
    assert ended.out.count(b"loader lost") == 2
    assert b"saved" not in ended.out


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_that_waits_does_not_keep_sigterm_from_its_program(start, trainer, tmp_path, shell):
    """Nor do shells within shells; its program's helpers are left alone all the same."""
    (tmp_path / "run.sh").write_text(f"echo run\n{' '.join(trainer)}\necho after\n")
    (tmp_path / "outer.sh").write_text(f"{shell} run.sh\necho after\n")
    ended = interrupted(start(["-n", "2", "--oversubscribe", "--grace", "20", shell, "outer.sh"]))
    assert (ended.code, ended.out.count(b"saved")) == (1, 2), ended
    assert b"loader lost" not in ended.out and b"after" not in ended.out


def test_a_shell_is_held_back_after_control_z_as_well(start, tmp_path):
    """To continue a job continues all of its processes."""
    saves = f"trap 'echo saving; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo saved; exit 0' TERM"
    (tmp_path / "net.sh").write_text(f"{saves}\necho ready $PPID\nwhile :; do sleep 0.02; done\n")
    (tmp_path / "run.sh").write_text("bash net.sh\necho after\n")
    job = start([*LOCAL, "-n", "2", "--grace", "20", "sh", "run.sh"])
    job.expect(b"\n", 2)
    ranks = job.pids()
    job.send(signal.SIGINT)
    job.expect(b"saving\n", 2)
    job.send(signal.SIGTSTP)
    wait_until(lambda: state_of(job.pid) == "T")
    job.send(signal.SIGCONT)
    wait_until(lambda: state_of(job.pid) != "T")
    programs = [child for rank in ranks for child in children(rank)]
    wait_until(lambda: all(state_of(pid) != "T" for pid in programs))
    wait_until(lambda: all(state_of(rank) == "T" for rank in ranks))
    (tmp_path / "go").touch()
    ended = job.end(15)
    assert ended.out.count(b"saved") == 2 and b"after" not in ended.out, ended


def test_a_shell_that_handles_sigterm_gets_it_at_once(start, trainer):
    """It ends its program itself, and may clean up."""
    script = f"trap 'kill $p; wait $p; echo cleaned; exit 0' TERM; {' '.join(trainer)} & p=$!; wait"
    ended = interrupted(start([*LOCAL, "-n", "2", "--grace", "20", "bash", "-c", script]))
    assert (ended.out.count(b"saved"), ended.out.count(b"cleaned")) == (2, 2), ended


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_that_handles_sigterm_does_so_once_the_shell_that_it_runs_has_ended(start, trainer, tmp_path, shell):
    """Which is held back until its program has saved."""
    (tmp_path / "run.sh").write_text(f"{' '.join(trainer)}\necho after\n")
    script = f"trap 'echo cleaned; exit 0' TERM; {shell} run.sh; while :; do sleep 0.05; done"
    ended = interrupted(start([*LOCAL, "-n", "2", "--grace", "4", "bash", "-c", script]))
    assert (ended.out.count(b"saved"), ended.out.count(b"cleaned")) == (2, 2), ended
    assert b"after" not in ended.out


def test_what_ignores_sigterm_is_killed_with_its_group(start):
    """Within the grace of the environment, which the option overrides."""
    script = 'trap "" TERM; (while :; do sleep 0.1; done) & echo ready; while :; do sleep 0.1; done'
    job = start([*LOCAL, "-n", "2", "sh", "-c", script], env={"MSLAUNCH_GRACE": "0.3"})
    assert interrupted(job).code == 1
    job.wait_gone(2)


def test_the_option_overrides_the_grace_of_the_environment(start):
    trap = 'trap "echo terminated; exit 0" TERM; echo ready; while :; do sleep 0.05; done'
    job = start([*LOCAL, "-n", "2", "--grace", "20", "sh", "-c", trap], env={"MSLAUNCH_GRACE": "0"})
    assert interrupted(job).out.count(b"terminated") == 2


def test_ranks_get_sigterm_once(start):
    """Also if an agent was told to end, and then the launcher ends the job: a second one often means "at once"."""
    trap = 'trap "echo terminated" TERM; echo ready $$; while :; do sleep 0.05; done'
    job = start([*REMOTE, "-n", "2", "--grace", "1.5", "sh", "-c", trap])
    job.expect(b"ready", 2)
    with open(f"/proc/{job.pids()[0]}/stat") as file:
        agent = int(file.read().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGTERM)
    assert job.end(15).out.count(b"terminated") == 2


# --- --warn


@WHERE
def test_ranks_are_warned_before_the_timeout(start, trainer, where):
    words = [*where, "-n", "2", "--timeout", "4", "--warn", "SIGUSR1@1.5", "--grace", "20", *trainer]
    job = start(words, env={})
    job.expect(b"warned\n", 2)
    ended = job.end(15)
    assert (ended.code, ended.out.count(b"saved")) == (110, 2)
    (line,) = [line for line in ended.err.splitlines() if "--warn" in line]
    assert line.startswith("mslaunch: SIGUSR1") and line.endswith("sent to the ranks, 1.5 s before --timeout (--warn)")


def test_a_warning_does_not_kill_the_shell_of_a_program(start, trainer):
    """It would die of SIGUSR1, and the rank with it."""
    words = ["--timeout", "3", "--warn", "SIGUSR1@1.5", "--grace", "20", "sh", "-c", f"{' '.join(trainer)}; echo after"]
    job = start([*LOCAL, "-n", "1", *words])
    job.expect(b"warned\n")
    ended = job.end(15)
    assert (ended.code, ended.out.count(b"saved")) == (110, 1), ended
    assert b"after" not in ended.out


@pytest.mark.parametrize("dialect", ["hydra", "msrun"])
def test_other_dialects_warn_as_well(start, tmp_path, dialect):
    number = {"hydra": ["-n", "1"], "msrun": ["--worker_num=1", "--local_worker_num=1", "--join=True"]}[dialect]
    words = ["--dialect", dialect, *number, "--timeout", "20", "--warn", "usr1@18.5", "--term-to", "rank"]
    (tmp_path / "net.py").write_text(
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nsignal.sigwait([signal.SIGUSR1])\n"
    )
    ended = start([*words, *([sys.executable] if dialect == "hydra" else []), "net.py"]).end(15)
    assert ended.code == 0, ended
    assert "sent to the ranks, 18.5 s before" in ended.err


def test_the_closing_line_of_a_timeout_has_one_time(start):
    ended = start([*LOCAL, "-n", "1", "--timeout", "1", "sleep", "100"]).end(15)
    assert "mslaunch: the job was still running after 1 second (--timeout)\n" in ended.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--warn", "USR1@5"], "it needs a time limit"),
        (
            ["--timeout", "10", "--warn", "USR1@10"],
            "a warning 10 s before a time limit of 10 s would come before the start",
        ),
        (
            ["--timeout", "10", "--warn", "USR1"],
            "a warning 60 s before a time limit of 10 s would come before the start",
        ),
        (["--timeout", "10", "--warn", "KILL@1"], "a signal that a program can handle"),
        (["--timeout", "10", "--warn", "USR3@1"], "did you mean SIGUSR"),
        (["--timeout", "10", "--warn", "x"], "a signal that a program can handle"),
        (["--timeout", "10", "--warn", "B:USR1@1"], "who gets it is said by --term-to"),
        (["--timeout", "10", "--warn", "USR1@0"], "a number of seconds, more than 0"),
        (["--timeout", "10", "--warn", "65@1"], "a signal that a program can handle"),
        (["--term-to", "everybody"], "rank or group"),
    ],
)
def test_what_cannot_be_done_is_refused(start, words, says):
    ended = start([*words, "-n", "1", "touch", "started"]).end()
    assert ended.code == 1
    assert says in ended.err, ended.err
    assert ("did you mean" in ended.err) == ("did you mean" in says), ended.err  # no signal is like KILL, or 65
