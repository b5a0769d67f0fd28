"""A command that calls the host of a meeting, and is told which part of the ranks it starts."""

from __future__ import annotations

from mslaunch.errors import LaunchError, counted
from mslaunch.faststd import TYPE_CHECKING, socket
from mslaunch.launcher.peers.meeting_records import QUIET, REASON, SAME_LINE, Part
from mslaunch.launcher.peers.participants import one_line, own_entry
from mslaunch.launcher.peers.peer_link import KIND, PeerLink

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.datamodel.request import HostMeeting
    from mslaunch.launcher.peers.meeting_records import MeetingFacts
    from mslaunch.protocol.sealed_records import Seals

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_TRY = 2.0  # seconds for one connection, and for the proof
_PAUSE = 0.5  # between two tries
_UNREAD = 6.0  # seconds in which a host may cut off a caller that it has not heard (`transport.proved_callers`)
_FREE = "end that process, or choose another port"
_SAME_PLACE = "type --rdzv-endpoint, or --master-addr and --master-port, and --rdzv-id alike on each host"


class MeetingParticipant:
    """A command that calls the host of the meeting."""

    def __init__(self, meeting: MeetingFacts) -> None:
        self._meeting = meeting
        self._asked = meeting.asked
        self._link: PeerLink | None = None
        self._part: Part | None = None  # of the attempt that runs
        self._error = ""  # why it cannot take part
        self._address = ""
        self._began = 0.0  # when it called first
        self._called = 0.0  # when the connection was made
        self._is_heard = False  # the host has said something on it
        self._is_cut_off = False  # it has ended it before, perhaps in a flood, without having read the proof

    def first(self) -> Part:
        """Until the host says that all have come.  Raises `LaunchError`."""
        asked, now = self._asked, self._meeting.context.loop.now
        self._began = now()
        while True:
            self._is_cut_off = False
            link = self._link = self._connect(self._began)
            self._called = now()
            link.host = asked.host
            link.send("join", list(own_entry(asked, self._meeting.host)))
            part = self._await_part(max(1.0, asked.join_seconds + asked.last_call - (now() - self._began)))
            if part:
                return part
            self._meeting.context.interrupts.wait(lambda: False, _PAUSE)

    def again(self, attempt: int) -> Part:
        """Say that the ranks here have ended, and wait for the others.  Raises `LaunchError`."""
        assert self._link
        self._part = None
        self._link.send("ready", attempt - 1)
        part = self._await_part(2 * self._asked.join_seconds + self._asked.last_call)
        assert part
        return part

    def close(self) -> None:
        """The job is over."""

    def _await_part(self, seconds: float) -> Part | None:
        """None: the host has cut off this command, which has to call again.  Raises `LaunchError`."""
        link, asked = self._link, self._asked
        assert link
        try:
            self._meeting.wait(lambda: bool(self._part or self._error or self._is_cut_off), seconds)
        finally:
            if not self._part:
                link.close()
        if self._part is None and not self._is_cut_off:
            what = self._error or f"the others did not come within {asked.join_seconds:g} s"
            raise LaunchError(what, asked.where, "" if self._error else SAME_LINE)
        return self._part

    def _connect(self, began: float) -> PeerLink:
        asked, why, told = self._asked, "", False
        context = self._meeting.context
        while True:
            try:
                return PeerLink(context.loop, *self._call(), self._heard, self._ended)
            except OSError as error:
                why = error.strerror or str(error)
            gone = context.loop.now() - began
            if gone > asked.join_seconds:
                todo = f"{SAME_LINE}; the command on that host has to run, and no firewall be in between"
                taken = _taken(asked)
                what = f"nobody could be reached there within {gone:.0f} s: {why}{taken}"
                raise LaunchError(what, asked.where, _FREE if taken else todo)
            if gone > QUIET and not told:
                told = True
                context.console.info(f"waiting for the command at {asked.where} ({why})")
            context.interrupts.wait(lambda: False, _PAUSE)

    def _call(self) -> tuple[socket, Seals]:
        """A connection with somebody who knows the secret, at this very meeting.

        Raises OSError if nobody listens there, `LaunchError` if somebody else does.
        """
        from mslaunch.agent.call_launcher import WrongPlaceError, WrongProofError, prove

        asked = self._asked
        sock = socket(_AF_INET6 if ":" in asked.address else _AF_INET, _SOCK_STREAM)
        try:
            sock.settimeout(_TRY)
            sock.connect((asked.address, asked.port))
            self._address = asked.address
            return sock, prove(sock, self._meeting.token, "peer", self._meeting.place, KIND)
        except WrongPlaceError:
            sock.close()
            what = "another job meets there: it has our secret, but its line names another endpoint or --rdzv-id"
            raise LaunchError(what, asked.where, _SAME_PLACE) from None
        except WrongProofError:
            sock.close()
            todo = f"copy {asked.secret_file} from that host to this one; a real torchrun cannot take part"
            if taken := _taken(asked):
                todo = f"{_FREE}; if it is a command of this job, copy its secret to {asked.secret_file}"
            raise LaunchError(f"what listens there does not know our secret{taken}", asked.where, todo) from None
        except OSError:
            sock.close()
            raise

    def _heard(self, link: PeerLink, kind: str, value: Any) -> None:
        self._is_heard = True
        if self._part:
            self._meeting.peers.heard(link, kind, value)
        elif kind == "refused":
            self._error = one_line(value, REASON) or "it did not say why"
        elif kind == "wait":
            hosts = counted(max(1, int(value)), "host")
            self._meeting.context.console.info(f"the job runs on {hosts}; this one takes part when it is started again")
        elif kind == "go":
            self._go(link, value)
        elif kind == "failed" and self._meeting.peers.attempt:  # between two attempts
            self._meeting.peers.heard(link, kind, value)
        else:
            raise ValueError(kind)

    def _go(self, link: PeerLink, value: Any) -> None:
        node, sizes, port, attempt = value
        found = Part(int(node), tuple(map(int, sizes)), self._address, int(port), int(attempt))
        peers, asked = self._meeting.peers, self._asked
        if not (0 < found.node < len(sizes) and 0 < found.port < 65536 and min(found.sizes) > 0):
            raise ValueError(value)
        if found.sizes[found.node] != asked.ranks or not peers.attempt < found.attempt <= asked.restarts + 1:
            raise ValueError(value)
        self._part = found
        peers.begin(found.attempt, [link])

    def _ended(self, link: PeerLink) -> None:
        if self._part:
            self._meeting.peers.ended(link)
        elif not (self._error or link.changed or self._is_heard) and self._may_call_again():
            self._is_cut_off = True
        else:
            self._error = self._error or link.changed or "the command there has ended before all had come"

    def _may_call_again(self) -> bool:
        now = self._meeting.context.loop.now()
        return now - self._called < _UNREAD and now - self._began < self._asked.join_seconds


def _taken(asked: HostMeeting) -> str:
    """Who has the port of the endpoint, if that is on this host; "": it is not, or nobody has."""
    from mslaunch.host.listeners import by_whom, sockets

    here = asked.hosts_meeting and sockets(asked.port)
    return f"; the port is taken{by_whom(asked.port)}" if here else ""
