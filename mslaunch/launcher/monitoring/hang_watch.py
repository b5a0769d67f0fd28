"""The watch for hangs (--hang-timeout): how long no rank has printed anything, and no file has changed.

It takes what ranks print on its way to the output, and the events of the job, and posts `Hung`.  Time counts from the
moment all ranks run, or from the last output, start or end of one; it does not count while the job is suspended, while
ranks wait for a terminal, or while this process itself is stopped.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.node_plan import is_service
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.file_state import NOTHING, SECONDS, FileLook
from mslaunch.launcher.job import events
from mslaunch.launcher.job.job_state import RUNNING
from mslaunch.launcher.job.restart_policy import policy_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.request import Request
    from mslaunch.host.file_state import FileState
    from mslaunch.launcher.job.job_records import JobRecords
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.runtime.loop import Loop, Timer

_REPORTS = 5  #: of one silence (--on-hang report)
_POLL, _LOOKS = 0.1, 4  # seconds between looks whether the file's state is known; how often it is asked for in time
_LATE = 1.0  # seconds: a timer that fires so much later shows that this process was stopped
_ACTIVITY = (events.Started, events.Exited, events.LinkEnded, events.Resumed, events.Spawned)


def check_hangs(request: Request) -> None:
    """Raises `UsageError` for what --hang-timeout and its like cannot do."""
    seconds, then = request.hang
    if then and not seconds:
        raise UsageError("it needs a time after which a job counts as hung", "--on-hang", "add --hang-timeout SECONDS")
    if seconds and (request.cluster.share or request.cluster.host_meeting):
        what = "each of several commands that start one job sees only what its own ranks print"
        raise UsageError(what, "--hang-timeout", "start all ranks by one command, with -H or --hostfile")
    policy = policy_of(request)
    if then == "restart" and not (policy.group or policy.rank_limit):
        todo = "add --restart group, or --restart rank for the ranks that do not do what the others do"
        raise UsageError("it needs --restart group or rank", "--on-hang restart", todo)


class HangWatch:
    """Watches the job of one attempt; `write` is that of the output, `records` tell observers, `post` takes events."""

    def __init__(
        self,
        loop: Loop,
        request: Request,
        state: JobState,
        write: Callable[[int, int, bytes], None],
        records: JobRecords | None,
        post: Callable[[Any], None],
        cwd: str,
    ) -> None:
        """A relative path of --progress-file counts from `cwd`."""
        self._loop = loop
        self._now = loop.now
        self._seconds, self._then = request.hang.seconds, request.hang.then or "end"
        self._stacks = "hang" in request.stacks_on
        self._state = state
        self._write = records.write if records else write
        self._records = records
        self._post = post
        name = request.progress_file
        self._file = None if name is None else _WatchedFile(name, os.path.join(cwd, name))
        self._last = loop.now()  # when something has happened
        self._reports = 0  # of this silence
        self._held: set[type] = set()  # why time does not count
        self._timer: Timer | None = None
        self._asked = False  # the file is looked at, because the time is over

    # --- what happens

    def write(self, kind: int, rank: int, data: bytes) -> None:
        """A process has printed something."""
        if data and not is_service(rank):
            self._last = self._now()
            self._reports = 0
        self._write(kind, rank, data)

    def observe(self, event: Any) -> None:
        """The job has acted on an event."""
        if self._records:
            self._records.observe(event)
        if isinstance(event, _ACTIVITY):
            self._act()
        if isinstance(event, events.Started) and not self._timer and self._state.table.all_started:
            self._wait()
        elif isinstance(event, events.Suspended):
            self._held.add(events.Suspended)
        elif isinstance(event, events.Resumed):
            self._held.discard(events.Suspended)
        elif isinstance(event, events.Paused):
            (self._held.add if event.on else self._held.discard)(events.Paused)
            self._act()

    def _act(self) -> None:
        self._last, self._reports = self._now(), 0

    def end(self) -> None:
        """The last byte has come."""
        if self._timer:
            self._timer.cancel()
        if self._records:
            self._records.end()

    # --- the silence

    def _wait(self) -> None:
        """Look again when the time can be over; for the sake of the file some times before."""
        seconds = self._last + self._seconds * (self._reports + 1) - self._now()
        self._asked = False
        if self._file:
            seconds = min(seconds, self._seconds / _LOOKS)
            self._file.ask(self._now())
        self._look_in(seconds)

    def _look_in(self, seconds: float) -> None:
        due = self._now() + max(seconds, 0.0)
        self._timer = self._loop.after(max(seconds, 0.0), lambda: self._look(due))

    def _look(self, due: float) -> None:
        if self._state.phase != RUNNING or self._state.finished:
            return
        now = self._now()
        if self._held or now - due > _LATE:
            self._act()
        answered = self._file is None or self._file.answered(now)
        if self._file and answered and self._file.changed():
            self._last, self._reports = max(self._last, self._file.began), 0
        silence = self._seconds * (self._reports + 1)
        if now < self._last + silence:
            self._wait()
        elif self._file and not self._asked:  # once more, for what was written since
            self._asked = True
            self._file.ask(now)
            self._look_in(_POLL)
        elif not answered:
            self._look_in(_POLL)
        else:
            self._found(silence)

    def _found(self, silence: float) -> None:
        """A job hangs."""
        self._reports += 1
        if self._reports <= _REPORTS:
            name, missing = (self._file.name, self._file.state == NOTHING) if self._file else ("", False)
            self._post(events.Hung(silence, self._then, self._stacks, name, missing))
        if self._then != "report":
            self._act()  # of ranks that are started again
        self._wait()


class _WatchedFile:
    """Whether a file changes between one look and the next; a thread looks, and may get no answer."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name  #: as the user wrote it
        self.began = 0.0  #: when the last look began
        self.state: FileState | None = None  #: that of the last look that had an answer
        self._path = path
        self._look: FileLook | None = None

    def ask(self, now: float) -> None:
        """Begin a look, unless one goes on."""
        if self.answered(now):
            self.began = now
            self._look = FileLook(self._path)

    def answered(self, now: float) -> bool:
        """Whether the last look is over, or has taken too long."""
        return self._look is None or self._look.over or now > self.began + SECONDS + _POLL

    def changed(self) -> bool:
        """Whether the last look found a change, as far as is known: not if it is the first, or got no answer."""
        state, before = self._look.state if self._look else None, self.state
        self.state = state or before
        return None not in (state, before) and state != before
