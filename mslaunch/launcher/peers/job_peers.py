"""The commands on the other hosts while the job runs: the first that fails ends all, and says why.

The command of node 0 is connected to all others, and passes on what it hears.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import job_failure
from mslaunch.launcher.job_failure import JobFailure
from mslaunch.launcher.mpi.mpi_frames import Impossible
from mslaunch.launcher.peers.participants import one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.outcome import Outcome
    from mslaunch.errors import LaunchError
    from mslaunch.launcher.peers.peer_link import PeerLink

_LOST = "its command has ended without a word, or the host cannot be reached any more"
_TEXT = 2000  # characters of a reason


class JobPeers:
    """Those of one job."""

    def __init__(self, host: str) -> None:
        """`host`: the name of this one."""
        self._host = host
        self._links: dict[PeerLink, bool] = {}  # False: its ranks have ended well
        self._post: Callable[[Any], None] | None = None
        self._failed: Impossible | None = None

    def add(self, link: PeerLink) -> None:
        """One more, which is told of everything from now on."""
        self._links[link] = True

    def attach(self, post: Callable[[Any], None]) -> None:
        """Ranks run: `post` gets the event that ends them."""
        self._post = post
        if self._failed:
            post(self._failed)

    def detach(self) -> None:
        """Ranks have ended."""
        self._post = None

    def heard(self, link: PeerLink, kind: str, value: Any) -> None:
        """A message; raises ValueError or TypeError for one that has no meaning."""
        if kind == "done":
            self._links[link] = False
        elif kind == "failed":
            host, why, code = value
            self._fail(link, one_line(host, _TEXT), one_line(why, _TEXT), int(code) & 0xFF or EXIT_USAGE)
        else:
            raise ValueError(kind)

    def ended(self, link: PeerLink) -> None:
        """A connection is gone."""
        if self._links.pop(link, False):
            self._fail(link, link.host, _LOST, EXIT_LOST)

    def _fail(self, source: PeerLink, host: str, why: str, code: int) -> None:
        if self._failed:
            return
        self._failed = Impossible(JobFailure(job_failure.ELSEWHERE, {"host": host, "why": why}, code=code))
        for link in [link for link in self._links if link is not source]:
            link.send("failed", [host, why, code])
        if self._post:
            self._post(self._failed)

    def tell(self, outcome: Outcome | None, error: LaunchError | None = None) -> None:
        """The end of this command's part, or why it could not start; others have heard already of what came from them.

        All connections are closed.
        """
        failure = outcome.failure if outcome else None
        why = failure.what if failure else error and error.what
        code = outcome.code if outcome else error.code if error else EXIT_USAGE
        for link in list(self._links):
            if not why:
                link.send("done", self._host)
            elif not self._failed:
                link.send("failed", [self._host, why, code])
            link.close()
        self._links.clear()
