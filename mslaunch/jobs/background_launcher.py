"""The launcher of a detached job: runs the launch, notes its progress in the registry and reports to the command.

Reports are lines in a pipe: first `process PID`, then `started SIZE`, `ended SIZE` or `refused SIZE`, where SIZE is the
size of the log at that moment, in bytes.
"""

from __future__ import annotations

import os
import sys
import time

from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.jobs.launcher_pid import process
from mslaunch.jobs.live_job import listen
from mslaunch.jobs.private_folder import job_folder
from mslaunch.launcher.messages.failure_text import interrupted_text
from mslaunch.launcher.observers import AllStarted, LaunchEnded, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.outcome import Outcome
    from mslaunch.jobs.job_registry import JobEntry
    from mslaunch.launcher.observers import Observer

    Launch = Callable[[Observer, Callable[[Any], None]], Outcome]
    Runner = Callable[[Callable[[], int]], int]  # prints what an act refuses; returns the exit code

_OPEN_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


RELAYED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  #: what the command hands on to the launcher


class StartReport:
    """The launcher's end of the pipe."""

    def __init__(self, writer: int) -> None:
        self._writer = writer
        self.over = False  # the last line was written

    def write(self, word: str, number: int) -> None:
        """One line to the command, which may have been killed."""
        if self.over:
            return
        try:
            os.write(self._writer, f"{word} {number}\n".encode())
        except BrokenPipeError:
            pass
        if word != "process":
            self.over = True
            os.close(self._writer)


def run(entry: JobEntry, launch: Launch, run_reported: Runner, writer: int) -> int:
    """Run the launch with its messages in the log of `entry`; returns the exit code of the job.

    The signals of `RELAYED` are blocked until there is somebody who takes them.
    """
    null = os.open("/dev/null", os.O_RDONLY)
    with job_folder(entry.folder) as folder:
        log = os.open(os.path.basename(entry.log), _OPEN_LOG, 0o600, dir_fd=folder)
    for fd, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, target)
    os.close(null)
    os.close(log)
    _note(entry, process=process(os.getpid()))
    report = StartReport(writer)
    report.write("process", os.getpid())
    outcomes: list[Outcome] = []

    def observe(record: Any) -> None:
        if isinstance(record, AllStarted) and not report.over:
            _note(entry, running=time.time())
            report.write("started", os.fstat(1).st_size)
        elif isinstance(record, Waiting):
            _note(entry, waiting=record.text)
        elif isinstance(record, LaunchEnded):
            outcomes.append(record.outcome)

    def ready(context: Any) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, RELAYED)
        listen(context, entry)

    code = run_reported(lambda: launch(observe, ready).code)
    sys.stderr.flush()
    outcome = _as_asked(outcomes[0], entry.stop_asked) if outcomes else None
    ranks = len(outcome.ranks) if outcome else entry.facts["ranks"]
    _note(entry, ended=time.time(), code=code, how=_how(outcome), block=_block(outcome), ranks=ranks)
    any_started = outcome and (outcome.attempts or any(rank.pid for rank in outcome.ranks))
    report.write("ended" if any_started else "refused", os.fstat(1).st_size)
    return code


def _note(entry: JobEntry, **facts: object) -> None:
    """Note facts in the registry; the job goes on if that fails."""
    try:
        entry.note(**facts)
    except OSError as error:
        sys.stderr.write(f"mslaunch: {entry.folder}: {error.strerror}; --status cannot report this job\n")


def _as_asked(outcome: Outcome, stopped: bool) -> Outcome:
    """The outcome with --stop in the place of the signal that it has sent, if that has ended the job."""
    failure = outcome.failure
    if not (stopped and failure and failure.what == interrupted_text("SIGTERM", "")):
        return outcome
    return outcome._replace(failure=failure._replace(what="stopped by --stop"))


def _block(outcome: Outcome | None) -> str:
    """The closing block, as a launch that is not detached shows it; with --quiet, too, for --status was asked."""
    if outcome is None or outcome.failure is None:
        return ""
    from mslaunch.launcher.messages.closing_report import outcome_text

    failed = [status for status in (*outcome.ranks, *outcome.services) if status.rank == outcome.failure.rank]
    return outcome_text(outcome, failed[0].stderr or failed[0].stdout if failed else None)


def _how(outcome: Outcome | None) -> str:
    if outcome is None:
        return "nothing was started"
    if outcome.failure is None:
        return "all ranks succeeded"
    return outcome.failure.what + (f" on {outcome.failure.host}" if outcome.failure.host else "")
