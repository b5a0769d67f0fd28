"""The registry of detached jobs: a directory that only its user can read, with a directory for each job.

It lies below /tmp, not in XDG_RUNTIME_DIR, which is removed when its user logs out; a detached job goes on then.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time

from mslaunch.detached.job_entry import JobEntry, read_facts
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VARIABLE = "MSLAUNCH_JOBS"  #: names another directory
KEPT = 100  #: jobs that have ended and are still listed, at most
DAYS = 7  #: and for how long
_LOCK_SECONDS = 5.0
_POLL_SECONDS = 0.01


class JobRegistry:
    """The registry of this user on this host.  Raises `LaunchError` if its directory cannot be trusted."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = os.path.abspath(environ.get(VARIABLE) or f"/tmp/mslaunch-{os.geteuid()}")
        try:
            self._require_own()
        except (FileNotFoundError, NotADirectoryError):  # there has been no job
            pass

    def _require_own(self) -> None:
        found = os.lstat(self._folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            what = "the registry of detached jobs must be a directory that you alone can read and write"
            raise LaunchError(what, self._folder, f"remove it, or name another one in {VARIABLE}")

    def entries(self) -> list[JobEntry]:
        """All jobs, the oldest first."""
        try:
            names = [name for name in os.listdir(self._folder) if name.isascii() and name.isdigit()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [(folder, read_facts(folder)) for folder in (os.path.join(self._folder, name) for name in names)]
        return sorted((JobEntry(folder, facts) for folder, facts in found if facts), key=lambda entry: entry.number)

    def find(self, word: str) -> JobEntry | None:
        """The job of this number."""
        return next((entry for entry in self.entries() if str(entry.number) == word), None)

    def add(self, **facts: Any) -> JobEntry:
        """A new job, with the next number; old jobs are removed."""
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
        except OSError as error:
            what = f"the registry of detached jobs cannot be made: {error.strerror}"
            raise LaunchError(what, self._folder, f"name a directory that can be made in {VARIABLE}") from None
        self._require_own()
        with _locked(os.path.join(self._folder, "lock")) as last:
            self._remove_old()
            number = last.next(max((entry.number for entry in self.entries()), default=0))
            made = os.path.join(self._folder, f"new-{number}")
            os.mkdir(made, 0o700)
            JobEntry(made, facts).note()
            folder = os.path.join(self._folder, str(number))
            os.rename(made, folder)  # so that an entry without facts is never seen
        return JobEntry(folder, facts)

    def _remove_old(self) -> None:
        for name in os.listdir(self._folder):
            if name.startswith("new-"):  # its process was killed
                JobEntry(os.path.join(self._folder, name), {}).remove()
        over = sorted((entry for entry in self.entries() if entry.state in ("ended", "killed")), key=_age)
        for at, entry in enumerate(over):
            if at >= KEPT - 1 or _age(entry) > DAYS * 86400:
                entry.remove()


def _age(entry: JobEntry) -> float:
    return time.time() - entry.since


class _locked:  # noqa: N801
    """Holds the lock of the registry, whose file contains the last number given."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> _locked:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(self._fd)
                    todo = "another mslaunch that was stopped may hold it"
                    raise LaunchError("the registry of detached jobs is locked", self._path, todo) from None
                time.sleep(_POLL_SECONDS)

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def next(self, known: int) -> int:
        """One more than the last number given, and than `known`."""
        said = os.pread(self._fd, 32, 0)
        number = max(int(said) if said.isdigit() else 0, known) + 1
        os.pwrite(self._fd, b"%d" % number, 0)
        return number
