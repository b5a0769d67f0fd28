"""What a service runs that runs the program of the ranks, and which interpreter that program has."""

from __future__ import annotations

import os

from mslaunch.agent.ranks.rank_environment import inherited, rank_variables
from mslaunch.datamodel.node_plan import RankPlan
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.files import head_of
from mslaunch.host.programs import check_wdir, command, find_program, is_python_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.agent.ranks.session_dir import SessionDir
    from mslaunch.datamodel.node_plan import NodePlan, ServicePlan

_HEAD = 256  # bytes of a script's first line


class ServiceCommand(NamedTuple):
    """One program to be started."""

    path: str
    argv: list[str]
    env: dict[str, str]
    wdir: str
    missing: int = 0  # the exit code by which it says that what it serves is not installed; 0: it always is

    @property
    def interpreter(self) -> str:
        """The Python that runs this program, under the name by which it knows its venv; "" if it is no Python."""
        if is_python_name(self.path):
            return self.path
        words = _first_line(os.path.join(self.wdir, self.path))
        if words and os.path.basename(words[0]) == "env":
            words = [word for word in words[1:] if word[0] != "-" and "=" not in word]
        if not (words and is_python_name(words[0])):
            return ""
        try:
            return find_program(words[0], self.env.get("PATH", os.defpath), self.wdir)
        except LaunchError:
            return ""


class ProgramOfRanks:
    """The program of a node's first application, as a rank would run it that has no number."""

    def __init__(
        self,
        plan: NodePlan,
        service: ServicePlan,
        environ: Mapping[str, str],
        session: Callable[[], SessionDir],
    ) -> None:
        """`environ` is what ranks inherit; `session()` is the session directory."""
        self._plan = plan
        self._app = plan.apps[0]
        self._rank = RankPlan(service.number, 0, ())
        self._name = service.name
        self._environ = environ
        self._session = session

    def command(self, env: dict[str, str], wdir: str) -> ServiceCommand:
        """Raises `LaunchError` if it cannot be run."""
        check_wdir(wdir)
        path, argv = command(self._app, self._rank, False, env.get("PATH", os.defpath), wdir)
        return ServiceCommand(path, argv, env, wdir)

    def wdir(self) -> str:
        """The working directory."""
        folder = self._session().rank_dir(self._name) if self._plan.session else ""
        return folder if self._app.in_session else self._app.wdir

    def env(self, wdir: str) -> dict[str, str]:
        """The variables that a rank would find."""
        base = inherited(self._environ, self._plan)
        return rank_variables(base, self._app, self._rank, {"PWD": wdir}, self._plan.defaults)

    def texts(self, wdir: str) -> list[str]:
        """Its Python files."""
        return [os.path.join(wdir, word) for word in self._app.argv if word.endswith(".py")]


def _first_line(path: str) -> list[str]:
    """The words after #!."""
    head = head_of(path, _HEAD)
    return os.fsdecode(head.split(b"\n", 1)[0][2:]).split() if head[:2] == b"#!" else []
