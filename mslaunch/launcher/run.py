"""The life of one launch, as a story: allocate, map, connect, prepare, start, wait, report.

`run` is what the command and the Python API have in common.  It reads no command line and prints only what the job
needs said.  The surprising thing is the order: files are opened and links made before anything is started, so that
whatever is wrong is known while nothing runs.
"""

from __future__ import annotations

import os
import time

from mslaunch.errors import EXIT_USAGE, LaunchError
from mslaunch.launcher.conductor import Launch
from mslaunch.launcher.connect import Peer, close_all, connect
from mslaunch.launcher.output import Output, open_output
from mslaunch.launcher.report import outcome_text
from mslaunch.launcher.state import JobState
from mslaunch.launcher.voice import Voice
from mslaunch.lean import TYPE_CHECKING, NamedTuple, signal
from mslaunch.model import Allocation, Failure, JobMap, Node, NodePlan, Outcome, RankStatus, Request
from mslaunch.plan.allocation import allocate, with_cores
from mslaunch.plan.mapping import map_job
from mslaunch.plan.plan import make_plans, missing_exports, stdin_ranks
from mslaunch.wire.frames import STDERR, STDOUT
from mslaunch.wire.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_LAST_WORDS = 3.0  #: seconds that a standard error nobody reads is waited for


class Surroundings(NamedTuple):
    """Where a launch happens; the command's own process, or what a caller of the API says."""

    environ: Mapping[str, str]
    cwd: str
    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    signals: bool = True  # take over SIGINT and its like (the main thread only)


def run(request: Request, around: Surroundings) -> Outcome:
    """Launch, and wait for the end.  Raises `LaunchError` for whatever is wrong before a rank was started."""
    with Loop() as loop:
        return _Story(loop, request, around).tell()


class _Story:
    """One launch, and what its chapters share."""

    def __init__(self, loop: Loop, request: Request, around: Surroundings) -> None:
        self._began = time.monotonic()
        self._loop = loop
        self._request = request
        self._around = around
        self._voice = Voice(loop, around.stderr, request.quiet, request.verbose)
        self._interrupted = _watch_early(loop, around.signals)
        self._peers: list[Peer] = []

    def tell(self) -> Outcome:
        """From the request to the outcome."""
        request = self._request
        try:
            allocation = self._settle_cores(allocate(request, _read_text, is_local, os.uname().nodename, cores_here()))
            jobmap = map_job(request, allocation)
            targets = stdin_ranks(request, len(jobmap.placements))
            self._display(allocation, jobmap)
            if request.do_not_launch:
                return Outcome(0, (), None, self._seconds())
            output = self._open_output(len(jobmap.placements))
            self._meet(jobmap)
            launch = self._conduct(jobmap, output, targets)
        except LaunchError:
            self._voice.close()  # what was said before the refusal
            raise
        finally:
            stuck = close_all(self._peers)
        outcome = _outcome(launch, output, self._seconds())
        self._voice.say(outcome_text(outcome, _log_of(outcome, output)))
        if stuck:
            self._voice.notice(f"still ending: {', '.join(stuck)}")
        self._loop.run(lambda: not self._voice.stderr.pending or self._seconds() > outcome.seconds + _LAST_WORDS)
        self._voice.close()
        return outcome

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _settle_cores(self, allocation: Allocation) -> Allocation:
        """Hosts without slots= have as many as they have cores, which only they know: ask them first."""
        asked = [node for node in allocation.nodes if node.slots is None]
        if not asked:
            return allocation
        if self._request.do_not_launch:  # nobody is asked: they are taken to be like this host
            return with_cores(allocation, {node.name: cores_here() for node in asked})
        self._peers = self._connect(asked)
        return with_cores(allocation, {peer.node.name: peer.hello.cpus for peer in self._peers if peer.hello})

    def _connect(self, nodes: list[Node]) -> list[Peer]:
        voice, interrupted = self._voice, self._interrupted
        peers = connect(
            self._loop,
            nodes,
            self._request.link,
            self._around.environ,
            voice.notice,
            voice.progress,
            lambda: bool(interrupted()),
        )
        if interrupted():
            raise LaunchError(f"ended by {interrupted()} before anything was started")
        return peers

    def _meet(self, jobmap: JobMap) -> None:
        """One peer a node of the map: those we have, and new ones; those of unused nodes are let go."""
        have = {peer.node.name: peer for peer in self._peers}
        missing = [node for node in jobmap.nodes if node.name not in have]
        if missing:
            have.update((peer.node.name, peer) for peer in self._connect(missing))
        self._peers = [have.pop(node.name) for node in jobmap.nodes]
        close_all(list(have.values()))
        for peer in self._peers:
            if peer.hello:
                _, pid, cpus, python = peer.hello[:4]
                self._voice.detail(f"{peer.node.name}: agent {pid} on {peer.hello.host}, Python {python}, {cpus} cpus")

    def _display(self, allocation: Allocation, jobmap: JobMap) -> None:
        request, voice = self._request, self._voice
        if not allocation.declared and jobmap.oversubscribed:
            ranks, cores = len(jobmap.placements), allocation.nodes[0].slots
            voice.notice(f"{ranks} ranks share {cores} core{'s' if cores != 1 else ''}")
        for name in missing_exports(request, self._around.environ):
            voice.notice(f"-x {name}: there is no such variable here; the ranks get none either")
        if request.display_allocation or request.display_map:
            from mslaunch.plan.show import show_allocation, show_map

            text = show_allocation(allocation) if request.display_allocation else ""
            text += show_map(jobmap, request.apps) if request.display_map else ""
            try:
                os.write(self._around.stdout, text.encode("utf-8", "surrogateescape"))
            except OSError as error:
                raise LaunchError(f"the map cannot be shown: {error.strerror}", "standard output") from None

    def _open_output(self, ranks: int) -> Output:
        voice = self._voice
        fds = {STDOUT: self._around.stdout}
        return open_output(self._request.output, ranks, self._loop, fds, voice.stderr, voice.notice)

    def _conduct(self, jobmap: JobMap, output: Output, targets: tuple[int, ...]) -> Launch:
        request, around = self._request, self._around
        state = JobState(jobmap, 1 if request.output.merge else 2, request.abort_on_failure)
        jobid = os.urandom(4).hex()

        def plans(endpoint: tuple[str, int, int]) -> list[NodePlan]:
            return make_plans(request, jobmap, around.environ, around.cwd, endpoint, jobid)

        stdin = (around.stdin, targets)
        launch = Launch(self._loop, self._peers, state, output, plans, stdin, request.grace, self._voice)
        output.on_progress(launch.written)
        if around.signals:
            launch.watch_signals()
        if request.timeout:
            launch.limit_time(request.timeout)
        launch.run()
        return launch


def cores_here() -> int:
    """How many cpus this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def is_local(name: str) -> bool:
    """Does `name` mean this host?  Its own names do, and addresses of its interfaces; nobody is asked (no DNS).

    127.0.0.2 and its like are other hosts: that is where one tests.
    """
    own = os.uname().nodename
    if name in ("localhost", "127.0.0.1", "::1", "localhost.localdomain", own, own.split(".")[0]):
        return True
    if name.replace(".", "").isdigit() or ":" in name:
        from mslaunch.agent.network import addresses

        return not name.startswith("127.") and name in addresses()
    return False


def _watch_early(loop: Loop, signals: bool) -> Callable[[], str]:
    """Until ranks run, a signal only has to be remembered."""
    caught: list[str] = []
    if signals:
        for name in _SIGNALS:
            loop.signal(getattr(signal, name), lambda name=name: caught.append(name))  # type: ignore[misc]
    return lambda: caught[0] if caught else ""


def _outcome(launch: Launch, output: Output, seconds: float) -> Outcome:
    state = launch.state
    failure = state.failure
    if failure and failure.rank is not None:
        failure = failure._replace(detail=(*failure.detail, *output.tail(failure.rank)))
    kept = output.close()
    if failure is None and not kept:
        failure = Failure("all ranks ended well, but not all of their output could be kept", code=EXIT_USAGE)
    ranks = tuple(_with_logs(status, output) for status in state.statuses())
    return Outcome(failure.code if failure else 0, ranks, failure, seconds)


def _with_logs(status: RankStatus, output: Output) -> RankStatus:
    if not output.logs:
        return status
    return status._replace(stdout=output.logs.path(STDOUT, status.rank), stderr=output.logs.path(STDERR, status.rank))


def _log_of(outcome: Outcome, output: Output) -> str | None:
    failure = outcome.failure
    return output.log_path(failure.rank) if failure and failure.rank is not None else None
