"""The Python API: `launch(argv, np=4)` does what the command does, and returns an `Outcome` instead of exiting.

It may be called from any thread; signals are handled only in the main one.  In a program with threads the local agent
is a new interpreter, because forking such a program is not safe.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.outcome import Outcome
from mslaunch.datamodel.request import AppContext, Caller, OutputPolicy, Request
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def launch(
    argv: Sequence[str | os.PathLike[str]],
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

    `np` ranks on `hosts` ("a:2,b:2", or a list of such) or `hostfile`; `env` as with `-x`; `output` is the directory of
    `--output-filename` (nothing is shown on the terminal then), `merge` joins stderr to stdout; `timeout` is in
    seconds.  `options` are further words of the command line, such as ["--map-by", "node"].  `environ` replaces
    os.environ where options are read from the environment.  Ranks read no standard input unless `options` says so.

    Raises `LaunchError` for errors before ranks are started, in options, hosts, connections or files.  Later events are
    in the outcome: a rank that fails or cannot be started, and Ctrl-C ("ended by SIGINT").  With `options` like
    ["--restart", "group"], `attempts` has those that failed before, and `restarts` what was started again alone.
    """
    from mslaunch.cli.main import in_pod, parse
    from mslaunch.host.files import read_text
    from mslaunch.launcher.launch import run

    _check_types(argv, np, timeout, env or {})
    surroundings = os.environ if environ is None else environ
    words = [os.fspath(word) for word in argv] or [""]
    request = parse(["--stdin", "none", *options, "--", *words], surroundings, read_text, pods=False)
    if not argv:
        raise UsageError("no program was given", "launch", 'for example: launch(["python", "net.py"], np=4)')
    if timeout is not None:
        request = request._replace(timeout=timeout, timeout_from="--timeout")
    app = _app(request.apps[0], np, [hosts] if isinstance(hosts, str) else hosts, hostfile, env or {}, wdir)
    request = in_pod(request._replace(apps=(app,), output=_kept(request.output, output, merge)), surroundings)
    if request.detach:
        raise UsageError("launch() stays with the job until it has ended", "--detach", "start the command instead")
    if request.backend:
        from mslaunch.backends.backend_table import run
    return run(request, Caller(surroundings, os.getcwd(), signals=_in_main_thread()))


def _check_types(argv: Any, np: Any, timeout: Any, env: Mapping[Any, Any]) -> None:
    """Refuse wrong types: a str would be taken for a sequence of words."""
    if isinstance(argv, str):
        raise UsageError(f"argv is the string {argv!r}", "launch", f"a list of words, such as {argv.split()}")
    wrong = [word for word in argv if not isinstance(word, (str, os.PathLike))]
    if wrong:
        raise UsageError(f"{wrong[0]!r} in argv is not a string", "launch", f"write {str(wrong[0])!r}")
    if np is not None and not isinstance(np, int):
        raise UsageError(f"np is {np!r}", "launch", "a whole number; None means as many as there are slots")
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise UsageError(f"timeout is {timeout!r}", "launch", "a number of seconds; None means no limit")
    for name, value in env.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            what = f"{name!r}: {value!r} in env is not a string"
            raise UsageError(what, "launch", f"write {str(name)!r}: {str(value)!r}")


def _app(
    app: AppContext, np: int | None, hosts: Sequence[str], hostfile: str | None, env: Mapping[str, str], wdir: Any
) -> AppContext:
    if np is not None and np < 1:
        raise UsageError(f"np is {np}", "launch", "at least 1; None means as many as there are slots")
    given = {"np": np, "hosts": tuple(h for h in hosts if h) or None, "hostfile": hostfile, "wdir": wdir}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return app._replace(env=(*app.env, *env.items()), **chosen)


def _kept(policy: OutputPolicy, directory: str | None, merge: bool) -> OutputPolicy:
    policy = policy._replace(merge=merge or policy.merge)
    return policy if directory is None else policy._replace(directory=directory, copy=False)


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


__all__ = ["Outcome", "Request", "launch"]
