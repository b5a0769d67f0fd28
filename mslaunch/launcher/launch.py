"""One launch: allocate, map, connect, open the output, run the attempts, report.

The entry point of the command and of the Python API.  Files are opened and agents connected before any rank starts, so
that whatever is wrong is refused while nothing runs.
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.outcome import Failure, Outcome
from mslaunch.datamodel.request import Request
from mslaunch.errors import EXIT_NO_PROGRESS, EXIT_USAGE, LaunchError, UsageError, counted, no_memory
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.launcher.agents.start_agents import OpenLinks
from mslaunch.launcher.attempt import JobAttempt, LaunchContext, is_this_host
from mslaunch.launcher.interrupts import Interrupts, check_limits
from mslaunch.launcher.job.restart_policy import check_shared
from mslaunch.launcher.observers import LaunchEnded, LaunchRefused, Observers
from mslaunch.launcher.stdio.terminal import Console, write_all
from mslaunch.plan.rank_variables import missing_exports
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.datamodel.jobmap import Allocation
    from mslaunch.datamodel.request import Caller
    from mslaunch.launcher.peers.job_meeting import JobMeeting
    from mslaunch.launcher.recovery.group_restart import GroupRestart
    from mslaunch.launcher.recovery.host_replacement import HostReplacement, HostsOfPeers
    from mslaunch.resource_managers.managers import Grant

#: the word of a system -> a variable that says that a launch may run under it, and its resource manager
MANAGERS: dict[str, tuple[str, str]] = {
    "flux": ("FLUX_URI", "resource_managers.flux:grant"),
    "slurm": ("SLURM_JOB_ID", "resource_managers.slurm:grant"),
    "pbs": ("PBS_JOBID", "resource_managers.pbs:pbs"),
    "lsf": ("LSB_JOBID", "resource_managers.lsf:grant"),
    "gridengine": ("PE_HOSTFILE", "resource_managers.gridengine:grant"),
    "cobalt": ("COBALT_JOBID", "resource_managers.pbs:cobalt"),
    "loadleveler": ("LOADL_HOSTFILE", "resource_managers.unsupported:loadleveler"),
    "oar": ("OAR_NODEFILE", "resource_managers.unsupported:oar"),
    "condor": ("_CONDOR_NPROCS", "resource_managers.unsupported:condor"),
    "pals": ("PALS_RANKID", "resource_managers.unsupported:pals"),
}
NO_MANAGER = "none"  #: --resource-manager none: hosts are those of the command line, or this one
#: programs that start ranks by themselves: n of them are n jobs
LAUNCHERS = frozenset(("torchrun", "accelerate", "deepspeed", "msrun", "horovodrun", "mpirun", "mpiexec", "mslaunch"))
_SPARE = 4 << 20  # bytes of address space, never touched


def run(request: Request, caller: Caller) -> Outcome:
    """Launch, and wait for the end.  Raises `LaunchError` for whatever is wrong before a rank was started."""
    with Loop() as loop:
        if caller.on_loop:
            caller.on_loop(loop)
        context = make_context(loop, request, caller)
        try:
            if request.cluster.host_meeting and not request.do_not_launch:
                return _run_with_peers(context, request)
            if request.cluster.share and not request.do_not_launch:
                from mslaunch.launcher.peers.absent_ranks import watch

                watch(request, loop, context.observers, context.console.info)
            return _LaunchSteps(context, request).run()
        except BaseException as error:
            context.observers.emit(LaunchRefused, error)
            raise
        finally:
            context.observers.close()


def _run_with_peers(context: LaunchContext, request: Request) -> Outcome:
    """Meet the commands on other hosts, and run this one's part; they learn how it ended."""
    from mslaunch.launcher.peers.job_meeting import JobMeeting
    from mslaunch.launcher.peers.meeting_records import MeetingContext

    check_limits(request)  # rather than when all have come
    check_shared(request)
    meeting = JobMeeting(MeetingContext(context.loop, context.interrupts, context.console), request)
    peers = meeting.peers
    try:
        request = meeting.first()
        context.observers.add(peers.observe)
        outcome = _LaunchSteps(context._replace(peers=peers), request, meeting).run()
        peers.tell(outcome)
    except LaunchError as error:
        peers.tell(None, error)
        raise
    finally:
        meeting.close()
    return outcome


def make_context(loop: Loop, request: Request, caller: Caller) -> LaunchContext:
    """What the attempts of a launch share; the clock starts."""
    began = time.monotonic()
    console = Console(loop, caller.stderr, request.quiet, request.verbose, _paint(request, caller))
    stdout = console.open_stdout(caller.stdout)
    links = OpenLinks(loop, request.link)

    def suspend() -> None:
        console.hide_overlay()
        links.suspend()

    interrupts = Interrupts(loop, request, caller.signals, suspend)
    progress = request.monitor.progress
    shown = [] if progress == "no" else console.observers
    observers = Observers(began, [*shown, *caller.observers], console.info)
    jobid, secret = os.urandom(4).hex(), os.urandom(16).hex()
    try:
        if request.monitor.asked or request.output.paths:
            from mslaunch.launcher.monitoring.monitors import add_monitors

            add_monitors(loop, request, caller, observers, console, jobid)
        if shown or progress in ("yes", "plain"):
            from mslaunch.launcher.monitoring.status_line import add_status

            add_status(loop, request, caller, observers, console)
        grant = _grant(request, caller)
    except BaseException as error:
        observers.emit(LaunchRefused, error)
        observers.close()
        raise
    interrupts.granted = grant.title if grant else ""
    made = LaunchContext(loop, caller, console, stdout, interrupts, links, observers, began, jobid, secret, grant)
    if caller.on_context:
        caller.on_context(made)
    return made


def _paint(request: Request, caller: Caller) -> Callable[[str, str], str] | None:
    """How messages are coloured; None: not at all, as where nobody looks at a terminal."""
    forced = "FORCE_COLOR" in caller.environ or "CLICOLOR_FORCE" in caller.environ
    if not (forced or request.color == "yes" or os.isatty(caller.stderr)):
        return None  # without an import
    from mslaunch.launcher.messages.message_colors import painter

    return painter(request.color, caller.environ, caller.stderr)


def _grant(request: Request, caller: Caller) -> Grant | None:
    """What a resource manager has granted; None if there is none, or it is not for us to use.

    A backend asks by itself, and of a job that other launchers start with us (msrun --node_rank) only ours is here.
    """
    wanted = request.resource_manager
    if wanted and wanted != NO_MANAGER and wanted not in MANAGERS:
        known = ", ".join([*MANAGERS, NO_MANAGER])
        todo = f"use one of {known}; of other systems, name the hosts by --hostfile FILE"
        raise UsageError(f"there is no resource manager {wanted!r}", "--resource-manager", todo)
    if wanted == NO_MANAGER or request.backend or request.cluster.share:
        return None
    found = {
        word: row
        for word, (variable, row) in MANAGERS.items()
        if (word == wanted if wanted else variable in caller.environ)
    }
    if not found:
        return None
    from mslaunch.host.files import read_text
    from mslaunch.resource_managers.managers import HostAccess, detect, run_command

    run = partial(run_command, caller.environ)
    return detect(found, HostAccess(caller.environ, read_text, run, is_this_host), wanted)


class _LaunchSteps:
    """From the request to the outcome."""

    def __init__(self, context: LaunchContext, request: Request, meeting: JobMeeting | None = None) -> None:
        self._context = context
        self._console = context.console
        self._request = request
        self._meeting = meeting  # with commands on other hosts
        self._hosts: HostReplacement | HostsOfPeers | None = None  # with --restart group
        number = meeting.peers.attempt if meeting else 1
        self._attempt = JobAttempt(context, request, number)  # the last that has run
        self._spare = bytes(_SPARE)

    def run(self) -> Outcome:
        """Raises `LaunchError` for whatever is wrong before a rank was started."""
        stuck: Sequence[str] = ()
        kept = True
        try:
            self._prepare()
            if self._request.do_not_launch:
                return Outcome(0, (), None, self._context.seconds)
            restart = self._restart()
            self._attempt.run_ranks()
            outcome = self._attempt.outcome()
            if restart and self._attempt.state.restartable:
                self._attempt, outcome, kept = restart.run(self._attempt, outcome)
        except MemoryError:
            self._spare = b""  # the end of the job needs memory, too
            self._close_output()
            raise no_memory() from None
        except LaunchError:
            self._close_output()
            raise
        finally:
            stuck = self._attempt.close_agents()
            self._context.links.close()
        kept = self._attempt.end_output() and kept
        return self._report(outcome if kept else with_lost_output(outcome), stuck)

    def _restart(self) -> GroupRestart | None:
        """With --restart group: what starts all ranks again."""
        if not self._hosts:
            return None
        from mslaunch.launcher.recovery.group_restart import GroupRestart

        return GroupRestart(self._context, self._request, self._hosts)

    def _close_output(self) -> None:
        self._attempt.close_output()
        self._console.close()  # what was said before the error is written

    def _prepare(self) -> None:
        """All that can be refused."""
        attempt, request = self._attempt, self._request
        check_first(request, attempt)
        announce_pid(self._context, request)
        if request.restart == "group" and not request.do_not_launch:
            self._hosts = self._all_hosts()
            self._hosts.connect_first(attempt)
        else:
            attempt.place(request, attempt.count_cores(attempt.named_hosts()))
        self._show_tables(attempt.allocation)
        if request.do_not_launch:
            self._show_xml_map(finish=True)
            return
        late = request.output.needs_addresses
        if not late:
            attempt.open_output()
        if not attempt.agents:
            attempt.connect()
        if late:
            attempt.open_output()
        self._show_bindings()

    def _all_hosts(self) -> HostReplacement | HostsOfPeers:
        """Those of all attempts."""
        from mslaunch.launcher.recovery.host_replacement import HostReplacement, HostsOfPeers

        return HostsOfPeers(self._meeting) if self._meeting else HostReplacement(self._request, self._console.info)

    # --- the end

    def _report(self, outcome: Outcome, stuck: Sequence[str]) -> Outcome:
        outcome = outcome._replace(seconds=self._context.seconds)
        stays = outcome.code == EXIT_NO_PROGRESS and self._request.progress_file is not None
        if outcome.code and self._request.failure_code and not stays:
            outcome = outcome._replace(code=self._request.failure_code)
        if outcome.failure and self._request.output.streams:
            from mslaunch.launcher.messages.error_file import with_error_file

            outcome = with_error_file(outcome, self._attempt.output.logs, self._context.caller)
        report = ""
        if outcome.failure or outcome.attempts or outcome.restarts:
            from mslaunch.launcher.messages.closing_report import outcome_text

            report = outcome_text(outcome, self._attempt.output.log_of(outcome.failure))
        self._context.observers.emit(LaunchEnded, outcome, report)
        self._console.write(report, "error" if outcome.failure else "notice")
        self._context.observers.close()
        self._console.finish(stuck)
        return outcome

    # --- what is shown

    def _show_tables(self, allocation: Allocation) -> None:
        """The tables that were asked for, and notices about the plan."""
        request, console, placed = self._request, self._console, self._attempt.placed
        if not allocation.declared and placed.jobmap.oversubscribed:
            ranks, cores = len(placed.jobmap.placements), allocation.nodes[0].slots
            console.info(f"{ranks} ranks share {counted(cores or 0, 'core')}")
        report_missing_exports(self._context, request)
        for app in request.apps:
            if os.path.basename(app.argv[0]) in LAUNCHERS or "-m" in app.argv[1:4]:
                from mslaunch.launcher.messages.nested_launcher import nested_text

                if text := nested_text(app.argv, len(placed.jobmap.placements)):
                    console.info(text)
                    break
        self._note_proxies()
        if request.display_allocation or request.display_map or request.display_topology or request.do_not_launch:
            from mslaunch.launcher.messages.display_tables import tables

            caller, text = self._context.caller, tables(request, allocation, placed, self._context.jobid)
            to_stderr = request.output.xml
            try:
                write_all(caller.stderr if to_stderr else caller.stdout, text.encode("utf-8", "surrogateescape"))
            except OSError as error:
                where = "standard error" if to_stderr else "standard output"
                raise LaunchError(f"the tables cannot be written: {error.strerror}", where) from None

    def _note_proxies(self) -> None:
        request, environ, jobmap = self._request, self._context.caller.environ, self._attempt.placed.jobmap
        given = (name for app in request.apps for name, _ in app.env)
        if any(name[-6:].lower() == "_proxy" for name in (*environ, *given)):
            from mslaunch.launcher.messages.proxy_note import proxy_text

            if text := proxy_text(request, environ, any(jobmap.nodes[at.node].local for at in jobmap.placements)):
                self._console.info(text)

    def _show_bindings(self) -> None:
        """What can be shown only when all agents have answered."""
        attempt = self._attempt
        if self._request.report_bindings:
            from mslaunch.launcher.messages.display_tables import bindings

            pids = {agent.node.name: agent.hello.pid for agent in attempt.agents if agent.hello}
            self._console.print(bindings(attempt.placed, pids))  # as mpirun: --quiet or not
        self._show_xml_map()

    def _show_xml_map(self, finish: bool = False) -> None:
        """The map as a part of the XML document; `finish`: the job is not to be started."""
        if not self._request.display_map:
            return
        from mslaunch.launcher.messages.display_tables import map_as_xml

        if map_as_xml(self._request):
            attempt = self._attempt
            if finish:
                attempt.open_output()
            attempt.output.show_map(attempt.jobmap)
            if finish:
                attempt.output.finish()
                attempt.end_output()


def check_first(request: Request, attempt: JobAttempt) -> None:
    """Raises `LaunchError` for what can be refused before hosts are known; finds the files that are to be sent."""
    check_limits(request)
    if request.fill:
        from mslaunch.plan.rank_patterns import check_names

        check_names(request.apps)
    attempt.collect_files()


def announce_pid(context: LaunchContext, request: Request) -> None:
    """--report-pid and --report-uri."""
    if request.report_pid is not None or request.report_uri is not None:
        from mslaunch.launcher.report_pid import announce

        cwd, stdout, say = context.caller.cwd, context.caller.stdout, context.console.print
        announce(request, cwd, stdout, say, context.jobid, context.loop, context.interrupts.wait)


def report_missing_exports(context: LaunchContext, request: Request) -> None:
    """A notice for each -x of a variable that is not set."""
    for name in missing_exports(request, context.caller.environ):
        context.console.info(f"-x {name}: the variable is not set here, so the ranks do not get it")


def with_lost_output(outcome: Outcome) -> Outcome:
    """The outcome of a launch that could not keep all that was printed."""
    lost = Failure("all ranks succeeded, but not all of their output could be kept", code=EXIT_USAGE)
    return outcome._replace(code=outcome.code or EXIT_USAGE, failure=outcome.failure or lost)
