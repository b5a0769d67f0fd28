"""Exit statuses: from the status of waitpid to the number that a shell shows."""

from __future__ import annotations

import signal

import pytest

from mslaunch.datamodel.node_report import ExitStatus, from_wait_status


@pytest.mark.parametrize(
    "wait_status, status, shell_code",
    [
        (0, ExitStatus(0), 0),
        (3 << 8, ExitStatus(3), 3),
        (signal.SIGKILL, ExitStatus(signal=signal.SIGKILL), 137),
        (signal.SIGSEGV | 0x80, ExitStatus(signal=signal.SIGSEGV), 139),  # with a core
    ],
)
def test_wait_statuses_are_decoded(wait_status: int, status: ExitStatus, shell_code: int) -> None:
    assert from_wait_status(wait_status) == status
    assert status.shell_code == shell_code


def test_a_process_that_was_not_started_has_a_status() -> None:
    assert ExitStatus(error="the program was not found").shell_code == 0
