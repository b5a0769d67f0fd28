"""What all attempts of one launch share, and the process or API call that launches."""

from __future__ import annotations

import time

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.launcher.interrupts import Interrupts
    from mslaunch.launcher.observers import Observer, Observers
    from mslaunch.launcher.stdio.terminal import Console, OutputFd
    from mslaunch.resource_managers.managers import Grant
    from mslaunch.runtime.loop import Loop


class Caller(NamedTuple):
    """The environment, directory and descriptors of the process that launches, or those that an API call gives."""

    environ: Mapping[str, str]
    cwd: str
    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    signals: bool = True  # handle SIGINT and its like; possible in the main thread only
    observers: tuple[Observer, ...] = ()


class LaunchContext(NamedTuple):
    """What all attempts of a launch share."""

    loop: Loop
    caller: Caller
    console: Console
    stdout: OutputFd  # `console.stderr` if both are one device
    interrupts: Interrupts
    observers: Observers
    began: float
    jobid: str
    grant: Grant | None = None  # of a resource manager; None: the command line names the hosts

    @property
    def seconds(self) -> float:
        """Time since the launch began."""
        return time.monotonic() - self.began
