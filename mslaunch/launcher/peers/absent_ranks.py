"""The watch for ranks that other commands are to start, and that do not come: a second host was forgotten.

Ranks of a share (one msrun or torchrun on each host) wait for the others for minutes, in silence.  Where they meet on
this host, the kernel's table of connections tells who has come: our own ranks, and others.  How many connections a rank
has depends on its library, so others are counted by what each of ours has.  Where they meet on another host, all that
can be known is whether somebody answers there.  Nothing is said before all of our ranks are connected, since they may
still be loading; nor once all have come, whoever leaves then.
"""

from __future__ import annotations

import os
from errno import ECONNREFUSED, EINPROGRESS

from mslaunch.faststd import TYPE_CHECKING, NamedTuple, socket
from mslaunch.host.listeners import connections
from mslaunch.host.own_addresses import addresses
from mslaunch.host.processes import family, link, numbers, stat_fields
from mslaunch.launcher.observers import (
    AllStarted,
    AttemptEnded,
    JobFailed,
    LaunchEnded,
    RankEnded,
    RankStarted,
    Waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mslaunch.datamodel.request import Request, Share
    from mslaunch.host.listeners import ConnectionEnd
    from mslaunch.launcher.observers import Observers
    from mslaunch.runtime.loop import Loop, Timer

TOLD = (10.0, 60.0, 300.0)  #: seconds after the start of our ranks at which absent ones are reported
QUIET = 5.0  #: seconds in which nobody has come, for hosts are started one after the other
_LOOK = 1.0  # seconds between two looks
_PATIENCE = 2.0  # for an answer
_AF_INET, _AF_INET6, _SOCK_STREAM, _SOL_SOCKET, _SO_ERROR = 2, 10, 1, 1, 4


def watch(request: Request, loop: Loop, observers: Observers, tell: Callable[[str], None]) -> None:
    """Watch for the absent ranks of a share, if it has some and they meet somewhere; `tell` the user."""
    share, local = request.cluster.share, request.apps[0].np
    if share is None or share.role or request.cluster.simulated or not local:
        return
    torch = not share.port
    port = share.meeting if torch else share.port
    here = share.master if port == share.port else share.first == 0
    if port and (here or not torch) and (local < share.size or not here):
        observers.add(AbsentRanks(loop, share, local, tell, observers.emit).observe)


class Present(NamedTuple):
    """Who is connected to the place where ranks meet."""

    ours: int  # ranks of this command
    others: int  # ranks of other commands, by the number of their connections
    hosts: tuple[str, ...]  # their addresses

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.ours + self.others


class AbsentRanks:
    """Says which ranks of one launch have not come, and what to do; `observe` is an observer of it."""

    def __init__(
        self,
        loop: Loop,
        share: Share,
        local: int,
        tell: Callable[[str], None],
        emit: Callable[..., None],
    ) -> None:
        self._loop = loop
        self._share = share
        self._local = local
        self._tell = tell
        self._emit = emit
        self._port = share.port or share.meeting
        self._here = share.master if share.port else True  # ranks meet on this host
        self._pids: list[int] = []
        self._began = 0.0
        self._due = list(TOLD)
        self._told = False
        self._most, self._grown = 0, 0.0  # ranks that were here, and when the last has come
        self._seen: tuple[frozenset[ConnectionEnd], Present] | None = None
        self._timer: Timer | None = None
        self._call: socket | None = None  # that nobody has answered yet
        self._limit: Timer | None = None  # of the call

    def observe(self, record: Any) -> None:
        """Something has happened in the launch."""
        if isinstance(record, RankStarted) and record.name.startswith("rank "):
            self._pids.append(record.pid)
        elif isinstance(record, AllStarted):
            self._began = self._grown = self._loop.now()
            self._timer = self._loop.after(_LOOK, self._look)
        elif isinstance(record, (RankEnded, JobFailed, AttemptEnded, LaunchEnded)):
            self._stop()

    def _stop(self) -> None:
        for timer in filter(None, (self._timer,)):
            timer.cancel()
        self._timer = None
        self._hang_up()
        self._due.clear()
        if self._told:
            self._told = False
            self._emit(Waiting, "")

    # --- looking

    def _look(self) -> None:
        began = self._loop.now()
        if self._here:
            self._count()
        elif self._due and not self._call and began - self._began >= self._due[0]:
            self._try()
        if self._due:
            pause = max(_LOOK, 20 * (self._loop.now() - began))
            self._timer = self._loop.after(pause, self._look)

    def _count(self) -> None:
        now, found = self._loop.now(), frozenset(connections(self._port))
        if not self._seen or self._seen[0] != found:
            self._seen = found, present(found, self._port, self._pids)
        who = self._seen[1]
        if who.ranks > self._most:
            self._most, self._grown = who.ranks, now
        if who.ours and who.ranks >= self._share.size:
            if self._told:
                self._tell(f"all {self._share.size} are here")
            self._stop()
        elif who.ours >= self._local and now - self._began >= self._due[0] and now - self._grown >= QUIET:
            from mslaunch.launcher.messages.absent_text import absent_text

            self._say(absent_text(self._share, self._local, who.others, who.hosts, addresses()[0]))

    def _say(self, text: str) -> None:
        self._due.pop(0)
        self._told = True
        self._tell(text)
        self._emit(Waiting, text)

    # --- another host

    def _try(self) -> None:
        """Call the place where ranks meet, unless one of ours is connected: then somebody answers."""
        if any(end.other == (self._share.address, self._port) for end in connections(self._port)):
            self._due.pop(0)
            return
        address = self._share.address.partition("%")[0]
        try:
            call = self._call = socket(_AF_INET6 if ":" in address else _AF_INET, _SOCK_STREAM)
        except OSError:  # no descriptor is free: perhaps at the next look
            return
        call.setblocking(False)
        refused = call.connect_ex((address, self._port))
        if refused not in (0, EINPROGRESS):  # the kernel does not keep this error for SO_ERROR
            self._answered(os.strerror(refused))
            return
        self._limit = self._loop.after(_PATIENCE, lambda: self._answered("it does not answer"))
        self._loop.writer(call.fileno(), lambda: self._answered(_reason(call.getsockopt(_SOL_SOCKET, _SO_ERROR))))

    def _answered(self, error: str) -> None:
        self._hang_up()
        if error and self._due:
            from mslaunch.launcher.messages.absent_text import unanswered_text

            self._say(unanswered_text(self._share, error))
        elif self._due:  # somebody is there: no more calls until the next report would be due
            self._due.pop(0)

    def _hang_up(self) -> None:
        if self._limit:
            self._limit.cancel()
            self._limit = None
        if self._call:
            self._loop.writer(self._call.fileno(), None)
            self._call.close()
            self._call = None


def _reason(error: int) -> str:
    """Why a call was not answered; "" if it was."""
    return "the connection is refused" if error == ECONNREFUSED else os.strerror(error) if error else ""


def present(found: frozenset[ConnectionEnd], port: int, ranks: Sequence[int]) -> Present:
    """Who has connected to our `port`; `ranks` are the process ids of ours, `found` what `connections` returned."""
    callers = {end.other for end in found if end.own[1] == port}
    sockets = {end.socket: end.own for end in found if end.other[1] == port}
    ours = {sockets[name]: rank for name, rank in _holders(set(sockets), ranks).items() if sockets[name] in callers}
    connected = len(set(ours.values()))
    others = callers.difference(ours)
    each = max(1, len(ours) // connected) if connected else 1
    return Present(connected, -(-len(others) // each), tuple(sorted({address for address, _ in others})))


def _holders(sockets: set[str], ranks: Sequence[int]) -> dict[str, int]:
    """The rank, by its process id, that has each of these sockets, itself or in a process that it has started.

    Each rank is the leader of a session; what has left that is taken for a rank of its own if it has a socket.
    """
    found: dict[str, int] = {}
    known = set(ranks)
    for pid in family(ranks) if sockets else ():
        for fd in numbers(f"/proc/{pid}/fd"):
            name = link(pid, f"fd/{fd}")
            if name in sockets and name not in found:
                session = (stat_fields(pid)[3:4] or [b"0"])[0]
                found[name] = int(session) if int(session) in known else pid
    return found
