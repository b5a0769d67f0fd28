"""The variables of a rank: what wins over what."""

from __future__ import annotations

import pytest

from mslaunch.agent.ranks import rank_environment
from mslaunch.agent.ranks.rank_environment import inherited, rank_variables
from mslaunch.agent.services import mindspore_scheduler
from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan
from mslaunch.frameworks import mindspore as frameworks

PLAN = NodePlan((), (), ("NODE=node", "BOTH=node"), scrub=("STALE", "STALE_*"))


def made(app: AppPlan, rank: tuple[str, ...] = (), **inherits: str) -> dict[str, str]:
    return rank_variables(inherited(inherits, PLAN), app, RankPlan(0, 0, rank), {"PWD": "/w"}, ("LAST=default",))


def test_what_is_inherited() -> None:
    base = inherited({"STALE": "1", "STALE_1": "1", "STALENESS": "1", "BOTH": "mine"}, PLAN)
    assert base == {"STALENESS": "1", "NODE": "node", "BOTH": "node"}


def test_from_weak_to_strong() -> None:
    """Inherited, the node's, the rank's, PWD, the program's (-x); defaults where there is nothing."""
    env = made(AppPlan(("x",), "/w"), ("BOTH=rank", "PWD=/rank"), BOTH="mine", LAST="")
    assert env == {"NODE": "node", "BOTH": "rank", "PWD": "/w", "LAST": ""}
    env = made(AppPlan(("x",), "/w", ("BOTH=x", "PWD=/x", "BOTH=y=z")), ("BOTH=rank",))
    assert env == {"NODE": "node", "BOTH": "y=z", "PWD": "/x", "LAST": "default"}


def test_a_prefix_goes_before_whatever_there_is() -> None:
    """An empty part of LD_LIBRARY_PATH would be the working directory: there is none."""
    app = AppPlan(("x",), "/w", ("PATH=/x",), front=("PATH=/p/bin", "LD_LIBRARY_PATH=/p/lib"))
    env = made(app, PATH="/bin")
    assert (env["PATH"], env["LD_LIBRARY_PATH"]) == ("/p/bin:/x", "/p/lib")
    env = made(app._replace(env=()), PATH="/bin", LD_LIBRARY_PATH="/lib")
    assert (env["PATH"], env["LD_LIBRARY_PATH"]) == ("/p/bin:/bin", "/p/lib:/lib")
    assert made(app, LD_LIBRARY_PATH="")["LD_LIBRARY_PATH"] == "/p/lib"


@pytest.mark.parametrize("said", ["LOWER", "UPPER"])
def test_defaults_that_belong_together(said: str) -> None:
    """A host that says the least alone would else have a least above the most."""
    defaults = ("MS_RETRY_INTERVAL_LOWER=1", "MS_RETRY_INTERVAL_UPPER=1")
    app, rank = AppPlan(("x",), "/w"), RankPlan(0, 0, ())
    assert rank_variables({"A": "1"}, app, rank, {}, defaults).items() >= dict(map(_split, defaults)).items()
    inherits = {f"MS_RETRY_INTERVAL_{said}": "4"}
    assert rank_variables(inherits, app, rank, {}, defaults) == inherits


def test_the_agent_means_the_same_variables() -> None:
    """It says their names itself, for `frameworks` does not travel."""
    assert rank_environment._TOGETHER == frameworks.PACE
    assert frameworks.PACE[1] == mindspore_scheduler._PACE


def _split(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value
