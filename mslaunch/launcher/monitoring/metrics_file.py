"""--metrics FILE: metrics of a launch in a file that Prometheus' node_exporter reads.

The format is that of its textfile collector (README of node_exporter, Prometheus' text format 0.0.4).  The file is
replaced as a whole, at most once a second and at least every 15 seconds; no port is opened.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.node_plan import is_service
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import observers
from mslaunch.launcher.stdio.own_files import replace_own

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.launcher.monitoring.activity import Activity
    from mslaunch.runtime.loop import Loop, Timer

OPTION = "--metrics"
_SOON, _LATE = 1.0, 15.0  # seconds
#: name -> type, help
_METRICS = {
    "mslaunch_up": ("gauge", "Whether the launch goes on."),
    "mslaunch_start_time_seconds": ("gauge", "When the launch began, in seconds since the epoch."),
    "mslaunch_update_time_seconds": ("gauge", "When this file was written, in seconds since the epoch."),
    "mslaunch_attempt": ("gauge", "The number of the attempt."),
    "mslaunch_hosts": ("gauge", "Hosts that are connected."),
    "mslaunch_ranks": ("gauge", "Ranks of the attempt."),
    "mslaunch_ranks_running": ("gauge", "Ranks that run."),
    "mslaunch_ranks_failed": (
        "gauge",
        "Ranks of the attempt that failed, without those that mslaunch ended.",
    ),
    "mslaunch_restarts_total": ("counter", "Starts of ranks, or of all of them, after the first."),
    "mslaunch_output_bytes_total": ("counter", "Bytes that ranks have printed."),
    "mslaunch_silence_seconds": ("gauge", "For how long no rank has printed anything."),
    "mslaunch_exit_code": ("gauge", "The exit code of the launch, once it is over."),
}


class MetricsFile:
    """Observes a launch.  Raises `LaunchError` if the file cannot be written."""

    def __init__(
        self, loop: Loop, path: str, cwd: str, jobid: str, activity: Activity, notice: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._path = os.path.join(cwd, path)
        self._jobid = jobid
        self._activity = activity
        self._notice = notice
        self._began = loop.now()
        self._running: set[int] = set()
        self._values: dict[str, float] = {"mslaunch_up": 1, "mslaunch_start_time_seconds": _wall()}
        self._values.update(dict.fromkeys(("mslaunch_attempt", "mslaunch_hosts", "mslaunch_ranks"), 0))
        self._values.update(dict.fromkeys(("mslaunch_ranks_failed", "mslaunch_restarts_total"), 0))
        self._soon: Timer | None = None
        self._late: Timer | None = None
        self._closed = False
        try:
            self._write()
        except OSError as error:
            what = f"{self._path} cannot be written: {error.strerror}"
            raise LaunchError(what, OPTION, "name a file in a directory that you can write to") from None
        self._late = self._loop.after(_LATE, self._later)

    def observe(self, record: Any) -> None:
        """Note what a record says; the file follows within a second."""
        values = self._values
        if isinstance(record, observers.Connected):
            values["mslaunch_hosts"] = len(record.hosts)
        elif isinstance(record, observers.AttemptStarted):
            values.update(mslaunch_attempt=record.number, mslaunch_ranks=record.ranks, mslaunch_ranks_failed=0)
            values["mslaunch_restarts_total"] += record.number > 1
            self._running.clear()
        elif isinstance(record, observers.RankStarted) and not is_service(record.rank):
            self._running.add(record.rank)
            values["mslaunch_restarts_total"] += record.starts > 1
        elif isinstance(record, observers.RankEnded) and not is_service(record.rank):
            self._running.discard(record.rank)
            values["mslaunch_ranks_failed"] += record.code != 0 and not record.by_us
        elif isinstance(record, observers.LaunchEnded):
            values["mslaunch_exit_code"] = record.outcome.code
        elif isinstance(record, observers.LaunchRefused):
            values["mslaunch_exit_code"] = getattr(record.error, "code", 1)
        if not self._soon:
            self._soon = self._loop.after(_SOON, self._update)

    def _later(self) -> None:
        if not self._closed:
            self._update()

    def _update(self) -> None:
        """Write it now, and again when the time is over."""
        for timer in (self._soon, self._late):
            if timer:
                timer.cancel()
        self._soon, self._late = None, self._loop.after(_LATE, self._later)
        try:
            if not self._closed:
                self._write()
        except OSError as error:
            self._closed = True
            self._notice(f"{OPTION}: {self._path} cannot be written: {error.strerror}; it is not written any more")

    def _write(self) -> None:
        now = self._loop.now()
        values = {**self._values, "mslaunch_ranks_running": len(self._running)}
        values.update(mslaunch_update_time_seconds=_wall(), mslaunch_output_bytes_total=self._activity.size)
        values["mslaunch_silence_seconds"] = round(max(0.0, now - self._began - self._activity.last), 3)
        lines = []
        for name, (kind, help_text) in _METRICS.items():
            if name in values:
                lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
                lines.append(f'{name}{{job="{self._jobid}"}} {values[name]:.15g}')
        replace_own(self._path, "\n".join(lines) + "\n", f"{self._path}.{os.getpid()}")

    def close(self) -> None:
        """Write the last values."""
        self._values["mslaunch_up"] = 0
        self._update()
        self._closed = True
        if self._late:
            self._late.cancel()


def _wall() -> float:
    import time

    return round(time.time(), 3)
