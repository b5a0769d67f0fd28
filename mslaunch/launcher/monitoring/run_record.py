"""The record of a run, run.json: what was started, where, when each part of it happened, and how it ended.

docs/run.schema.json describes it.  It is written when an attempt starts its ranks and when the launch is over: a
launcher that was killed leaves one whose state is `running`.  Times are in seconds since the launch began.
"""

from __future__ import annotations

import errno
import os
import sys

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import observers
from mslaunch.launcher.monitoring.attempt_records import AttemptRecords
from mslaunch.launcher.monitoring.event_texts import SCHEMA, cause_of, json_text, refusal, time_text
from mslaunch.launcher.stdio.own_files import replace_own

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.launcher.monitoring.activity import Activity
    from mslaunch.launcher.monitoring.event_texts import SecretValues

    Facts = dict[str, Any]

NAME = "run.json"
OPTION = "--record"
#: fields of the `OutputPolicy` that name a directory; the last is msrun's
_FOLDERS = ("directory", "rank_logs", "outfile")


class RunRecord:
    """Observes a launch, and writes its record to `folder`; `facts` are known from the start (`launch_facts`)."""

    def __init__(
        self,
        folder: str,
        required: bool,
        facts: Facts,
        wall: float,
        activity: Activity,
        secrets: SecretValues,
        notice: Callable[[str], None],
    ) -> None:
        """`required`: the user asked for the record; `wall`: seconds since the epoch at the beginning."""
        self._folder = folder
        self._required = required
        self._wall = wall
        self._activity = activity
        self._secrets = secrets
        self._notice = notice
        self._told = False
        self._facts = {"schema": SCHEMA, **facts, "began": time_text(wall), "ended": None, "seconds": None}
        self._facts.update(state="running", code=None, cause=None, report="")
        self._attempts = AttemptRecords(activity)

    def prepare(self) -> None:
        """Make the directory that --record names, and write what is known.  Raises `LaunchError`."""
        try:
            os.makedirs(self._folder, exist_ok=True)
            self._replace("running")
        except FileExistsError:
            raise LaunchError(f"{self._folder} is no directory", OPTION, "name a directory, or a new one") from None
        except OSError as error:
            what = f"{self._path} cannot be written: {error.strerror}"
            raise LaunchError(what, OPTION, "name a directory that you can write to") from None

    @property
    def _path(self) -> str:
        return os.path.join(self._folder, NAME)

    def observe(self, record: Any) -> None:
        """Note what a record says."""
        if self._facts["state"] != "running":
            return
        self._attempts.observe(record)
        if isinstance(record, observers.AttemptStarted):
            self._write("running")
        elif isinstance(record, observers.LaunchRefused) and (self._required or self._attempts.attempts):
            cause = refusal(record.error)
            self._end(record.time, cause["code"], cause, str(record.error))
        elif isinstance(record, observers.LaunchEnded):
            self._end(record.time, record.outcome.code, cause_of(record.outcome.failure), record.report)

    def _end(self, when: float, code: int, cause: Facts | None, report: str) -> None:
        self._facts.update(ended=time_text(self._wall + when), seconds=round(when, 3))
        self._facts.update(code=code, cause=cause, report=report)
        self._write("ended")

    def _write(self, state: str) -> None:
        try:
            self._replace(state)
        except OSError as error:
            if (self._required or error.errno != errno.ENOENT) and not self._told:  # else logs could not be made
                self._told = True
                self._notice(f"{self._path} cannot be written: {error.strerror}")

    def _replace(self, state: str) -> None:
        self._facts["state"] = state
        self._attempts.refresh()
        rate = self._activity.rate
        whole = {
            **self._facts,
            "hosts": self._attempts.hosts,
            "output": {"interval": rate.interval, "bytes": rate.sizes},
            "attempts": self._attempts.attempts,
            "restarts": self._attempts.restarts,
            "hangs": self._attempts.hangs,
        }
        replace_own(self._path, json_text(self._secrets.blanked(whole), indent=1) + "\n", self._path + ".new")


def launch_facts(jobid: str, command: list[str], cwd: str, environ: Any, exported: list[str]) -> Facts:
    """What is known of a launch from the start; of variables only names."""
    from mslaunch import __version__

    return {
        "mslaunch": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "job": jobid,
        "command": command,
        "cwd": cwd,
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "environment": sorted(environ),
        "exported": exported,
    }


def folder_of(request: Any, cwd: str) -> tuple[str, bool] | None:
    """The directory of the record, and whether the user named it; None: no record is kept.

    Without --record it lies with the logs, if their directory was named.
    """
    from mslaunch.datamodel.request import NO_RECORD
    from mslaunch.launcher.stdio.log_layouts import LAYOUTS

    named = request.monitor.record
    if named == NO_RECORD:
        return None
    if named:
        return os.path.join(cwd, named), True
    for field in _FOLDERS:
        path = getattr(request.output, field)
        layout = LAYOUTS[field](request.output, path) if path is not None else None
        if layout and layout.base not in ("", ".") and not layout.passing and (field != "outfile" or layout.service):
            return os.path.join(cwd, layout.base), False
    return None
