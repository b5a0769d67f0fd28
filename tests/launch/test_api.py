"""The Python API, as a program uses it: outcomes, threads, and state of the caller that must not change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from launching import program, through_rsh
from open_descriptors import open_descriptors

from mslaunch import LaunchError, Outcome, launch


def test_an_outcome_describes_a_failure(tmp_path):
    outcome = launch(program("die", 4, 1), np=3, output=str(tmp_path), options=["--oversubscribe"])
    assert isinstance(outcome, Outcome)
    assert (outcome.code, outcome.ok, len(outcome.ranks)) == (4, False, 3)
    assert outcome.failure is not None
    assert outcome.failure.rank == 1 and outcome.failure.code == 4
    assert outcome.failure.detail == ("last words of 1",)
    assert [(rank.rank, rank.reason) for rank in outcome.ranks] == [(0, "ended"), (1, ""), (2, "ended")]
    assert (outcome.ranks[1].code, outcome.ranks[1].signal, outcome.ranks[1].status) == (4, None, 4)
    assert (outcome.ranks[0].code, outcome.ranks[0].signal, outcome.ranks[0].status) == (None, 15, 143)
    assert all(rank.pid for rank in outcome.ranks)
    assert 0 < outcome.seconds < 30
    assert Path(str(outcome.ranks[1].stderr)).read_text() == "last words of 1\n"


def test_an_outcome_of_success(tmp_path, capfd):
    outcome = launch(
        ["sh", "-c", "echo $WORD"], np=2, env={"WORD": "hello"}, output=str(tmp_path), options=["--oversubscribe", "-q"]
    )
    assert outcome.ok and outcome.failure is None
    assert [Path(str(rank.stdout)).read_text() for rank in outcome.ranks] == ["hello\n"] * 2
    assert capfd.readouterr() == ("", "")


def test_output_goes_to_the_descriptors_of_the_caller(capfd):
    assert launch(["echo", "hello"], np=1).ok
    assert capfd.readouterr().out == "hello\n"


def test_launch_can_be_called_repeatedly(tmp_path):
    before = len(open_descriptors())
    for number in range(5):
        assert launch(["sh", "-c", f"exit {number}"], np=1, options=["-q"]).code == number
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("hosts", ["", "alpha:2"])
def test_launch_works_in_a_thread(hosts, capfd):
    """A program with threads must not be forked; several launches run at the same time."""
    found: list[Outcome] = []
    options = through_rsh() if hosts else ["--oversubscribe"]

    def work() -> None:
        found.append(launch(["sh", "-c", "echo one"], np=2, hosts=hosts, options=options))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [outcome.code for outcome in found] == [0, 0]
    assert capfd.readouterr().out == "one\n" * 4


@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_launch_works_beside_a_thread(capfd):
    """In the main thread of a program with another thread: a fork would cause a warning of Python."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(30,))
    thread.start()
    try:
        assert launch(program("die", 3), np=1, options=["-q"]).code == 3
    finally:
        stop.set()
        thread.join()


def test_signal_handlers_are_as_before():
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT", "SIGCHLD", "SIGPIPE")

    def handlers() -> list[object]:
        return [signal.getsignal(getattr(signal, name)) for name in names]

    signal.signal(signal.SIGUSR1, lambda signum, frame: None)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    before = handlers()
    launch(["true"], np=1)
    with pytest.raises(LaunchError):
        launch(["true"], np=2, hosts="alpha", options=[*through_rsh(), "--rsh-agent", "/no/such"])
    assert handlers() == before
    assert signal.set_wakeup_fd(-1) == writer
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    os.close(reader)
    os.close(writer)


def test_children_of_the_caller_are_its_own():
    with subprocess.Popen(["sh", "-c", "exit 42"]) as child:
        assert launch(["sleep", "0.1"], np=1).ok
        assert child.wait(10) == 42


def test_no_child_process_is_left():
    launch(["true"], np=2, options=["--oversubscribe", "-q"])
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    "wrong",
    [{"argv": []}, {"np": 0}, {"np": -1}, {"options": ["--no-such-option"]}, {"hosts": "a b"}, {"hostfile": "/no/such"},
     {"env": {"": "x"}}, {"env": {"A": "\0"}}, {"output": "/dev/null/x"}, {"hosts": "a:x"},
     {"options": ["--stdin", "7"]}, {"argv": "echo hi"}, {"argv": ["echo", 3]}, {"np": "two"}, {"np": 1.5},
     {"timeout": "1"}, {"env": {"A": 1}}, {"env": {1: "A"}}, {"env": {"A=B": "c"}}],
)  # fmt: skip
def test_bad_arguments(wrong):
    words = {"argv": ["true"], "np": 1, **wrong}
    with pytest.raises(LaunchError) as caught:
        launch(words.pop("argv"), **words)
    assert caught.value.code == 1 and caught.value.what


def test_paths_are_words():
    assert launch([Path("/bin/sh"), "-c", "exit 0"], np=1, options=["-q"]).ok


def test_a_host_that_is_down():
    options = ["--rsh-agent", f"{sys.executable} -c 'raise SystemExit(255)'"]
    with pytest.raises(LaunchError) as caught:
        launch(["true"], np=1, hosts=["alpha", "beta"], options=options)
    assert (caught.value.code, caught.value.where) == (255, "alpha")


def test_an_rsh_that_cannot_be_run_leaves_nothing():
    """The local agent had begun."""
    with pytest.raises(LaunchError):
        launch(["true"], np=2, hosts=["localhost", "beta"], options=["--rsh-agent", "/no/such/rsh"])
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_refusal_leaves_no_file_open(tmp_path):
    """The logs are there before the hosts are asked."""
    options = ["--rsh-agent", "/nothing/there"]
    before = sorted(open_descriptors())
    with pytest.raises(LaunchError):
        launch(["true"], hosts="alpha:2", output=str(tmp_path), options=options)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_the_time_limit_is_an_outcome():
    outcome = launch(["sleep", "60"], np=1, timeout=0.3, options=["-q"])
    assert outcome.code == 110


def test_standard_input_is_left_alone(tmp_path):
    """It is read only on request."""
    script = "from mslaunch import launch; import sys; launch(['cat'], np=1); print(sys.stdin.read())"
    ended = subprocess.run([sys.executable, "-c", script], input=b"mine", capture_output=True, timeout=30, check=False)
    assert ended.stdout == b"mine\n"


def test_buffered_output_is_not_written_twice():
    """A forked agent must not write the caller's unflushed output a second time."""
    script = "import sys; sys.stdout.write('once'); from mslaunch import launch; launch(['true'], np=1)"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=30, stdin=subprocess.DEVNULL, check=False
    )
    assert (ended.stdout, ended.stderr) == (b"once", b"")


def test_an_exception_in_the_caller_is_raised(tmp_path):
    """KeyboardInterrupt is the job's: one Ctrl-C ends it, and the caller gets an outcome."""
    script = (
        "import os, signal, threading; from mslaunch import launch\n"
        "o = launch(['sh', '-c', 'kill -INT %d; exec sleep 60' % os.getpid()], np=1, options=['-q'])\n"
        "print(o.code, o.failure.what)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=30, stdin=subprocess.DEVNULL, check=False
    )
    assert ended.stdout == b"1 ended by SIGINT\n", ended.stderr


def test_attempts_are_in_the_outcome():
    script = "[ $MSLAUNCH_ATTEMPT = 3 ] || exit 7"
    outcome = launch(["sh", "-c", script], np=1, options=["-q", "--restart", "group"])
    assert (outcome.code, outcome.failure, outcome.ok) == (0, None, True)
    assert [(one.number, one.failure.code, one.changed) for one in outcome.attempts] == [(1, 7, ""), (2, 7, "")]
    assert outcome.attempts[0].seconds <= outcome.attempts[1].seconds <= outcome.seconds


def test_observers_get_a_record_of_everything_that_happens(tmp_path):
    from mslaunch.cli.mpirun.parse import parse
    from mslaunch.datamodel.request import Caller
    from mslaunch.host.files import read_text
    from mslaunch.launcher.launch import run

    records = []
    script = "echo out; echo error >&2; [ $MSLAUNCH_ATTEMPT = 2 ]"
    words = ["-q", "--restart", "group", "-n", "2", "--oversubscribe", "sh", "-c", script]
    out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    caller = Caller(dict(os.environ), str(tmp_path), 0, out, out, signals=False, observers=(records.append, int))
    outcome = run(parse(words, {}, read_text), caller)
    assert outcome.code == 0
    names = [type(record).__name__ for record in records if type(record).__name__ != "Connecting"]  # on a slow host
    assert names[:2] == ["Connected", "AttemptStarted"] and names[-1] == "LaunchEnded"
    assert [names.count(name) for name in ("AttemptStarted", "AllStarted", "RankEnded", "LaunchEnded")] == [2, 2, 4, 1]
    ended = [(type(record).__name__, record.failure is None) for record in records if hasattr(record, "failure")]
    assert ended == [("JobFailed", False), ("AttemptEnded", False), ("Restarting", False), ("AttemptEnded", True)]
    counted = [record for record in records if type(record).__name__ == "OutputCounted"]
    assert (counted[1].stdout, counted[1].stderr) == (8, 12)
    assert records[-1].outcome == outcome
    assert [record.time for record in records] == sorted(record.time for record in records)
    records.clear()
    assert run(parse(["-q", "-n", "1", "no-such-program"], {}, read_text), caller).code == 127
    assert "AllStarted" not in [type(record).__name__ for record in records]
