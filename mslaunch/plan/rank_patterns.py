"""What differs from rank to rank: values of variables as patterns, and words of arguments.

Loaded only for launches that have them: --fill; torchrun's TORCHELASTIC_ERROR_FILE and `${local_rank}`.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mslaunch.datamodel.node_plan import AppPlan, RankPlan
    from mslaunch.datamodel.request import AppContext
    from mslaunch.frameworks.contract import RankInfo


def filled(variables: Iterable[tuple[str, str | tuple[str, ...]]], place: RankInfo) -> tuple[str, ...]:
    """NAME=value of each; a value is a pattern with %r, %l, %t and %%, or a value for each local rank."""
    values = {"r": place.rank, "l": place.local_rank, "t": place.attempt - 1}
    return tuple(
        f"{name}={_fill(value, values) if isinstance(value, str) else value[place.local_rank]}"
        for name, value in variables
    )


def _fill(pattern: str, values: dict[str, int]) -> str:
    parts = pattern.split("%%")
    for letter, value in values.items():
        parts = [part.replace(f"%{letter}", str(value)) for part in parts]
    return "%".join(parts)


#: {NAME} in arguments (--fill), but for {hosts}: what stands there
_NAMES: dict[str, Callable[[RankInfo], object]] = {
    "rank": lambda place: place.rank,
    "size": lambda place: place.size,
    "local_rank": lambda place: place.local_rank,
    "local_size": lambda place: place.local_size,
    "node_rank": lambda place: place.node,
    "nnodes": lambda place: place.nodes,
    "master_addr": lambda place: place.address,
    "master_port": lambda place: place.port,
}
_HOSTS = "hosts"
#: {{{NAME}}}, a value in braces, {{NAME}}, which stays {NAME}, or {NAME}; ${NAME} is a shell's own, and other braces
#: are nothing special, so JSON needs no change
_BRACES = r"\{\{\{(?P<inner>[a-z_]+)\}\}\}|\{\{(?P<itself>[a-z_]+)\}\}|(?<!\$)\{(?P<name>[a-z_]+)\}"


def check_names(apps: Iterable[AppContext]) -> None:
    """Raises UsageError for arguments with a {name} that nothing is known of."""
    import re

    known = (*_NAMES, _HOSTS)
    for app in apps:
        for word in app.argv[1:]:
            for found in re.finditer(_BRACES, word):
                name = found["inner"] or found["name"]
                if name and name not in known:
                    what = f"{{{name}}} in {word!r} stands for nothing"
                    names = " ".join(f"{{{one}}}" for one in known)
                    raise UsageError(what, "--fill", f"write one of {names}, or {{{{{name}}}}} for itself")


def filler(hosts: Sequence[str]) -> Callable[[str, RankInfo], str]:
    """What puts the values for a rank into a word; `hosts` are the names of the job's hosts."""
    import re

    def fill(word: str, place: RankInfo) -> str:
        def value(found: re.Match[str]) -> str:
            name = found["inner"] or found["name"]
            if not name:
                return f"{{{found['itself']}}}"
            filled = ",".join(hosts) if name == _HOSTS else str(_NAMES[name](place))
            return f"{{{filled}}}" if found["inner"] else filled

        return re.sub(_BRACES, value, word)

    return fill


def with_own_arguments(
    fill: Callable[[str, RankInfo], str],
    places: Sequence[RankInfo],
    ranks: Sequence[RankPlan],
    apps: Sequence[AppPlan],
) -> tuple[tuple[RankPlan, ...], tuple[AppPlan, ...]]:
    """The plans where each rank has its own arguments; those with equal ones share a program."""
    programs: dict[tuple[int, tuple[str, ...]], int] = {}
    chosen = []
    for rank, place in zip(ranks, places):
        program, *words = apps[rank.app].argv
        argv = (program, *(fill(word, place) for word in words))
        chosen.append(rank._replace(app=programs.setdefault((rank.app, argv), len(programs))))
    own = tuple(apps[index]._replace(argv=argv) for index, argv in programs)
    return tuple(chosen), own or tuple(apps)
