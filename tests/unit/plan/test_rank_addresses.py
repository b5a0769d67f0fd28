"""--env-for: an address for each rank, and where there can be none."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import JobMap, Node, Placement, RankPorts
from mslaunch.datamodel.request import AppContext, Request, ServicePolicy, Share
from mslaunch.errors import UsageError
from mslaunch.frameworks import table
from mslaunch.frameworks.contract import RankInfo
from mslaunch.frameworks.on_request import ON_REQUEST
from mslaunch.plan.rank_addresses import check_requested, ports_wanted, rank_addresses

PLACE = RankInfo(1, 2, 1, 2, 0, 1, 2, "10.0.0.1", 1001, 1002, asked=tuple(ON_REQUEST))
SERVED = PLACE._replace(rank_addresses=("10.0.0.1:1", "[fd00::2]:2"))


def job(counts: list[int]) -> JobMap:
    """So many ranks on each node."""
    nodes = tuple(Node(f"n{number}", None, "-H") for number in range(len(counts)))
    on = [(node, local) for node, count in enumerate(counts) for local in range(count)]
    return JobMap(nodes, tuple(Placement(rank, 0, *where) for rank, where in enumerate(on)), len(on))


def asked(*words: str, **more: object) -> Request:
    return Request((AppContext(("x",)),), env_for=words)._replace(**more)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any))
def test_every_rank_has_one_of_the_ports_of_its_host(counts: list[int]) -> None:
    jobmap, request = job(counts), asked("tf")
    wanted = ports_wanted(request, jobmap)
    assert wanted == {node: count for node, count in enumerate(counts) if count}
    held = {node: RankPorts(f"10.0.0.{node}", tuple(range(1, count + 1))) for node, count in wanted.items()}
    expected = [f"10.0.0.{node}:{local + 1}" for node, count in enumerate(counts) for local in range(count)]
    assert list(rank_addresses(jobmap, held)) == expected


def test_no_ports_where_nobody_serves() -> None:
    assert ports_wanted(asked("oneccl"), job([2])) == {}
    assert ports_wanted(asked("tf", cluster=ServicePolicy(simulated=True)), job([2])) == {}


def test_addresses_that_no_variable_holds_are_refused() -> None:
    held = {0: RankPorts("fd00:1111:2222:3333:4444:5555:6666:7777", tuple(range(10000, 12600)))}
    with pytest.raises(UsageError, match="the addresses of 2600 ranks do not fit into a variable, which holds 128 KiB"):
        rank_addresses(job([2600]), held)
    assert len(rank_addresses(job([2000]), held)) == 2000


def test_launchers_that_share_a_job_do_not_know_each_others_ranks() -> None:
    cluster = ServicePolicy(share=Share(8, 0, "10.0.0.1", 8118, True))
    check_requested(asked("oneccl", cluster=cluster))
    with pytest.raises(UsageError, match="its own ranks only") as refused:
        check_requested(asked("tf", "oneccl", cluster=cluster))
    assert refused.value.where == "--env-for tf"


def test_what_ranks_find() -> None:
    rank = dict(word.split("=", 1) for word in table.rank_env(SERVED))
    job_wide = dict(word.split("=", 1) for word in table.job_env(SERVED))
    config = json.loads(rank["TF_CONFIG"])
    assert config == {"cluster": {"worker": list(SERVED.rank_addresses)}, "task": {"type": "worker", "index": 1}}
    assert job_wide["PADDLE_TRAINER_ENDPOINTS"] == ",".join(SERVED.rank_addresses)
    assert rank["PADDLE_CURRENT_ENDPOINT"] == SERVED.rank_addresses[1] and rank["PADDLE_TRAINER_ID"] == "1"
    assert (rank["CCL_LOCAL_RANK"], job_wide["CCL_LOCAL_SIZE"], job_wide["CCL_PROCESS_LAUNCHER"]) == ("1", "2", "none")


@pytest.mark.parametrize(("devices", "expected"), [(0, "1"), (1, "0"), (3, "0,1,2")])
def test_paddle_counts_the_devices_that_a_rank_sees(devices: int, expected: str) -> None:
    found = table.rank_env(SERVED._replace(devices=devices))
    assert {f"FLAGS_selected_gpus={expected}", f"FLAGS_selected_xpus={expected}"} <= set(found)


def test_no_two_frameworks_set_one_variable() -> None:
    """Together they would be an error (`table.merged`), whichever the user names."""
    for count in range(len(ON_REQUEST) + 1):
        for words in itertools.combinations(ON_REQUEST, count):
            place = SERVED._replace(asked=words)
            table.job_env(place), table.rank_env(place)
    known = {word.partition("=")[0] for word in (*table.job_env(SERVED), *table.rank_env(SERVED))}
    assert {"TF_CONFIG", "PADDLE_MASTER", "CCL_LOCAL_RANK", "MASTER_ADDR"} <= known


def test_without_an_address_only_what_needs_none_is_set() -> None:
    found = (*table.job_env(PLACE), *table.rank_env(PLACE))
    assert not [word for word in found if word.startswith(("TF_", "PADDLE_"))]
    assert "CCL_LOCAL_RANK=1" in found
