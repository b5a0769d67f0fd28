"""--metrics in virtual time: how often the file is written, and what it says of silence, restarts and ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from virtual_time import FastClock

from mslaunch.datamodel.node_plan import SERVICE_BASE
from mslaunch.datamodel.outcome import Failure, Outcome
from mslaunch.errors import LaunchError
from mslaunch.launcher import observers
from mslaunch.launcher.monitoring import metrics_file
from mslaunch.launcher.monitoring.activity import Activity
from mslaunch.launcher.monitoring.attempt_records import AttemptRecords
from mslaunch.launcher.monitoring.metrics_file import MetricsFile
from mslaunch.protocol.frames import STDOUT
from mslaunch.runtime.loop import Loop

FAILED = Failure("rank 0 ended with exit code 7", "a", 7, 0)


class MeasuredLaunch:
    """A launch of two ranks that begins at 0 s; `writes` has the seconds at which the file was written."""

    def __init__(self, loop: Loop, path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool = False) -> None:
        self.loop, self.path = loop, path
        self.writes: list[float] = []
        self.said: list[str] = []
        self.activity = Activity(1000.0, loop.now)
        self.observers: list[Any] = [AttemptRecords(self.activity)] if recorded else []
        replace = metrics_file.replace_own

        def noted(*words: Any) -> None:
            self.writes.append(loop.now() - 1000)
            replace(*words)

        monkeypatch.setattr(metrics_file, "replace_own", noted)
        self.file = MetricsFile(loop, str(path), "/", "1a2b3c4d", self.activity, self.said.append)
        self.observers.append(self.file)

    def tell(self, kind: Any, *facts: Any) -> None:
        for observer in self.observers:
            observer.observe(kind(self.loop.now() - 1000, *facts))

    def attempt(self, number: int = 1) -> None:
        self.tell(observers.Connected, ("a",))
        self.tell(observers.AttemptStarted, number, 2)
        for rank in (0, 1):
            self.tell(observers.RankStarted, f"rank {rank}", "a", 9, rank)

    def until(self, second: float) -> None:
        self.loop.run(lambda: False, second - (self.loop.now() - 1000))

    @property
    def values(self) -> dict[str, float]:
        """What the file says, by names without `mslaunch_`."""
        lines = [line for line in self.path.read_text().splitlines() if not line.startswith("#")]
        assert all('{job="1a2b3c4d"} ' in line for line in lines)
        return {line.partition("{")[0].replace("mslaunch_", "", 1): float(line.rpartition(" ")[2]) for line in lines}


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop(FastClock()) as made:
        yield made


@pytest.fixture
def job(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MeasuredLaunch:
    return MeasuredLaunch(loop, tmp_path / "job.prom", monkeypatch)


def test_a_launch_of_which_nothing_is_heard_writes_every_15_seconds(job: MeasuredLaunch) -> None:
    job.until(61)
    assert job.writes == [0, 15, 30, 45, 60]


def test_many_events_write_once_a_second(job: MeasuredLaunch) -> None:
    job.until(14.5)
    for tenth in range(1, 100):
        job.loop.after(tenth / 10, lambda: job.tell(observers.OutputCounted, 1, 1))
    job.until(60)
    pauses = [round(after - before, 3) for before, after in zip(job.writes, job.writes[1:])]
    assert min(pauses) >= 1 and max(pauses) <= 15
    assert 10 <= len([when for when in job.writes if 14.5 <= when <= 26]) <= 12


def test_one_event_is_in_the_file_a_second_later(job: MeasuredLaunch) -> None:
    job.until(3)
    job.attempt()
    job.until(3.9)
    assert job.writes == [0] and job.values["ranks"] == 0
    job.until(4.1)
    assert job.writes == [0, 4] and (job.values["ranks"], job.values["ranks_running"], job.values["hosts"]) == (2, 2, 1)
    job.until(20)
    assert job.writes == [0, 4, 19]


@pytest.mark.parametrize("recorded", [False, True], ids=["metrics alone", "with a record"])
def test_silence_goes_on_over_a_restart(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    job = MeasuredLaunch(loop, tmp_path / "job.prom", monkeypatch, recorded)
    job.attempt()
    job.until(8)
    job.activity.heard(STDOUT, 0, b"step\n")
    job.until(9)
    job.activity.heard(STDOUT, SERVICE_BASE, b"a service\n")
    job.activity.heard(STDOUT, 1, b"")
    job.tell(observers.RankEnded, "rank 0", "a", 7, None, False, 0)
    job.tell(observers.RankEnded, "rank 1", "a", None, 15, False, 1, True)
    job.until(10.5)
    assert job.values["ranks_failed"] == 1 and job.values["ranks_running"] == 0
    job.tell(observers.AttemptEnded, 1, FAILED)
    job.tell(observers.Restarting, 2, FAILED, "")
    job.attempt(2)
    job.until(12)
    values = job.values
    assert values["silence_seconds"] == round(job.writes[-1] - 8, 3)
    assert (values["attempt"], values["restarts_total"], values["ranks_failed"], values["ranks_running"]) == (
        2,
        1,
        0,
        2,
    )
    assert values["output_bytes_total"] == len(b"step\na service\n") and values["up"] == 1 and "exit_code" not in values


def test_a_rank_that_is_started_again_alone_is_a_restart(job: MeasuredLaunch) -> None:
    job.attempt()
    job.tell(observers.RankEnded, "rank 1", "a", 7, None, False, 1)
    job.tell(observers.RankStarted, "rank 1", "a", 10, 1, 2)
    job.until(2)
    values = job.values
    assert (values["attempt"], values["restarts_total"], values["ranks_running"]) == (1, 1, 2)


def test_the_end_is_written_at_once_and_nothing_after_it(job: MeasuredLaunch) -> None:
    job.attempt()
    job.until(0.5)
    job.tell(observers.LaunchEnded, Outcome(7, (), FAILED))
    job.file.close()
    assert job.writes == [0, 0.5] and (job.values["up"], job.values["exit_code"]) == (0, 7)
    job.until(100)
    assert job.writes == [0, 0.5]


def test_a_file_that_cannot_be_written_any_more_is_told_once(job: MeasuredLaunch) -> None:
    job.path.unlink()
    job.path.mkdir()
    job.until(100)
    assert len(job.said) == 1 and f"--metrics: {job.path} cannot be written: " in job.said[0]
    job.file.close()
    assert len(job.said) == 1


def test_a_refused_launch_has_its_code(job: MeasuredLaunch) -> None:
    job.tell(observers.LaunchRefused, LaunchError("no", "n01", code=127))
    job.file.close()
    assert (job.values["up"], job.values["exit_code"]) == (0, 127)
