"""The life of one launch, as a story: allocate, map, connect, prepare, start, wait, report.

`run` is what the command and the Python API have in common.  It reads no command line and prints only what the job
needs said.  The surprising thing is the order: files are opened and links made before anything is started, so that
whatever is wrong is known while nothing runs.
"""

from __future__ import annotations

import os
import time

from mslaunch.agent.cpus import cores_here
from mslaunch.errors import EXIT_TIMEOUT, EXIT_USAGE, LaunchError
from mslaunch.launcher.company import Company
from mslaunch.launcher.conductor import Launch
from mslaunch.launcher.events import TimedOut
from mslaunch.launcher.output import Output, open_output
from mslaunch.launcher.report import outcome_text
from mslaunch.launcher.state import JobState
from mslaunch.launcher.voice import Voice
from mslaunch.lean import TYPE_CHECKING, NamedTuple, signal
from mslaunch.model import Allocation, Failure, JobMap, NodePlan, Outcome, RankStatus, Request
from mslaunch.plan.allocation import allocate, with_cores
from mslaunch.plan.placing import Placed, place
from mslaunch.plan.plan import make_plans, missing_exports, stdin_ranks, xterm_ranks
from mslaunch.wire.frames import STDERR, STDOUT
from mslaunch.wire.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.launcher.peer import Peer
    from mslaunch.launcher.preload import Parcel
    from mslaunch.launcher.spawning import Spawning
    from mslaunch.launcher.wireup import Endpoint
    from mslaunch.model import AppContext

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
        self._stopped = _watch_early(loop, request, around.signals)
        self._company = Company(loop, request.link, around.environ, self._voice, self._wait, request.do_not_launch)
        self._parcels: list[Parcel] = []
        self._jobid = os.urandom(4).hex()

    def tell(self) -> Outcome:
        """From the request to the outcome."""
        request = self._request
        try:
            self._announce()
            self._collect_files()
            allocation = self._allocate()
            placed = place(request, allocation, self._company.topologies)
            jobmap = placed.jobmap
            targets = stdin_ranks(request, len(jobmap.placements))
            xterm_ranks(request, len(jobmap.placements))
            self._show(allocation, placed)
            if request.do_not_launch:
                self._display_xml(jobmap)
                return Outcome(0, (), None, self._seconds())
            output = self._open_output(jobmap)
            try:
                peers = self._company.gather(jobmap.nodes)
                self._send_files(peers)
                self._show_bindings(placed, peers, output)
                launch = self._conduct(allocation, jobmap, peers, output, targets)
            except LaunchError:
                output.close()
                raise
        except LaunchError:
            self._voice.close()  # what was said before the refusal
            raise
        finally:
            stuck = self._company.part()
        return self._report(_outcome(launch, output, self._seconds()), output, stuck)

    def _report(self, outcome: Outcome, output: Output, stuck: list[str]) -> Outcome:
        self._voice.say(outcome_text(outcome, _log_of(outcome, output)))
        if stuck:
            self._voice.notice(f"still ending: {', '.join(stuck)}")
        given_up: list[bool] = []
        self._loop.after(_LAST_WORDS, lambda: given_up.append(True))
        self._loop.run(lambda: not self._voice.stderr.pending or bool(given_up))
        self._voice.close()
        return outcome

    def _wait(self, until: Callable[[], bool]) -> None:
        """Run the loop until `until()`; raises `LaunchError` if something ends the launch first."""
        self._loop.run(lambda: bool(self._stopped) or until())
        if self._stopped:
            raise self._stopped[0]

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _announce(self) -> None:
        request, around = self._request, self._around
        if request.report_pid is not None or request.report_uri is not None:
            from mslaunch.launcher.announce import announce, open_channel

            say, open_file = self._voice.show, lambda path: open_channel(path, self._loop, self._wait)
            announce(request, around, say, self._jobid, open_file)

    def _allocate(self) -> Allocation:
        """Hosts without slots= have as many as they have cores, which only they know: these are asked first.

        Binding to hardware threads counts these instead; mapping by them does not (mpirun 4.1.4).
        """
        policy = self._request.policy
        hwthreads = policy.hwthread_cpus or policy.bind_to == "hwthread"
        allocation = allocate(self._request, _read_text, is_local, os.uname().nodename, cores_here(hwthreads))
        asked = [node for node in allocation.nodes if node.slots is None]
        return with_cores(allocation, self._company.cores(asked, hwthreads)) if asked else allocation

    def _collect_files(self) -> None:
        """What is to be sent is looked for while nothing runs yet."""
        if any(app.preload_binary or app.preload_files for app in self._request.apps):
            from mslaunch.launcher.preload import collect

            self._parcels = collect(self._request, self._around.environ, self._around.cwd)

    def _send_files(self, peers: list[Peer]) -> None:
        if self._parcels:
            from mslaunch.launcher.preload import send_files

            send_files(self._loop, peers, self._parcels, self._wait)

    def _show(self, allocation: Allocation, placed: Placed) -> None:
        """What was asked to be shown of the plan, and what is worth a notice."""
        request, voice = self._request, self._voice
        if not allocation.declared and placed.jobmap.oversubscribed:
            ranks, cores = len(placed.jobmap.placements), allocation.nodes[0].slots
            voice.notice(f"{ranks} ranks share {cores} core{'s' if cores != 1 else ''}")
        for name in missing_exports(request, self._around.environ):
            voice.notice(f"-x {name}: there is no such variable here; the ranks get none either")
        if request.display_allocation or request.display_map or request.display_topology or request.do_not_launch:
            from mslaunch.launcher.display import tables, write

            fd = self._around.stderr if request.output.xml else self._around.stdout
            write(tables(request, allocation, placed, self._jobid), fd)

    def _show_bindings(self, placed: Placed, peers: list[Peer], output: Output) -> None:
        """What can be shown only when all agents have answered."""
        if self._request.report_bindings:
            from mslaunch.launcher.display import report_bindings

            report_bindings(self._voice, placed.jobmap, placed.topologies, peers)
        if self._map_as_xml():
            output.show_map(placed.jobmap)

    def _map_as_xml(self) -> bool:
        if not self._request.display_map:
            return False
        from mslaunch.launcher.display import map_as_xml

        return map_as_xml(self._request)

    def _display_xml(self, jobmap: JobMap) -> None:
        """The map of a job that is not to be started."""
        if self._map_as_xml():
            output = self._open_output(jobmap)
            output.show_map(jobmap)
            output.finish()
            self._loop.run(lambda: not output.pending)
            output.close()

    def _open_output(self, jobmap: JobMap) -> Output:
        voice = self._voice
        fds = {STDOUT: self._around.stdout}
        return open_output(self._request.output, jobmap, self._loop, fds, voice.stderr, voice.notice)

    def _conduct(
        self, allocation: Allocation, jobmap: JobMap, peers: list[Peer], output: Output, targets: tuple[int, ...]
    ) -> Launch:
        request, around = self._request, self._around
        streams = 1 if request.output.merge else 2
        state = JobState(jobmap, streams, request.abort_on_failure, request.recovery, request.max_restarts)

        def plans(endpoint: tuple[str, int, int]) -> list[NodePlan]:
            return make_plans(request, jobmap, around.environ, around.cwd, endpoint, self._jobid)

        stdin = (around.stdin, targets)
        launch = Launch(self._loop, peers, state, output, plans, stdin, request.grace, self._voice)
        launch.on_spawn(lambda endpoint: self._spawning(launch, allocation, jobmap, endpoint))
        output.on_progress(launch.written)
        if around.signals:
            launch.watch_signals()
        if request.timeout:
            limit = TimedOut(request.timeout, request.timeout_from, request.stack_traces)
            launch.limit_time(limit, request.timeout - self._seconds(), request.state_on_timeout)
        launch.run()
        return launch

    def _spawning(self, launch: Launch, allocation: Allocation, jobmap: JobMap, endpoint: Endpoint) -> Spawning:
        """Who cares for MPI_Comm_spawn; only jobs that call it need this."""
        from mslaunch.launcher.spawning import Job, Spawning

        def named(apps: tuple[AppContext, ...]) -> Allocation:
            asked = request._replace(apps=apps, policy=request.policy._replace(rankfile=None, map_by=""))
            return allocate(asked, _read_text, is_local, os.uname().nodename, cores_here(False))

        request, environ, cwd = self._request, self._around.environ, self._around.cwd
        call = self._company.call
        return Spawning(Job(request, allocation, jobmap, environ, cwd, self._jobid, endpoint, named, call), launch)


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


def _watch_early(loop: Loop, request: Request, signals: bool) -> list[LaunchError]:
    """What ends the launch before anything is started: signals and --timeout.  It is only noted here."""
    found: list[LaunchError] = []
    if signals:
        for name in _SIGNALS:
            error = LaunchError(f"ended by {name} before anything was started")
            loop.signal(getattr(signal, name), lambda error=error: found.append(error))  # type: ignore[misc]
    if request.timeout:
        what = f"nothing was started within {request.timeout:g} s"
        late = LaunchError(what, request.timeout_from, code=EXIT_TIMEOUT)
        loop.after(request.timeout, lambda: found.append(late))
    return found


def _outcome(launch: Launch, output: Output, seconds: float) -> Outcome:
    state = launch.state
    failure = state.failure
    if failure and failure.rank is not None:
        tail = output.tail(failure.rank)
        said = [line for line in failure.detail if not any(line in other for other in tail)]  # MPI_Abort says it twice
        failure = failure._replace(detail=(*said, *tail))
    kept = output.close()
    if failure is None and not kept:
        failure = Failure("all ranks ended well, but not all of their output could be kept", code=EXIT_USAGE)
    ranks = tuple(_with_logs(status, output) for status in state.statuses())
    return Outcome(state.code if kept else state.code or EXIT_USAGE, ranks, failure, seconds)


def _with_logs(status: RankStatus, output: Output) -> RankStatus:
    if not output.logs:
        return status
    return status._replace(stdout=output.logs.path(STDOUT, status.rank), stderr=output.logs.path(STDERR, status.rank))


def _log_of(outcome: Outcome, output: Output) -> str | None:
    failure = outcome.failure
    return output.log_path(failure.rank) if failure and failure.rank is not None else None
