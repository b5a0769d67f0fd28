"""The example network under the real MindSpore, started by the real command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainings import MARKS, NET, PROJECT, PYTHON, Job, Launch, check_training, launch_in

pytestmark = MARKS
LOGS = ["--output-filename", "log_output"]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launch_in(tmp_path) as launch:
        yield launch


def log(launch: Launch, who: str, stream: str = "stdout") -> Path:
    return launch.directory / "log_output" / "1" / who / stream


def run(launch: Launch, *words: str) -> Job:
    return launch(*LOGS, *words)


def test_ranks_train_with_equal_parameters(launch: Launch) -> None:
    ranks = 2  # other numbers, other words: test_msrun_train, test_two_hosts
    job = launch.train(ranks, [*LOGS, "-n", str(ranks), PYTHON, str(NET)], lambda rank: log(launch, f"rank.{rank}"))
    assert job.process.returncode == 0, job.said
    for rank in range(ranks):
        check_training(log(launch, f"rank.{rank}").read_text(), rank, ranks)
    assert "meta_server_node" in log(launch, "scheduler", "stderr").read_text()  # it writes nothing on stdout


def test_a_rank_may_run_two_programs(launch: Launch) -> None:
    """The port of the first one's scheduler is there for the second one's.

    The pause is the first scheduler's: it sees up to five seconds late that its workers have gone, and who joins it
    meanwhile fails (docs/design.md).
    """
    job = run(launch, "-n", "2", "sh", "-c", '"$@" && sleep 8 && "$@"', "sh", PYTHON, str(NET))
    assert job.process.returncode == 0, job.said
    for rank in range(2):
        assert log(launch, f"rank.{rank}").read_text().count("parameters equal on all 2 ranks") == 2


def test_a_rank_that_fails(launch: Launch, tmp_path: Path) -> None:
    """The job ends before MindSpore's half minute of silence."""
    program = tmp_path / "fails.py"
    program.write_text(
        "import os, signal\n"
        "from mindspore.communication import get_rank, init\n"
        "init()\n"
        "print('joined', flush=True)\n"
        "os._exit(3) if get_rank() else signal.pause()\n"
    )
    job = run(launch, "-n", "2", PYTHON, str(program))
    assert job.process.returncode == 3, job.said
    assert "joined" in log(launch, "rank.1").read_text()


def test_a_program_that_imports_it_but_never_joins(launch: Launch) -> None:
    job = run(launch, "-n", "2", PYTHON, "-c", "import mindspore; print('imported')")
    assert job.process.returncode == 0, job.said
    assert "imported" in log(launch, "rank.1").read_text()
    assert not log(launch, "scheduler").parent.exists()


def test_a_program_without_mindspore(launch: Launch) -> None:
    job = run(launch, "-n", "4", sys.executable, str(PROJECT / "examples" / "ring.py"))
    assert job.process.returncode == 0, job.said
    assert "ok" in log(launch, "rank.3").read_text()
    assert not log(launch, "scheduler").parent.exists()
