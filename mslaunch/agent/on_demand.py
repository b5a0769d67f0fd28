"""Modules that only some jobs need (parts): the launcher sends them when an agent asks.

A local agent has all of them, as files.  On another host, what has come is put into the table of the import finder that
`transport.bootstrap` installed.
"""

from __future__ import annotations

import sys

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


def here(name: str) -> bool:
    """Whether the module `mslaunch.NAME` can be imported, or fails for another reason than that it has not come."""
    try:
        return _find(name) is not None
    except LaunchError:
        return True


def get(name: str) -> ModuleType:
    """A module that has come; raises `LaunchError` if this Python has not all that it needs."""
    module = _find(name)
    assert module, name
    return module


def add(modules: Mapping[str, tuple[bool, object]]) -> None:
    """More modules for the finder that has found this one, where it is the bootstrap's; see `agent_program`."""
    for finder in sys.meta_path:
        table = getattr(finder, "sources", None)
        if table is not None:
            table.update(modules)


def _find(name: str) -> ModuleType | None:
    """The module, or None if it is not here; raises `LaunchError` if this Python has not all that it needs."""
    whole = f"mslaunch.{name}"
    if whole not in sys.modules:
        try:
            __import__(whole)
        except ImportError as error:
            if whole == error.name or whole.startswith(f"{error.name}."):  # the module, or a package around it
                return None
            what = f"the python3 of this host ({sys.executable}) lacks what this job needs: {error}"
            raise LaunchError(what, todo="name another with --agent-python, or install what it lacks") from None
    return sys.modules[whole]


class ModuleRequests:
    """The parts that were asked for, and what is to be done once each has come."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        """`ask` asks the launcher for a part, whose modules `came` is then given."""
        self._ask = ask
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def need(self, name: str, then: Callable[[], None]) -> None:
        """Call `then` when the module is here, at once if it is."""
        if here(name):
            then()
            return
        waiting = self._waiting.setdefault(name, [])
        waiting.append(then)
        if len(waiting) == 1:
            self._ask(name)

    def came(self, sources: Mapping[str, str]) -> None:
        """Whole names of modules, and their sources; only packages, whose `__init__` is empty, have none."""
        add({name: (not source, source) for name, source in sources.items()})
        for name in [name for name in self._waiting if here(name)]:
            for then in self._waiting.pop(name):
                then()
