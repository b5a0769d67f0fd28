"""What a job that hangs leaves behind for whoever must find out why: the state of its ranks, and their stacks."""

from __future__ import annotations

import os
import re
import sys

import pytest
from launching import program, through_rsh

TWO = through_rsh("alpha:2", "beta:2")
WHERE = pytest.mark.parametrize("where", [["--oversubscribe"], TWO], ids=["local", "two hosts"])


@WHERE
def test_the_state_of_each_rank(run, where):
    """In a table; and the job is ended as without it."""
    script = 'case $OMPI_COMM_WORLD_RANK in 1) exit 0;; 2) kill -KILL $$;; esac; exec "$@"'
    words = ["-n", "4", "--timeout", "2", "--report-state-on-timeout", "--enable-recovery"]
    ended = run([*where, *words, "sh", "-c", script, "sh", *program("wait")])
    assert ended.code == 110
    table = re.search(r"^mslaunch: the ranks after 2 s:\n((?:  .*\n)+)", ended.err, re.M)
    assert table, ended.err
    rows = [line.split(None, 3) for line in table[1].splitlines()]
    host = [os.uname().nodename] * 4 if where is not TWO else ["alpha", "alpha", "beta", "beta"]
    assert rows[0] == ["rank", "node", "pid", "state"]
    assert [(row[0], row[1], row[3]) for row in rows[1:]] == [
        ("0", host[0], "running"),
        ("1", host[1], "ended with exit code 0"),
        ("2", host[2], "was ended by SIGKILL (killed)"),
        ("3", host[3], "running"),
    ]
    said = {f"ready {row[2]}" for row in rows[1:] if row[3] == "running"}
    assert said == {line for line in ended.lines if line.startswith("ready")}
    assert "ended by mslaunch: ranks 0, 3" in ended.err


@WHERE
def test_the_stacks_of_the_ranks(run, where, tmp_path):
    """Before they are ended, each by a tool of its host; here by one of ours."""
    (tmp_path / "eu-stack").write_text('#!/bin/sh\necho "#0  0x7f in_$3"\n')
    (tmp_path / "eu-stack").chmod(0o755)
    places = os.environ.get("PATH", os.defpath).split(":")
    path = ":".join([str(tmp_path), *(place for place in places if not os.path.exists(f"{place}/py-spy"))])
    waits = [os.path.realpath(sys.executable), *program("wait")[1:]]  # beside which there is no py-spy either
    words = ["-n", "4", "--timeout", "2", "--get-stack-traces", "sh", "-c", '"$@"; exit 0', "sh", *waits]
    ended = run([*where, *words], env={"PATH": path, "RSH_PATH": path})
    assert ended.code == 110
    blocks = re.findall(
        r"^  rank (\d) on (\S+), process (\d+) \((.*)\), from (eu-stack|py-spy).*:\n  \| (.*)", ended.err, re.M
    )
    assert {block[0] for block in blocks} == set("0123"), ended.err
    assert "sh" not in {block[3] for block in blocks}  # but the program below it
    for _, host, pid, _, tool, line in blocks:
        assert tool != "eu-stack" or line == f"in_{pid}"
        assert host in ("alpha", "beta") if where is TWO else host == os.uname().nodename
    assert ended.err.index("process ") < ended.err.index("the job was still running after 2 seconds (--timeout)")


def test_stacks_without_a_tool(run, tmp_path):
    """The kernel tells what it can; there is never nothing."""
    for name in ("py-spy", "eu-stack", "gstack", "gdb"):
        (tmp_path / name).write_text("#!/bin/sh\necho not allowed >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    words = ["-n", "1", "--timeout", "2", "--get-stack-traces", *program("wait")]
    ended = run(words, env={"PATH": f"{tmp_path}:{os.environ.get('PATH', os.defpath)}"})
    assert ended.code == 110
    assert "from /proc (gdb: not allowed)" in ended.err
    assert re.search(r"before the ranks are ended: rank 0 (running|in the system call \w+)", ended.err), ended.err


def test_a_failure_does_not_wait_for_a_tool_that_hangs(run, tmp_path):
    """Rank 1 ends badly when it sees that rank 0 is being looked at."""
    wait = f"while [ ! -e {tmp_path}/asked ]; do sleep 0.05; done"
    script = f'[ $OMPI_COMM_WORLD_RANK = 1 ] && {{ {wait}; exit 7; }}; exec "$@"'
    for name in ("py-spy", "eu-stack"):
        (tmp_path / name).write_text(f"#!/bin/sh\n>{tmp_path}/asked\nexec sleep 1000\n")
        (tmp_path / name).chmod(0o755)
    words = ["-n", "2", "--timeout", "2", "--get-stack-traces", "sh", "-c", script, "sh", *program("wait")]
    ended = run(words, env={"PATH": f"{tmp_path}:{os.environ.get('PATH', os.defpath)}"}, bound=9)
    assert ended.code == 110


def test_quiet_does_not_silence_what_was_asked_for(run):
    ended = run(["-q", "-n", "1", "--timeout", "1", "--report-state-on-timeout", *program("wait")])
    assert ended.code == 110
    assert ended.err.startswith("mslaunch: the ranks after 1 s:\n") and "still running" not in ended.err


def test_a_job_that_ends_in_time_says_nothing(run):
    words = ["-n", "1", "--timeout", "100", "--get-stack-traces", "--report-state-on-timeout", "true"]
    assert run(words) == (0, b"", "")


def test_a_limit_from_the_environment(run):
    ended = run(["-n", "1", *program("wait")], env={"MPIEXEC_TIMEOUT": "1"})
    assert ended.code == 110
    assert "the job was still running after 1 second (MPIEXEC_TIMEOUT)" in ended.err
    ended = run(["-n", "1", "--timeout", "0.9", *program("wait")], env={"MPIEXEC_TIMEOUT": "1"})
    assert "the job was still running after 0.9 seconds (--timeout)" in ended.err


def test_the_limit_begins_with_the_command(run):
    """Not when the hosts have answered: one of these takes its time."""
    words = ["--rsh-agent", f"sh -c 'sleep 1; exec {sys.executable} {program('rsh')[2]} \"$@\"' sh", "-H", "alpha"]
    ended = run([*words, "--agent-python", sys.executable, "-n", "1", "--timeout", "0.5", *program("wait")])
    assert ended.code == 110
    assert b"ready" not in ended.out


# --- --report-pid, --report-uri


def test_pid_and_uri_of_the_launcher(start, tmp_path):
    """They are written before a rank runs, and the job can be ended by the pid."""
    job = start(["--report-pid", "pid", "--report-uri", "-", "-n", "1", *program("wait")])
    said = job.expect(b"ready").decode().splitlines()
    assert re.fullmatch(rf"\d+\.0;mslaunch://{re.escape(os.uname().nodename)}/{job.pid}", said[0])
    assert (tmp_path / "pid").read_text() == f"{job.pid}\n"
    os.kill(int((tmp_path / "pid").read_text()), 15)
    assert job.end().code == 1


def test_a_report_that_cannot_be_written_is_an_error(run):
    for option in ("--report-pid", "--report-uri"):
        ended = run([option, "no/such/place", "-n", "1", "echo", "begun"])
        assert (ended.code, ended.out) == (1, b"")
        assert ended.err.startswith(f"mslaunch: {option}: ") and "No such file or directory" in ended.err


RAISES = """
import os, sys, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    try:
        raise ValueError("bad input on 1")
    except ValueError:
        import traceback
        traceback.print_exc()
time.sleep(1000)
"""


def test_a_traceback_before_the_time_limit_is_told(run, tmp_path):
    """As of mpi4py: the exception of one rank leaves all of them waiting."""
    (tmp_path / "raises.py").write_text(RAISES)
    ended = run(["--oversubscribe", "-n", "2", "--timeout", "3", sys.executable, "raises.py"])
    assert ended.code == 110
    assert re.search(r"\n  rank 1 printed a traceback [0-3] s before \(ValueError: bad input on 1\)\n", ended.err), (
        ended.err
    )


def test_a_traceback_that_the_time_limit_has_caused_is_not(run, tmp_path):
    raises = (
        "import signal, sys, time; signal.signal(15, lambda *_: 1 / 0); print('ready', flush=True); time.sleep(1000)"
    )
    ended = run(["-n", "1", "--timeout", "2", sys.executable, "-c", raises])
    assert ended.code == 110 and "ZeroDivisionError" in ended.err and "printed a traceback" not in ended.err
