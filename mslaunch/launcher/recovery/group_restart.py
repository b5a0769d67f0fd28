"""Attempts after the first: all ranks are started again until one attempt ends well or nothing more can be tried.

An error before the ranks of a later attempt run is no refusal, since ranks have run: the launch ends with the failure
of the attempt before, and a line says why there is no other attempt.
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
    from mslaunch.launcher.launch_context import LaunchContext
    from mslaunch.launcher.recovery.host_replacement import HostReplacement


class GroupRestart:
    """All attempts of a launch but the first."""

    def __init__(self, context: LaunchContext, request: Request, first: JobAttempt, hosts: HostReplacement) -> None:
        """`first` has been told, of the launch that `request` is for."""
        self._context = context
        self._request = request
        self._hosts = hosts
        self.attempt = first  # the last one so far
        self.kept = True  # all that was printed in the attempts before

    def run(self, outcome: Outcome) -> Outcome:
        """From the outcome of the first attempt to that of the launch."""
        past: list[Attempt] = []
        restarts = list(outcome.restarts)
        while self.attempt.launch.state.restartable:
            before = self.attempt
            try:
                changed = self._prepare(before, outcome)
                self.attempt.run_ranks()
            except NoPlaceError as error:
                outcome = _with_reason(outcome, error.lines)
                break
            except LaunchError as error:
                if error is self._context.interrupts.error:
                    past.append(self._attempt(before, outcome, ""))
                    outcome = outcome._replace(code=error.code, failure=Failure(error.what, code=error.code))
                else:
                    outcome = _with_reason(outcome, [f"not started again: {error}"])
                break
            past.append(self._attempt(before, outcome, changed))
            outcome = self.attempt.outcome()
            restarts += outcome.restarts
        return outcome._replace(attempts=tuple(past), restarts=tuple(restarts))

    @staticmethod
    def _attempt(attempt: JobAttempt, outcome: Outcome, changed: str) -> Attempt:
        assert outcome.failure
        return Attempt(attempt.number, outcome.failure, outcome.seconds, changed)

    # --- from one attempt to the next

    def _prepare(self, before: JobAttempt, outcome: Outcome) -> str:
        """The next attempt, up to where its ranks start; what is different then.

        Raises `NoPlaceError`, or `LaunchError` for what is wrong with more than a host.
        """
        context, request = self._context, self._request
        if before.number > most_restarts(request):
            raise NoPlaceError([too_often(before.number, request)])
        assert outcome.failure
        context.console.info(again_text(before.number, request, outcome.failure))
        stuck = before.close()
        if stuck:
            context.console.info(f"still ending: {', '.join(stuck)}")
        self._pause()
        attempt = JobAttempt(context, request, before.number + 1)
        try:
            attempt.collect_files()  # as they are now
            changed = self._hosts.meet_again(attempt, before)
            attempt.open_output()
        except BaseException:
            attempt.close()
            raise
        self.kept = before.close_output() and self.kept
        self.attempt = attempt
        if changed:
            context.console.info(f"{of_all(attempt.number, request)}: {changed}")
        return changed

    def _pause(self) -> None:
        self._context.interrupts.wait(lambda: False, self._request.restart_delay)


def _with_reason(outcome: Outcome, lines: Sequence[str]) -> Outcome:
    assert outcome.failure
    return outcome._replace(failure=outcome.failure._replace(detail=(*lines, *outcome.failure.detail)))
