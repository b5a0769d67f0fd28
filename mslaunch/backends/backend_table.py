"""Backends by the word of `--backend`: ways to start ranks other than our own agents.

A backend is a folder beside this module and a row of `BACKENDS`, which names its function that satisfies `Backend`.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, load

if TYPE_CHECKING:
    from typing import Protocol

    from mslaunch.datamodel.outcome import Outcome
    from mslaunch.datamodel.request import Caller, Request

    class Backend(Protocol):
        """What a row of the table does."""

        def __call__(self, request: Request, caller: Caller) -> Outcome:
            """Launch, wait for the end, and report it on the caller's standard error, as `launcher.launch.run` does.

            `request.backend` is WORD or WORD:PLACE.  Raises `LaunchError` for what is wrong before a rank runs, which
            is `UsageError` for options that the backend cannot obey.
            """


BACKENDS = {"openmpi": "backends.openmpi.run_mpirun:run"}


def run(request: Request, caller: Caller) -> Outcome:
    """Launch with the backend that the request names."""
    backend: Backend = load(BACKENDS[request.backend.partition(":")[0]])
    return backend(request, caller)
