"""What a lost agent has left behind on this host: the agent itself, if it is stopped, its ranks, its session directory.

A new agent on the same host does this; for an agent of the launching host, the launcher does.  A guard that is stopped
is continued once its agent is dead: it then ends and removes all that it knows of.
"""

from __future__ import annotations

import os
import time

from mslaunch.agent.guard import kill_marked
from mslaunch.agent.ranks.session_dir import remove
from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.processes import is_exiting, read, stat_fields
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from mslaunch.agent.launcher_link import AgentContext

_SECONDS = 1.0  # for an agent to end that was killed
_LOOK_AGAIN = 0.01


def handle(context: AgentContext, frame: frames.Frame) -> None:
    """CLEANUP."""
    context.link.send(frames.CLEANED, frames.NO_RANK, clean_up(frame.payload))


def clean_up(request: bytes) -> bytes:
    """Do what CLEANUP asks for: "MARK PID SECONDS PATH"; returns how many processes were killed."""
    mark, pid, seconds, path = os.fsdecode(request).split(" ", 3)
    killed = int(_kill_agent(int(pid), float(seconds)))
    killed += kill_marked(mark)
    if os.path.basename(path).startswith(f"mslaunch-{pid}-"):
        remove(path)
    return b"%d" % killed


def _kill_agent(pid: int, seconds: float) -> bool:
    """Kill the agent, if `pid` is still the process that has run for `seconds`, or longer, and it runs what we run."""
    since = _started(pid)
    if not since or _age(since) < seconds or not (_like_us(pid) or is_exiting(pid)):
        return False
    try:
        guard = int(stat_fields(pid)[1])
        os.kill(pid, signal.SIGKILL)
        if _like_us(guard):
            os.kill(guard, signal.SIGCONT)
    except (OSError, IndexError):  # it has ended, or is not ours
        return False
    deadline = time.monotonic() + _SECONDS
    while _started(pid) == since and not is_exiting(pid) and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN)
    return True


def _started(pid: int) -> int:
    """When it was started, in ticks since the host was; 0 if there is no such process."""
    return int((stat_fields(pid)[19:20] or [b"0"])[0])


def _age(since: int) -> float:
    return float((read("/proc/uptime").split() or [b"0"])[0]) - since / os.sysconf("SC_CLK_TCK")


def _like_us(pid: int) -> bool:
    """Whether a process, not this one, has our command line, as guard and agent of the same launcher have."""
    return pid != os.getpid() and read(f"/proc/{pid}/cmdline") == read("/proc/self/cmdline")
