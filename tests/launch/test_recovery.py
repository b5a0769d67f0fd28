"""Ranks that fail and do not end the job: --enable-recovery, --continuous, --max-restarts, --restart rank."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from launching import program, through_rsh, wait_until

TWO = through_rsh("alpha:2", "beta:2")
WHERE = pytest.mark.parametrize("where", [["--oversubscribe"], TWO], ids=["local", "two hosts"])
WAYS = pytest.mark.parametrize(
    ("how", "code", "words"),
    [("3", 3, "ended with exit code 3"), ("SIGKILL", 137, "was ended by SIGKILL (killed)")],
)


def restarts(err: str) -> list[str]:
    """The messages about restarts, without the host's name."""
    return [re.sub(r" on \S+;", ";", line[10:]) for line in err.splitlines() if "; started again" in line]


@WHERE
@WAYS
@pytest.mark.parametrize("option", ["--enable-recovery", "--continuous"])
def test_the_other_ranks_continue(run, where, option, how, code, words):
    """The exit code is that of the remaining ranks, and standard error names the rank that failed."""
    ended = run([*where, "-n", "4", option, *program("lives", how, 9, 1, 2)])
    assert ended.code == 0
    assert [line for line in ended.lines if "done" in line] == ["done 0", "done 3"]
    tail = ended.err[ended.err.rindex("mslaunch:") :].splitlines()
    first, other = ("1", "2") if tail[0].startswith("mslaunch: rank 1") else ("2", "1")
    assert re.fullmatch(rf"mslaunch: rank {first} {re.escape(words)} on \S+, after \d+\.\d s", tail[0])
    assert f"  | last words of {first} in life 0" in tail
    assert f"  failed as well: rank {other}" in tail
    assert "the exit code is 0" in tail[-1]


@WHERE
@WAYS
def test_a_job_without_remaining_ranks_fails(run, where, how, code, words):
    """Nothing was recovered, so the first failure counts."""
    ended = run([*where, "-n", "4", "--enable-recovery", *program("lives", how, 9)])
    assert ended.code == code
    assert ended.err.count(f"{words} on ") == 1
    assert len(re.findall(r"failed as well: ranks ", ended.err)) == 1


def test_recovery_can_be_disabled_again(run):
    ended = run(["-n", "2", "--enable-recovery", "--disable-recovery", *program("die", 3, 1)])
    assert ended.code == 3
    assert "ended by mslaunch: rank 0" in ended.err


def test_a_signal_is_no_exit_code(run):
    """orte_abort_on_non_zero_status is about exit codes; mpirun 4.1.4 hangs here."""
    ended = run(["-n", "2", "-mca", "orte_abort_on_non_zero_status", "0", *program("die", "SIGKILL", 1)])
    assert ended.code == 137
    assert "ended by mslaunch: rank 0" in ended.err


@WHERE
def test_a_missing_program_ends_the_job(run, where):
    ended = run([*where, "--max-restarts", "3", "-n", "1", *program("wait"), ":", "-n", "1", "no-such-program"])
    assert ended.code == 127
    assert restarts(ended.err) == []


# --- restarts


@WHERE
@WAYS
def test_a_rank_is_started_again(run, where, tmp_path, how, code, words):
    """In its own place, and its files hold all of its lives."""
    ended = run([*where, "-n", "4", "--max-restarts", "2", "--output-filename", "logs", *program("lives", how, 2, 3)])
    assert ended.code == 0
    assert restarts(ended.err) == [f"rank 3 {words}; started again, {time} of 2" for time in (1, 2)]
    assert re.fullmatch(
        rf"mslaunch: all ranks succeeded, after \d+\.\d s\n  started again: rank 3 on \S+, which {re.escape(words)}, "
        "2 times\n",
        ended.err[ended.err.index("mslaunch: all ranks") :],
    )
    local = 1 if where is TWO else 3
    kept = (tmp_path / "logs/1/rank.3/stdout").read_text().splitlines()
    assert kept == [*(f"rank 3 life {life} local {local}" for life in range(3)), "done 3"]
    assert (tmp_path / "logs/1/rank.3/stderr").read_text().count("last words of 3") == 2
    assert [line for line in ended.lines if "done" in line] == [f"done {rank}" for rank in range(4)]


@WHERE
@WAYS
def test_a_rank_that_fails_too_often(run, where, how, code, words):
    """--max-restarts implies recovery."""
    ended = run([*where, "-n", "3", "--max-restarts", "1", *program("lives", how, 9, 0)])
    assert ended.code == 0
    assert restarts(ended.err) == [f"rank 0 {words}; started again, 1 of 1"]
    assert f"mslaunch: rank 0, started again, {words} on " in ended.err
    assert "  | last words of 0 in life 1" in ended.err


def test_restarts_may_be_asked_for_by_name(run):
    ended = run(["-n", "2", "--oversubscribe", "--restart", "rank", "--max-restarts", "1", *program("lives", 3, 1, 1)])
    assert (ended.code, len(restarts(ended.err))) == (0, 1)
    ended = run(["-n", "2", "--oversubscribe", "--restart", "none", *program("lives", 3, 1, 1)])
    assert (ended.code, restarts(ended.err)) == (3, [])


@WHERE
def test_a_new_start_may_be_delayed(run, where):
    """As long as is said, and for the one that failed alone."""
    script = "echo rank $RANK $MSLAUNCH_ATTEMPT $(date +%s.%N); [ $RANK = 0 ] || [ $MSLAUNCH_ATTEMPT = 3 ]"
    ended = run([*where, "-n", "2", "--max-restarts", "2", "--restart-delay", "0.3", "sh", "-c", script])
    assert ended.code == 0
    assert restarts(ended.err) == [
        f"rank 1 ended with exit code 1; started again in 0.3 s, {time} of 2" for time in (1, 2)
    ]
    lives = [line.split()[1:] for line in ended.lines]
    assert [life[:2] for life in lives] == [["0", "1"], ["1", "1"], ["1", "2"], ["1", "3"]]
    first, second, third = (float(life[2]) for life in lives[1:])
    assert second - first >= 0.3 and third - second >= 0.3


def test_the_delay_of_one_rank_may_grow(run):
    script = "echo $MSLAUNCH_ATTEMPT $(date +%s.%N); [ $MSLAUNCH_ATTEMPT = 4 ]"
    delays = ["--restart-delay", "0.2", "--max-restart-delay", "60"]
    ended = run(["-n", "1", "--max-restarts", "3", *delays, "sh", "-c", script])
    assert ended.code == 0
    assert [line.partition(" in ")[2][:5] for line in restarts(ended.err)] == ["0.2 s", "0.4 s", "0.8 s"]
    times = [float(line.split()[1]) for line in ended.lines]
    assert all(after - before >= least for before, after, least in zip(times, times[1:], (0.2, 0.4, 0.8)))


@pytest.mark.parametrize("where", [["--oversubscribe"], TWO], ids=["local", "two hosts"])
def test_ctrl_c_does_not_wait_for_a_delayed_start(start, where):
    job = start([*where, "-n", "2", "--max-restarts", "9", "--restart-delay", "3600", "sh", "-c", "echo life; exit 3"],
                stderr=subprocess.STDOUT)  # fmt: skip
    job.expect(b"started again in 3600 s, 1 of 9", 2)
    job.send(signal.SIGINT)
    ended = job.end()
    assert ended.code == 1
    said = ended.out.decode()
    assert "mslaunch: ended by SIGINT" in said and "ended by mslaunch: ranks 0-1" in said
    assert "  started again: " not in said, "it never was"


def test_the_time_limit_does_not_wait_for_a_delayed_start(run):
    ended = run(["-n", "1", "--timeout", "1", "--max-restarts", "9", "--restart-delay", "3600", "sh", "-c", "exit 3"])
    assert ended.code == 110


def test_the_exception_that_ended_a_python_program_is_in_the_headline(run):
    """And what it printed is quoted as ever."""
    script = (
        "import os\nif os.environ['RANK'] == '1': raise ValueError('boom\\nand more')\n__import__('time').sleep(60)"
    )
    ended = run(["-n", "2", "--oversubscribe", sys.executable, "-c", script])
    assert ended.code == 1
    tail = ended.err[ended.err.index("mslaunch: rank 1") :].splitlines()
    assert re.fullmatch(
        r"mslaunch: rank 1 ended with exit code 1 \(ValueError: boom\) on \S+, after \d+\.\d s", tail[0]
    )
    assert tail[-3:] == ["  | ValueError: boom", "  | and more", "  ended by mslaunch: rank 0"]


def test_many_ranks_fail_many_times(run):
    ended = run(["-n", "16", "--oversubscribe", "--max-restarts", "5", *program("lives", 3, 5)], bound=60)
    assert ended.code == 0
    assert len(restarts(ended.err)) == 16 * 5
    assert len([line for line in ended.lines if "done" in line]) == 16


def test_ctrl_c_ends_it_all(start):
    """Ranks that fail over and over, and somebody has had enough."""
    job = start(["-n", "4", "--oversubscribe", "--max-restarts", "1000000", "sh", "-c", "echo life; exit 3"])
    job.expect(b"life", 20)
    job.send(signal.SIGINT)
    ended = job.end()
    assert ended.code == 1
    assert "mslaunch: ended by SIGINT" in ended.err


def test_a_rank_that_is_killed_from_outside(start, tmp_path):
    """And a good end of all others waits for it."""
    job = start(["-n", "2", "--oversubscribe", "--max-restarts", "1", *program("wait", tmp_path / "go")])
    job.expect(b"ready", 2)
    old = job.pids()
    os.kill(old[0], signal.SIGKILL)
    job.expect(b"ready", 3)
    new = set(job.pids()) - set(old)
    assert len(new) == 1
    (tmp_path / "go").touch()
    assert job.end().code == 0


def test_the_orphans_of_a_rank_do_not_hold_up_the_next(start):
    """What is left of its process group may talk on; it is heard for half a second."""
    script = "[ $OMPI_MCA_orte_num_restarts ] && exit 0; while echo here; do sleep 0.01; done & exit 3"
    ended = start(["-n", "1", "--max-restarts", "1", "sh", "-c", script]).end(20)
    assert ended.code == 0
    assert b"here\n" in ended.out


def test_a_rank_with_standard_input(start):
    """It was given to the first life; the next one finds the end of it."""
    job = start(
        ["-n", "1", "--max-restarts", "1", "sh", "-c", "cat; echo end; [ $OMPI_MCA_orte_num_restarts ]"], stdin=-1
    )
    job.process.stdin.write(b"words\n")
    job.process.stdin.close()
    job.process.stdin = None
    ended = job.end()
    assert (ended.code, ended.out) == (0, b"words\nend\nend\n")


@WHERE
def test_the_time_limit_holds_for_all_lives_together(run, where):
    ended = run([*where, "-n", "2", "--timeout", "3", "--max-restarts", "1000000", "sh", "-c", "sleep 0.05; exit 3"])
    assert ended.code == 110
    assert restarts(ended.err)


def test_the_launcher_is_killed_between_two_lives(start):
    job = start(["-n", "4", "--oversubscribe", "--max-restarts", "1000000", "sh", "-c", "echo life; exit 3"])
    job.expect(b"life", 20)
    job.process.kill()
    wait_until(lambda: not job.left(), 10, lambda: f"still there: {job.left()}")
