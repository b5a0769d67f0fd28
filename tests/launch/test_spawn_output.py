"""Spawned ranks: their output, log files and ends, without any MPI library."""

from __future__ import annotations

import os
import signal

import pytest
from launching import program, through_rsh, wait_until

HERE = ["--oversubscribe"]
#: a job of one rank leaves two hosts without an agent, until ranks are spawned there; only alpha says that it is MPI
THREE = [*through_rsh("alpha:1", "beta:1", "gamma:1"), "--spawn", "yes"]
WHERE = pytest.mark.parametrize("where", [HERE, THREE], ids=["local", "three hosts"])


def spawner(*words: object) -> list[str]:
    return ["-n", "1", *program("spawner", *words)]


@WHERE
def test_tags_tell_worlds_apart(run, where, tmp_path):
    ended = run([*where, "--tag-output", *spawner(2, "me", "child", "again")])
    assert ended.code == 0, ended.err
    assert set(ended.lines) == {
        "[1,0]<stdout>:spawned",
        f"[2,0]<stdout>:child 0 of 2 {tmp_path}",
        f"[2,1]<stdout>:child 1 of 2 {tmp_path}",
        "[2,0]<stdout>:spawned",
        f"[3,0]<stdout>:child 0 of 1 {tmp_path}",
    }
    assert set(ended.err.splitlines()) == {f"[{which}]<stderr>:its stderr" for which in ("2,0", "2,1", "3,0")}


@WHERE
def test_files_of_spawned_ranks(run, where, tmp_path):
    ended = run([*where, "--output-filename", "logs:nocopy", *spawner(2, "me", "child", "well", "info=wdir=/")])
    assert (ended.code, ended.out) == (0, b""), ended.err
    found = {str(path.relative_to(tmp_path / "logs")): path.read_text() for path in tmp_path.rglob("std*")}
    assert found == {
        "1/rank.0/stdout": "spawned\n", "1/rank.0/stderr": "",
        "2/rank.0/stdout": "child 0 of 2 /\n", "2/rank.0/stderr": "its stderr\n",
        "2/rank.1/stdout": "child 1 of 2 /\n", "2/rank.1/stderr": "its stderr\n",
    }  # fmt: skip


@WHERE
@pytest.mark.parametrize("framework", ["tf", "paddle"])
def test_spawned_ranks_get_no_addresses_of_others(run, where, framework):
    """--env-for holds ports for the ranks of the job, not for those that they spawn."""
    ended = run([*where, "--env-for", framework, *spawner(2, "me", "child", "addresses")])
    assert (ended.code, ended.lines.count("addresses: []")) == (0, 2), ended.err


@WHERE
def test_a_child_that_fails_ends_the_job(run, where):
    ended = run([*where, "--output-filename", "logs", *spawner(1, "me", "child", "fail", "stay")])
    host = os.uname().nodename if where is HERE else "beta"
    assert ended.code == 5
    assert f"mslaunch: rank 0 of world 2 ended with exit code 5 on {host}, after" in ended.err
    assert "  | its stderr\n  log: logs/2/rank.0/stderr\n  ended by mslaunch: rank 0\n" in ended.err


@WHERE
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((1, "/nonexistent/program"), "the program '/nonexistent/program' does not exist, on "),
        ((1, "me", "info=host=nowhere"), "nowhere is not among the hosts of this job"),
        ((1, "me", "info=preload_files=x"), "files cannot be sent to the hosts of spawned ranks"),
    ],
    ids=["program", "host", "files"],
)
def test_a_failed_spawn_does_not_end_the_job(run, where, words, why):
    ended = run([*where, *spawner(*words)])
    assert (ended.code, ended.lines) == (0, ["refused"]), ended.err
    assert ended.err.startswith("mslaunch: rank 0 could not spawn 1 rank of ") and why in ended.err


def test_a_spawn_without_free_slots_fails(run):
    ended = run(["-H", "localhost:2", *spawner(2, "me", "child", "well")])
    assert (ended.code, ended.lines) == (0, ["refused"])
    assert "not enough slots: 2 ranks asked for, 1 slot free" in ended.err


@pytest.mark.parametrize("how", ["DOWN", "STALL"])
def test_a_host_that_cannot_be_reached(run, how):
    """The job runs on without it."""
    ended = run([*THREE, "--connect-timeout", "5", *spawner(2, "me", "child", "well")], env={f"RSH_{how}": "gamma"})
    assert (ended.code, ended.lines) == (0, ["refused"])
    assert "rank 0 could not spawn 2 ranks of " in ended.err and "gamma" in ended.err


def test_a_job_is_ended_while_a_host_is_contacted(start, tmp_path):
    """The end does not wait for that host."""
    calls = tmp_path / "calls"
    job = start([*THREE, *spawner(2, "me", "child", "well")], env={"RSH_STALL": "gamma", "RSH_LOG": str(calls)})
    wait_until(lambda: calls.exists() and "gamma" in calls.read_text())
    job.send(signal.SIGTERM)
    ended = job.end()
    assert ended.code == 1 and "ended by SIGTERM" in ended.err


@WHERE
def test_signals_reach_spawned_ranks(start, where):
    job = start([*where, *spawner(2, "me", "child", "wait", "stay")])
    job.expect(b"ready", 3)
    job.send(signal.SIGTERM)
    ended = job.end()
    assert ended.code == 1
    assert "ended by mslaunch: rank 0 and ranks 0-1 of world 2" in ended.err


@WHERE
def test_spawned_ranks_are_in_the_timeout_report(run, where):
    ended = run([*where, "--timeout", "5", "--report-state-on-timeout", *spawner(2, "me", "child", "wait", "stay")])
    assert ended.code == 110
    rows = [line.split() for line in ended.err.partition("state\n")[2].splitlines() if line.endswith("running")]
    assert [" ".join(row[:-3]) for row in rows] == ["0", "0 of world 2", "1 of world 2"]
