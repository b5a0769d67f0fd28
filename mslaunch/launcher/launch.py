"""One launch: allocate, map, connect, open the output, run the attempts, report.

The entry point of the command and of the Python API.  Files are opened and agents connected before any rank starts, so
that whatever is wrong is refused while nothing runs.
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.outcome import Failure, Outcome
from mslaunch.datamodel.request import Request
from mslaunch.errors import EXIT_USAGE, LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.attempt import LAST_WORDS, JobAttempt
from mslaunch.launcher.interrupts import Interrupts
from mslaunch.launcher.launch_context import LaunchContext
from mslaunch.launcher.messages.failure_report import outcome_text
from mslaunch.launcher.stdio.console import Console
from mslaunch.launcher.stdio.file_patterns import needs_addresses
from mslaunch.plan.exported_variables import missing_exports
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.hosts import Allocation
    from mslaunch.launcher.launch_context import Caller
    from mslaunch.launcher.recovery.host_replacement import HostReplacement


def run(request: Request, caller: Caller) -> Outcome:
    """Launch, and wait for the end.  Raises `LaunchError` for whatever is wrong before a rank was started."""
    with Loop() as loop:
        return _Launch(loop, request, caller).run()


class _Launch:
    """One launch, and what its chapters share."""

    def __init__(self, loop: Loop, request: Request, caller: Caller) -> None:
        began = time.monotonic()
        self._loop = loop
        self._request = request
        self._caller = caller
        self._console = Console(loop, caller.stderr, request.quiet, request.verbose)
        self._stdout = self._console.open_stdout(loop, caller.stdout)
        self._interrupts = Interrupts(loop, request, caller.signals)
        self._jobid = os.urandom(4).hex()
        self._context = LaunchContext(
            loop, caller, self._console, self._stdout, self._interrupts, began, self._jobid, self._running
        )
        self._told_running = False
        self._replacement: HostReplacement | None = None  # if all ranks may be started again
        self._attempt = JobAttempt(self._context, request, 1)

    def run(self) -> Outcome:
        """From the request to the outcome."""
        stuck: Sequence[str] = ()
        try:
            self._prepare()
            if self._request.do_not_launch:
                return Outcome(0, (), None, self._context.seconds)
            self._attempt.run_ranks()
            outcome, kept = self._attempt.outcome(), True
            if self._attempt.launch.state.restartable:
                from mslaunch.launcher.recovery.group_restart import GroupRestart

                assert self._replacement
                again = GroupRestart(self._context, self._request, self._attempt, self._replacement)
                try:
                    outcome = again.run(outcome)
                finally:
                    self._attempt, kept = again.attempt, again.kept
        except LaunchError:
            self._attempt.close_output()
            self._close_streams()  # with what was said before the refusal
            raise
        finally:
            stuck = self._attempt.close()
        return self._report(_with_files(outcome, self._attempt.end_output() and kept), stuck)

    def _prepare(self) -> None:
        """All that can be wrong before a rank is started."""
        attempt, request = self._attempt, self._request
        self._announce()
        attempt.collect_files()
        if request.restart == "group" and not request.do_not_launch:
            self._meet_some()
        else:
            attempt.place(request, attempt.allocate())
        self._show(attempt.allocation)
        if request.do_not_launch:
            self._display_xml()
            return
        early = not needs_addresses(request.output)
        if early:
            attempt.open_output()
        if not attempt.peers:
            attempt.meet()
        if not early:
            attempt.open_output()
        self._show_bindings()

    def _meet_some(self) -> None:
        """Hosts that cannot be reached may be replaced, so who is there is known before anything is shown or opened."""
        from mslaunch.launcher.recovery.host_replacement import HostReplacement

        self._replacement = HostReplacement(self._request)
        self._replacement.meet_first(self._attempt, self._console.info)

    def _running(self) -> None:
        """All ranks of an attempt run."""
        if self._caller.started and not self._told_running:
            self._told_running = True
            self._caller.started()

    def _report(self, outcome: Outcome, stuck: Sequence[str]) -> Outcome:
        outcome = outcome._replace(seconds=self._context.seconds)
        self._console.write(outcome_text(outcome, self._attempt.log_of(outcome.failure)))
        if stuck:
            self._console.info(f"still ending: {', '.join(stuck)}")
        self._loop.run(lambda: not self._console.stderr.pending, LAST_WORDS)
        self._close_streams()
        return outcome

    def _close_streams(self) -> None:
        self._console.close()
        self._stdout.close()

    def _announce(self) -> None:
        request, caller = self._request, self._caller
        if request.report_pid is not None or request.report_uri is not None:
            from mslaunch.launcher.messages.report_pid import announce, open_channel

            say, wait = self._console.print, self._interrupts.wait
            announce(
                request, caller.cwd, caller.stdout, say, self._jobid, lambda path: open_channel(path, self._loop, wait)
            )

    # --- what is shown

    def _show(self, allocation: Allocation) -> None:
        """What was asked to be shown of the plan, and what is worth a notice."""
        request, console, placed = self._request, self._console, self._attempt.placed
        if not allocation.declared and placed.jobmap.oversubscribed:
            ranks, cores = len(placed.jobmap.placements), allocation.nodes[0].slots
            console.info(f"{ranks} ranks share {cores} core{'s' if cores != 1 else ''}")
        for name in missing_exports(request, self._caller.environ):
            console.info(f"-x {name}: there is no such variable here; the ranks get none either")
        if request.display_allocation or request.display_map or request.display_topology or request.do_not_launch:
            from mslaunch.launcher.messages.display import tables, write

            fd = self._caller.stderr if request.output.xml else self._caller.stdout
            write(tables(request, allocation, placed, self._jobid), fd)

    def _show_bindings(self) -> None:
        """What can be shown only when all agents have answered."""
        attempt = self._attempt
        if self._request.report_bindings:
            from mslaunch.launcher.messages.display import bindings

            pids = {peer.node.name: peer.hello.pid for peer in attempt.peers if peer.hello}
            self._console.print(bindings(attempt.placed, pids))  # as mpirun: --quiet or not
        if self._map_as_xml():
            attempt.output.show_map(attempt.jobmap)

    def _map_as_xml(self) -> bool:
        if not self._request.display_map:
            return False
        from mslaunch.launcher.messages.display import map_as_xml

        return map_as_xml(self._request)

    def _display_xml(self) -> None:
        """The map of a job that is not to be started."""
        if self._map_as_xml():
            attempt = self._attempt
            attempt.open_output()
            attempt.output.show_map(attempt.jobmap)
            attempt.output.finish()
            attempt.end_output()


def _with_files(outcome: Outcome, kept: bool) -> Outcome:
    """`kept`: all that was printed is where it was asked for."""
    if kept:
        return outcome
    lost = Failure("all ranks ended well, but not all of their output could be kept", code=EXIT_USAGE)
    return outcome._replace(code=outcome.code or EXIT_USAGE, failure=outcome.failure or lost)
