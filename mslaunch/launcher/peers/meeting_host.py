"""The command at which the others meet: it becomes node 0, and says to each which part of the ranks is its own."""

from __future__ import annotations

from errno import EADDRINUSE, EADDRNOTAVAIL

from mslaunch.errors import LaunchError, counted
from mslaunch.faststd import TYPE_CHECKING, socket
from mslaunch.launcher.peers.meeting_records import QUIET, REASON, SAME_LINE, Part
from mslaunch.launcher.peers.participants import (
    no_place,
    nodes_text,
    numbered,
    objection,
    one_line,
    own_entry,
    said_by,
)
from mslaunch.launcher.peers.peer_link import KIND, PeerLink

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.datamodel.request import HostMeeting
    from mslaunch.launcher.peers.meeting_records import MeetingFacts
    from mslaunch.launcher.peers.participants import Participant
    from mslaunch.protocol.sealed_records import Seals
    from mslaunch.runtime.loop import Timer

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_SOL_SOCKET, _SO_REUSEADDR = 1, 2
_IPPROTO_IPV6, _IPV6_V6ONLY = 41, 26
_BACKLOG = 1024
_TOLD = 5  # callers who cannot take part, or not yet, that are named
_SPARES = 256  # commands that wait for a place


def listening(asked: HostMeeting) -> socket | None:
    """At the endpoint; None if another command on this host listens there already.  Raises `LaunchError`.

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
        if error.errno == EADDRINUSE and asked.number is None:
            return None
        todo = "name this host, or leave out is_host" if error.errno == EADDRNOTAVAIL else "choose another port"
        raise LaunchError(f"it cannot be listened at: {error.strerror}", asked.where, todo) from None
    return sock


class MeetingHost:
    """The command at which the others meet.

    Without numbers its port stays open while ranks run, if they may be started again: who comes then waits for a place.
    """

    def __init__(self, meeting: MeetingFacts, sock: socket) -> None:
        from mslaunch.transport.proved_callers import ProvedCallers

        self._meeting = meeting
        self._asked = meeting.asked
        self._peers = meeting.peers
        self._own = own_entry(meeting.asked, meeting.host)
        self._members: dict[PeerLink, Participant] = {}  # of this attempt, or to be of the next
        self._spares: dict[PeerLink, Participant] = {}  # have come while ranks run
        self._unsaid: set[PeerLink] = set()  # have not said yet who they are
        self._last_call = False  # nobody more is waited for
        self._told = 0  # how often the user has heard of somebody who cannot take part, or not yet
        self._runs = False  # all members have been told to go
        self._size = 0  # hosts of the last attempt
        self._last_call_timer: Timer | None = None
        loop = meeting.context.loop
        self._callers = ProvedCallers(
            loop, lambda name: meeting.token, sock, self._admit, lambda caller: meeting.place, self._refused
        )

    def first(self) -> Part:
        """Until enough have come for the first attempt.  Raises `LaunchError`."""
        return self._gather(1, self._asked.most)

    def again(self, attempt: int) -> Part:
        """Until the ranks of all have ended, and enough are here for another attempt.  Raises `LaunchError`.

        Who was lost may come back, or a spare take its place; that is waited for as the last is at the beginning.
        """
        peers = self._peers
        self._runs = self._last_call = False
        self._meeting.wait(peers.all_ready, self._asked.join_seconds)
        for link in peers.late():
            self._dismiss(link, "its ranks did not end in time")
            self._left(link)
        while self._spares and len(self._here()) < self._asked.most:
            link = next(iter(self._spares))
            self._join(link, self._spares.pop(link))
        return self._gather(attempt, self._size)

    def _gather(self, attempt: int, wanted: int) -> Part:
        """`wanted`: so many are enough to begin at once."""
        asked, console = self._asked, self._meeting.context.console
        told = self._meeting.context.loop.after(
            QUIET, lambda: console.info(f"waiting at {asked.where} for {self._missing()}")
        )
        self._time_last_call()
        try:
            self._meeting.wait(lambda: self._last_call or len(self._here()) >= wanted, asked.join_seconds)
            if len(self._here()) < asked.least:
                raise LaunchError(
                    f"{self._missing()} did not come within {asked.join_seconds:g} s", asked.where, SAME_LINE
                )
            return self._go(attempt)
        except LaunchError as error:
            why = f"the command on {self._own.host} has ended: {error.what}"
            for link in list(self._members):
                self._dismiss(link, why)
            self._stop_listening()
            raise
        finally:
            told.cancel()
            self._cancel_last_call()

    def _here(self) -> list[Participant]:
        return [self._own, *self._members.values()]

    def _missing(self) -> str:
        here = self._here()
        names = ", ".join(one.host for one in here)
        more = counted(max(1, self._asked.least - len(here)), "more host")
        return f"{more} of --nnodes {nodes_text(self._own)} (here: {names})"

    def _time_last_call(self) -> None:
        """When the fewest are here, more are waited for only so long."""
        if len(self._here()) < self._asked.least:
            self._cancel_last_call()
        elif not self._last_call_timer:
            self._last_call_timer = self._meeting.context.loop.after(self._asked.last_call, self._call_last)

    def _cancel_last_call(self) -> None:
        if self._last_call_timer:
            self._last_call_timer.cancel()
            self._last_call_timer = None

    def _call_last(self) -> None:
        self._last_call = True

    def _go(self, attempt: int) -> Part:
        port = self._asked.port
        if self._asked.number is not None or not self._asked.restarts:
            self._stop_listening()
        if self._asked.number is None:
            from mslaunch.host.free_ports import Listener

            listener = Listener()
            port = listener.port
            listener.close()  # an agent of ours holds it until ranks start
        places, links = numbered(self._here()), list(self._members)
        self._runs, self._size = True, len(places.sizes)
        self._peers.begin(attempt, links)
        for link, node in zip(links, places.nodes[1:]):
            link.send("go", [node, places.sizes, port, attempt])
        return Part(0, places.sizes, self._asked.address, port, attempt)

    # --- callers

    def _admit(self, name: str, kind: str, sock: socket, seals: Seals) -> None:
        if kind == KIND:
            self._unsaid.add(PeerLink(self._meeting.context.loop, sock, seals, self._heard, self._left))
        else:
            sock.close()

    def _refused(self, address: str, ours: bool) -> None:
        if ours:
            text = (
                f"a command on {address} does not know the secret in {self._asked.secret_file}, or its line names "
                f"another endpoint or --rdzv-id: copy the secret there, and {SAME_LINE}"
            )
        else:
            text = f"what has called from {address} is no mslaunch: a real torchrun cannot take part"
        self._tell(text)

    def _tell(self, text: str) -> None:
        self._told += 1
        if self._told <= _TOLD:
            self._meeting.context.console.info(text)

    def _heard(self, link: PeerLink, kind: str, value: Any) -> None:
        if link in self._members:
            self._peers.heard(link, kind, value)
            return
        if kind != "join" or link not in self._unsaid:
            raise ValueError(kind)
        new = said_by(value)
        self._unsaid.discard(link)
        link.host = new.host
        full = no_place(self._here(), new)
        waits = self._asked.restarts and new.number is None
        why = objection(self._own, new) or ("" if waits else full)
        if not why and (self._runs or full):
            why = self._keep(link, new)
        elif not why:
            self._join(link, new)
        if why:
            self._dismiss(link, why)
            self._tell(f"{new.host} cannot take part: {one_line(why, REASON)}")

    def _join(self, link: PeerLink, new: Participant) -> None:
        self._members[link] = new
        if not self._runs:
            self._time_last_call()

    def _keep(self, link: PeerLink, new: Participant) -> str:
        """As a spare; returns why not."""
        if len(self._spares) >= _SPARES:
            return f"{len(self._spares)} others wait for a place already"
        self._spares[link] = new
        link.send("wait", len(self._here()))
        self._tell(f"{new.host} takes part when the ranks are started again")
        return ""

    def _dismiss(self, link: PeerLink, why: str) -> None:
        link.send("refused", why)
        link.close()

    def _left(self, link: PeerLink) -> None:
        if self._members.pop(link, None):
            self._peers.ended(link)
            if not self._runs:
                self._time_last_call()
        self._spares.pop(link, None)
        self._unsaid.discard(link)

    # --- the end

    def _stop_listening(self) -> None:
        self._callers.close()
        for link in list(self._unsaid):
            link.close()
        self._unsaid.clear()

    def close(self) -> None:
        """The job is over: nobody is waited for."""
        self._stop_listening()
        for link in list(self._spares):
            self._dismiss(link, "the job is over")
        self._spares.clear()
