"""Back-pressure: while the terminal does not keep up, agents pause what their ranks print, at the reader's speed."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.events import Paused, Unread
from mslaunch.runtime.fd_writer import HIGH, LOW

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.launcher.agents.connection import JobAgents
    from mslaunch.launcher.stdio.output import Output


class BackPressure:
    """Of the output of one job, on its agents; `post(event)` to the state."""

    def __init__(self, agents: JobAgents, output: Output, post: Callable[[Any], None]) -> None:
        self._agents = agents
        self._output = output
        self._post = post

    def written(self) -> None:
        """Something was written."""
        self._check_reader()
        if self._output.pending > HIGH:
            self._pause(True)

    def drained(self) -> None:
        """A terminal took bytes, or has lost its reader."""
        self._check_reader()
        if self._output.pending < LOW:
            self._pause(False)

    def _check_reader(self) -> None:
        if self._output.unread:
            self._post(Unread())

    def _pause(self, on: bool) -> None:
        if on != self._agents.paused:
            self._agents.pause(on)
            self._post(Paused(on))
