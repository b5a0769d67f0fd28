"""Exit statuses: what waitpid says, and the number that a shell shows for it."""

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
def test_wait_status(wait_status: int, status: ExitStatus, shell_code: int) -> None:
    assert from_wait_status(wait_status) == status
    assert status.shell_code == shell_code


def test_what_never_ran() -> None:
    assert ExitStatus(error="the program was not found").shell_code == 0
