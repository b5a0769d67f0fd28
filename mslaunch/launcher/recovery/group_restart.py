"""Again: the launch goes on after an attempt that failed, with all ranks anew, until one ends well or nothing helps.

Links are closed, hosts or their `substitutes` are called, and the next story is told.  It decides nothing by itself and
knows neither frames nor plans.  The surprising thing: whatever goes wrong before the ranks of a later attempt run is no
refusal, since ranks have run; the launch ends with the failure that came before, and a line that says why it went no
further.
"""

from __future__ import annotations

from mslaunch.datamodel.outcome import Attempt, Failure, Outcome
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.attempt import JobAttempt
from mslaunch.launcher.job.restart_policy import most_restarts
from mslaunch.launcher.recovery.host_replacement import NoPlaceError
from mslaunch.launcher.recovery.next_attempt import again_text, of_all, too_often

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.attempt import LaunchContext
    from mslaunch.launcher.recovery.host_replacement import HostReplacement


class GroupRestart:
    """All attempts of a launch but the first."""

    def __init__(self, scene: LaunchContext, request: Request, first: JobAttempt, substitutes: HostReplacement) -> None:
        """`first` has been told, of the launch that `request` is for."""
        self._scene = scene
        self._request = request
        self._substitutes = substitutes
        self.story = first  # the last one so far
        self.kept = True  # all that was printed in the attempts before

    def run(self, outcome: Outcome) -> Outcome:
        """From the outcome of the first attempt to that of the launch."""
        past: list[Attempt] = []
        restarts = list(outcome.restarts)
        while self.story.launch.state.restartable:
            before = self.story
            try:
                changed = self._prepare(before, outcome)
                self.story.run_ranks()
            except NoPlaceError as error:
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
    def _attempt(story: JobAttempt, outcome: Outcome, changed: str) -> Attempt:
        assert outcome.failure
        return Attempt(story.number, outcome.failure, outcome.seconds, changed)

    # --- from one attempt to the next

    def _prepare(self, before: JobAttempt, outcome: Outcome) -> str:
        """The next story, up to where its ranks start; what is different then.

        Raises `NoPlaceError`, or `LaunchError` for what is wrong with more than a host.
        """
        scene, request = self._scene, self._request
        if before.number > most_restarts(request):
            raise NoPlaceError([too_often(before.number, request)])
        assert outcome.failure
        scene.stops.watch_again()
        scene.console.info(again_text(before.number, request, outcome.failure))
        stuck = before.close()
        if stuck:
            scene.console.info(f"still ending: {', '.join(stuck)}")
        self._pause()
        story = JobAttempt(scene, request, before.number + 1)
        try:
            story.collect_files()  # as they are now
            changed = self._substitutes.meet_again(story, before)
            story.open_output()
        except BaseException:
            story.close()
            raise
        self.kept = before.close_output() and self.kept
        self.story = story
        if changed:
            scene.console.info(f"{of_all(story.number, request)}: {changed}")
        return changed

    def _pause(self) -> None:
        over: list[bool] = []
        self._scene.loop.after(self._request.restart_delay, lambda: over.append(True))
        self._scene.stops.wait(lambda: bool(over))


def _with_reason(outcome: Outcome, lines: Sequence[str]) -> Outcome:
    assert outcome.failure
    return outcome._replace(failure=outcome.failure._replace(detail=(*lines, *outcome.failure.detail)))
