"""One job of the registry: a directory with the file `job`, in JSON, and the launcher's log."""

from __future__ import annotations

import os

from mslaunch.detached.launcher_process import LauncherProcess
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

LOG = "launcher.log"
_FACTS = {"began", "command", "cwd", "grace", "logs", "process", "ranks"}  # that every job has


class JobEntry:
    """A job; `facts` is what its file says: the command line, the launcher's process, times, and how it ended."""

    def __init__(self, folder: str, facts: dict[str, Any]) -> None:
        self.folder = folder
        self.facts = facts

    @property
    def number(self) -> int:
        """What the job is called."""
        return int(os.path.basename(self.folder))

    @property
    def log(self) -> str:
        """The file of the launcher's messages."""
        return os.path.join(self.folder, LOG)

    @property
    def process(self) -> LauncherProcess:
        """Its launcher."""
        return LauncherProcess(*self.facts["process"])

    @property
    def known(self) -> bool:
        """Whether its file still exists; the entry of a refused launch is removed."""
        return os.path.exists(os.path.join(self.folder, "job"))

    @property
    def state(self) -> str:
        """`starting`, `running`, `ended`, or `killed`: the launcher is gone without a note of how the job ended."""
        gone: LauncherProcess | None = None
        while "code" not in self.facts and self.process != gone and not self.process.lives:
            gone = self.process
            self.reload()  # it may just have ended, or the process was the command, which the launcher has replaced
        if "code" in self.facts:
            return "ended"
        return "killed" if self.process == gone else "running" if "running" in self.facts else "starting"

    @property
    def since(self) -> float:
        """The time of the last known change of state."""
        return float(self.facts.get("ended") or self.facts.get("running") or self.facts["began"])

    def reload(self) -> None:
        """Read what other processes have noted."""
        self.facts = read_facts(self.folder) or self.facts

    def note(self, **facts: Any) -> None:
        """Write facts to the file."""
        import json

        self.facts.update(facts)
        new = os.path.join(self.folder, "job.new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(self.facts, file, indent=1)
        os.rename(new, os.path.join(self.folder, "job"))

    def remove(self) -> None:
        """Delete the directory."""
        try:
            for name in os.listdir(self.folder):
                os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.folder)
        except OSError:  # another process deletes it, or has put something there
            pass


def read_facts(folder: str) -> dict[str, Any] | None:
    """What the file of a job says; None if it is missing or incomplete."""
    import json

    try:
        with open(os.path.join(folder, "job"), encoding="utf-8") as file:
            facts = json.load(file)
        return facts if set(facts) >= _FACTS else None
    except (OSError, ValueError, TypeError):
        return None
