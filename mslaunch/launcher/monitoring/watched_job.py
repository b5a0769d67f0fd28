"""Who watches the job of one attempt: observers of the launch, by way of its records, and the watch for hangs."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.outcome import Failure
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.job.job_records import JobWatcher
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.launcher.observers import Observers
    from mslaunch.runtime.loop import Loop


class WatchedJob(NamedTuple):
    """The job of attempt `number`; `write` is that of its output, `failure` puts its cause into words."""

    state: JobState
    number: int
    write: Callable[[int, int, bytes], None]
    failure: Callable[[], Failure | None]

    def watcher(
        self, observers: Observers, request: Request, loop: Loop, post: Callable[[Any], None], cwd: str
    ) -> JobWatcher | None:
        """For its controller: what takes output on its way, and sees events; `post` takes events of the watch."""
        records = None
        if observers:
            from mslaunch.launcher.job.job_records import JobRecords

            emit, heard = observers.emit, observers.listener
            records = JobRecords(emit, self.state, self.number, self.write, self.failure, heard)
        if not request.hang.seconds:
            return records
        from mslaunch.launcher.monitoring.hang_watch import HangWatch

        return HangWatch(loop, request, self.state, self.write, records, post, cwd)
