"""The environment variables of one rank, from what the agent inherited and what the plan gives.

Pure.  From weak to strong: inherited, the node's, the program's, the rank's, PWD, and the program's once more, since
what it gives last came from the user with -x.  At the end, what stands in `front` (--prefix) goes before the value
that all of this has left.  Where a proxy is named, the job's own hosts join those that are reached without one.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NO_PROXY, PROXIES
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan


def inherited(environ: Mapping[str, str], plan: NodePlan) -> dict[str, str]:
    """The environment that all ranks of the node share: ours without what an outer launch left, then the plan's."""
    exact = {name for name in plan.scrub if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in plan.scrub if name.endswith("*"))
    kept = {name: value for name, value in environ.items() if name not in exact and not name.startswith(prefixes)}
    kept.update(_variables(plan.env))
    return kept


def rank_variables(
    base: Mapping[str, str], app: AppPlan, rank: RankPlan, given: Mapping[str, str], plan: NodePlan
) -> dict[str, str]:
    """All variables of a rank; `base` is what `inherited` made, `given` is what only its agent knows."""
    own = _variables(app.env)
    env = {**base, **own, **_variables(rank.env), **given, **own}
    for name, value in _variables(app.front).items():
        env[name] = f"{value}:{env[name]}" if env.get(name) else value
    # " ".join: to look at each name of each rank took a tenth of its start
    if plan.direct and "_proxy" in " ".join(env).lower() and any(env[name] for name in env if name.lower() in PROXIES):
        listed = [env[name] for name in NO_PROXY if env.get(name)]
        if "*" not in listed:  # all hosts; in a list it would be a name
            hosts = dict.fromkeys((*plan.direct, *filter(None, ",".join(listed).split(","))))
            env.update(dict.fromkeys(NO_PROXY, ",".join(hosts)))
    left_out = plan.together if any(name in env for name in plan.together) else ()
    for name, value in _variables(plan.defaults).items():
        if name not in left_out:
            env.setdefault(name, value)
    return env


def _variables(words: Iterable[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    return {name: value for name, _, value in pairs}
