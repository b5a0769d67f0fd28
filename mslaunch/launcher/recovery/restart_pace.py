"""When all ranks are started again after a failure, and when not: what --progress-file and --max-restart-delay decide.

An attempt has made progress if the file or directory that the user named has changed in it.  After so many attempts in
a row without, another would only fail in the same way, and hold its hosts meanwhile.
"""

from __future__ import annotations

import os

from mslaunch.errors import EXIT_NO_PROGRESS
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.file_state import NOTHING, state_of
from mslaunch.launcher.job.restart_policy import policy_of
from mslaunch.launcher.messages.notices import no_answer_text, no_progress_text, not_there_text
from mslaunch.launcher.recovery.restart_candidates import NoPlaceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.request import Request
    from mslaunch.host.file_state import FileState


class RestartPace:
    """The attempts of one launch so far, each of which is told by `began` and `failed`."""

    def __init__(
        self,
        request: Request,
        cwd: str,
        now: Callable[[], float],
        notice: Callable[[str], None],
        look: Callable[[str], FileState | None] = state_of,
    ) -> None:
        """`now` is a clock in seconds; a relative path counts from `cwd`; `notice` tells the user."""
        self._request = request
        self._policy = policy_of(request)
        self._path = None if request.progress_file is None else os.path.join(cwd, request.progress_file)
        self._now = now
        self._notice = notice
        self._look = look
        self._began = 0.0
        self._state: FileState | None = None  # when it was looked at last
        self._unchanged = 0  # attempts in a row
        self._quick = 0  # failures in a row, each soon after its start
        if self._path is not None:
            self._state = self._seen(self._path)

    def began(self) -> None:
        """The ranks of an attempt are about to be started."""
        self._began = self._now()

    def failed(self) -> None:
        """An attempt has ended, and others may follow; raises `NoPlaceError` if there was no progress for too long."""
        changed = self._path is not None and self._has_changed(self._path)
        steady = changed or self._policy.is_steady(self._now() - self._began)
        self._quick = 1 if steady else self._quick + 1
        most = self._request.max_no_progress
        if self._path is not None and self._unchanged >= most:
            there = self._state != NOTHING
            raise NoPlaceError([no_progress_text(self._request.progress_file or "", most, there)], EXIT_NO_PROGRESS)

    @property
    def delay(self) -> float:
        """Seconds from the failure to the next attempt."""
        return self._policy.delay_before(self._quick)

    def _has_changed(self, path: str) -> bool:
        """Whether it has since the last look; a file system that does not answer says neither yes nor no."""
        state, before = self._seen(path), self._state
        if state is None:
            return False
        self._state = state
        if before is None:
            return False
        if state == NOTHING and not self._unchanged:
            self._notice(not_there_text(self._request.progress_file or ""))
        self._unchanged = self._unchanged + 1 if state == before else 0
        return state != before

    def _seen(self, path: str) -> FileState | None:
        state = self._look(path)
        if state is None:
            self._notice(no_answer_text(self._request.progress_file or ""))
        return state
