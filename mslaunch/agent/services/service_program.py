"""What a service runs: which file, with which arguments and variables, in which directory.

A parameter server runs the program of the ranks; so does the scheduler, as with msrun, where that program configures
it; else a light one is run by the interpreter of the ranks (`mindspore`).  Which one that is can be known before there
are ranks if their program is Python's; if it is a shell script, say, the first knock has to be waited for, and None
stands for that.  It starts nothing.  The surprising thing: a text that configures the scheduler is only looked at.
"""

from __future__ import annotations

import os

from mslaunch.agent.ranks.rank_environment import inherited, rank_variables
from mslaunch.agent.services import mindspore_scheduler
from mslaunch.agent.services.mindspore_scheduler import ReconnectWatchdog
from mslaunch.agent.services.service import NO_MINDSPORE
from mslaunch.datamodel.node_plan import FIRST_SERVER, SERVICE, RankPlan
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.listeners import IdleWait, ListenWait
from mslaunch.host.programs import check_wdir, command, find_program, says

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.agent.ranks.session_dir import SessionDir
    from mslaunch.datamodel.node_plan import AppPlan, NodePlan, ServicePlan

__all__ = [
    "CommandResolver",
    "IdleWait",
    "ListenWait",
    "ReconnectWatchdog",
    "ServiceCommand",
]  # what a part gives, its first room does

_CONFIGURES = b"set_ps_context"  # TLS, among others: the program says it to every process, the scheduler included
_TEXT = 1 << 20  # bytes of a program that are looked at
_HEAD = 256  # bytes of a script's first line


class ServiceCommand(NamedTuple):
    """One program to be started."""

    path: str
    argv: list[str]
    env: dict[str, str]
    wdir: str
    searches: bool = False  # it looks for MindSpore first, and ends with NO_MINDSPORE if there is none


class CommandResolver:
    """Knows what the services of one plan run."""

    def __init__(self, plan: NodePlan, environ: Mapping[str, str], session: Callable[[], SessionDir]) -> None:
        """`environ` is what ranks inherit; `session()` is the session directory."""
        self._plan = plan
        self._app = plan.apps[0]
        self._environ = environ
        self._session = session

    def before_ranks(self, told: ServicePlan) -> ServiceCommand | None:
        """What it runs, as far as that is known before there are ranks; raises `LaunchError` if it cannot be run."""
        wdir = self._wdir(told)
        if self._runs_program(told, wdir):
            return self._program(told, wdir)
        try:
            own = self._program(told, wdir)
        except LaunchError:  # its ranks will say so, in the same words on all hosts
            return None
        python = _interpreter(own)
        return _light(own, python) if python else None

    def after_knock(self, told: ServicePlan, pids: Sequence[int] | None) -> ServiceCommand | None:
        """What it runs now that somebody asks for it; None if none of our ranks (`pids`) has loaded MindSpore.

        On a host that never had ranks (--scheduler may name one) those of others are believed, and a Python is guessed.
        """
        if pids is None:
            return self.before_ranks(told) or self._guessed(told)
        found = mindspore_scheduler.find_interpreter(pids)
        if found is None:
            return None
        wdir = self._wdir(told)
        if self._runs_program(told, wdir):
            return self._program(told, wdir)
        env = mindspore_scheduler.scheduler_env(found.env, told.env)
        return ServiceCommand(found.path, mindspore_scheduler.scheduler_command(found), env, found.cwd)

    def _guessed(self, told: ServicePlan) -> ServiceCommand:
        env = self._env(told, "/")
        path = env.get("PATH", os.defpath)
        for name in ("python", "python3"):
            try:
                return _light(ServiceCommand("", [], env, "/"), find_program(name, path, "/"))
            except LaunchError:
                pass
        todo = f"the PATH of the ranks is {path} there\nname another host with --scheduler"
        raise LaunchError("no python was found for the MindSpore scheduler", todo=todo)

    def _wdir(self, told: ServicePlan) -> str:
        folder = self._session().place(service_name(told.number)) if self._plan.session else ""
        return folder if self._app.in_session else self._app.wdir

    def _runs_program(self, told: ServicePlan, wdir: str) -> bool:
        if told.number != SERVICE or told.program == "ranks":
            return True
        return told.program == "auto" and any(says(path, _CONFIGURES, _TEXT) for path in _texts(self._app, wdir))

    def _program(self, told: ServicePlan, wdir: str) -> ServiceCommand:
        """That of the ranks, as a rank would run it that has no number."""
        check_wdir(wdir)
        env = self._env(told, wdir)
        path, argv = command(self._app, RankPlan(told.number, 0, ()), False, env.get("PATH", os.defpath), wdir)
        return ServiceCommand(path, argv, env, wdir)

    def _env(self, told: ServicePlan, wdir: str) -> dict[str, str]:
        base = inherited(self._environ, self._plan)
        of_rank = rank_variables(base, self._app, RankPlan(told.number, 0, ()), {"PWD": wdir}, self._plan.defaults)
        return mindspore_scheduler.scheduler_env(of_rank, told.env)


def _light(own: ServiceCommand, python: str) -> ServiceCommand:
    return own._replace(path=python, argv=mindspore_scheduler.searching_command(python, NO_MINDSPORE), searches=True)


def service_name(number: int) -> str:
    """Of a directory."""
    return "scheduler" if number == SERVICE else f"server.{FIRST_SERVER - number}"


def _texts(app: AppPlan, wdir: str) -> list[str]:
    return [os.path.join(wdir, word) for word in app.argv if word.endswith(".py")]


# --- the interpreter of a program


def _interpreter(own: ServiceCommand) -> str:
    """The Python that runs this program, under the name by which it knows its venv; "" if it is none of Python's."""
    if _is_python(own.path):
        return own.path
    words = _first_line(os.path.join(own.wdir, own.path))
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if word[0] != "-" and "=" not in word]
    if not (words and _is_python(words[0])):
        return ""
    try:
        return find_program(words[0], own.env.get("PATH", os.defpath), own.wdir)
    except LaunchError:
        return ""


def _is_python(name: str) -> bool:
    """python, python3, python3.11; not python-config."""
    return os.path.basename(name).rstrip("0123456789.") == "python"


def _first_line(path: str) -> list[str]:
    """The words after #!."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return []
    return os.fsdecode(head.split(b"\n", 1)[0][2:]).split() if head[:2] == b"#!" else []
