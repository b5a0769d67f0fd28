"""The user's variables that travel to ranks: what -x names, what is forwarded to other hosts, and defaults.

No pattern takes what describes the launcher's own host and shell, nor what a launch around this one has left.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks import table as frameworks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.datamodel.request import AppContext, Request

#: given to a rank that has no value of its own: output without a buffer (docs/design-decisions.md, "Live output")
DEFAULTS = ("PYTHONUNBUFFERED=1", "GFORTRAN_UNBUFFERED_PRECONNECTED=y")
#: scrubbed wherever they come from, besides those of the frameworks
OWN = ("MSLAUNCH_*",)
#: says which start of the job this is; it would lie if -x took it from a launch around us
ATTEMPT = "MSLAUNCH_ATTEMPT"
#: taken by no pattern: they describe the launcher's host and shell, or its container (mpi-operator empties NVIDIA_*)
_OF_THIS_HOST = {"PWD", "OLDPWD", "SHLVL", "_", "HOST", "HOSTNAME", "HOSTTYPE", "MACHTYPE", "OSTYPE", "SSH_CONNECTION",
                 "SSH_CLIENT", "SSH_TTY", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
                 "K_MPI_JOB_ROLE"}  # fmt: skip


def exported(app: AppContext, environ: Mapping[str, str]) -> list[str]:
    """-x: the last one of a name wins; a name without a value is passed over.

    A wildcard takes what matches, but for what belongs to the launcher's host or to a launch around us.  Raises
    UsageError for what cannot be a variable.
    """
    chosen = _chosen(app, environ)
    for name, value in chosen.items():
        if not name or "\0" in name + value:
            raise UsageError(
                f"{name}={value!r} cannot be a variable", "-x", "a name is needed, and no NUL in the value"
            )
    return [f"{name}={value}" for name, value in chosen.items()]


def _chosen(app: AppContext, environ: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for name, value in app.env:
        if value is not None:
            chosen[name] = value
        elif "*" in name or "?" in name:
            chosen.update((found, environ[found]) for found in matching((name,), environ))
        elif name in environ:
            chosen[name] = environ[name]
    chosen.pop(ATTEMPT, None)
    return chosen


def missing_exports(request: Request, environ: Mapping[str, str]) -> list[str]:
    """The names given to -x that the launcher has no value for: worth a warning, as mpirun gives."""
    return [
        name
        for app in request.apps
        for name, value in app.env
        if value is None and name not in environ and "*" not in name and "?" not in name
    ]


def forwarded(app: AppContext, environ: Mapping[str, str], scrub: tuple[str, ...] = ()) -> list[str]:
    """Variables of the launcher for ranks on other hosts; those that frameworks name too, unless none is to travel.

    `scrub`: names and NAME* patterns that stay here.
    """
    patterns = (*app.forward, *frameworks.FORWARD) if app.forward else ()
    names = [name for name in matching(patterns, environ) if not any(_matches(name, one) for one in scrub)]
    return [f"{name}={environ[name]}" for name in names]


def of_job(shared: tuple[str, ...], environ: Mapping[str, str], scrub: tuple[str, ...]) -> list[str]:
    """Variables of a resource manager's job for ranks on other hosts: names, or NAME=value; see `forwarded`."""
    if not shared:
        return []
    given = {name: value for name, equals, value in (word.partition("=") for word in shared) if equals}
    asked = set(shared)
    names = [
        name
        for name in matching(("*",), environ)
        if name in asked and not any(_matches(name, pattern) for pattern in scrub)
    ]
    return [*(f"{name}={environ[name]}" for name in names), *(f"{name}={value}" for name, value in given.items())]


def matching(patterns: tuple[str, ...], environ: Mapping[str, str]) -> list[str]:
    """The names that patterns may take: not those of this host, nor what a launch around us left."""
    exact = {name for name in frameworks.SCRUB if not name.endswith("*")} | _OF_THIS_HOST
    prefixes = tuple(name[:-1] for name in (*frameworks.SCRUB, *OWN) if name.endswith("*"))
    return [
        name
        for name in environ
        if name not in exact and not name.startswith(prefixes) and any(_matches(name, one) for one in patterns)
    ]


def _matches(name: str, pattern: str) -> bool:
    """As fnmatchcase, whose import costs a launch some milliseconds where the usual `PREFIX_*` needs none of it."""
    if not any(char in pattern[:-1] for char in "*?[") and pattern[-1:] not in ("?", "["):
        return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
    from fnmatch import fnmatchcase

    return fnmatchcase(name, pattern)


def defaults(request: Request, environ: Mapping[str, str], size: int) -> tuple[str, ...]:
    """What the `size` ranks, and services, get where nothing else gave a value."""
    given = [*(_chosen(app, environ) for app in request.apps), environ]
    restarts = request.restart in ("rank", "group") or (request.max_restarts > 0 and not request.restart)
    return (*DEFAULTS, *frameworks.defaults(size, given, restarts))
