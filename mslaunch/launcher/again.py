"""Again: the launch goes on after an attempt that failed, with all ranks anew, until one ends well or nothing helps.

Links are closed, hosts that were lost are called once more, what `attempts` offers is tried, and the next story is
told.  It decides nothing by itself and knows neither frames nor plans.  The surprising thing: whatever goes wrong
before the ranks of a later attempt run is no refusal, since ranks have run; the launch ends with the failure that came
before, and a line that says why it went no further.
"""

from __future__ import annotations

from mslaunch.errors import AllocationError, LaunchError, LinkError, UsageError
from mslaunch.launcher.attempts import (
    CALL_AGAIN,
    Before,
    again_text,
    choices,
    no_host,
    of_all,
    too_often,
)
from mslaunch.launcher.connect import UnreachedError
from mslaunch.launcher.rules import most_restarts
from mslaunch.launcher.story import Story
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import Attempt, Failure, Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mslaunch.launcher.story import Scene
    from mslaunch.model import Node


class _NoWayError(Exception):
    """There is no next attempt; the lines say why."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(*lines)
        self.lines = lines


class Again:
    """All attempts of a launch but the first."""

    def __init__(self, scene: Scene, first: Story) -> None:
        """`first` has been told."""
        self._scene = scene
        self._request = first.request
        self._counts = first.counts
        self._lost: set[str] = set()  # all hosts that ever were
        self._gone: dict[str, LaunchError] = {}  # those that cannot be reached now, by name
        self.story = first  # the last one so far
        self.kept = True  # all that was printed in the attempts before

    def go_on(self, outcome: Outcome) -> Outcome:
        """From the outcome of the first attempt to that of the launch."""
        past: list[Attempt] = []
        restarts = list(outcome.restarts)
        while self.story.launch.state.restartable:
            before = self.story
            try:
                changed = self._prepare(before, outcome)
                self.story.conduct()
            except _NoWayError as error:
                outcome = _with_reason(outcome, error.lines)
                break
            except LaunchError as error:
                if error is self._scene.stops.error:
                    past.append(self._attempt(before, outcome, ""))
                    outcome = outcome._replace(code=error.code, failure=Failure(error.what, code=error.code))
                else:
                    outcome = _with_reason(outcome, [f"not started again: {error}"])
                break
            past.append(self._attempt(before, outcome, changed))
            outcome = self.story.outcome()
            restarts += outcome.restarts
        return outcome._replace(attempts=tuple(past), restarts=tuple(restarts))

    @staticmethod
    def _attempt(story: Story, outcome: Outcome, changed: str) -> Attempt:
        assert outcome.failure
        return Attempt(story.number, outcome.failure, outcome.seconds, changed)

    # --- from one attempt to the next

    def _prepare(self, before: Story, outcome: Outcome) -> str:
        """The next story, up to where its ranks start; what is different then.

        Raises `_NoWayError`, or `LaunchError` for what is wrong with more than a host.
        """
        scene, request = self._scene, self._request
        if before.number > most_restarts(request):
            raise _NoWayError([too_often(before.number, request)])
        assert outcome.failure
        scene.stops.watch_again()
        scene.voice.notice(again_text(before.number, request, outcome.failure))
        stuck = before.part()
        if stuck:
            scene.voice.notice(f"still ending: {', '.join(stuck)}")
        self._pause()
        story = Story(scene, request, before.number + 1)
        try:
            story.collect_files()  # as they are now
            changed = self._meet(story, before)
            story.open_output()
        except BaseException:
            story.part()
            raise
        self.kept = before.close_output() and self.kept
        self.story = story
        if changed:
            scene.voice.notice(f"{of_all(story.number, request)}: {changed}")
        return changed

    def _pause(self) -> None:
        over: list[bool] = []
        self._scene.loop.after(self._request.restart_delay, lambda: over.append(True))
        self._scene.stops.wait(lambda: bool(over))

    def _meet(self, story: Story, before: Story) -> str:
        """Links to all hosts of the first choice that has room on hosts which can be reached."""
        past = Before(before.number, before.allocation, len(before.jobmap.placements), before.scheduler)
        here = {node.name: node for node in (*past.allocation.nodes, *before.jobmap.nodes)}  # with the scheduler's
        ours = {*here, *(node.name for node in past.allocation.spares)}
        self._gone.clear()
        self._lost.update(before.launch.state.lost_hosts)
        while True:
            try:
                self._call_lost(story, [node for name, node in here.items() if name not in self._gone])
                changed = self._take_places(story, past)
                story.meet()
            except UnreachedError as error:
                self._note(error.by_node, ours)
            except LinkError as error:
                self._note({error.where: error}, ours)
            else:
                return changed

    def _call_lost(self, story: Story, nodes: Sequence[Node]) -> None:
        """Hosts that were lost may be back; they get less time than others."""
        lost = [node for node in nodes if node.name in self._lost]
        if lost:
            story.company.knock(lost, min(self._request.link.timeout, CALL_AGAIN))

    def _take_places(self, story: Story, past: Before) -> str:
        """As the first choice says that has room; returns what is different then."""
        refused: LaunchError | None = None
        for choice in choices(self._request, self._counts, past, frozenset(self._gone)):
            self._call_lost(story, choice.allocation.nodes)
            try:
                jobmap = story.place(choice.request, story.count_cores(choice.allocation))
            except (AllocationError, UsageError) as error:
                refused = refused or error
                continue
            if len(jobmap.placements) == choice.size:
                return choice.changed
        raise _NoWayError(no_host(self._request, self._counts, past, self._gone, refused))

    def _note(self, gone: Mapping[str, LaunchError], ours: Collection[str]) -> None:
        """These hosts are out for now; raises what is wrong with none of ours."""
        for name, error in gone.items():
            if name not in ours or name in self._gone:
                raise error
        self._gone.update(gone)
        self._lost.update(gone)


def _with_reason(outcome: Outcome, lines: Sequence[str]) -> Outcome:
    assert outcome.failure
    return outcome._replace(failure=outcome.failure._replace(detail=(*lines, *outcome.failure.detail)))
