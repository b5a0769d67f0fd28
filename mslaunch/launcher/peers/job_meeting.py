"""The meeting of commands that start one job together: at an endpoint that each of them was told.

The command on whose host the endpoint is listens there, and becomes node 0.  The others call it, again and again until
the time for joining is over.  Both sides prove that they know the secret (`transport.proved_callers`).  When as many
have come as --nnodes says, or at least the fewest and nobody more for a while, each gets its number and starts its part
of the ranks.  What torchrun waits for, and how long, is in torch/distributed/elastic/rendezvous/dynamic_rendezvous.py.
With --max-restarts they meet again after a failure.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.request import Share
from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.peers.job_peers import JobPeers
from mslaunch.launcher.peers.meeting_host import MeetingHost, listening
from mslaunch.launcher.peers.meeting_participant import MeetingParticipant
from mslaunch.launcher.peers.meeting_records import MeetingContext, MeetingFacts
from mslaunch.launcher.peers.rendezvous_secret import read_or_make

if TYPE_CHECKING:
    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.peers.meeting_records import Part


class JobMeeting:
    """The hosts of one job, each with a command of its own; `request` is that of this one."""

    def __init__(self, context: MeetingContext, request: Request) -> None:
        """Raises `LaunchError` if the secret or the endpoint cannot be used."""
        asked = request.cluster.host_meeting
        assert asked is not None
        self._request = request
        token, host = read_or_make(asked.secret_file), os.uname().nodename
        sock = listening(asked) if asked.hosts_meeting else None
        self.peers = JobPeers(host, asked.restarts, central=sock is not None)
        meeting = MeetingFacts(context, asked, host, token, self.peers)
        self._side = MeetingParticipant(meeting) if sock is None else MeetingHost(meeting, sock)
        self._sizes: tuple[int, ...] = ()

    def first(self) -> Request:
        """The request with this command's share of the job, when all have met.  Raises `LaunchError`."""
        part = self._side.first()
        self._sizes = part.sizes
        request = self._with_share(part)
        return request._replace(stdin=request.stdin if not part.node else "none")

    def again(self, attempt: int) -> tuple[Request, str]:
        """The same for another attempt, and what is different in it."""
        part, before = self._side.again(attempt), self._sizes
        self._sizes = part.sizes
        changes = []
        if len(part.sizes) != len(before):
            changes.append(f"{counted(len(part.sizes), 'host')} instead of {len(before)}")
        if sum(part.sizes) != sum(before):
            changes.append(f"{counted(sum(part.sizes), 'rank')} instead of {sum(before)}")
        return self._with_share(part)._replace(stdin="none"), ", ".join(changes)  # the first attempt has read it

    def _with_share(self, part: Part) -> Request:
        sizes, first = part.sizes, sum(part.sizes[: part.node])
        share = Share(
            sum(sizes), first, part.address, 0, master=False, meeting=part.port, node=part.node, nodes=len(sizes)
        )
        return self._request._replace(cluster=self._request.cluster._replace(meeting=part.port, share=share))

    def close(self) -> None:
        """The job is over."""
        self._side.close()
