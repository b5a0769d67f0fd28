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
from mslaunch.launcher.messages.notices import again_text, attempt_text, limit_text
from mslaunch.launcher.observers import Restarting, Waiting
from mslaunch.launcher.recovery.restart_candidates import NoPlaceError
from mslaunch.launcher.recovery.restart_pace import RestartPace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.attempt import LaunchContext
    from mslaunch.launcher.recovery.host_replacement import HostReplacement, HostsOfPeers


class GroupRestart:
    """All attempts of a launch but the first; `request` is that of the first."""

    def __init__(self, context: LaunchContext, request: Request, hosts: HostReplacement | HostsOfPeers) -> None:
        self._context = context
        self._request = request
        self._hosts = hosts
        self._attempts = most_restarts(request) + 1
        self._pace = RestartPace(request, context.caller.cwd, context.loop.now, context.console.info)
        self._pace.began()  # the ranks of the first are about to be started

    def run(self, attempt: JobAttempt, outcome: Outcome) -> tuple[JobAttempt, Outcome, bool]:
        """From the first attempt and its outcome to the last that ran, and the outcome of the launch.

        The third is True if the output of all attempts before the last was kept.  The caller closes the last attempt.
        """
        past: list[Attempt] = []
        restarts = list(outcome.restarts)
        kept = True
        while attempt.state.restartable:
            before, changed = attempt, ""
            try:
                attempt, changed = self._prepare(before, outcome)
                kept = before.close_output() and kept
                self._pace.began()
                self._run(attempt)
            except NoPlaceError as error:
                outcome = self._with_reason(outcome, error.lines, error.code)
                break
            except LaunchError as error:
                if error is self._context.interrupts.error:
                    past.append(_record(before, outcome, ""))
                    outcome = outcome._replace(code=error.code, failure=Failure(error.what, code=error.code))
                else:
                    outcome = self._with_reason(outcome, [f"not started again: {error}"])
                break
            past.append(_record(before, outcome, changed))
            outcome = attempt.outcome()
            restarts += outcome.restarts
        return attempt, outcome._replace(attempts=tuple(past), restarts=tuple(restarts)), kept

    def _prepare(self, before: JobAttempt, outcome: Outcome) -> tuple[JobAttempt, str]:
        """The next attempt, ready to run, and what is different in it.

        Raises `NoPlaceError`, or `LaunchError` for what is wrong with more than a host.
        """
        console, interrupts = self._context.console, self._context.interrupts
        self._pace.failed()
        if before.number >= self._attempts:
            raise NoPlaceError([limit_text(before.number, self._attempts)])
        assert outcome.failure
        delay = self._pace.delay
        console.info(again_text(before.number, self._attempts, outcome.failure, delay))
        stuck = before.close_agents()
        if stuck:
            console.info(f"still ending: {', '.join(stuck)}")
        interrupts.wait(lambda: False, delay)
        attempt = JobAttempt(self._context, self._request, before.number + 1)
        try:
            attempt.collect_files()  # as they are now
            changed = self._hosts.connect_again(attempt, before, self._await_devices)
            attempt.open_output()
        except BaseException:
            attempt.pool.close()
            raise
        self._context.observers.emit(Restarting, attempt.number, outcome.failure, changed)
        if changed:
            console.info(f"{attempt_text(attempt.number, self._attempts)}: {changed}")
        return attempt, changed

    def _await_devices(self, attempt: JobAttempt) -> None:
        """Until what was killed has let go of accelerators; raises `UnreachedError` for a host that is lost then."""
        context, request = self._context, self._request
        if not request.device_wait:
            return
        from mslaunch.launcher.agents.device_wait import wait_for_devices
        from mslaunch.protocol.held_devices import HeldQuestion

        def question() -> HeldQuestion:
            return HeldQuestion(context.seconds, request.devices.names, context.jobid)

        told: list[str] = []

        def notice(text: str) -> None:
            told.append(text)
            context.console.info(text)
            context.observers.emit(Waiting, text)

        wait = context.interrupts.wait
        wait_for_devices(context.loop, attempt.agents, question, request.device_wait, wait, notice)
        if told:
            context.observers.emit(Waiting, "")

    def _with_reason(self, outcome: Outcome, lines: Sequence[str], code: int = 0) -> Outcome:
        """The last outcome, and why no attempt follows; commands on other hosts hear of it."""
        assert outcome.failure
        if self._context.peers:
            self._context.peers.no_other(lines[0])
        code = code or outcome.code
        failure = outcome.failure._replace(code=code, detail=(*lines, *outcome.failure.detail))
        return outcome._replace(code=code, failure=failure)

    @staticmethod
    def _run(attempt: JobAttempt) -> None:
        try:
            attempt.run_ranks()
        except LaunchError:
            raise
        except BaseException:  # the caller does not get the attempt
            attempt.pool.close()
            raise


def _record(attempt: JobAttempt, outcome: Outcome, changed: str) -> Attempt:
    assert outcome.failure
    return Attempt(attempt.number, outcome.failure, outcome.seconds, changed)
