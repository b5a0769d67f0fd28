"""The exit status of a process, from the agent that reaps it to the outcome of the job."""

from __future__ import annotations

import os

from mslaunch.faststd import NamedTuple


class ExitStatus(NamedTuple):
    """How a process ended; or, with `error`, why it never started or had to be ended."""

    code: int | None = None  # None: a signal ended it, or it never ran
    signal: int | None = None
    error: str = ""
    todo: str = ""  # what the user can do about the error
    asked: bool = False  # the agent was told to end it before it was on its way out

    @property
    def shell_code(self) -> int:
        """As a shell has it in $?: the exit code, or 128 + the signal."""
        return 128 + self.signal if self.signal else self.code or 0


def from_wait_status(status: int) -> ExitStatus:
    """`status` is what waitpid(2) returned for a process that has ended."""
    if os.WIFSIGNALED(status):
        return ExitStatus(signal=os.WTERMSIG(status))
    return ExitStatus(os.WEXITSTATUS(status))
