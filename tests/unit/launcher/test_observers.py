"""Records for observers: when all ranks run, and observers that fail."""

from __future__ import annotations

from typing import Any

import pytest
from histories import exited, make_state

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_plan import SERVICE_BASE
from mslaunch.datamodel.outcome import Failure
from mslaunch.launcher.job.events import Interrupted, LinkEnded, Prepared, Started, StreamEnded
from mslaunch.launcher.job.job_records import JobRecords
from mslaunch.launcher.observers import AllStarted, JobFailed, Observers, RankEnded, RankStarted, Staged

NODES = (Node("n0", 2, "-H"),)
FAILED = [exited(0, 0, 3, None), StreamEnded(0), StreamEnded(0)]


def records_of(*events: Any) -> list[Any]:
    """The records of a job of two ranks that may be restarted."""
    records: list[Any] = []
    state = make_state(JobMap(NODES, (Placement(0, 0, 0, 0), Placement(1, 0, 0, 1)), 2), max_restarts=2)
    emit = Observers(0, [records.append], pytest.fail).emit
    job = JobRecords(emit, state, 1, pytest.fail, lambda: Failure("it failed"))
    for event in (Prepared(), *events):
        state.on(event)
        job.observe(event)
    return records


def test_the_start_of_all_ranks_is_recorded_once() -> None:
    records = records_of(Started(1, 11), *FAILED[:0], Started(0, 10), *FAILED, Started(0, 12))
    assert [type(record) for record in records] == [RankStarted, RankStarted, AllStarted, RankEnded, RankStarted]
    assert records[0][1:] == ("rank 1", "n0", 11, 1, 1)
    assert records[3][1:] == ("rank 0", "n0", 3, None, False, 0, False)
    assert records[4][1:] == ("rank 0", "n0", 12, 0, 2)


def test_a_job_that_is_being_ended_does_not_count_as_started() -> None:
    records = records_of(Started(0, 10), Interrupted("SIGINT"), Started(1, 11))
    assert [type(record) for record in records] == [RankStarted, JobFailed, RankStarted]


def test_a_failure_is_recorded_once_and_when_the_others_are_told_to_end() -> None:
    ends = exited(0, 0, 143, None), exited(1, 0, 143, None)
    records = records_of(Started(0, 10), Started(1, 11), Interrupted("SIGINT"), *ends)
    assert [type(record) for record in records[3:]] == [JobFailed, RankEnded, RankEnded]
    assert records[3][1:] == (1, Failure("it failed"))


def test_ranks_and_services_that_are_lost_with_their_host_have_ended() -> None:
    started = Started(0, 10), Started(1, 11), Started(SERVICE_BASE, 12)
    records = records_of(*started, exited(0, 0, 0, None), StreamEnded(0), LinkEnded(0))
    assert [record[1:] for record in records[4:] if isinstance(record, RankEnded)] == [
        ("rank 0", "n0", 0, None, False, 0, False),
        ("rank 1", "n0", None, None, True, 1, False),
        ("the MindSpore scheduler", "n0", None, None, True, SERVICE_BASE, False),
    ]


def test_an_observer_that_fails_is_dropped() -> None:
    records: list[Any] = []
    said: list[str] = []

    def fail(record: Any) -> None:
        raise ValueError("mine")

    observers = Observers(0, [fail, records.append], said.append)
    for number in range(2):
        observers.emit(Staged, number)
    assert [record.files for record in records] == [0, 1]
    assert said == ["an observer of this launch failed and gets no more records: ValueError('mine')"]


def test_without_observers_no_record_is_made() -> None:
    observers = Observers(0, [], pytest.fail)
    observers.emit(pytest.fail)
    assert not observers
