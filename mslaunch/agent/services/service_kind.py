"""The contract of a kind of service: what it is given, what it answers, and the command that it has started.

A kind is one module and one row of `service.KINDS`; its class is called with `ProgramOfRanks`.
"""

from __future__ import annotations

import os

from mslaunch.agent.ranks.rank_environment import inherited, rank_variables
from mslaunch.datamodel.node_plan import RankId, RankPlan
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.programs import check_wdir, command, find_program, is_python_name
from mslaunch.host.system_files import head_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from mslaunch.agent.ranks.session_dir import SessionDir
    from mslaunch.datamodel.node_plan import NodePlan, ServicePlan
    from mslaunch.runtime.loop import Loop

    class Watchdog(Protocol):
        """Decides whether a process still does its work."""

        def read(self, data: bytes) -> None:
            """What it has printed."""

        def cancel(self) -> None:
            """It has ended."""

    class ServiceKind(Protocol):
        """What one service runs, and what its failures mean.  The functions raise `LaunchError`."""

        def early(self, guessed: bool) -> ServiceCommand | None:
            """What it runs before anybody has connected; None: that is only known once somebody has.

            `guessed`: no rank is known to need it yet.
            """

        def on_connection(self, pids: Sequence[int] | None) -> ServiceCommand | None:
            """What it runs now that somebody has connected; None: it was none of ours.

            `pids` are the ranks of this node; None if it never had any.
            """

        def watchdog(self, loop: Loop, give_up: Callable[[LaunchError], None], command: ServiceCommand) -> Watchdog:
            """For a process that was started again; `give_up` kills it."""

        def not_installed(self, command: ServiceCommand) -> LaunchError:
            """It has ended with `command.missing`."""


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


class ProgramOfRanks(NamedTuple):
    """A service, and the program of its node's first application, as a rank without a number would run it."""

    plan: NodePlan
    service: ServicePlan
    environ: Mapping[str, str]  # what ranks inherit
    session: Callable[[], SessionDir]

    def command(self, env: dict[str, str], wdir: str) -> ServiceCommand:
        """Raises `LaunchError` if it cannot be run."""
        check_wdir(wdir)
        path, argv = command(self.plan.apps[0], self._rank(), False, env.get("PATH", os.defpath), wdir)
        return ServiceCommand(path, argv, env, wdir)

    def wdir(self) -> str:
        """The working directory."""
        folder = self.session().rank_dir(self.service.name) if self.plan.session else ""
        return folder if self.plan.apps[0].in_session else self.plan.apps[0].wdir

    def env(self, wdir: str) -> dict[str, str]:
        """The variables that a rank would find."""
        base = inherited(self.environ, self.plan)
        return rank_variables(base, self.plan.apps[0], self._rank(), {"PWD": wdir}, self.plan)

    def has_text(self, word: bytes, most: int, wdir: str) -> bool:
        """Whether `word` is in the first `most` bytes of one of its Python files."""
        texts = [arg for arg in self.plan.apps[0].argv if arg.endswith(".py")]
        return any(word in head_of(os.path.join(wdir, text), most) for text in texts)

    def _rank(self) -> RankPlan:
        return RankPlan(RankId(self.service.number), 0, ())


def _first_line(path: str) -> list[str]:
    """The words after #!."""
    head = head_of(path, _HEAD)
    return os.fsdecode(head.split(b"\n", 1)[0][2:]).split() if head[:2] == b"#!" else []
