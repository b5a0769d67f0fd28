"""Many detached jobs: started, listed, ended; the registry keeps what it promises, and nothing else stays."""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import Any

from chaos_lib.sandbox import PYTHON, Sandbox
from chaos_lib.trial import wait_until

from soak_lib.launches import environment
from soak_lib.traces import Traces

KEPT = 100  #: ended jobs that the registry lists (docs/jobs.md)
SOME = 8  #: jobs at one time


def run(sandbox: Sandbox, count: int) -> dict[str, Any]:
    """`count` jobs; the record."""
    before = Traces.of(sandbox, ("head",))
    began = time.monotonic()
    wrong: list[str] = []
    done = 0
    while done < count and len(wrong) < 20:
        numbers = [_start(sandbox, done + at, wrong) for at in range(min(SOME, count - done))]
        listed = _ask(sandbox, "--status")
        for at, number in enumerate(numbers):
            if not re.search(rf"^\s*{number}\b.*running", listed.stdout, re.M):
                wrong.append(f"job {number} is not listed as running")
            if _ask(sandbox, "--status", number).returncode:
                wrong.append(f"--status {number} of a job that runs is not 0")
            if at % 2:
                _expect_stopped(sandbox, number, wrong)
            else:  # these end by themselves
                (sandbox.run / f"go.{done + at}").touch()
        for number in numbers[::2]:
            if not wait_until(lambda: "ended" in _ask(sandbox, "--status", number).stdout, 20):  # noqa: B023
                wrong.append(f"job {number} has not ended")
        done += len(numbers)
        if done % 200 < SOME:
            print(f"detached: {done} jobs, {len(wrong)} wrong", flush=True)
    seconds = time.monotonic() - began
    wait_until(lambda: not Traces.of(sandbox, ("head",)).differences(before), 10)
    wrong += Traces.of(sandbox, ("head",)).differences(before)
    kept = len([name for name in os.listdir(sandbox.root("head") / f"tmp/mslaunch-{os.geteuid()}") if name.isdigit()])
    if kept > min(count, KEPT + SOME):
        wrong.append(f"the registry keeps {kept} jobs")
    return {"what": "detached", "jobs": done, "seconds": round(seconds, 1), "registry": kept, "wrong": wrong}


def _ask(sandbox: Sandbox, *words: str) -> subprocess.CompletedProcess[str]:
    command = sandbox.command("exec", "head", PYTHON, "-m", "mslaunch", *words)
    return subprocess.run(
        command, cwd=sandbox.run, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


def _start(sandbox: Sandbox, token: int, wrong: list[str]) -> str:
    """Its number; its ranks end once the file go.TOKEN is there."""
    program = f"while ! [ -e go.{token} ]; do sleep 0.05; done"
    done = _ask(sandbox, "--detach", "-n", "2", "--quiet", "--oversubscribe", "sh", "-c", program)
    number = done.stdout.strip()
    if done.returncode or not number.isdigit():
        wrong.append(f"--detach ended with {done.returncode}: {done.stderr[-300:]}")
    return number


def _expect_stopped(sandbox: Sandbox, number: str, wrong: list[str]) -> None:
    done = _ask(sandbox, "--stop", number)
    if done.returncode:
        wrong.append(f"--stop {number} ended with {done.returncode}: {done.stderr[-300:]}")
