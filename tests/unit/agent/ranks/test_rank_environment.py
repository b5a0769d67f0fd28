"""The variables of a rank, and their precedence."""

from __future__ import annotations

import pytest

from mslaunch.agent.ranks.rank_environment import inherited, rank_variables
from mslaunch.agent.services import mindspore_scheduler
from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan
from mslaunch.frameworks import mindspore as frameworks

PLAN = NodePlan((), (), ("NODE=node", "BOTH=node"), defaults=("LAST=default",), scrub=("STALE", "STALE_*"))


def made(app: AppPlan, rank: tuple[str, ...] = (), **inherits: str) -> dict[str, str]:
    return rank_variables(inherited(inherits, PLAN), app, RankPlan(0, 0, rank), {"PWD": "/w"}, PLAN)


def test_which_variables_are_inherited() -> None:
    base = inherited({"STALE": "1", "STALE_1": "1", "STALENESS": "1", "BOTH": "mine"}, PLAN)
    assert base == {"STALENESS": "1", "NODE": "node", "BOTH": "node"}


def test_the_precedence_of_variables() -> None:
    """From weak to strong: inherited, the node's, the rank's, PWD, the program's (-x); defaults fill gaps."""
    env = made(AppPlan(("x",), "/w"), ("BOTH=rank", "PWD=/rank"), BOTH="mine", LAST="")
    assert env == {"NODE": "node", "BOTH": "rank", "PWD": "/w", "LAST": ""}
    env = made(AppPlan(("x",), "/w", ("BOTH=x", "PWD=/x", "BOTH=y=z")), ("BOTH=rank",))
    assert env == {"NODE": "node", "BOTH": "y=z", "PWD": "/x", "LAST": "default"}


def test_a_prefix_is_put_first_in_search_paths() -> None:
    """LD_LIBRARY_PATH gets no empty entry, which would mean the working directory."""
    app = AppPlan(("x",), "/w", ("PATH=/x",), front=("PATH=/p/bin", "LD_LIBRARY_PATH=/p/lib"))
    env = made(app, PATH="/bin")
    assert (env["PATH"], env["LD_LIBRARY_PATH"]) == ("/p/bin:/x", "/p/lib")
    env = made(app._replace(env=()), PATH="/bin", LD_LIBRARY_PATH="/lib")
    assert (env["PATH"], env["LD_LIBRARY_PATH"]) == ("/p/bin:/bin", "/p/lib:/lib")
    assert made(app, LD_LIBRARY_PATH="")["LD_LIBRARY_PATH"] == "/p/lib"


@pytest.mark.parametrize("said", ["LOWER", "UPPER"])
def test_paired_defaults_are_set_together(said: str) -> None:
    """If a host sets only the minimum, it could otherwise exceed the default maximum."""
    defaults = ("MS_RETRY_INTERVAL_LOWER=1", "MS_RETRY_INTERVAL_UPPER=1")
    plan = NodePlan((), (), (), defaults, frameworks.PACE)
    app, rank = AppPlan(("x",), "/w"), RankPlan(0, 0, ())
    assert rank_variables({"A": "1"}, app, rank, {}, plan).items() >= dict(map(_split, defaults)).items()
    inherits = {f"MS_RETRY_INTERVAL_{said}": "4"}
    assert rank_variables(inherits, app, rank, {}, plan) == inherits


def test_the_agent_and_frameworks_name_the_same_variable() -> None:
    """The agent has its own copy of the name, because `frameworks` does not travel."""
    assert frameworks.PACE[1] == mindspore_scheduler._PACE


def _split(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


PROXIED = [
    ({"https_proxy": "p"}, "a,10.0.0.1"),
    ({"HTTP_PROXY": "p", "NO_PROXY": "corp,.x"}, "a,10.0.0.1,corp,.x"),
    ({"all_proxy": "p", "no_proxy": "low,a", "NO_PROXY": "up"}, "a,10.0.0.1,low,up"),
    ({"grpc_proxy": "p", "no_proxy": ",low,,"}, "a,10.0.0.1,low"),
]


@pytest.mark.parametrize(("inherits", "listed"), PROXIED)
def test_where_a_proxy_is_named_the_hosts_of_the_job_are_reached_without(inherits: dict[str, str], listed: str) -> None:
    """In both cases: curl and gRPC read one, Go the other first.  From -x as well."""
    plan = PLAN._replace(direct=("a", "10.0.0.1"))
    app = AppPlan(("x",), "/w")
    given = app._replace(env=tuple(f"{name}={value}" for name, value in inherits.items()))
    for env in (
        rank_variables(inherits, app, RankPlan(0, 0, ()), {}, plan),
        rank_variables({}, given, RankPlan(0, 0, ()), {}, plan),
    ):
        assert (env["no_proxy"], env["NO_PROXY"]) == (listed, listed)


@pytest.mark.parametrize("inherits", [{}, {"http_proxy": ""}, {"no_proxy": "x"}, {"http_proxy": "p", "NO_PROXY": "*"}])
def test_without_a_proxy_nothing_is_added(inherits: dict[str, str]) -> None:
    plan = PLAN._replace(direct=("a",), env=(), defaults=())
    assert rank_variables(inherits, AppPlan(("x",), "/w"), RankPlan(0, 0, ()), {}, plan) == inherits
