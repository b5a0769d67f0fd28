"""Programs whose ranks are not bound by default: those whose text names a framework that runs threads.

Open MPI binds one or two ranks to a core each, and a framework with threads of its own then runs all of them on that
core.  Looked at are scripts of Python (words that end in .py) as the launching host has them, and the words after -m
and -c; a program behind a shell script is not seen.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import unbound_in
from mslaunch.plan.node_plans import absolute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mslaunch.datamodel.request import AppContext, Request


def unbound_programs(request: Request, cwd: str, read: Callable[[str], bytes]) -> dict[int, str]:
    """App context -> why its ranks are not bound, as `net.py names torch`; `read` gives the first bytes of a file.

    Empty where the user has said anything of binding or of the objects to map by.
    """
    policy, found = request.policy, {}
    said = policy.bind_to or policy.pe or policy.cpu_set or policy.map_by not in ("", "slot", "node", "ppr", "seq")
    for number, app in enumerate(() if said or policy.rankfile is not None or policy.local else request.apps):
        for word, text in _texts(app, cwd, read):
            framework = unbound_in(text)
            if framework:
                found[number] = f"{word} names {framework}"
                break
    return found


def _texts(app: AppContext, cwd: str, read: Callable[[str], bytes]) -> Iterator[tuple[str, str]]:
    """What a program runs: the name of each text, and the text."""
    wdir = absolute(app.wdir or cwd, cwd)
    for before, word in zip(("", *app.argv), app.argv):
        if before in ("-m", "-c"):
            yield before, word
        elif word.endswith(".py"):
            yield word.rpartition("/")[2], read(absolute(word, wdir)).decode("utf-8", "replace")
