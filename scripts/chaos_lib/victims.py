"""Finds the processes of a role, wherever they are."""

from __future__ import annotations

from collections.abc import Callable

from chaos_lib.sandbox import Process, Sandbox

VICTIM = "n02"  #: the host whose processes have the faults; rank 1 is there
VICTIM_RANK = 1
SERVICE_HOST = "n04"


class Roles:
    """Who is who in a sandbox whose job was started by the process `starter` on the head."""

    def __init__(self, sandbox: Sandbox, starter: Callable[[], int], detached: bool) -> None:
        self._sandbox = sandbox
        self._starter = starter
        self._detached = detached
        self._launcher = 0

    def find(self, who: str) -> list[int]:
        """Its pids; [] while it is not there."""
        return {
            "launcher": self.launcher,
            "detached": self.launcher,
            "local-guard": lambda: self._local()[:1],
            "local-agent": lambda: self._local()[1:],
            "local-both": lambda: self._local() if len(self._local()) == 2 else [],
            "guard": lambda: self._remote()[:1],
            "agent": lambda: self._remote()[1:],
            "both": lambda: self._remote() if len(self._remote()) == 2 else [],
            "sshd": lambda: self._named("sshd", VICTIM),
            "rank": lambda: self._named("chaos-rank", VICTIM)[:1],
            "child": lambda: self._named("chaos-child", VICTIM)[:1],
            "grandchild": lambda: self._named("chaos-grand", VICTIM)[:1],
            "scheduler": self._service,
        }[who]()

    def launcher(self) -> list[int]:
        """The child of the starter; a detached one is that child's, and keeps running when it has ended."""
        there = self._sandbox.processes("head")
        if self._launcher:
            return [self._launcher] if self._launcher in there else []
        ours = [pid for pid, one in there.items() if "-m mslaunch" in one.words]
        command = [pid for pid in ours if there[pid].parent == self._starter()]
        if not self._detached:
            return command
        own = [pid for pid in ours if there[pid].parent in command]
        own += [pid for pid in ours if pid not in command and there[pid].parent not in there]  # an orphan
        self._launcher = own[0] if own else 0
        return own[:1]

    def _local(self) -> list[int]:
        """The guard and the agent below the launcher; both have its command line."""
        there = self._sandbox.processes("head")
        guards = [pid for launcher in self.launcher() for pid in _children(there, launcher)]
        agents = [child for pid in guards for child in _children(there, pid) if "chaos" not in there[child].name]
        return [there[agents[0]].parent, agents[0]] if agents else []

    def _remote(self) -> list[int]:
        there, found = self._sandbox.processes(VICTIM), agents(self._sandbox)
        return [there[found[0]].parent, found[0]] if found and found[0] in there else []

    def _service(self) -> list[int]:
        return services(self._sandbox)[:1]

    def _named(self, name: str, place: str) -> list[int]:
        return [pid for pid, one in self._sandbox.processes(place).items() if one.name.startswith(name)]


def agents(sandbox: Sandbox) -> list[int]:
    """On the host of the victim; the parent is their guard."""
    there = sandbox.processes(VICTIM)
    ours = {pid: one for pid, one in there.items() if one.words.startswith("python3 -I")}
    return [pid for pid, one in ours.items() if one.parent in ours]


def services(sandbox: Sandbox) -> list[int]:
    """The child of the agent on their host, whatever it is called."""
    there = sandbox.processes(SERVICE_HOST)
    ours = [pid for pid, one in there.items() if "python3 -I" in one.words]
    return [pid for pid, one in there.items() if one.parent in ours and pid not in ours]


def _children(there: dict[int, Process], pid: int) -> list[int]:
    return [child for child, one in there.items() if one.parent == pid]
