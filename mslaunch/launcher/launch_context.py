"""What all attempts of one launch share, and the process or API call that launches."""

from __future__ import annotations

import time

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.launcher.interrupts import Interrupts
    from mslaunch.launcher.stdio.console import Console
    from mslaunch.launcher.stdio.terminal import OutputFd
    from mslaunch.runtime.loop import Loop


class Caller(NamedTuple):
    """The environment, directory and descriptors of the process that launches, or those that an API call gives."""

    environ: Mapping[str, str]
    cwd: str
    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    signals: bool = True  # handle SIGINT and its like; possible in the main thread only
    started: Callable[[], None] | None = None  # called once, when all ranks have started


class LaunchContext(NamedTuple):
    """What all attempts of a launch share."""

    loop: Loop
    caller: Caller
    console: Console
    stdout: OutputFd  # `console.stderr` if both are one device
    interrupts: Interrupts
    began: float
    jobid: str
    running: Callable[[], None]  # called when all ranks of an attempt run

    @property
    def seconds(self) -> float:
        """Time since the launch began."""
        return time.monotonic() - self.began
