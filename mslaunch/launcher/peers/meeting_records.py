"""What both sides of a meeting know, and what each command starts afterwards."""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.request import HostMeeting
    from mslaunch.launcher.interrupts import Interrupts
    from mslaunch.launcher.peers.job_peers import JobPeers
    from mslaunch.launcher.stdio.terminal import Console
    from mslaunch.runtime.loop import Loop

QUIET = 3.0  #: seconds before a user is told who is waited for
REASON = 500  #: characters of another host's reason that are shown
SAME_LINE = "type the same line on each host"


class MeetingContext(NamedTuple):
    """What a meeting needs of its launch."""

    loop: Loop
    interrupts: Interrupts
    console: Console


class MeetingFacts(NamedTuple):
    """What both sides of a meeting know."""

    context: MeetingContext
    asked: HostMeeting
    host: str  # the name of this one
    token: bytes
    peers: JobPeers

    @property
    def place(self) -> str:
        """A word for this meeting, which the proofs name: a digest of the endpoint as it was typed, and of the run.

        So a proof of one meeting is worthless at all others that know the same secret.
        """
        from hashlib import blake2b

        words = self.asked.host.lower().rstrip("."), str(self.asked.port), self.asked.run_id
        found = blake2b(digest_size=16)
        for word in (word.encode("utf-8", "surrogateescape") for word in words):
            found.update(b"%d:" % len(word) + word)
        return found.hexdigest()

    def wait(self, until: Callable[[], bool], seconds: float) -> None:
        """As `Interrupts.wait`; raises `LaunchError` as well when a command has said that no attempt follows."""
        self.context.interrupts.wait(lambda: bool(self.peers.final) or until(), seconds)
        if self.peers.final:
            raise LaunchError(self.peers.final)


class Part(NamedTuple):
    """What this command starts, as the meeting has it."""

    node: int
    sizes: tuple[int, ...]
    address: str  # of node 0, as this host reaches it
    port: int
    attempt: int  # from 1
