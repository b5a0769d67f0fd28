"""Whether a rank listens at a port, for which ranks of other programs wait (--ready).

An open port does not prove it: another process, of any user, may have it.  The process that listens must be that of the
rank, one that it has started, or one that has left its family and still has its variables.
"""

from __future__ import annotations

import os
from weakref import WeakKeyDictionary

from mslaunch.agent.services.readiness import POLL, PortPoll
from mslaunch.datamodel.node_plan import NODE_MARK
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.listeners import by_whom, holder, sockets
from mslaunch.host.processes import family, numbers, read
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mslaunch.agent.launcher_link import AgentContext, LauncherLink

_RANK = b"OMPI_COMM_WORLD_RANK="  # a variable that every rank has
_polls: WeakKeyDictionary[LauncherLink, PortPoll] = WeakKeyDictionary()


def handle(context: AgentContext, frame: frames.Frame) -> None:
    """AWAIT: the process of a rank and a port; SERVES of the rank follows once it listens there.

    It takes the place of the one before, whose process has ended or has listened.
    """
    pid, port = map(int, frame.payload.split())
    before = _polls.get(context.link)
    if before:
        before.cancel()
    _polls[context.link] = PortPoll(context.loop, POLL, _RankPort(context.link, frame.rank, pid, port).look)


class _RankPort:
    """One port of one rank."""

    def __init__(self, link: LauncherLink, rank: int, pid: int, port: int) -> None:
        self._link = link
        self._rank = rank
        self._pid = pid
        self._port = port
        self._told = False

    def look(self) -> bool:
        """Whether the rank listens, or may do so: a process that it has started does not let us look."""
        found = sockets(self._port)
        if not found:
            return False
        mine = list(family([self._pid]))
        who = holder(found, mine)
        if who is None:
            who = holder(found, _marked_as(self._pid, mine))
        at = f"port {self._port}"
        if who == 0 and not set(found.values()).isdisjoint(_users(mine)):
            who_listens = f"whether rank {self._rank} listens there cannot be told, for it has started another user's"
            self._tell(f"{at} is open; {who_listens} process; it is taken for the rank's")
        elif not who:
            self._tell(f"{at} is held{by_whom(self._port)}, but not by rank {self._rank}, which is waited for")
            return False
        self._link.send(frames.SERVES, self._rank)
        return True

    def _tell(self, text: str) -> None:
        if not self._told:
            self._told = True
            self._link.notice(frames.NO_RANK, text)


def _marked_as(pid: int, known: Iterable[int]) -> Iterable[int]:
    """Other processes of our user that have the variables of this one that name the job, the node and the rank."""
    marks = _marks(pid)
    others = set(numbers()).difference(known, [os.getpid()]) if len(marks) > 1 else ()
    return (other for other in others if _users([other]) == {os.geteuid()} and marks <= _marks(other))


def _marks(pid: int) -> set[bytes]:
    words = read(f"/proc/{pid}/environ").split(b"\0")
    return {word for word in words if word.startswith((NODE_MARK.encode(), _RANK))}


def _users(pids: Iterable[int]) -> set[int]:
    """The effective users of processes, which everybody may know (proc(5), status)."""
    lines = (line for pid in pids for line in read(f"/proc/{pid}/status").split(b"\n") if line[:4] == b"Uid:")
    return {int(line.split()[2]) for line in lines}
