"""--status and --stop of detached jobs, and the command line as the registry records it.

The exit code of `--status JOB` is 0 while the job runs, and then the job's own.  --stop sends SIGTERM to its launcher.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence

from mslaunch.cli.dialects import OWN
from mslaunch.cli.parser.options import Show
from mslaunch.datamodel.request import Request
from mslaunch.detached.job_registry import DAYS, JobEntry, JobRegistry
from mslaunch.errors import LaunchError, UsageError, printable
from mslaunch.faststd import signal

_KILLED = 137
_PATIENCE = 20.0  #: seconds beyond the grace of the ranks, until a job counts as one that does not end
_WIDTH = 60
_HIDDEN = "…"


def recorded(request: Request, typed: Sequence[str]) -> list[str]:
    """The words of a command line without the values of variables: -x KEY=…

    Of a list of variables, `-mca mca_base_env_list A=1;B=2`, nothing is left after the first `=`.
    """
    name = os.path.basename(typed[0])
    words = [OWN if name == "__main__.py" else name, *typed[1:]]
    import re

    of_programs = _words_of_programs(request, words)
    for name, value in {(name, value) for app in request.apps for name, value in app.env if value}:
        assigned = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(name)}=")
        for at, word in enumerate(words):
            found = None if at in of_programs else assigned.search(word)
            if found:
                words[at] = word[: found.end()] + _HIDDEN
            elif word.endswith(f"{name}={value}"):
                words[at] = word[: -len(value)] + _HIDDEN
            elif word == value and words[at - 1] == name:
                words[at] = _HIDDEN
    return words


def _words_of_programs(request: Request, words: Sequence[str]) -> set[int]:
    """The positions of the words of programs: they stand before a colon, or at the end."""
    ends = [at for at, word in enumerate(words) if word == ":"] + [len(words)]
    return {
        at
        for argv in {tuple(app.argv) for app in request.apps}
        for end in ends
        if tuple(words[end - len(argv) : end]) == argv
        for at in range(end - len(argv), end)
    }


def status(words: Sequence[str], environ: Mapping[str, str]) -> Show:
    """What --status shows, of all jobs or of one.  Raises `LaunchError`."""
    if not words:
        return Show(_table(JobRegistry(environ).entries()) or f"no job was detached here in the last {DAYS} days")
    entry = _find("--status", words, environ)
    return Show(_detail(entry), {"ended": entry.facts.get("code", 0), "killed": _KILLED}.get(entry.state, 0))


def stop(words: Sequence[str], environ: Mapping[str, str]) -> Show:
    """End a job, and wait until it has ended.  Raises `LaunchError`."""
    entry = _find("--stop", words, environ)
    job = f"job {entry.number}"
    while entry.state in ("starting", "running"):  # twice if the recorded process was still the command
        asked = entry.process
        asked.send(signal.SIGTERM)
        if not asked.wait(float(entry.facts["grace"]) + _PATIENCE):
            todo = f"see {entry.log}; a second --stop {entry.number} ends it at once"
            raise LaunchError("it was asked to end and has not done so yet", job, todo)
    return Show(f"{job} {_outcome(entry, entry.state)}")


def _find(option: str, words: Sequence[str], environ: Mapping[str, str]) -> JobEntry:
    todo = "mslaunch --status lists the jobs of this host and user"
    if not words:
        raise UsageError("the number of the job is missing", option, todo)
    if len(words) > 1:
        raise UsageError(f"it takes one job, got {' '.join(words)!r}", option, todo)
    entry = JobRegistry(environ).find(words[0])
    if entry is None:
        raise LaunchError(f"there is no job {words[0]!r}", option, todo)
    return entry


def _outcome(entry: JobEntry, state: str) -> str:
    """A clause: `ended at … with exit code 0: all ranks succeeded`."""
    if state == "ended":
        return f"ended at {_time(entry.since)} with exit code {entry.facts['code']}: {entry.facts['how']}"
    if state != "killed":
        return f"has been {state} since {_time(entry.since)}"
    if not entry.known:
        return "ended before anything was started"
    return f"was killed: its launcher, process {entry.process.pid}, is gone, and its ranks were ended with it"


def _detail(entry: JobEntry) -> str:
    state, facts = entry.state, entry.facts
    lives = state in ("starting", "running")
    rows = (
        ("command", shlex.join(facts["command"])),
        ("directory", facts["cwd"]),
        ("ranks", facts["ranks"]),
        ("started", _time(facts["began"])),
        ("launcher", f"process {entry.process.pid}" if lives else ""),
        ("logs", facts["logs"]),
        ("launcher log", entry.log),
        ("to end it", f"mslaunch --stop {entry.number}" if lives else ""),
    )
    lines = (f"  {name}: {value}" for name, value in rows if value)
    return printable("\n".join([f"job {entry.number} {_outcome(entry, state)}", *lines]))


def _table(entries: Iterable[JobEntry]) -> str:
    rows = [("JOB", "STATE", "SINCE", "RANKS", "COMMAND")]
    for entry in entries:
        state, facts = entry.state, entry.facts
        command = shlex.join(facts["command"])
        state += f", {facts['code']}" if state == "ended" else ""
        short = command if len(command) <= _WIDTH else command[: _WIDTH - 1] + "…"
        rows.append((str(entry.number), state, _time(entry.since), str(facts["ranks"] or "-"), short))
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]) for row in rows]
    return printable("\n".join(lines)) if len(rows) > 1 else ""


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
