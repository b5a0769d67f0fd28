"""The state of a launch: a reducer.  Events come in, actions go out; no descriptor, no clock, no terminal.

It begins when every agent has said HELLO (`connect` sees to that): preparing (addresses and ports), running,
ending.  The first failure that arrives before we began killing is the cause and gives the exit code; what dies after
that is a victim.  The one surprising thing: a rank is over only when its process *and* its streams have ended, so a
failure is acted on at once but the launch is not finished before the last line has arrived.
"""

from __future__ import annotations

from mslaunch.errors import EXIT_LOST, EXIT_TIMEOUT, EXIT_USAGE, LaunchError
from mslaunch.lean import TYPE_CHECKING, NamedTuple
from mslaunch.model import SERVICE, Failure, JobMap, RankStatus
from mslaunch.plan.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


# --- events


class Prepared(NamedTuple):
    """Addresses and ports are known."""


class Started(NamedTuple):
    """A rank runs."""

    rank: int
    pid: int
    node: int = 0


class Exited(NamedTuple):
    """A process ended, or (with `error`) never started."""

    rank: int
    node: int
    code: int | None
    signal: int | None
    error: str = ""
    todo: str = ""


class StreamEnded(NamedTuple):
    """One of the two streams of a rank has said its last."""

    rank: int


class LinkEnded(NamedTuple):
    """The link to `node` is gone; `error` says why if anybody knows."""

    node: int
    error: LaunchError | None = None


class TimedOut(NamedTuple):
    """--timeout was reached."""

    seconds: float


class Interrupted(NamedTuple):
    """The launcher was told to end."""

    signal: str


# --- actions


class Start(NamedTuple):
    """Tell all agents their plans."""


class End(NamedTuple):
    """TERM, grace, KILL for all that runs on `nodes`; `now`: KILL."""

    nodes: tuple[int, ...]
    now: bool = False


PREPARING, RUNNING, ENDING = "preparing", "running", "ending"


class _Rank:
    """What the state knows of one rank."""

    def __init__(self, rank: int, node: int, streams: int) -> None:
        self.rank = rank
        self.node = node
        self.streams = streams
        self.pid: int | None = None
        self.ended = False
        self.code: int | None = None
        self.signal: int | None = None
        self.reason = ""

    @property
    def over(self) -> bool:
        return self.ended and not self.streams


class JobState:
    """The fold over events.  `on` returns the actions that follow from one."""

    def __init__(self, jobmap: JobMap, streams: int = 2, abort_on_failure: bool = True) -> None:
        self._hosts = [node.name for node in jobmap.nodes]
        self._abort = abort_on_failure
        self.phase = PREPARING
        self.ranks = {p.rank: _Rank(p.rank, p.node, streams) for p in jobmap.placements}
        self.service: _Rank | None = None
        self.failure: Failure | None = None
        self._alive = set(range(len(self._hosts)))
        self._unstarted: dict[str, list[str]] = {}  # why ranks were not started -> hosts
        self._handlers: dict[type, Callable[[Any], list[Any]]] = {
            Prepared: self._prepared,
            Started: self._started,
            Exited: self._exited,
            StreamEnded: self._stream_ended,
            LinkEnded: self._link_ended,
            TimedOut: self._timed_out,
            Interrupted: self._interrupted,
        }

    def on(self, event: Any) -> list[Any]:
        """Take in one event; returns the actions to be carried out, in order."""
        return self._handlers[type(event)](event)

    @property
    def finished(self) -> bool:
        """Nothing is left to wait for."""
        if self.phase == PREPARING:
            return self.failure is not None
        return all(rank.over for rank in self.ranks.values()) and (self.service is None or self.service.over)

    # --- before the ranks run

    def _prepared(self, event: Prepared) -> list[Any]:
        if self.failure:
            return []
        self.phase = RUNNING
        return [Start()]

    def _started(self, event: Started) -> list[Any]:
        if event.rank == SERVICE:
            self.service = _Rank(SERVICE, event.node, 2)
            self.service.pid = event.pid
        else:
            self.ranks[event.rank].pid = event.pid
        return []

    # --- ends

    def _exited(self, event: Exited) -> list[Any]:
        if event.rank == SERVICE:
            return self._service_exited(event)
        rank = self.ranks[event.rank]
        rank.ended, rank.code, rank.signal = True, event.code, event.signal
        if event.error:
            rank.streams = 0
            rank.reason = "not started"
            return self._not_started(event) + self._check_service()
        if self.phase == ENDING:
            rank.reason = "ended"
            return self._check_service()
        if not (event.signal or event.code):
            return self._check_service()
        if self._abort:
            return self._fail(self._rank_failure(event)) + self._check_service()
        self.failure = self.failure or self._rank_failure(event)
        return self._check_service()

    def _not_started(self, event: Exited) -> list[Any]:
        """Said once: the first words, with every host where the same is wrong; other words of other hosts below."""
        host = self._hosts[event.node]
        said = self._unstarted.setdefault(event.error, [])
        if host in said:
            return []
        said.append(host)
        first = next(iter(self._unstarted))
        if event.error != first and self.failure:
            self.failure = self.failure._replace(detail=(*self.failure.detail, f"{host}: {event.error}"))
        elif len(said) > 1 and self.failure and self.failure.what == first:
            self.failure = self.failure._replace(host=fold(sorted(said)))
        detail = tuple(event.todo.splitlines())
        return self._fail(Failure(event.error, host, None, event.code or EXIT_USAGE, detail))

    def _rank_failure(self, event: Exited) -> Failure:
        code = 128 + event.signal if event.signal else event.code or 0
        how = f"was ended by {signal_name(event.signal)}" if event.signal else f"ended with exit code {event.code}"
        return Failure(f"rank {event.rank} {how}", self._hosts[event.node], event.rank, code)

    def _service_exited(self, event: Exited) -> list[Any]:
        if self.phase == PREPARING:
            return self._fail(Failure(event.error, self._hosts[event.node]))
        if self.service is None:  # it never started
            self.service = _Rank(SERVICE, event.node, 0)
        self.service.ended, self.service.code, self.service.signal = True, event.code, event.signal
        if self.phase == ENDING or (event.code == 0 and not event.signal) or self._ranks_ended:
            return []
        how = f"was ended by {signal_name(event.signal)}" if event.signal else f"ended with exit code {event.code}"
        what = event.error or f"the MindSpore scheduler {how} while ranks were running"
        return self._fail(Failure(what, self._hosts[event.node], SERVICE, EXIT_USAGE))

    @property
    def _ranks_ended(self) -> bool:
        return all(rank.ended for rank in self.ranks.values())

    def _check_service(self) -> list[Any]:
        """The scheduler is needed until the last rank has ended, and no longer."""
        if self.service and not self.service.ended and self._ranks_ended:
            return [End(tuple(sorted(self._alive)))]
        return []

    def _stream_ended(self, event: StreamEnded) -> list[Any]:
        rank = self.service if event.rank == SERVICE else self.ranks[event.rank]
        if rank and rank.streams:
            rank.streams -= 1
        return []

    def _link_ended(self, event: LinkEnded) -> list[Any]:
        self._alive.discard(event.node)
        host = self._hosts[event.node]
        if self.phase == PREPARING:
            error = event.error or LaunchError("the agent ended before the ranks were started", host, code=EXIT_LOST)
            return self._fail(Failure(error.what, host, None, error.code, tuple(error.todo.splitlines())))
        lost = [rank for rank in self.ranks.values() if rank.node == event.node and not rank.over]
        for rank in lost:
            rank.reason = rank.reason if rank.ended else "lost"
            rank.ended, rank.streams = True, 0
        if self.service and self.service.node == event.node:
            self.service.ended, self.service.streams = True, 0
        if not lost:
            return self._check_service()
        why = event.error.what if event.error else "its agent ended, or was killed"
        failure = Failure("the host was lost while ranks ran there", host, None, EXIT_LOST, (why,))
        return self._fail(failure) + self._check_service()

    def _timed_out(self, event: TimedOut) -> list[Any]:
        what = f"the job was still running after {event.seconds:g} seconds (--timeout)"
        return self._fail(Failure(what, code=EXIT_TIMEOUT))

    def _interrupted(self, event: Interrupted) -> list[Any]:
        return self._fail(Failure(f"ended by {event.signal}", code=EXIT_USAGE), again=True)

    def _fail(self, failure: Failure, again: bool = False) -> list[Any]:
        """The first failure ends the job; an order that is given `again` ends it at once."""
        if self.phase == PREPARING:
            self.failure = self.failure or failure
            return []
        if self.phase == ENDING:
            if again:
                return [End(tuple(sorted(self._alive)), now=True)]
            return []
        self.phase = ENDING
        self.failure = self.failure or failure
        return [End(tuple(sorted(self._alive)))]

    # --- the end

    def unfinished(self) -> list[int]:
        """The nodes that still have something to end."""
        nodes = {rank.node for rank in self.ranks.values() if not rank.over}
        if self.service and not self.service.over:
            nodes.add(self.service.node)
        return sorted(nodes & self._alive)

    def statuses(self) -> Sequence[RankStatus]:
        """How every rank ended, in rank order."""
        return [
            RankStatus(
                r.rank, self._hosts[r.node], r.pid, r.code, r.signal, r.reason or ("" if r.ended else "not started")
            )
            for r in sorted(self.ranks.values(), key=lambda rank: rank.rank)
        ]


def signal_name(signum: int | None) -> str:
    """SIGSEGV (segmentation fault), as a person knows it."""
    from signal import Signals, strsignal

    assert signum is not None
    try:
        name = Signals(signum).name
    except ValueError:
        name = f"signal {signum}"
    meaning = (strsignal(signum) or "").lower()
    return f"{name} ({meaning})" if meaning else name
