"""The life of one launch, as a story: allocate, map, connect, prepare, start, wait, report.

`run` is what the command and the Python API have in common.  It reads no command line and prints only what the job
needs said.  The chapters are those of `story`; if an attempt fails and all ranks are to be started again, `again` goes
on.  The surprising thing is the order: files are opened and links made before anything is started, so that whatever is
wrong is known while nothing runs.
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.outcome import Failure, Outcome
from mslaunch.datamodel.request import Request
from mslaunch.errors import EXIT_USAGE, LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.attempt import LAST_WORDS, JobAttempt, LaunchContext
from mslaunch.launcher.early_stops import EarlyStops
from mslaunch.launcher.messages.console import Console
from mslaunch.launcher.messages.failure_report import outcome_text
from mslaunch.launcher.stdio.file_patterns import needs_addresses
from mslaunch.plan.exported_variables import missing_exports
from mslaunch.runtime.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.hosts import Allocation
    from mslaunch.launcher.recovery.host_replacement import HostReplacement


class Caller(NamedTuple):
    """Where a launch happens; the command's own process, or what a caller of the API says."""

    environ: Mapping[str, str]
    cwd: str
    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    signals: bool = True  # take over SIGINT and its like (the main thread only)
    started: Callable[[], None] | None = None  # called once, when all ranks run


def run(request: Request, around: Caller) -> Outcome:
    """Launch, and wait for the end.  Raises `LaunchError` for whatever is wrong before a rank was started."""
    with Loop() as loop:
        return _Launch(loop, request, around).run()


class _Launch:
    """One launch, and what its chapters share."""

    def __init__(self, loop: Loop, request: Request, around: Caller) -> None:
        began = time.monotonic()
        self._loop = loop
        self._request = request
        self._around = around
        self._console = Console(loop, around.stderr, request.quiet, request.verbose)
        self._stops = EarlyStops(loop, request, around.signals)
        self._jobid = os.urandom(4).hex()
        self._scene = LaunchContext(loop, around, self._console, self._stops, began, self._jobid, self._running)
        self._told_running = False
        self._substitutes: HostReplacement | None = None  # if all ranks may be started again
        self._story = JobAttempt(self._scene, request, 1)

    def run(self) -> Outcome:
        """From the request to the outcome."""
        stuck: Sequence[str] = ()
        try:
            self._prepare()
            if self._request.do_not_launch:
                return Outcome(0, (), None, self._scene.seconds)
            self._story.run_ranks()
            outcome, kept = self._story.outcome(), True
            if self._story.launch.state.restartable:
                from mslaunch.launcher.recovery.group_restart import GroupRestart

                assert self._substitutes
                again = GroupRestart(self._scene, self._request, self._story, self._substitutes)
                try:
                    outcome = again.run(outcome)
                finally:
                    self._story, kept = again.story, again.kept
        except LaunchError:
            self._story.close_output()
            self._console.close()  # what was said before the refusal
            raise
        finally:
            stuck = self._story.close()
        return self._report(_with_files(outcome, self._story.end_output() and kept), stuck)

    def _prepare(self) -> None:
        """All that can be wrong before a rank is started."""
        story, request = self._story, self._request
        self._announce()
        story.collect_files()
        if request.restart == "group" and not request.do_not_launch:
            self._meet_some()
        else:
            story.place(request, story.allocate())
        self._show(story.allocation)
        if request.do_not_launch:
            self._display_xml()
            return
        early = not needs_addresses(request.output)
        if early:
            story.open_output()
        if not story.peers:
            story.meet()
        if not early:
            story.open_output()
        self._show_bindings()

    def _meet_some(self) -> None:
        """Hosts that cannot be reached may be replaced, so who is there is known before anything is shown or opened."""
        from mslaunch.launcher.recovery.host_replacement import HostReplacement

        self._substitutes = HostReplacement(self._request)
        self._substitutes.meet_first(self._story, self._console.info)

    def _running(self) -> None:
        """All ranks of an attempt run."""
        if self._around.started and not self._told_running:
            self._told_running = True
            self._around.started()

    def _report(self, outcome: Outcome, stuck: Sequence[str]) -> Outcome:
        outcome = outcome._replace(seconds=self._scene.seconds)
        self._console.write(outcome_text(outcome, self._story.log_of(outcome.failure)))
        if stuck:
            self._console.info(f"still ending: {', '.join(stuck)}")
        given_up: list[bool] = []
        self._loop.after(LAST_WORDS, lambda: given_up.append(True))
        self._loop.run(lambda: not self._console.stderr.pending or bool(given_up))
        self._console.close()
        return outcome

    def _announce(self) -> None:
        request, around = self._request, self._around
        if request.report_pid is not None or request.report_uri is not None:
            from mslaunch.launcher.messages.report_pid import announce, open_channel

            say, wait = self._console.print, self._stops.wait
            announce(request, around, say, self._jobid, lambda path: open_channel(path, self._loop, wait))

    # --- what is shown

    def _show(self, allocation: Allocation) -> None:
        """What was asked to be shown of the plan, and what is worth a notice."""
        request, console, placed = self._request, self._console, self._story.placed
        if not allocation.declared and placed.jobmap.oversubscribed:
            ranks, cores = len(placed.jobmap.placements), allocation.nodes[0].slots
            console.info(f"{ranks} ranks share {cores} core{'s' if cores != 1 else ''}")
        for name in missing_exports(request, self._around.environ):
            console.info(f"-x {name}: there is no such variable here; the ranks get none either")
        if request.display_allocation or request.display_map or request.display_topology or request.do_not_launch:
            from mslaunch.launcher.messages.display import tables, write

            fd = self._around.stderr if request.output.xml else self._around.stdout
            write(tables(request, allocation, placed, self._jobid), fd)

    def _show_bindings(self) -> None:
        """What can be shown only when all agents have answered."""
        story = self._story
        if self._request.report_bindings:
            from mslaunch.launcher.messages.display import report_bindings

            report_bindings(self._console, story.jobmap, story.placed.topologies, story.peers)
        if self._map_as_xml():
            story.output.show_map(story.jobmap)

    def _map_as_xml(self) -> bool:
        if not self._request.display_map:
            return False
        from mslaunch.launcher.messages.display import map_as_xml

        return map_as_xml(self._request)

    def _display_xml(self) -> None:
        """The map of a job that is not to be started."""
        if self._map_as_xml():
            story = self._story
            story.open_output()
            story.output.show_map(story.jobmap)
            story.output.finish()
            story.end_output()


def _with_files(outcome: Outcome, kept: bool) -> Outcome:
    """`kept`: all that was printed is where it was asked for."""
    if kept:
        return outcome
    lost = Failure("all ranks ended well, but not all of their output could be kept", code=EXIT_USAGE)
    return outcome._replace(code=outcome.code or EXIT_USAGE, failure=outcome.failure or lost)
