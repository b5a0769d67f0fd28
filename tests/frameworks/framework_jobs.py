"""Shared by tests with real frameworks: programs of examples/ launched here, and from the head of a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("hosts", "launch")]
from clusters import MARKS, Cluster, Result

EXAMPLES = Path(__file__).parents[2] / "examples"
#: ends a program of torch 1.13 before Python ends, when in one of some 50 programs a thread of Gloo that frees a tensor
#: aborts the process (its stack: ProcessGroupGloo::runLoop, ~TensorImpl, PyThread_exit_thread, std::terminate)
END = "import os, sys; sys.stdout.flush(); os._exit(0)\n"
SECONDS = 100  #: four ranks import a framework in 5 on a quiet machine
JAX = os.environ.get("MSLAUNCH_TEST_JAX_PYTHON", "")
DASK = os.environ.get("MSLAUNCH_TEST_DASK_PYTHON", "")


def _torch() -> str:
    """The system's Python, if it has torch."""
    python = shutil.which("python3", path="/usr/bin") or ""
    if python and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode:
        return ""
    return python


TORCH = os.environ.get("MSLAUNCH_TEST_TORCH_PYTHON") or _torch()

NEEDS_JAX = [
    pytest.mark.limit(SECONDS + 20),
    pytest.mark.skipif(not os.access(JAX, os.X_OK), reason="MSLAUNCH_TEST_JAX_PYTHON should name a Python with jax"),
]
NEEDS_DASK = [
    pytest.mark.limit(SECONDS + 20),
    pytest.mark.skipif(not os.access(DASK, os.X_OK), reason="MSLAUNCH_TEST_DASK_PYTHON should name a Python with dask"),
]
NEEDS_TORCH = [
    pytest.mark.limit(SECONDS + 20),
    pytest.mark.skipif(not TORCH, reason="needs torch: Debian's python3-torch, or MSLAUNCH_TEST_TORCH_PYTHON"),
]


def on_demand(variable: str, package: str) -> tuple[str, pytest.MarkDecorator]:
    """The Python that a variable names, and the mark of tests that need it; without it they are skipped, loudly."""
    python = os.environ.get(variable, "")
    why = f"NOT TESTED, tested on demand: {variable} names a Python with {package}"
    return python, pytest.mark.skipif(not os.access(python, os.X_OK), reason=why)


def with_trainers(variable: str) -> tuple[str, list[pytest.MarkDecorator]]:
    """The Python of tests of Accelerate, DeepSpeed, Lightning or transformers, and their marks.

    scripts/test has made it (tests/requirements/trainers.txt), unless a variable names one with other versions.
    """
    variables = dict.fromkeys((variable, "MSLAUNCH_TEST_TRAINERS_PYTHON"))
    python = next(filter(None, map(os.environ.get, variables)), "")
    why = f"NOT TESTED, not installed: {' or '.join(variables)} should name its Python, got {python!r}"
    return python, [pytest.mark.limit(SECONDS + 20), pytest.mark.skipif(not os.access(python, os.X_OK), reason=why)]


def with_hosts(test: Callable[..., None]) -> Callable[..., None]:
    """For a test that takes `two_hosts`."""
    for mark in MARKS:
        test = mark(test)
    return test


def launch(*words: object, directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command here, to its end; `more` are variables."""
    command = [sys.executable, "-m", "mslaunch", *map(str, words)]
    return subprocess.run(
        command, cwd=directory, env={**os.environ, **more}, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def launch_from_head(cluster: Cluster, *words: object, directory: Path) -> Result:
    """The command on the head, to its end."""
    job = cluster.start(*words, cwd=directory)
    try:
        return job.end(SECONDS)
    finally:
        job.destroy()
