"""When all ranks are started again, and when not: progress of a file, and delays that grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.request import AppContext, Request
from mslaunch.host.file_state import FileState
from mslaunch.launcher.job.restart_policy import RestartPolicy
from mslaunch.launcher.recovery.restart_candidates import NoPlaceError
from mslaunch.launcher.recovery.restart_pace import RestartPace

GROUP = Request((AppContext(("x",)),), restart="group", max_restarts=9)


class Launch:
    """Attempts in virtual time; the states of the file are given one by one."""

    def __init__(self, request: Request, *states: FileState | None) -> None:
        self.now = 100.0
        self.said: list[str] = []
        self.looked: list[str] = []
        self._states = list(states)
        self.pace = RestartPace(request, "/work", lambda: self.now, self.said.append, self._look)

    def _look(self, path: str) -> FileState | None:
        self.looked.append(path)
        return self._states.pop(0)

    def attempt(self, seconds: float = 1.0) -> float:
        """One that fails after so many seconds; returns the delay that follows."""
        self.pace.began()
        self.now += seconds
        self.pace.failed()
        return self.pace.delay


def states(*numbers: int) -> list[FileState]:
    return [FileState(number, 1, 1) for number in numbers]


def attempts_until_the_end(request: Request, *found: FileState | None) -> int:
    """How many attempts there were when no other was made."""
    launch = Launch(request, *found)
    for number in range(1, len(found)):
        try:
            launch.attempt()
        except NoPlaceError as end:
            assert end.code == 93
            return number
    raise AssertionError("another attempt is made")


def test_three_attempts_without_a_change_are_the_end() -> None:
    progress = GROUP._replace(progress_file="ckpt")
    launch = Launch(progress, *states(1, 1, 1, 1))
    launch.attempt()
    launch.attempt()
    with pytest.raises(NoPlaceError) as caught:
        launch.attempt()
    assert caught.value.code == 93
    assert caught.value.lines == [
        "not started again: ckpt has not changed in 3 attempts (--max-no-progress); do not requeue the job"
    ]
    assert launch.looked == ["/work/ckpt"] * 4
    assert launch.said == []


@pytest.mark.parametrize(
    ("most", "found", "attempts"),
    [
        (1, states(1, 1), 1),
        (2, states(1, 1, 1), 2),
        (3, states(1, 2, 2, 2, 2), 4),  # the first wrote a checkpoint, the others died at the same step
        (2, states(1, 1, 2, 2, 3, 3, 3), 6),
        (2, [FileState()] * 3, 2),  # it never was there
        (2, [*states(1, 1), None, *states(1)], 3),  # a file system that does not answer counts as neither
        (2, [None, *states(1, 1, 1)], 3),
        (2, [*states(1, 1), None, *states(2, 2, 2)], 5),
    ],
)
def test_attempts_in_a_row_count(most: int, found: list[FileState | None], attempts: int) -> None:
    request = GROUP._replace(progress_file="/shared/ckpt", max_no_progress=most)
    assert attempts_until_the_end(request, *found) == attempts


def test_a_file_that_is_not_there_is_told_at_the_first_failure() -> None:
    launch = Launch(GROUP._replace(progress_file="ck\x1bpt"), *[FileState()] * 4)
    launch.attempt()
    said = ["--progress-file ck?pt: it is not there, or cannot be read, on the host of mslaunch"]
    assert launch.said == said
    launch.attempt()
    with pytest.raises(NoPlaceError) as caught:
        launch.attempt()
    assert caught.value.lines == [
        "not started again: ck?pt was not there after 3 attempts (--max-no-progress); do not requeue the job"
    ]
    assert launch.said == said


def test_a_file_system_that_does_not_answer_is_told() -> None:
    launch = Launch(GROUP._replace(progress_file="/shared/ck\x1bpt"), *states(1), None)
    launch.attempt()
    assert launch.said == [
        "--progress-file /shared/ck?pt: the file system does not answer, so it is not known whether it changes"
    ]


def test_without_the_option_nobody_looks() -> None:
    launch = Launch(GROUP._replace(restart_delay=2.0))
    assert [launch.attempt() for _ in range(5)] == [2.0] * 5


def test_the_delay_doubles_up_to_its_limit() -> None:
    launch = Launch(GROUP._replace(restart_delay=3.0, max_restart_delay=20.0))
    assert [launch.attempt() for _ in range(5)] == [3, 6, 12, 20, 20]
    assert launch.attempt(20.0) == 3, "it ran for long"
    assert launch.attempt() == 6
    alone = Launch(GROUP._replace(max_restart_delay=3.0))
    assert [alone.attempt() for _ in range(3)] == [1, 2, 3]


def test_progress_brings_the_delay_back_to_its_first_value() -> None:
    request = GROUP._replace(restart_delay=1.0, max_restart_delay=60.0, progress_file="x", max_no_progress=9)
    launch = Launch(request, *states(1, 1, 1, 2, 2))
    assert [launch.attempt() for _ in range(4)] == [1, 2, 1, 2]


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 10**6))
def test_a_delay_is_between_both_limits_and_never_shrinks(delay: float, most: float, failures: int) -> None:
    policy = RestartPolicy(delay=delay, max_delay=max(delay, most))
    found = policy.delay_before(failures)
    assert delay <= found <= max(delay, policy.max_delay, 0.0)
    assert found <= policy.delay_before(failures + 1)
