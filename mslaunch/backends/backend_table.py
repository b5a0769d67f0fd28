"""Backends by the word of `--backend`: ways to start ranks other than our own agents.

A backend is a folder beside this module and a row of `BACKENDS`, which names its function.  Contract: the function
launches, waits for the end, and reports it on the caller's standard error, as `launcher.launch.run` does.
`request.backend` is WORD or WORD:PLACE.  It raises `LaunchError` for what is wrong before a rank runs, which is
`UsageError` for options that the backend cannot obey.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.outcome import Outcome
    from mslaunch.datamodel.request import Caller, Request

    Backend = Callable[[Request, Caller], Outcome]

BACKENDS = {"openmpi": "backends.openmpi.run_mpirun:run"}


def run(request: Request, caller: Caller) -> Outcome:
    """Launch with the backend that the request names."""
    backend: Backend = load(BACKENDS[request.backend.partition(":")[0]])
    return backend(request, caller)
