"""Signals and the time limit in each state of a launch: receivers and messages."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from mslaunch.datamodel.request import AppContext, Request
from mslaunch.errors import LaunchError
from mslaunch.launcher.interrupts import BEFORE, BETWEEN, RUNNING, Interrupts
from mslaunch.launcher.job.events import Interrupted, Resumed, Signalled, Suspended, TimedOut
from mslaunch.runtime.loop import Loop

REQUEST = Request((AppContext(("x",)),))


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


def refusal(interrupts: Interrupts) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        interrupts.wait(lambda: False)
    assert caught.value is interrupts.error
    return caught.value


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        (False, "--timeout: nothing was started within 0.01 s"),
        (True, "the job was still running after 0.01 seconds (--timeout)"),
    ],
)
def test_the_time_limit_is_an_error_while_no_ranks_run(begun: bool, words: str, loop: Loop) -> None:
    """Also when it is reached just after the ranks of an attempt have ended."""
    interrupts = Interrupts(loop, REQUEST._replace(timeout=0.01), signals=False, suspend=int)
    if begun:
        interrupts.attach(lambda event: None)
        interrupts.detach()
    error = refusal(interrupts)
    assert (str(error), error.code) == (words, 110)


def test_each_state_has_one_receiver(loop: Loop) -> None:
    received: list[Any] = []
    interrupts = Interrupts(loop, REQUEST, signals=False, suspend=int)
    assert interrupts.state == BEFORE
    interrupts.attach(received.append)
    assert interrupts.state == RUNNING
    for event in (Interrupted("SIGINT"), Signalled(10)):
        interrupts.post(event)
    assert received == [Interrupted("SIGINT"), Signalled(10)] and interrupts.error is None
    interrupts.detach()
    assert interrupts.state == BETWEEN
    interrupts.post(Signalled(10))  # there is no receiver
    interrupts.post(Resumed())
    assert interrupts.error is None
    interrupts.post(Interrupted("SIGTERM"))
    interrupts.post(Interrupted("SIGINT"))
    assert str(refusal(interrupts)) == "ended by SIGTERM"


def test_signals_become_events(loop: Loop) -> None:
    received: list[Any] = []
    interrupts = Interrupts(loop, REQUEST, signals=True, suspend=int)
    os.kill(os.getpid(), signal.SIGINT)
    assert str(refusal(interrupts)) == "ended by SIGINT before anything was started"
    interrupts.attach(received.append)
    for name in ("SIGHUP", "SIGUSR1", "SIGTSTP", "SIGCONT"):
        os.kill(os.getpid(), getattr(signal, name))
        loop.run(lambda: bool(received))
        assert received.pop() in (
            Interrupted(name),
            Signalled(int(getattr(signal, name))),
            {"SIGTSTP": Suspended(), "SIGCONT": Resumed()}.get(name),
        )


def test_while_ranks_run_the_time_limit_is_an_event(loop: Loop) -> None:
    received: list[Any] = []
    request = REQUEST._replace(timeout=0.01, timeout_from="MPIEXEC_TIMEOUT", stack_traces=True, state_on_timeout=True)
    Interrupts(loop, request, signals=False, suspend=int).attach(received.append)
    loop.run(lambda: bool(received))
    assert received == [TimedOut(0.01, "MPIEXEC_TIMEOUT", traces=True, report=True)]


def test_a_resource_manager_may_send_sigterm_more_than_once(monkeypatch: pytest.MonkeyPatch, loop: Loop) -> None:
    """Slurm's scancel sends it to the batch script with its processes, and to each step; that is not a second wish."""
    received: list[Any] = []
    interrupts = Interrupts(loop, REQUEST, signals=False, suspend=int)
    interrupts.attach(received.append)
    for interrupts.granted in ("", "Slurm's job 7"):
        for _ in range(2):
            interrupts.post(Interrupted("SIGTERM"))
        interrupts.post(Interrupted("SIGINT"))
    ours = Interrupted("SIGTERM", "Slurm's job 7")
    twice, interrupt = [Interrupted("SIGTERM")] * 2, Interrupted("SIGINT")
    assert received == [*twice, interrupt, ours, interrupt]
    monkeypatch.setattr("mslaunch.launcher.interrupts._ECHO", 0.0)
    interrupts.post(Interrupted("SIGTERM"))
    interrupts.post(Interrupted("SIGTERM"))
    assert received[-1] == ours
    interrupts.detach()
    interrupts.post(Interrupted("SIGTERM"))
    assert str(refusal(interrupts)) == "ended by SIGTERM: Slurm's job 7 was cancelled, preempted or is out of time"
