"""--progress-file: a job that does not get ahead is not started again for ever, and says so by its exit code."""

from __future__ import annotations

import os
import re

import pytest
from launching import through_rsh

GROUP = ["--restart", "group", "--progress-file", "ckpt"]
TWO = through_rsh("alpha:1", "beta:1")
#: rank 0 fails in each attempt, after it has done what $1 says
FAILS = ["sh", "-c", '[ $RANK = 0 ] || exec sleep 3600; echo attempt $MSLAUNCH_ATTEMPT; eval "$1"; exit 3', "sh"]


def attempts(out: bytes) -> list[str]:
    return re.findall(r"attempt (\d+)", out.decode())


@pytest.mark.parametrize("where", [["--oversubscribe"], TWO], ids=["local", "two hosts"])
def test_a_job_that_dies_at_the_same_step_ends(run, tmp_path, where):
    (tmp_path / "ckpt").mkdir()
    ended = run([*where, *GROUP, "--max-restarts", "9", "-n", "2", *FAILS, "true"])
    assert ended.code == 93
    assert attempts(ended.out) == ["1", "2", "3"]
    tail = ended.err[ended.err.rindex("\nmslaunch: rank 0 ended with exit code 3") :]
    said = "ckpt has not changed in 3 attempts (--max-no-progress); do not requeue the job"
    assert f"\n  not started again: {said}\n" in tail


@pytest.mark.parametrize(
    "work", ["echo x >> ckpt", "mkdir -p ckpt && touch ckpt/step-$MSLAUNCH_ATTEMPT"], ids=["file", "directory"]
)
def test_a_job_that_gets_ahead_goes_on_to_its_limit(run, work):
    ended = run([*GROUP, "--max-restarts", "4", "-n", "1", *FAILS, work])
    assert ended.code == 3
    assert attempts(ended.out) == ["1", "2", "3", "4", "5"]
    assert "not started again: this was attempt 5 of 5 (--max-restarts)" in ended.err


def test_progress_in_between_counts_anew(run):
    work = "[ $MSLAUNCH_ATTEMPT != 2 ] || echo x >> ckpt"
    ended = run([*GROUP, "--max-no-progress", "2", "--max-restarts", "9", "-n", "1", *FAILS, work])
    assert ended.code == 93
    assert attempts(ended.out) == ["1", "2", "3", "4"]


def test_a_job_that_ends_well_has_its_own_exit_code(run, tmp_path):
    (tmp_path / "ckpt").write_text("as it was")
    ended = run([*GROUP, "-n", "1", "sh", "-c", "[ $MSLAUNCH_ATTEMPT = 3 ]"])
    assert ended.code == 0


def test_with_the_options_of_torchrun_the_code_is_the_same(run, tmp_path):
    (tmp_path / "fails.py").write_text("raise SystemExit(3)")
    words = ["--dialect", "torchrun", "--nproc-per-node", "1", "--max-restarts", "5", *GROUP[2:]]
    ended = run([*words, "--max-no-progress", "2", "fails.py"])
    assert ended.code == 93
    assert "--progress-file ckpt: it is not there, or cannot be read" in ended.err
    assert "ckpt was not there after 2 attempts (--max-no-progress)" in ended.err
    ended = run([*words[:-2], "--max-restarts", "1", "fails.py"])
    assert ended.code == 1


def test_a_command_for_one_of_several_hosts_refuses_it(run, tmp_path):
    (tmp_path / "secret").write_text("s" * 40)
    os.chmod(tmp_path / "secret", 0o600)
    words = ["--dialect", "torchrun", "--nproc-per-node", "1", "--nnodes", "2", "--max-restarts", "1"]
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:1", "--rdzv-conf", "secret_file=secret"]
    ended = run([*words, *meet, *GROUP[2:], "x.py"])
    assert ended.code == 1
    assert "--progress-file: each of several commands would judge by itself" in ended.err


def test_the_delay_of_all_ranks_may_grow(run):
    delays = ["--restart-delay", "0.1", "--max-restart-delay", "60"]
    ended = run(["--restart", "group", *delays, "--max-restarts", "3", "-n", "1", *FAILS, "true"])
    assert ended.code == 3
    assert re.findall(r"started again in (\S+) s", ended.err) == ["0.1", "0.2", "0.4"]
