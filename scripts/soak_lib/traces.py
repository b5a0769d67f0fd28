"""What a place holds: processes, open descriptors, files.  It must be the same before and after."""

from __future__ import annotations

import os
from typing import NamedTuple

from chaos_lib.sandbox import Sandbox


class Traces(NamedTuple):
    """Of all places together."""

    processes: tuple[str, ...]
    descriptors: int  # of their first processes, and of those above
    files: tuple[str, ...]  # in /tmp and /dev/shm
    sockets: int  # of TCP, in any state but TIME_WAIT

    @classmethod
    def of(cls, sandbox: Sandbox, places: tuple[str, ...]) -> Traces:
        """What is there now."""
        found = [(place, one) for place in places for one in sandbox.processes(place).values()]
        pids = [sandbox.first(place) for place in places] + [one.pid for _, one in found]
        files = [f"{place}: {name}" for place in places for name in sandbox.files(place)]
        sockets = sum(state != "06" for place in places for _, _, state in sandbox.connections(place))
        processes = tuple(f"{place}: {one}" for place, one in found)
        return cls(processes, sum(map(_descriptors, pids)), tuple(files), sockets)

    def differences(self, before: Traces) -> list[str]:
        """What is there now and was not before."""
        found = [f"left: {name}" for name in (*self.processes, *self.files) if name not in before[0] + before[2]]
        for name in ("descriptors", "sockets"):
            if getattr(self, name) > getattr(before, name):
                found.append(f"{getattr(self, name) - getattr(before, name)} {name} more than before")
        return found


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
