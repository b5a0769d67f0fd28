"""What differs from rank to rank: values of variables as patterns, and a word of arguments for the local rank.

Loaded only for launches that have them; torchrun's TORCHELASTIC_ERROR_FILE and `${local_rank}` are such.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mslaunch.datamodel.jobmap import Placement
    from mslaunch.datamodel.node_plan import AppPlan, RankPlan
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


def with_local_ranks(
    word: str, placements: Sequence[Placement], ranks: Sequence[RankPlan], apps: Sequence[AppPlan]
) -> tuple[tuple[RankPlan, ...], tuple[AppPlan, ...]]:
    """The plans where each rank has a program of its own, with its local rank in place of `word` in the arguments."""
    own = tuple(
        apps[placement.app]._replace(
            argv=tuple(each.replace(word, str(placement.local_rank)) for each in apps[placement.app].argv)
        )
        for placement in placements
    )
    return tuple(rank._replace(app=index) for index, rank in enumerate(ranks)), own or tuple(apps)
