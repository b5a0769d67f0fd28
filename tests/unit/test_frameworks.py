"""The variables of all frameworks tell one story: the same ranks, sizes and places, whatever the layout."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch import frameworks
from mslaunch.frameworks import mindspore, openmpi, torch
from mslaunch.frameworks.place import Place

LAYOUTS = st.lists(st.integers(1, 5), min_size=1, max_size=5)  # ranks a node


def environments(counts: list[int]) -> list[dict[str, str]]:
    made = []
    for node, count in enumerate(counts):
        for local in range(count):
            place = Place(
                len(made), sum(counts), local, count, node, len(counts), sum(counts), "10.0.0.1", 10001, 10002
            )
            words = [*frameworks.job_env(place), *frameworks.rank_env(place)]
            env = dict(word.split("=", 1) for word in words)
            assert len(env) == len(words), "no variable is given twice"
            made.append(env)
    return made


@settings(max_examples=50, deadline=None)
@given(LAYOUTS)
def test_numbers_agree(counts: list[int]) -> None:
    made = environments(counts)
    size = len(made)
    for env in made:
        assert env["RANK"] == env["OMPI_COMM_WORLD_RANK"] == env["RANK_ID"] == env["MS_NODE_ID"]
        assert env["WORLD_SIZE"] == env["OMPI_COMM_WORLD_SIZE"] == env["RANK_SIZE"] == env["MS_WORKER_NUM"] == str(size)
        assert (
            env["LOCAL_RANK"]
            == env["OMPI_COMM_WORLD_LOCAL_RANK"]
            == env["DEVICE_ID"]
            == env["OMPI_COMM_WORLD_NODE_RANK"]
        )
        assert env["LOCAL_WORLD_SIZE"] == env["OMPI_COMM_WORLD_LOCAL_SIZE"] == env["LOCAL_RANK_SIZE"]
        assert env["NODE_RANK"] == env["GROUP_RANK"]
        assert env["MASTER_ADDR"] == env["MS_SCHED_HOST"] == "10.0.0.1"
        assert (env["MASTER_PORT"], env["MS_SCHED_PORT"]) == ("10001", "10002")
        assert env["MS_ROLE"] == "MS_WORKER"
        assert "OMPI_COMMAND" not in env and "PMIX_RANK" not in env  # together they take MindSpore to MPI
    assert [int(env["RANK"]) for env in made] == list(range(size))
    for node, count in enumerate(counts):
        here = [env for env in made if env["NODE_RANK"] == str(node)]
        assert [int(env["LOCAL_RANK"]) for env in here] == list(range(count))
        assert {env["LOCAL_WORLD_SIZE"] for env in here} == {str(count)}


@settings(max_examples=20, deadline=None)
@given(LAYOUTS)
def test_what_a_node_shares_is_shared(counts: list[int]) -> None:
    place = Place(0, sum(counts), 0, counts[0], 0, len(counts), sum(counts), "::1", 1, 2)
    other = place._replace(rank=counts[0] - 1, local_rank=counts[0] - 1)
    assert frameworks.job_env(place) == frameworks.job_env(other)


def test_what_is_set_is_also_scrubbed() -> None:
    """Or a launch within a launch could see two jobs at once."""
    for env in environments([2]):
        for name in set(env) - {"LOCAL_RANK", "MS_TOPO_TIMEOUT", "MS_CLUSTER_TIMEOUT"}:
            assert any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in frameworks.SCRUB), (
                name
            )
    assert (*openmpi.SCRUB, *torch.SCRUB, *mindspore.SCRUB) == frameworks.SCRUB
    assert all("*" not in name[:-1] for name in frameworks.SCRUB)


def test_the_scheduler_is_no_worker() -> None:
    place = Place(0, 8, 0, 4, 0, 2, 8, "10.0.0.1", 10001, 10002)
    service = mindspore.service(place)
    env = dict(word.split("=", 1) for word in service.env)
    assert (service.kind, service.port, service.address) == ("mindspore", 10002, "10.0.0.1")
    assert (env["MS_ROLE"], env["MS_WORKER_NUM"]) == ("MS_SCHED", "8")
    assert "MS_NODE_ID" not in env
    assert "MS_TOPO_TIMEOUT" not in env, "the rank's own value counts for its scheduler too"
