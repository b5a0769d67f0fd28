"""The commands on the other hosts while the job runs: the first that fails ends the attempt on all, and says why.

The command of node 0 is connected to all others, and passes on what it hears, also when its own ranks have ended well.
If ranks may be started again, all commands stay until the ranks of all have ended.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import job_failure
from mslaunch.launcher.job_failure import JobFailure
from mslaunch.launcher.mpi.mpi_frames import Impossible
from mslaunch.launcher.observers import JobFailed
from mslaunch.launcher.peers.participants import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mslaunch.datamodel.outcome import Outcome
    from mslaunch.errors import LaunchError
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.launcher.peers.peer_link import PeerLink
    from mslaunch.runtime.loop import Loop

_LOST = "its command has ended without a word, or the host cannot be reached any more"
_TEXT = 2000  # characters of a reason
_RUNS, _DONE, _READY = range(3)  # its ranks run, have ended well, have ended before another attempt
_NO_OTHER = 0  # instead of the attempt that has failed: no other follows
_QUIET = 3.0  # seconds before a user is told why the command stays


class JobPeers:
    """Those of one job."""

    def __init__(self, host: str, restarts: int, central: bool) -> None:
        """`host`: the name of this one; `central`: the others are connected to it."""
        self.attempt = 0  #: that runs, or ran last
        self.final = ""  #: why no other follows
        self._host = host
        self._restarts = restarts
        self._central = central
        self._links: dict[PeerLink, int] = {}
        self._post: Callable[[Any], None] | None = None
        self._state: JobState | None = None
        self._failed: Impossible | None = None  # what this attempt has failed of, elsewhere
        self._told: int | None = None  # the attempt that others know from us to have failed, or _NO_OTHER
        self._left = False  # this command takes part no more, and others may go on
        self._over = False

    def begin(self, attempt: int, links: Iterable[PeerLink]) -> None:
        """Another attempt, in which these take part."""
        self.attempt, self._failed, self._told = attempt, None, None
        self._links = dict.fromkeys(links, _RUNS)

    def attach(self, post: Callable[[Any], None], state: JobState) -> None:
        """Ranks run: `post` gets the event that ends them; `state` is that of their job."""
        self._post, self._state = post, state
        if self._failed:
            post(self._failed)

    def detach(self) -> None:
        """Ranks have ended."""
        self._post = None

    # --- what others say

    def heard(self, link: PeerLink, kind: str, value: Any) -> None:
        """A message; raises ValueError or TypeError for one that has no meaning."""
        if link not in self._links:
            raise ValueError(kind)
        if kind == "failed":
            host, why, code, attempt = value
            if not 0 <= int(attempt) <= self.attempt:
                raise ValueError(value)
            text = one_line(host, _TEXT), one_line(why, _TEXT)
            self._fail(link, *text, int(code) & 0xFF or EXIT_USAGE, int(attempt))
        elif kind == "over" and not self._central:
            self._over = True
        elif kind == "done":
            self._links[link] = _DONE
        elif kind == "ready" and self._central and value == self.attempt:
            self._links[link] = _READY
        else:
            raise ValueError(kind)

    def ended(self, link: PeerLink) -> None:
        """A connection is gone."""
        was = self._links.pop(link, _DONE)
        if was == _RUNS or (was == _DONE and not self._central and self._restarts and not self._over):
            again = self.attempt if self._restarts and self._central else _NO_OTHER
            self._fail(link, link.host, link.changed or _LOST, EXIT_LOST, again)

    def _fail(self, source: PeerLink, host: str, why: str, code: int, attempt: int) -> None:
        """The attempt has failed elsewhere; a failure of one that is over is late."""
        if attempt not in (_NO_OTHER, self.attempt) or self.final or (self._failed and attempt):
            return
        if attempt == _NO_OTHER:
            self.final = f"{host}: {why}"
        facts = {"host": host, "why": why, "again": attempt != _NO_OTHER}
        self._failed = self._failed or Impossible(JobFailure(job_failure.ELSEWHERE, facts, code=code))
        for link in [link for link in self._links if link is not source]:
            link.send("failed", [host, why, code, attempt])
        if self._post:
            self._post(self._failed)

    # --- what others hear

    def observe(self, record: Any) -> None:
        """An observer of the launch: the others hear of a failure here at once, before theirs follow from it."""
        if not isinstance(record, JobFailed) or self._failed or not self._state or not self._state.failure:
            return
        cause, attempt = self._state.failure, _NO_OTHER
        if self._restarts and (self._state.restartable or self._is_leaving(cause)):
            attempt = self.attempt
        self._tell(record.failure.what, cause.code, attempt)

    def _is_leaving(self, cause: JobFailure) -> bool:
        """A supervisor ends this command by SIGTERM: to the others its host is lost.  Ctrl-C is meant for all."""
        self._left = not self._central and cause.kind == job_failure.INTERRUPTED and cause.facts["signal"] == "SIGTERM"
        return self._left

    def _tell(self, why: str, code: int, attempt: int) -> None:
        if self._told in (attempt, _NO_OTHER):
            return
        self._told = attempt
        for link in list(self._links):
            link.send("failed", [self._host, why, code, attempt])

    def no_other(self, why: str) -> None:
        """No attempt follows here, and so on no host."""
        if not self.final:
            self._tell(why, EXIT_USAGE, _NO_OTHER)

    def settle(self, loop: Loop, say: Callable[[str], None]) -> None:
        """The ranks here have ended well: until those of all have, or one has failed.

        Node 0 stays, since the others hear of each other through it; those stay only if ranks may be started again.
        Bounded by the ranks of the others: a host that is lost fails, and so does the job at --timeout.
        """
        state = self._state
        if not state or state.failure or not (self._restarts or self._central):
            return
        if not self._central:
            for link in list(self._links):
                link.send("done", self._host)
        text = "the ranks here have ended well; waiting for those of the other hosts"
        told = loop.after(_QUIET, lambda: say(text))
        loop.run(lambda: bool(state.failure) or self._all_done())
        told.cancel()

    def _all_done(self) -> bool:
        if not self._central or self._over:
            return self._over
        self._over = all(one == _DONE for one in self._links.values())
        for link in list(self._links) if self._over else ():
            link.send("over", self._host)
        return self._over

    def all_ready(self) -> bool:
        """Whether the ranks of all who take part have ended, so that another attempt may begin."""
        return not self.late()

    def late(self) -> list[PeerLink]:
        """Those whose ranks have not; who has come since then has none."""
        return [link for link, one in self._links.items() if one != _READY]

    def tell(self, outcome: Outcome | None, error: LaunchError | None = None) -> None:
        """The end of this command's part, or why it could not start; others have heard already of what came from them.

        All connections are closed.
        """
        failure = outcome.failure if outcome else None
        why = failure.what if failure else error and error.what
        code = outcome.code if outcome else error.code if error else EXIT_USAGE
        if why and not (self._left or self.final):
            # one that has come later and cannot start is as lost: the others may go on without it
            self._tell(why, code, self.attempt if error and self.attempt > 1 else _NO_OTHER)
        for link in list(self._links):
            if not why:
                link.send("done", self._host)
            link.close()
        self._links.clear()
