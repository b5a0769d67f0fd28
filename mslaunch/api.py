"""The Python API: `launch(argv, np=4)` does what the command does, and returns an `Outcome` instead of exiting.

A thin face on `launcher.run`, like the command line itself.  It may be called from any thread; signals are taken over
only in the main one.  The surprising thing: in a program with threads the local agent is a fresh interpreter, since
forking such a program is not safe.
"""

from __future__ import annotations

import os

from mslaunch.errors import UsageError
from mslaunch.lean import TYPE_CHECKING
from mslaunch.model import AppContext, Outcome, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def launch(
    argv: Sequence[str],
    *,
    np: int | None = None,
    hosts: str | Sequence[str] = (),
    hostfile: str | None = None,
    env: Mapping[str, str] | None = None,
    wdir: str | None = None,
    output: str | None = None,
    merge: bool = False,
    timeout: float | None = None,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `argv` as the ranks of a job; returns when the last one has ended.

    `np` ranks on `hosts` ("a:2,b:2", or a list of such) or `hostfile`; `env` is what `-x` gives them; `output` is the
    directory of `--output-filename` (nothing is shown on the terminal then), `merge` joins stderr to stdout; `timeout`
    is in seconds.  `options` are further words of the command line, such as ["--map-by", "node"].  `environ` stands for
    the launcher's environment where options are read from it (default: os.environ).  Ranks read no standard input
    unless `options` says so.  Raises `LaunchError` if nothing could be started; a rank that fails is in the outcome.
    With `options` like ["--restart", "group"] its `attempts` tell of those that failed before, and `restarts` of what
    was started again by itself.
    """
    from mslaunch.cli.main import read_text
    from mslaunch.cli.mpirun import parse
    from mslaunch.launcher.run import Surroundings, run

    surroundings = os.environ if environ is None else environ
    request = parse(["--stdin", "none", *options, "--", *(argv or [""])], surroundings, read_text)
    if not argv:
        raise UsageError("no program was given", "launch", 'for example: launch(["python", "net.py"], np=4)')
    if output is not None:
        request = request._replace(output=request.output._replace(directory=output, copy=False))
    if timeout is not None:
        request = request._replace(timeout=timeout, timeout_from="--timeout")
    app = _app(request.apps[0], np, [hosts] if isinstance(hosts, str) else hosts, hostfile, env or {}, wdir)
    request = request._replace(apps=(app,), output=request.output._replace(merge=merge or request.output.merge))
    if request.detach:
        raise UsageError("launch() stays with the job until it has ended", "--detach", "start the command instead")
    if request.backend:
        from mslaunch.engines.openmpi import run
    return run(request, Surroundings(surroundings, os.getcwd(), signals=_in_main_thread()))


def _app(
    app: AppContext, np: int | None, hosts: Sequence[str], hostfile: str | None, env: Mapping[str, str], wdir: Any
) -> AppContext:
    if np is not None and np < 1:
        raise UsageError(f"np is {np}", "launch", "at least 1; None means as many as there are slots")
    given: dict[str, Any] = {
        "np": np,
        "hosts": tuple(h for h in hosts if h) or None,
        "hostfile": hostfile,
        "wdir": wdir,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return app._replace(env=(*app.env, *env.items()), **chosen)


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


__all__ = ["Outcome", "Request", "launch"]
