"""Parts: modules that only some jobs need, so they travel only when one of them asks.

`get(name)` gives the module of a part, or None where it is still at home: then the launcher is asked, and its answer
goes to `add`.  A local agent has all of them, as files.  It does not know what a part does.  The surprising thing is
how an agent on another host learns of a module: the finder that its first bytes installed (`link.bootstrap`) has a
table.
"""

from __future__ import annotations

import sys

from mslaunch.lean import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def get(name: str) -> ModuleType | None:
    """The module `mslaunch.agent.NAME`, or None if its source is not here."""
    whole = f"mslaunch.agent.{name}"
    if whole not in sys.modules:
        try:
            __import__(whole)
        except ModuleNotFoundError as error:
            if error.name != whole:
                raise
            return None
    return sys.modules[whole]


def add(sources: Mapping[str, str]) -> None:
    """What came: whole names of modules, and their sources."""
    for finder in sys.meta_path:
        table = getattr(finder, "sources", None)
        if table is not None:
            table.update((name, (False, source)) for name, source in sources.items())
