"""--status and --stop of jobs, and the command line as the registry records it.

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
from mslaunch.errors import LaunchError, UsageError, printable
from mslaunch.faststd import signal
from mslaunch.jobs.job_registry import DAYS, JobEntry, JobRegistry
from mslaunch.launcher import terminal_size

_KILLED = 137
_PATIENCE = 20.0  #: seconds beyond the grace of the ranks, until a job counts as one that does not end
_PROGRAM = 40  # columns of a program on a terminal
_LEAST = 20  # columns of a program and its command line there, however narrow it is
_LONG, _SHORT = "%Y-%m-%d %H:%M:%S", "%m-%d %H:%M:%S"
_HIDDEN = "…"
_FORGOTTEN = "a job that was not detached is forgotten when it ends; its logs are where --output-filename said\n"
_ELSEWHERE = "was started in another container (PID namespace), and its launcher cannot be seen from here"


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
        table = _table(JobRegistry(environ).entries(), terminal_size.columns(1, 0))
        return Show(table or f"no job runs here, and none that was detached has ended in the last {DAYS} days")
    entry = find_job("--status", words, environ)
    return Show(_detail(entry), {"ended": entry.facts.get("code", 0), "killed": _KILLED}.get(entry.state, 0))


def stop(words: Sequence[str], environ: Mapping[str, str]) -> Show:
    """End a job, and wait until it has ended.  Raises `LaunchError`."""
    entry = find_job("--stop", words, environ)
    job = f"job {entry.number}"
    if entry.state == "unknown":
        raise LaunchError(f"it {_ELSEWHERE}", job, f"call mslaunch --stop {entry.number} there")
    while entry.state in ("starting", "running"):  # twice if the recorded process was still the command
        asked = entry.process
        entry.ask_to_stop()
        asked.send(signal.SIGTERM)
        if not asked.wait(float(entry.facts["grace"]) + _PATIENCE):
            see = f"see {_log(entry)}; " if _log(entry) else ""
            todo = f"{see}a second --stop {entry.number} ends it at once"
            raise LaunchError("it was asked to end and has not done so yet", job, todo)
    return Show(f"{job} {_outcome(entry, entry.state)}")


def find_job(option: str, words: Sequence[str], environ: Mapping[str, str]) -> JobEntry:
    """The job of this number, or whose launcher has this process id.  Raises `LaunchError`."""
    todo = "mslaunch --status lists the jobs of this host and user"
    if not words:
        raise UsageError("the number of the job is missing", option, todo)
    if len(words) > 1:
        raise UsageError(f"it takes one job, got {' '.join(words)!r}", option, todo)
    entry = JobRegistry(environ).find(words[0])
    if entry is None:
        forgotten = _FORGOTTEN if words[0].isdigit() else ""
        raise LaunchError(f"there is no job {words[0]!r}", option, forgotten + todo)
    return entry


def _outcome(entry: JobEntry, state: str) -> str:
    """A clause: `ended at … with exit code 0: all ranks succeeded`."""
    if state == "ended":
        return f"ended at {_time(entry.since)} with exit code {entry.facts['code']}: {entry.facts['how']}"
    if state == "unknown":
        return f"may run: it {_ELSEWHERE}"
    if state != "killed":
        return f"has been {state} since {_time(entry.since)}"
    if not entry.known and _in_terminal(entry):
        return "has ended; its exit code was given to the command that started it"
    if not entry.known:
        return "ended before anything was started"
    return f"was killed: its launcher, process {entry.process.pid}, is gone, and its ranks were ended with it"


def _in_terminal(entry: JobEntry) -> bool:
    """Whether it is not detached; then its entry goes when it ends, whatever its ranks did."""
    return "foreground" in entry.facts


def _log(entry: JobEntry) -> str:
    """The file of its launcher's messages; "" if they go to a terminal."""
    return "" if _in_terminal(entry) else entry.log


def _detail(entry: JobEntry) -> str:
    state, facts = entry.state, entry.facts
    lives = state in ("starting", "running")
    rows = (
        ("command", _one_line(shlex.join(facts["command"]))),
        ("directory", _one_line(facts["cwd"])),
        ("ranks", facts["ranks"]),
        ("started", _time(facts["began"])),
        ("launcher", f"process {entry.process.pid}" if lives else ""),
        ("logs", _one_line(facts["logs"] or "")),
        ("launcher's log", _log(entry)),
        ("to end it", f"mslaunch --stop {entry.number}" if lives else ""),
    )
    lines = [f"  {name}: {value}" for name, value in rows if value]
    for name, text in (
        ("how it ended", facts.get("block", "")),
        ("waiting", facts.get("waiting", "") if lives else ""),
    ):
        block = text.removeprefix("mslaunch: ").splitlines()
        lines += [f"  {name}:", *(f"    {line}" for line in block)] if block else []
    return printable("\n".join([f"job {entry.number} {_outcome(entry, state)}", *lines]))


def _table(entries: Iterable[JobEntry], columns: int) -> str:
    """A row for each job, with its program before its command line; it is cut to `columns`, 0: to none."""
    rows = [("JOB", "STATE", "STARTED", "ENDED", "RANKS")]
    lines = [("PROGRAM", "COMMAND")]
    for entry in entries:
        state, facts = entry.state, entry.facts
        end = _time(facts["ended"], _SHORT) if "ended" in facts else "-"
        state += f", {facts['code']}" if state == "ended" else ""
        rows.append((str(entry.number), state, _time(facts["began"], _SHORT), end, str(facts["ranks"] or "-")))
        lines.append((_one_line(facts.get("program", "-")), _one_line(shlex.join(facts["command"]))))
    if len(rows) == 1:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows)]
    longest = max(len(program) for program, _ in lines)
    left = max(columns - sum(widths) - 2 * len(widths), _LEAST) if columns else 0
    wide = min(longest, _PROGRAM) if columns else longest
    texts = (f"{_cut(program, wide).ljust(wide)}  {command}" for program, command in lines)
    heads = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return printable("\n".join(f"{head}  {_cut(text, left)}".rstrip() for head, text in zip(heads, texts)))


def _one_line(text: str) -> str:
    r"""With \n and \t for ends of lines and tabs, as in `python -c '…'`; else a program could look like another job."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _cut(text: str, columns: int) -> str:
    """At most so many characters; 0: all of it."""
    return text if not columns or len(text) <= columns else text[: columns - 1] + "…"


def _time(seconds: float, form: str = _LONG) -> str:
    return time.strftime(form, time.localtime(seconds))
