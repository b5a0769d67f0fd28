"""The variables of all frameworks agree: the same ranks, sizes and nodes for every layout."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import NodeStore
from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.datamodel.request import ServicePolicy
from mslaunch.frameworks import horovod, mindspore, openmpi
from mslaunch.frameworks import table as frameworks
from mslaunch.frameworks.contract import NODE, RANK, ProgramInfo, RankInfo

FIRST_SERVER = SERVICE - 1

PROGRAM = ProgramInfo(0, ("/bin/prog", "word"), "/work")
LAYOUTS = st.lists(st.integers(1, 5), min_size=1, max_size=5)  # ranks a node


def environments(counts: list[int]) -> list[dict[str, str]]:
    made = []
    for node, count in enumerate(counts):
        for local in range(count):
            where = (len(made), sum(counts), local, count, node, len(counts), sum(counts))
            place = RankInfo(*where, "10.0.0.1", 10001, 10002, bound=True, own_ports=(10003,), jobid="ff")
            words = [*frameworks.job_env(place), *frameworks.app_env(PROGRAM), *frameworks.rank_env(place)]
            env = dict(word.split("=", 1) for word in words)
            assert len(env) == len(words), "no variable is given twice"
            made.append(env)
    return made


@settings(max_examples=50, deadline=None)
@given(LAYOUTS)
def test_numbers_of_all_frameworks_agree(counts: list[int]) -> None:
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
        assert env["NODE_RANK"] == env["GROUP_RANK"] and env["GROUP_WORLD_SIZE"] == str(len(counts))
        assert (env["ROLE_RANK"], env["ROLE_WORLD_SIZE"], env["ROLE_NAME"]) == (env["RANK"], str(size), "default")
        assert env["JAX_COORDINATOR_PORT"] == "10003" and jax_address(env) == "10.0.0.1:10003"
        assert env["MASTER_ADDR"] == env["MS_SCHED_HOST"] == "10.0.0.1"
        assert (env["MASTER_PORT"], env["MS_SCHED_PORT"]) == ("10001", "10002")
        assert env["MS_ROLE"] == "MS_WORKER"
        assert env["OMPI_COMM_WORLD_SIZE"] == env["OMPI_MCA_orte_ess_num_procs"] == env["OMPI_APP_CTX_NUM_PROCS"]
        assert env["OMPI_COMM_WORLD_RANK"] == env["OMPI_MCA_ess_base_vpid"]
        assert env["OMPI_COMM_WORLD_NODE_RANK"] == env["OMPI_MCA_orte_ess_node_rank"]
        assert not mindspore_takes_mpi(env)
    assert [int(env["RANK"]) for env in made] == list(range(size))
    for node, count in enumerate(counts):
        here = [env for env in made if env["NODE_RANK"] == str(node)]
        assert [int(env["LOCAL_RANK"]) for env in here] == list(range(count))
        assert {env["LOCAL_WORLD_SIZE"] for env in here} == {str(count)}


def jax_address(env: dict[str, str]) -> str:
    """OmpiCluster.get_coordinator_address() of jax 0.10.2."""
    uri = env["OMPI_MCA_orte_hnp_uri"]
    found = re.search(r"tcp://(.+?)[,:]|tcp6://\[(.+?)[,\]]", uri)
    assert found and int(uri.split(".", maxsplit=1)[0]) % 4096 == 0
    return f"{found[1] or found[2]}:{env['JAX_COORDINATOR_PORT']}"


@pytest.mark.parametrize(("address", "port"), [("10.0.0.1", 12345), ("fd00::7", 65535)])
def test_jax_finds_its_coordinator_and_a_port_for_versions_that_compute_it(address: str, port: int) -> None:
    place = RankInfo(0, 2, 0, 2, 0, 1, 2, address, 10001, 10002, own_ports=(port,))
    env = dict(word.split("=", 1) for word in frameworks.job_env(place))
    assert jax_address(env) == f"{address}:{port}"
    assert 61440 <= int(env["OMPI_MCA_orte_hnp_uri"].split(".")[0]) // 4096 % 4096 + 61440 <= 65535
    for without in (place._replace(own_ports=()), place._replace(numbered=False)):
        assert not [word for word in frameworks.job_env(without) if word.startswith(("JAX_", "OMPI_MCA_orte_hnp_uri"))]


def test_a_launch_without_an_id_has_no_variables_of_torchelastic() -> None:
    place = RankInfo(0, 2, 0, 2, 0, 1, 2, "10.0.0.1", 10001, 10002)
    assert not [word for word in frameworks.job_env(place) if word.startswith("TORCHELASTIC_")]
    told = frameworks.job_env(place._replace(jobid="ff", attempt=3, max_restarts=4))
    assert [word for word in told if word.startswith("TORCHELASTIC_")] == [
        "TORCHELASTIC_RUN_ID=ff",
        "TORCHELASTIC_RESTART_COUNT=2",
        "TORCHELASTIC_MAX_RESTARTS=4",
    ]


def mindspore_takes_mpi(env: dict[str, str]) -> bool:
    """UseMPI() of MindSpore's ms_utils.h without its last condition (MS_ROLE is empty): neither half may be true."""
    return bool(env.get("OMPI_COMMAND") and env.get("PMIX_RANK"))


#: what a libmpi takes for the promise of a server or a daemon (mpirun 4.1.4 sets them all), or for an order to use one;
#: not OMPI_MCA_orte_hnp_uri, which JAX wants, and which no libmpi obeys beside the others (tests/frameworks)
PROMISES = ("PMIX_", "PMI_", "OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_launch",
            "OMPI_MCA_pmix", "OMPI_MCA_orte_jobfam_session_dir", "OMPI_MCA_orte_top_session_dir", "PRTE_LAUNCHED",
            "OMPI_MCA_orte_precondition_transports")  # fmt: skip


def test_no_variable_announces_a_server() -> None:
    (env,) = environments([1])
    assert not [name for name in env if name.startswith(PROMISES) or name == "OMPI_MCA_ess"]
    for name in ("OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess", "OMPI_MCA_pmix", "PMIX_RANK", "PMIX_SERVER_URI41"):
        assert any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in openmpi.SCRUB)


def test_pmix_parameters_of_the_user_are_kept() -> None:
    for name in ("PMIX_MCA_gds", "OMPI_MCA_btl", "OMPI_MCA_orte_tmpdir_base", "OMPI_ALLOW_RUN_AS_ROOT"):
        assert not any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in frameworks.SCRUB)


@pytest.mark.parametrize(
    ("argv", "command", "words"),
    [
        (("sh", "-c", "echo a b"), "sh", "-c echo a b"),
        (("/usr/bin/env",), "env", None),
        (("./a.out", ""), "a.out", ""),
        (("dir/",), "dir", None),
        (("x", "y" * openmpi._LONGEST), "x", "y" * openmpi._LONGEST),
        (("x", "y" * openmpi._LONGEST, "z"), "x", None),
        (("x", "\udcff" * openmpi._LONGEST), "x", "\udcff" * openmpi._LONGEST),
    ],
)
def test_ranks_get_the_name_of_the_program(argv: tuple[str, ...], command: str, words: str | None) -> None:
    env = openmpi.app_env(ProgramInfo(3, argv, "/work"))
    assert (env["OMPI_COMMAND"], env.get("OMPI_ARGV")) == (command, words)
    assert (env["OMPI_MCA_orte_app_num"], env["OMPI_MCA_initial_wdir"]) == (3, "/work")


def test_the_longest_argument_list_can_be_started() -> None:
    env = openmpi.app_env(ProgramInfo(0, ("true", "y" * openmpi._LONGEST), "/"))
    subprocess.run(["true"], env={"PATH": os.defpath, "OMPI_ARGV": str(env["OMPI_ARGV"])}, check=True)


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        RankInfo,
        *[st.integers(0, 1000)] * 7,
        st.sampled_from(["10.0.0.1", "fd00::1"]),
        *[st.integers(1, 65535)] * 2,
        job=st.integers(0, 2**32 - 1),
        sizes=st.lists(st.integers(1, 9), max_size=3).map(tuple),
        bound=st.booleans(),
        crowded=st.booleans(),
        service_address=st.sampled_from(["", "10.0.0.2"]),
        servers=st.integers(0, 3),
        simulated=st.booleans(),
        role=st.sampled_from(["", "scheduler", "server"]),
        numbered=st.booleans(),
        even_cpus=st.lists(st.integers(0, 99), max_size=3).map(tuple),
        own_ports=st.sampled_from([(), (10003,)]),
        own_port=st.just(0),
        jobid=st.sampled_from(["", "ff"]),
        attempt=st.integers(1, 9),
        max_restarts=st.integers(0, 9),
        devices=st.integers(0, 16),
        host=st.just("n0"),
        cross_rank=st.integers(0, 9),
        cross_size=st.integers(1, 9),
        store=st.sampled_from([None, NodeStore(1024, "secret", "eth0"), NodeStore(1024, "secret")]),
    )
)
def test_no_two_frameworks_set_a_variable_differently(place: RankInfo) -> None:
    words = [*frameworks.job_env(place), *frameworks.rank_env(place), *frameworks.app_env(PROGRAM)]
    names = [word.partition("=")[0] for word in words]
    assert len(names) == len(set(names)), "nor a variable of the node and of the rank"


@settings(max_examples=100, deadline=None)
@given(LAYOUTS)
def test_scopes_of_horovod_have_the_numbers_of_its_variables(counts: list[int]) -> None:
    """As horovodrun deals them out: a scope for all, for each host, and for each local rank over all hosts."""
    hosts = [f"n{node}" for node in range(len(counts))]
    nodes = [node for node, count in enumerate(counts) for _ in range(count)]
    found = horovod.scopes(hosts, nodes)
    assert found["global"] == nodes
    assert found.keys() == {
        "global",
        *(f"local_{host}" for host in hosts),
        *(f"cross_{at}" for at in range(max(counts))),
    }
    for node, count in enumerate(counts):
        assert found[f"local_n{node}"] == [node] * count
        for local in range(count):
            assert found[f"cross_{local}"] == [other for other, size in enumerate(counts) if size > local]


def test_horovod_gets_nothing_without_a_store() -> None:
    """A rank that has HOROVOD_RANK and no store takes itself for the only one, without a word."""
    assert not any(name.startswith("HOROVOD") for env in environments([2, 1]) for name in env)


@pytest.mark.parametrize(
    ("name", "used"), [("n1.a-b.net", "n1.a-b.net"), ("fd00::1", "fd00::1"), ("a/b#c?d", "a-b-c-d")]
)
def test_names_of_hosts_fit_into_a_path(name: str, used: str) -> None:
    assert horovod.hostname(name) == used


def test_a_contradiction_is_an_error() -> None:
    assert frameworks.merged([{"A": 1}, {"A": "1", "B": 2}]) == {"A": "1", "B": 2}
    with pytest.raises(ValueError, match="two frameworks set A, to '1' and '2'"):
        frameworks.merged([{"A": 1}, {"A": 2}])


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("numbered", [False, True])
def test_what_is_asked_for_many_ranks_at_once_is_what_each_would_get(simulated: bool, numbered: bool) -> None:
    place = RankInfo(RANK, 8, 1, 2, NODE, 4, 8, "10.0.0.1", 10001, 10002, own_ports=(10003,), jobid="ff", bound=True)
    place = place._replace(simulated=simulated, numbered=numbered, asked=("oneccl", "tf", "paddle"))
    rank, job = frameworks.rank_template(place), frameworks.job_template(place)
    for number, node in [(0, 0), (7, 3), (1234, 99)]:
        one = place._replace(rank=number, node=node)
        assert rank.filled(number, node) == frameworks.rank_env(one)
        assert job.filled(number, node) == frameworks.job_env(one)


@pytest.mark.parametrize(
    "use",
    [
        str, repr, bool, int, hash, json.dumps, lambda number: f"{number}", lambda number: number + 1,
        lambda number: number == 0, lambda number: number < 1, lambda number: ["a"][number],
    ],
)  # fmt: skip
def test_a_number_that_is_not_known_yet_can_only_be_a_value(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        use(RANK)


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import mindspore as ms", "MindSpore"),
        ("from mindspore_gs import x", "MindSpore"),
        ("import torch.nn", "torch"),
        ("torch_geometric", "torch"),
        ("import lightning as L", "torch"),
        ("from accelerate import Accelerator", "torch"),
        ("from deepspeed.accelerator import x", "torch"),
        ("import pytorch_lightning as pl", "torch"),
        ("  from transformers import Trainer", "torch"),
        ("lightning strikes transformers, which accelerate; reimport lightnings", ""),
        ("import jax", "JAX"),
        ("from mpi4py import MPI", ""),
        ("torchvision mytorch _torch ajax jaxb", ""),
        ("mytorch; torch", "torch"),
        ("", ""),
    ],
)
def test_programs_that_are_not_bound_by_default(text: str, framework: str) -> None:
    assert frameworks.unbound_in(text) == framework


@settings(max_examples=20, deadline=None)
@given(LAYOUTS)
def test_variables_common_to_a_node_are_stored_once(counts: list[int]) -> None:
    place = RankInfo(0, sum(counts), 0, counts[0], 0, len(counts), sum(counts), "::1", 1, 2)
    other = place._replace(rank=counts[0] - 1, local_rank=counts[0] - 1)
    assert frameworks.job_env(place) == frameworks.job_env(other)


def test_variables_that_are_set_are_also_scrubbed() -> None:
    """Otherwise a launch inside a launch could see two jobs at once."""
    for env in environments([2]):
        for name in set(env) - {"LOCAL_RANK", "MS_TOPO_TIMEOUT", "MS_CLUSTER_TIMEOUT"}:
            assert any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in frameworks.SCRUB), (
                name
            )
    assert all("*" not in name[:-1] for name in frameworks.SCRUB)
    assert len(set(frameworks.SCRUB)) == len(frameworks.SCRUB)


def test_the_scheduler_has_no_worker_variables() -> None:
    place = RankInfo(0, 8, 0, 4, 0, 2, 8, "10.0.0.1", 10001, 10002)
    (service,) = mindspore.services(place, ServicePolicy())
    env = dict(word.split("=", 1) for word in service.env)
    assert (service.port, env["MS_SCHED_HOST"]) == (10002, "10.0.0.1")
    assert (env["MS_ROLE"], env["MS_WORKER_NUM"]) == ("MS_SCHED", "8")
    assert "MS_NODE_ID" not in env
    assert "MS_TOPO_TIMEOUT" not in env, "the rank's own value counts for its scheduler too"


def test_the_scheduler_and_the_servers_get_the_same_address() -> None:
    place = RankInfo(0, 8, 0, 4, 0, 2, 8, "10.0.0.1", 10001, 10002, service_address="fd00::2", servers=3)
    made = mindspore.services(place, ServicePolicy(first=True, program="light", cpus=(5,)))
    assert [service.number for service in made] == [SERVICE, SERVICE - 1, SERVICE - 2, SERVICE - 3]
    assert made[0][3:-1] == (True, "light", (5,), "mindspore", "scheduler", "mindspore")
    assert made[1][3:-1] == (True, "ranks", (), "", "server.0", "mindspore")
    roles, ports = ["MS_SCHED", *["MS_PSERVER"] * 3], [10002, 0, 0, 0]
    for service, role, port in zip(made, roles, ports):
        env = dict(word.split("=", 1) for word in service.env)
        assert (service.port, env["MS_ROLE"], env["MS_SCHED_HOST"], env["MS_SERVER_NUM"]) == (
            port,
            role,
            "fd00::2",
            "3",
        )
        assert "MS_NODE_ID" not in env and ("RANK_ID" in env) == (role == "MS_SCHED")
    env = dict(word.split("=", 1) for word in frameworks.job_env(place))
    assert (env["MS_SCHED_HOST"], env["MASTER_ADDR"], env["MS_SERVER_NUM"]) == ("fd00::2", "10.0.0.1", "3")


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("numbered", [False, True])
def test_unknown_values_are_not_set(simulated: bool, numbered: bool) -> None:
    full = RankInfo(3, 8, 1, 2, 1, 4, 8, "10.0.0.1", 10001, 10002, simulated=simulated)
    place = full._replace(numbered=numbered)
    names = {word.partition("=")[0] for word in (*frameworks.job_env(place), *frameworks.rank_env(place))}
    others = full._replace(rank=4, node=2)
    telling = {
        one.partition("=")[0]
        for one, other in zip(
            [*frameworks.job_env(full), *frameworks.rank_env(full)],
            [*frameworks.job_env(others), *frameworks.rank_env(others)],
        )
        if one != other
    }
    assert telling >= {"RANK", "RANK_ID", "NODE_RANK"}
    assert telling <= names if numbered else not telling & names, "numbers are set only if `place.numbered`"
    assert {"DEVICE_ID", "LOCAL_RANK", "RANK_SIZE"} <= names
    assert not (names & {"MS_ROLE", "OMPI_COMM_WORLD_SIZE"}) if simulated else {"MS_ROLE", "MS_SCHED_PORT"} <= names
