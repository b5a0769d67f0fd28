"""The registry of jobs, detached or not: a directory that only its user can read, with a directory for each job.

The directory of a job has the file `job`, in JSON, and the launcher's log.  The registry lies below /tmp, not in
XDG_RUNTIME_DIR, which is removed when its user logs out; a detached job goes on then.

In /tmp another user can make the directory first.  So there is a second place below the user's home, where jobs are
kept if the first belongs to somebody else; both are looked at for jobs.  A home may be that of many hosts, so the
directory there is named after this one.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.jobs import job_file
from mslaunch.jobs.launcher_pid import ProcessIdentity
from mslaunch.jobs.private_folder import (
    exists_in,
    is_private,
    job_folder,
    open_private,
    private_folder,
    read_own,
    remove_folder,
)

if TYPE_CHECKING:
    from typing import Any

VARIABLE = "MSLAUNCH_JOBS"  #: names another directory
KEPT = 100  #: jobs that have ended and are still listed, at most
DAYS = 7  #: and for how long
_LASTING = ("starting", "running", "unknown")  # states of jobs that may go on
_LOCK_SECONDS = 5.0
_POLL_SECONDS = 0.01
_LOCK = "lock"
_DIGITS = 32  # of a number in the lock file
_STOP_MARK = "stopped"
_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OPEN_MARK = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class JobEntry:
    """A job; `facts` is what its file says: the command line, the launcher's process, times, and how it ended."""

    def __init__(self, folder: str, facts: dict[str, Any]) -> None:
        self.folder = folder
        self.facts = facts

    @property
    def number(self) -> int:
        """The number by which users name the job; its directory has this name."""
        return int(os.path.basename(self.folder))

    @property
    def log(self) -> str:
        """The file of the launcher's messages."""
        return os.path.join(self.folder, "launcher.log")

    @property
    def stop_asked(self) -> bool:
        """Whether --stop was called for it."""
        return exists_in(self.folder, _STOP_MARK)

    def ask_to_stop(self) -> None:
        """Note that --stop was called; in a file of its own, because its launcher writes the other one."""
        try:
            with job_folder(self.folder) as fd:
                os.close(os.open(_STOP_MARK, _OPEN_MARK, 0o600, dir_fd=fd))
        except OSError:  # a full disk: the job is ended all the same
            pass

    @property
    def process(self) -> ProcessIdentity:
        """Its launcher."""
        return ProcessIdentity(*self.facts["process"])

    @property
    def known(self) -> bool:
        """Whether its file still exists; the entry of a refused launch is removed."""
        return exists_in(self.folder, job_file.NAME)

    @property
    def state(self) -> str:
        """`starting`, `running`, `ended`, or `killed`: the launcher is gone without a note of how the job ended.

        `unknown`: it was started in another PID namespace, as of a container, and has noted no end.
        """
        gone: ProcessIdentity | None = None
        while "code" not in self.facts and self.process != gone and not self.process.lives:
            gone = self.process
            self.reload()  # it may just have ended, or the process was the command, which the launcher has replaced
        if "code" in self.facts:
            return "ended"
        if self.process.elsewhere:
            return "unknown"
        return "killed" if self.process == gone else "running" if "running" in self.facts else "starting"

    @property
    def lasts(self) -> bool:
        """It may go on: it has noted no end, and its launcher was not seen to be gone."""
        return self.state in _LASTING and (self.known or not self.process.elsewhere)

    @property
    def gone(self) -> bool:
        """Its launcher, which nobody had detached, was killed: the entry would have been removed at its end."""
        return "foreground" in self.facts and not self.process.lives and not self.process.elsewhere

    @property
    def since(self) -> float:
        """The time of the last known change of state."""
        return float(self.facts.get("ended") or self.facts.get("running") or self.facts["began"])

    def reload(self) -> None:
        """Read what other processes have noted."""
        try:
            with job_folder(self.folder) as fd:
                self.facts = job_file.read_facts(fd) or self.facts
        except OSError:  # it has been removed
            pass

    def note(self, **facts: Any) -> None:
        """Write facts to the file.  Raises OSError."""
        self.facts.update(facts)
        with job_folder(self.folder) as fd:
            job_file.write_facts(fd, self.facts)

    def remove(self) -> None:
        """Delete the directory."""
        remove_folder(self.folder)


class JobRegistry:
    """The registry of this user on this host.  Raises `LaunchError` if no directory for it can be trusted."""

    def __init__(self, environ: Mapping[str, str], patience: float = _LOCK_SECONDS) -> None:
        """`patience`: seconds for which `add` waits for others that add jobs."""
        self._patience = patience
        named = environ.get(VARIABLE)
        places = [os.path.abspath(named)] if named else [f"/tmp/mslaunch-{os.geteuid()}", *_below_home(environ)]
        self._folders: list[str] = []  # the best one first
        refused: LaunchError | None = None
        for folder in places:
            try:
                _require_own(folder, bool(named))
            except LaunchError as error:
                refused = refused or error
                if named or _is_ours(folder):  # we alone have made it so
                    raise
            else:
                self._folders.append(folder)
        if refused and not self._folders:
            raise refused

    def entries(self) -> list[JobEntry]:
        """All jobs, the oldest first."""
        found = [entry for registry in self._folders for entry in _found_in(registry)]
        found.sort(key=lambda entry: entry.number)
        for entry in found:
            if entry.gone:
                entry.remove()
        return [entry for entry in found if not entry.gone]

    def find(self, word: str) -> JobEntry | None:
        """The job of this number, or else the one that runs and whose launcher has this process id."""
        entries = self.entries()
        numbered = (entry for entry in entries if str(entry.number) == word)
        running = (entry for entry in entries if str(entry.process.pid) == word and entry.state == "running")
        return next(numbered, None) or next(running, None)

    def add(self, **facts: Any) -> JobEntry:
        """A new job, with the next number; old jobs are removed."""
        registry, fd = self._make()
        try:
            with _locked(registry, fd, self._patience) as last:
                self._remove_old(registry, fd)
                others = [_last_number(folder) for folder in self._folders if folder != registry]
                number = _next_number(last, max((*others, *(entry.number for entry in self.entries())), default=0))
                made, name = f"new-{number}", str(number)
                os.mkdir(made, 0o700, dir_fd=fd)
                JobEntry(os.path.join(registry, made), facts).note()
                os.rename(made, name, src_dir_fd=fd, dst_dir_fd=fd)  # so that an entry without facts is never seen
        finally:
            os.close(fd)
        return JobEntry(os.path.join(registry, name), facts)

    def _make(self) -> tuple[str, int]:
        """The first of the directories that is there or can be made, and a descriptor of it."""
        refused: LaunchError | None = None
        for folder in self._folders:
            try:
                _make_private(folder)
                _require_own(folder)
                fd = open_private(folder)  # somebody may have changed it since
            except OSError as error:
                refused = refused or _unusable(folder, error)
                continue
            except LaunchError as error:  # somebody has just made it
                refused = refused or error
                continue
            try:
                os.close(os.open(_LOCK, _OPEN_LOCK, 0o600, dir_fd=fd))  # it may lie on a read-only disk
                return folder, fd
            except OSError as error:
                os.close(fd)
                refused = refused or _unusable(folder, error)
        assert refused
        raise refused

    def _remove_old(self, registry: str, fd: int) -> None:
        for name in os.listdir(fd):
            if name.startswith("new-"):  # its process was killed
                remove_folder(os.path.join(registry, name))
        entries, expired = self.entries(), time.time() - DAYS * 86400
        over = [entry for entry in entries if entry.state in ("ended", "killed")]
        for at, entry in enumerate(sorted(over, key=lambda entry: -entry.since)):
            if at >= KEPT - 1 or entry.since < expired:
                entry.remove()
        for entry in entries:
            if entry.state == "unknown" and entry.since < expired and not _listens(entry):
                entry.remove()


# --- its directory


def _below_home(environ: Mapping[str, str]) -> list[str]:
    """The second place, as the XDG Base Directory Specification has it for state; none for a user without a home."""
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(home, ".local", "state") if os.path.isabs(home) else ""
    return [os.path.join(state, "mslaunch", os.uname().nodename)] if state else []


def _require_own(folder: str, named: bool = False) -> None:
    """Raises `LaunchError` for what is there and is not a private directory of ours."""
    try:
        found = os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # there has been no job
        return
    if not is_private(found):
        what = "the registry of jobs must be a directory that you alone can read and write"
        raise LaunchError(what, folder, f"{_who_removes(folder, found, named)}name another one in {VARIABLE}")


def _is_ours(folder: str) -> bool:
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except OSError:  # its owner has just removed it
        return False


def _unusable(folder: str, error: OSError) -> LaunchError:
    what = f"the registry of jobs cannot be made or written: {error.strerror}"
    return LaunchError(what, folder, f"name another directory, which you can write to, in {VARIABLE}")


def _who_removes(folder: str, found: os.stat_result, named: bool) -> str:
    """What can be done about it; unlink(2): in a directory with the sticky bit, only its owners may remove a file.

    The user may have `named` something that is needed, such as /etc: then its removal is not advised.
    """
    above, we = os.stat(os.path.dirname(folder)), os.geteuid()
    may = we in (0, found.st_uid, above.st_uid) or not above.st_mode & stat.S_ISVTX
    if named and (may or found.st_uid == 0):
        return ""
    if may:
        return "remove it, or "
    import pwd

    try:
        owner = f"user {pwd.getpwuid(found.st_uid).pw_name}"
    except KeyError:
        owner = f"user {found.st_uid}"
    return f"it belongs to {owner}, whom you may ask to remove it; or "


def _make_private(folder: str) -> None:
    """Make a directory, and those above it, for us alone."""
    above = os.path.dirname(folder)
    if not os.path.lexists(above):
        _make_private(above)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def _found_in(registry: str) -> list[JobEntry]:
    """The jobs in a directory; none in one that is not ours, for another user may have put it there just now."""
    found = []
    try:
        with private_folder(registry) as fd:
            for name in os.listdir(fd):
                facts = _facts_in(fd, name) if name.isascii() and name.isdigit() else None
                if facts:
                    found.append(JobEntry(os.path.join(registry, name), facts))
    except OSError:
        return []
    return found


def _facts_in(registry: int, name: str) -> dict[str, Any] | None:
    try:
        with private_folder(name, registry) as fd:
            return job_file.read_facts(fd)
    except OSError:  # it has been removed
        return None


def _listens(entry: JobEntry) -> bool:
    """Whether the launcher of a job answers questions: that is seen from other PID namespaces, too."""
    from mslaunch.jobs.control_socket import listens

    return listens(entry.folder)


def _last_number(registry: str) -> int:
    """The last number that was given there, from its lock file; 0 if there is none."""
    try:
        with private_folder(registry) as fd:
            said = read_own(_LOCK, fd, _DIGITS)
    except OSError:
        return 0
    return int(said) if said.isdigit() else 0


@contextmanager
def _locked(registry: str, above: int, seconds: float) -> Iterator[int]:
    """Holds the lock of the registry; gives the descriptor of its file, which contains the last number given."""
    fd = os.open(_LOCK, _OPEN_LOCK, 0o600, dir_fd=above)
    deadline = time.monotonic() + seconds
    try:
        while not _lock(fd):
            if time.monotonic() > deadline:
                todo = "another mslaunch that was stopped may hold it"
                raise LaunchError("the registry of jobs is locked", os.path.join(registry, _LOCK), todo)
            time.sleep(_POLL_SECONDS)
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _next_number(fd: int, known: int) -> int:
    """One more than the last number given, and than `known`."""
    said = os.pread(fd, _DIGITS, 0)
    number = max(int(said) if said.isdigit() else 0, known) + 1
    os.pwrite(fd, b"%d" % number, 0)
    return number
