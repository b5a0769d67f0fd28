"""The register of detached jobs: a directory of the user's alone, with one directory for each job.

There stand what was typed, the process that watches over the job, what it has said, and at last how it ended.  It knows
neither links nor options, and starts and ends nothing.  The surprising thing: a process is known by its id *and* the
time of its start, so that another one with the same id is never taken for it; and the register lies below /tmp, not in
XDG_RUNTIME_DIR, for that directory vanishes when its user logs out, and a detached job is meant to survive that.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import time

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, signal
from mslaunch.host.processes import read, stat_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VARIABLE = "MSLAUNCH_JOBS"  #: names another directory for the register
KEPT = 100  #: jobs that have ended and are still told of, at most
DAYS = 7  #: and for how long
LOG = "launcher.log"
_FACTS = {"began", "command", "cwd", "grace", "logs", "process", "ranks"}  # that every job has
_LOCK_SECONDS = 5.0
_LOOK_AGAIN = 0.01


class LauncherProcess(NamedTuple):
    """A process that is not ours, and which no other one can be mistaken for."""

    pid: int
    start: str  # of it: clock ticks since the host was booted
    boot: str  # the kernel's name for this boot

    @property
    def lives(self) -> bool:
        """It has not ended."""
        return self == process(self.pid)

    def send(self, signum: int) -> bool:
        """A signal to it and to no other; False if it has ended."""
        with _Handle(self.pid) as handle:
            if not self.lives:
                return False
            try:
                handle.send(signum)
            except ProcessLookupError:
                return False
        return True

    def wait(self, seconds: float) -> bool:
        """Until it has ended, or so long; True if it has."""
        deadline = time.monotonic() + seconds
        with _Handle(self.pid) as handle:
            while self.lives:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                handle.wait(left)
        return True


class _Handle:
    """A descriptor of a process (pidfd_open(2), Linux 5.3); without that, its number."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd = -1
        try:
            self._fd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # an old kernel or Python, or it has ended
            pass

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def send(self, signum: int) -> None:
        if self._fd >= 0 and hasattr(signal, "pidfd_send_signal"):
            signal.pidfd_send_signal(self._fd, signum)
        else:
            os.kill(self._pid, signum)

    def wait(self, seconds: float) -> None:
        """Until it has ended, or so long, or a moment where the kernel has no event for that."""
        if self._fd < 0:
            time.sleep(min(seconds, _LOOK_AGAIN))
            return
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.poll(seconds * 1000)


def process(pid: int) -> LauncherProcess | None:
    """The process that has this id now; None if there is none, or a zombie."""
    fields = stat_fields(pid)
    if not fields or fields[0] in b"ZX":
        return None
    return LauncherProcess(pid, fields[19].decode(), read("/proc/sys/kernel/random/boot_id").decode().strip())


class JobEntry:
    """One job of the register; `facts` is what is written down of it."""

    def __init__(self, folder: str, facts: dict[str, Any]) -> None:
        self.folder = folder
        self.facts = facts

    @property
    def number(self) -> int:
        """What the job is called."""
        return int(os.path.basename(self.folder))

    @property
    def log(self) -> str:
        """The file with all that its launcher says."""
        return os.path.join(self.folder, LOG)

    @property
    def process(self) -> LauncherProcess:
        """Its launcher."""
        return LauncherProcess(*self.facts["process"])

    @property
    def known(self) -> bool:
        """It has not been forgotten meanwhile, as a job is of which nothing was started."""
        return os.path.exists(os.path.join(self.folder, "job"))

    @property
    def state(self) -> str:
        """`starting`, `running`, `ended`, or `killed`: the launcher is gone and has not said how the job ended."""
        gone: LauncherProcess | None = None
        while "code" not in self.facts and self.process != gone and not self.process.lives:
            gone = self.process
            self.reload()  # it may have ended just now, or be the command still, which has made way for the launcher
        if "code" in self.facts:
            return "ended"
        return "killed" if self.process == gone else "running" if "running" in self.facts else "starting"

    @property
    def since(self) -> float:
        """When it came into this state, as far as anybody wrote that down."""
        return float(self.facts.get("ended") or self.facts.get("running") or self.facts["began"])

    def reload(self) -> None:
        """Read again what others have written down."""
        self.facts = _read(self.folder) or self.facts

    def note(self, **facts: Any) -> None:
        """Write more down."""
        import json

        self.facts.update(facts)
        new = os.path.join(self.folder, "job.new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(self.facts, file, indent=1)
        os.rename(new, os.path.join(self.folder, "job"))

    def remove(self) -> None:
        """Forget it."""
        try:
            for name in os.listdir(self.folder):
                os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.folder)
        except OSError:  # somebody else does it, or has put something there
            pass


class JobRegistry:
    """The register of this user on this host.  Raises `LaunchError` if its directory cannot be trusted."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = os.path.abspath(environ.get(VARIABLE) or f"/tmp/mslaunch-{os.geteuid()}")
        try:
            self._require_own()
        except (FileNotFoundError, NotADirectoryError):  # there has been no job
            pass

    def _require_own(self) -> None:
        found = os.lstat(self._folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            what = "it holds what is known of detached jobs, and is not a directory that you alone can read and write"
            raise LaunchError(what, self._folder, f"remove it, or name another one in {VARIABLE}")

    def entries(self) -> list[JobEntry]:
        """All jobs, the first one first."""
        try:
            names = [name for name in os.listdir(self._folder) if name.isascii() and name.isdigit()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [(folder, _read(folder)) for folder in (os.path.join(self._folder, name) for name in names)]
        return sorted((JobEntry(folder, facts) for folder, facts in found if facts), key=lambda entry: entry.number)

    def find(self, word: str) -> JobEntry | None:
        """The job that a person calls by this number."""
        return next((entry for entry in self.entries() if str(entry.number) == word), None)

    def add(self, **facts: Any) -> JobEntry:
        """A new job, with the next number; old ones are forgotten."""
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
        except OSError as error:
            what = f"it is where jobs are noted down, and cannot be made: {error.strerror}"
            raise LaunchError(what, self._folder, f"name a directory that can be made in {VARIABLE}") from None
        self._require_own()
        with _locked(os.path.join(self._folder, "lock")) as last:
            self._forget()
            number = last.next(max((entry.number for entry in self.entries()), default=0))
            made = os.path.join(self._folder, f"new-{number}")
            os.mkdir(made, 0o700)
            JobEntry(made, facts).note()
            folder = os.path.join(self._folder, str(number))
            os.rename(made, folder)  # so that nobody ever sees one without facts
        return JobEntry(folder, facts)

    def _forget(self) -> None:
        for name in os.listdir(self._folder):
            if name.startswith("new-"):  # whoever made it was killed
                JobEntry(os.path.join(self._folder, name), {}).remove()
        over = sorted((entry for entry in self.entries() if entry.state in ("ended", "killed")), key=_age)
        for entry in over[KEPT - 1 :]:
            entry.remove()
        for entry in over[: KEPT - 1]:
            if _age(entry) > DAYS * 86400:
                entry.remove()


def _age(entry: JobEntry) -> float:
    return time.time() - entry.since


def _read(folder: str) -> dict[str, Any] | None:
    import json

    try:
        with open(os.path.join(folder, "job"), encoding="utf-8") as file:
            facts = json.load(file)
        return facts if set(facts) >= _FACTS else None
    except (OSError, ValueError, TypeError):
        return None


class _locked:  # noqa: N801
    """Holds the register's lock, whose file has the last number that was given."""

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
                    raise LaunchError("the register of jobs is locked", self._path, todo) from None
                time.sleep(_LOOK_AGAIN)

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def next(self, known: int) -> int:
        """One more than the last number, and than any that is `known`."""
        said = os.pread(self._fd, 32, 0)
        number = max(int(said) if said.isdigit() else 0, known) + 1
        os.pwrite(self._fd, b"%d" % number, 0)
        return number
