"""The meeting of commands that start one job together: at an endpoint that each of them was told.

The command on whose host the endpoint is listens there, and becomes node 0.  The others call it, again and again until
the time for joining is over.  Both sides prove that they know the secret (`transport.proved_callers`).  When as many
have come as --nnodes says, or at least the fewest and nobody more for a while, each gets its number and starts its part
of the ranks.  What torchrun waits for, and how long, is in torch/distributed/elastic/rendezvous/dynamic_rendezvous.py.
"""

from __future__ import annotations

import os
from errno import EADDRINUSE

from mslaunch.datamodel.request import Share
from mslaunch.errors import LaunchError, counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, socket
from mslaunch.launcher.peers.job_peers import JobPeers
from mslaunch.launcher.peers.participants import nodes_text, numbered, objection, one_line, own_entry, said_by
from mslaunch.launcher.peers.peer_link import KIND, PeerLink
from mslaunch.launcher.peers.rendezvous_secret import read_or_make

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.datamodel.request import HostMeeting, Request
    from mslaunch.launcher.interrupts import Interrupts
    from mslaunch.launcher.stdio.terminal import Console
    from mslaunch.runtime.loop import Loop

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_SOL_SOCKET, _SO_REUSEADDR = 1, 2
_IPPROTO_IPV6, _IPV6_V6ONLY = 41, 26
_BACKLOG = 1024
_TRY = 2.0  # seconds for one connection, and for the proof
_PAUSE = 0.5  # between two tries
_QUIET = 3.0  # seconds before a user is told who is waited for
_TOLD = 5  # callers who cannot take part that are named
_REASON = 500  # characters of another host's reason that are shown


class MeetingContext(NamedTuple):
    """What a meeting needs of its launch."""

    loop: Loop
    interrupts: Interrupts
    console: Console


class _Meeting(NamedTuple):
    """What both sides of a meeting know."""

    context: MeetingContext
    asked: HostMeeting
    host: str  # the name of this one
    token: bytes
    peers: JobPeers


class Part(NamedTuple):
    """What this command starts, as the meeting has it."""

    node: int
    sizes: tuple[int, ...]
    address: str  # of node 0, as this host reaches it
    port: int


def meet(context: MeetingContext, request: Request) -> tuple[Request, JobPeers]:
    """The request with this command's share of the job.  Raises `LaunchError`."""
    asked = request.cluster.host_meeting
    assert asked is not None
    token, host = read_or_make(asked.secret_file), os.uname().nodename
    meeting = _Meeting(context, asked, host, token, JobPeers(host))
    sock = _listening(asked) if asked.hosts_meeting else None
    part = _MeetingParticipant(meeting).wait() if sock is None else _MeetingHost(meeting).wait(sock)
    first = sum(part.sizes[: part.node])
    share = Share(
        sum(part.sizes), first, part.address, 0, master=False, meeting=part.port, node=part.node, nodes=len(part.sizes)
    )
    cluster = request.cluster._replace(meeting=part.port, share=share)
    return request._replace(cluster=cluster, stdin=request.stdin if not part.node else "none"), meeting.peers


def _listening(asked: HostMeeting) -> socket | None:
    """At the endpoint; None if another command on this host listens there already.

    A name may have another address elsewhere, such as 127.0.1.1 on the host itself, so a name means all addresses.
    """
    every = asked.host not in (asked.address, "localhost")
    ipv6 = ":" in asked.address
    sock = socket(_AF_INET6 if ipv6 else _AF_INET, _SOCK_STREAM)
    try:
        sock.setsockopt(_SOL_SOCKET, _SO_REUSEADDR, 1)
        if every and ipv6:
            sock.setsockopt(_IPPROTO_IPV6, _IPV6_V6ONLY, 0)
        sock.bind((("::" if ipv6 else "0.0.0.0") if every else asked.address, asked.port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == EADDRINUSE:
            return None
        raise LaunchError(f"it cannot be listened at: {error.strerror}", asked.where, "choose another port") from None
    return sock


class _MeetingHost:
    """The command at which the others meet."""

    def __init__(self, meeting: _Meeting) -> None:
        self._context, self._asked, host, self._token, self._peers = meeting
        self._participants = [own_entry(self._asked, host)]
        self._links: list[PeerLink] = []  # of the participants after the first
        self._unsaid: set[PeerLink] = set()  # have not said yet who they are
        self._last_call = False  # nobody more is waited for
        self._told = 0  # how often the user has heard of somebody who cannot take part
        self._gone = False  # all have been told to go

    def wait(self, sock: socket) -> Part:
        """Until enough have come."""
        from mslaunch.transport.proved_callers import ProvedCallers

        loop, asked = self._context.loop, self._asked
        callers = ProvedCallers(loop, self._token, sock, self._admit, self._refused)
        told = loop.after(_QUIET, lambda: self._context.console.info(f"waiting at {asked.where} for {self._missing()}"))
        self._time_last_call()
        try:
            self._context.interrupts.wait(self._complete, asked.join_seconds)
            if len(self._participants) < asked.least:
                raise LaunchError(f"{self._missing()} did not come within {asked.join_seconds:g} s", asked.where, _SAME)
            return self._go()
        except LaunchError as error:
            self._dismiss(error)
            raise
        finally:
            told.cancel()
            callers.close()
            for link in self._unsaid:
                link.close()

    def _complete(self) -> bool:
        return self._last_call or len(self._participants) >= self._asked.most

    def _missing(self) -> str:
        here, asked = len(self._participants), self._asked
        names = ", ".join(one.host for one in self._participants)
        more = counted(max(1, asked.least - here), "more host")
        return f"{more} of --nnodes {nodes_text(self._participants[0])} (here: {names})"

    def _admit(self, name: str, kind: str, sock: socket) -> None:
        if kind == KIND:
            self._unsaid.add(PeerLink(self._context.loop, sock, self._heard, self._left))
        else:
            sock.close()

    def _refused(self, address: str, ours: bool) -> None:
        if ours:
            text = f"a command on {address} does not know the secret in {self._asked.secret_file}: copy it there"
        else:
            text = f"what has called from {address} is no mslaunch: a real torchrun cannot take part"
        self._tell(text)

    def _tell(self, text: str) -> None:
        self._told += 1
        if self._told <= _TOLD:
            self._context.console.info(text)

    def _heard(self, link: PeerLink, kind: str, value: Any) -> None:
        if self._gone:
            self._peers.heard(link, kind, value)
            return
        if kind != "join" or link not in self._unsaid:
            raise ValueError(kind)
        new = said_by(value)
        why = objection(self._participants[0], new, len(self._participants))
        if why:
            link.send("refused", why)
            link.close()
            self._unsaid.discard(link)
            self._tell(f"{new.host} cannot take part: {one_line(why, _REASON)}")
            return
        link.host = new.host
        self._unsaid.discard(link)
        self._links.append(link)
        self._participants.append(new)
        self._time_last_call()

    def _time_last_call(self) -> None:
        """When the fewest are here, more are waited for only so long."""
        if len(self._participants) == self._asked.least:
            self._context.loop.after(self._asked.last_call, self._call_last)

    def _call_last(self) -> None:
        self._last_call = len(self._participants) >= self._asked.least

    def _left(self, link: PeerLink) -> None:
        if self._gone:
            self._peers.ended(link)
        elif link in self._links:
            at = self._links.index(link)
            del self._links[at], self._participants[at + 1]
        self._unsaid.discard(link)

    def _go(self) -> Part:
        from mslaunch.host.free_ports import Listener

        listener = Listener()
        port = listener.port
        listener.close()  # an agent of ours holds it until ranks start
        places, self._gone = numbered(self._participants), True
        for link in self._links:
            self._peers.add(link)
        for link, node in zip(list(self._links), places.nodes[1:]):
            link.send("go", [node, places.sizes, port])
        return Part(0, places.sizes, self._asked.address, port)

    def _dismiss(self, error: LaunchError) -> None:
        """Tell those who have come that nothing will be started."""
        for link in self._links:
            link.send("refused", f"the command on {self._participants[0].host} has ended: {error.what}")
            link.close()


class _MeetingParticipant:
    """A command that calls the host of the meeting."""

    def __init__(self, meeting: _Meeting) -> None:
        self._context, self._asked, self._host, self._token, self._peers = meeting
        self._part: Part | None = None
        self._error = ""  # why it cannot take part
        self._address = ""

    def wait(self) -> Part:
        """Until the host says that all have come."""
        asked, interrupts = self._asked, self._context.interrupts
        began = self._context.loop.now()
        link = self._connect(began)
        link.host = asked.host
        link.send("join", list(own_entry(asked, self._host)))
        left = max(1.0, asked.join_seconds + asked.last_call - (self._context.loop.now() - began))
        try:
            interrupts.wait(lambda: bool(self._part or self._error), left)
        finally:
            if not self._part:
                link.close()
        if self._part is None:
            what = self._error or f"the others did not come within {asked.join_seconds:g} s"
            raise LaunchError(what, asked.where, "" if self._error else _SAME)
        self._peers.add(link)
        return self._part

    def _connect(self, began: float) -> PeerLink:
        asked, why, told = self._asked, "", False
        while True:
            try:
                return PeerLink(self._context.loop, self._call(), self._heard, self._ended)
            except OSError as error:
                why = error.strerror or str(error)
            gone = self._context.loop.now() - began
            if gone > asked.join_seconds:
                todo = f"{_SAME}; the command on that host has to run, and no firewall be in between"
                raise LaunchError(f"nobody could be reached there within {gone:.0f} s: {why}", asked.where, todo)
            if gone > _QUIET and not told:
                told = True
                self._context.console.info(f"waiting for the command at {asked.where} ({why})")
            self._context.interrupts.wait(lambda: False, _PAUSE)

    def _call(self) -> socket:
        """A connection with somebody who knows the secret.

        Raises OSError if nobody listens there, `LaunchError` if somebody else does.
        """
        from mslaunch.agent.call_launcher import WrongProofError, prove

        asked = self._asked
        sock = socket(_AF_INET6 if ":" in asked.address else _AF_INET, _SOCK_STREAM)
        try:
            sock.settimeout(_TRY)
            sock.connect((asked.address, asked.port))
            self._address = asked.address
            prove(sock, self._token, "peer", KIND)
        except WrongProofError:
            sock.close()
            todo = f"copy {asked.secret_file} from that host to this one; a real torchrun cannot take part"
            raise LaunchError("what listens there does not know our secret", asked.where, todo) from None
        except OSError:
            sock.close()
            raise
        return sock

    def _heard(self, link: PeerLink, kind: str, value: Any) -> None:
        if self._part:
            self._peers.heard(link, kind, value)
        elif kind == "refused":
            self._error = one_line(value, _REASON) or "it did not say why"
        elif kind == "go":
            node, sizes, port = value
            found = Part(int(node), tuple(map(int, sizes)), self._address, int(port))
            if not (0 < found.node < len(sizes) and 0 < found.port < 65536 and min(found.sizes) > 0):
                raise ValueError(value)
            if found.sizes[found.node] != self._asked.ranks:
                raise ValueError(value)
            self._part = found
        else:
            raise ValueError(kind)

    def _ended(self, link: PeerLink) -> None:
        if self._part:
            self._peers.ended(link)
        else:
            self._error = self._error or "the command there has ended before all had come"


_SAME = "type the same line on each host"
