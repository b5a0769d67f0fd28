"""A launch that can be asked what it does: its entry in the registry, its control socket, and its answers.

A launch that nobody detached is entered when it has run for a second, and its entry goes with it.  If that is not
possible, as on a full disk, the job goes on without.
"""

from __future__ import annotations

import os
import time

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.jobs.control_socket import ControlSocket
from mslaunch.jobs.job_facts import job_facts
from mslaunch.jobs.job_registry import JobRegistry
from mslaunch.jobs.launcher_pid import process
from mslaunch.jobs.usage_collector import UsageCollector
from mslaunch.launcher.monitoring.activity import Activity
from mslaunch.launcher.observers import AttemptStarted, RankStarted

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.request import Request
    from mslaunch.jobs.job_registry import JobEntry
    from mslaunch.launcher.attempt import LaunchContext
    from mslaunch.launcher.job.controller import JobController
    from mslaunch.protocol.rank_usage import RankUsage

_PATIENCE = 0.2  # seconds for the lock of the registry; the loop stands still meanwhile
_SHORTEST = 0.2  # seconds over which a load is measured; the kernel counts in hundredths
_LINE = 200  # characters of a last line


class LiveJob:
    """Answers questions about one launch; `entry` is that of the registry."""

    def __init__(self, context: LaunchContext, entry: JobEntry) -> None:
        self._context = context
        self._activity = Activity(context.began)
        self._since = context.loop.now()  # of ranks whose first output was too much to keep
        self._attempt = 1
        self._usage: UsageCollector | None = None
        self._before: dict[int, tuple[float, int, float | None]] = {}  # rank -> when, its milliseconds and load then
        self._started: dict[int, float] = {}  # rank -> when
        heard_before = bool(context.observers.listeners)  # then the job tells its observers already
        context.observers.listen(self._activity.heard)
        context.observers.add(self._observe)
        job = context.interrupts.job
        if job:
            for frame in job.first_output.take():
                self._activity.heard(frame.kind, frame.rank, frame.payload)
            if not heard_before:
                self._listen(job)
        self._socket = ControlSocket(context.loop, entry.folder, self.ask)
        context.observers.on_close(self._socket.close)

    def _listen(self, job: JobController) -> None:
        write, heard = job.write, self._activity.heard

        def both(kind: int, rank: int, data: bytes) -> None:
            heard(kind, rank, data)
            write(kind, rank, data)

        job.write = both

    def _observe(self, record: Any) -> None:
        if isinstance(record, RankStarted):
            self._started[record.rank] = self._context.loop.now()
            self._before.pop(record.rank, None)
        elif isinstance(record, AttemptStarted):
            self._attempt = record.number
            self._since = self._context.loop.now()
            self._activity.begin_attempt()

    def ask(self, question: dict[str, Any], answer: Callable[[dict[str, Any]], None]) -> None:
        """`{"ask": "top"}` or `{"ask": "stacks"}`."""
        job, what = self._context.interrupts.job, question.get("ask")
        if job is None:
            answer({"error": "no rank runs just now: hosts are being connected, or the ranks have ended"})
        elif what == "top":
            self._ask_usage(job, answer)
        elif what == "stacks":
            job.collect_stacks(lambda text: answer({"text": text}))
        else:
            answer({"error": "the launcher does not know this question"})

    def _ask_usage(self, job: JobController, answer: Callable[[dict[str, Any]], None]) -> None:
        if self._usage is None or self._usage.job is not job:
            self._usage = UsageCollector(self._context.loop, job)
            self._before = {}

        def tell(usage: dict[int, RankUsage]) -> None:
            try:
                answer(self._top(job, usage))
            except Exception as error:  # whatever it is, the job goes on
                answer({"error": f"the launcher cannot make the table: {error!r}"})

        self._usage.ask(tell)

    def _load(self, rank: int, usage: RankUsage | None) -> tuple[float | None, int | None]:
        """Percent of a processor since the last question, and bytes; who asks just after another gets the same."""
        if usage is None:
            return None, None
        now = self._context.loop.now()
        when, before, load = self._before.get(rank, (self._started.get(rank, self._context.began), 0, None))
        if load is None or now - when >= _SHORTEST:
            load = max(0, usage.milliseconds - before) / 10 / (now - when) if now > when else None
            self._before[rank] = now, usage.milliseconds, load
        return load, usage.memory

    def _top(self, job: JobController, usage: dict[int, RankUsage]) -> dict[str, Any]:
        now = self._context.loop.now()
        rows = []
        for status, words in job.state.table.rank_states():
            one = self._activity.ranks.get(status.rank)
            cpu, memory = self._load(status.rank, usage.get(status.rank))
            last = self._context.began + one.last if one and one.last is not None else None
            rows.append(
                {
                    "rank": status.rank,
                    "node": status.host,
                    "pid": status.pid,
                    "state": words,
                    "cpu": cpu,
                    "memory": memory,
                    "silence": round(now - (last or self._since), 1),
                    "line": one.last_line[:_LINE] if one else "",
                    "bytes": one.size if one else 0,
                }
            )
        rate = self._activity.rate
        lately = rate.sizes[-5:] if rate.sizes else [0]
        return {
            "seconds": round(self._context.seconds, 1),
            "attempt": self._attempt,
            "rate": sum(lately) / len(lately) / rate.interval,
            "ranks": rows,
        }


def enter(context: LaunchContext, request: Request) -> None:
    """Enter a launch that is not detached.

    It blocks the loop while others hold the lock of the registry, for 0.2 s at most and once in a launch: nobody sees
    that, and what ranks print meanwhile waits in its pipe.
    """
    this = process(os.getpid())
    if this is None or request.do_not_launch:
        return
    try:
        entry = JobRegistry(context.caller.environ, _PATIENCE).add(
            command=context.caller.command(),
            process=this,
            foreground=True,
            running=time.time(),
            **job_facts(request, context.caller.cwd),
        )
    except (LaunchError, OSError) as error:
        context.console.verbose(f"--top, --stacks and --logs do not know this job: {error}")
        return
    context.observers.on_close(entry.remove)
    listen(context, entry)


def listen(context: LaunchContext, entry: JobEntry) -> None:
    """Answer questions about a launch that has an entry."""
    try:
        LiveJob(context, entry)
    except OSError as error:
        context.console.verbose(f"--top and --stacks do not know this job: {error.strerror}")
