"""--bind_core and --bind_numa of msrun: JSON becomes bindings by local rank, and then cpus and memory of hosts."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import EPYC_8, XEON_DEALT, machine

from mslaunch.cli.main import parse as dispatch
from mslaunch.datamodel.jobmap import Endpoint, JobMap, Node, Placement
from mslaunch.datamodel.request import AppContext, LocalBinding, Policy, Request, ServicePolicy
from mslaunch.errors import UsageError
from mslaunch.plan.binding import bind, wants_binding
from mslaunch.plan.node_plans import make_plans

FLAT = machine("socket:1 numa:1 core:6 thread:1").topology()
FOUR_NODES = XEON_DEALT.topology()  # cpus alternate between sockets


def parsed(*words, environ=None, files=None):
    def read(path):
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory", path)
        return files[path]

    return dispatch(["--dialect", "msrun", *words, "net.py"], environ or {}, read)


def local(*words, **more):
    return parsed(*words, **more).policy.local


# ------------------------------------------------------------------------------------------------------ the option


def test_devices_are_given_by_number_in_any_order():
    said = local('--bind_core={"device2": ["4", "6-7"], "device0": ["0, 1"]}')
    assert said.cpus == ((0, 1), (), (4, 6, 7))


def test_visible_devices_belong_to_workers_in_turn():
    said = local(
        '--bind_core={"device4": ["0"], "device6": ["1"]}', environ={"ASCEND_RT_VISIBLE_DEVICES": "6, 4"}
    )  # fmt: skip
    assert said.cpus == ((0,), (1,))


def test_both_options_may_be_combined():
    request = parsed('--bind_core={"scheduler": ["5"], "device0": ["1"]}', '--bind_numa={"device0": ["0"]}')
    assert request.cluster.cpus == (5,)
    assert request.policy.local == LocalBinding(cpus=((1,),), numa=((0,),), memory=((0,),))
    both = local("--bind_core=True", "--bind_numa=True")
    assert (both.even_cpus, both.even_numa) == (True, True)


CONFIG = {
    "bind_config": {"bind_cpu_mode": "cpu", "bind_memory_mode": "numa"},
    "bind_cpu": {"device0": {"main": "0-1", "data": "9"}, "device_1": {"main": "2,3"}, "scheduler": {"main": "4"}},
    "bind_memory": {"device0": 0, "device1": "1"},
}


def test_a_file_with_bind_config_is_read():
    text = json.dumps(CONFIG)
    request = parsed("--bind_numa=/tmp/b.json", "--bind_core=True", files={"/tmp/b.json": text})
    assert request.policy.local == LocalBinding(
        cpus=((0, 1), (2, 3)), memory=((0,), (1,)), where="--bind_numa"
    )  # fmt: skip
    assert request.cluster.cpus == (4,)
    assert "no effect beside bind_config" in " ".join(request.notes)
    known = hashlib.sha256(text.encode()).hexdigest()
    assert request.apps[0].env == (("MSRUN_BIND_FILE", "/tmp/b.json"), ("MSRUN_BIND_FILE_HASH", known))


def test_bind_config_may_be_inline_and_by_node():
    said = {"bind_config": {"bind_cpu_mode": "NUMA"}, "bind_cpu": {"device0": 1, "scheduler": "0", "device1": None}}
    request = parsed("--bind_numa", json.dumps(said))
    assert request.policy.local == LocalBinding(numa=((1,),), scheduler=(0,), where="--bind_numa")
    assert request.apps[0].env == ()


def test_a_cpu_that_is_given_twice_counts_once():
    assert local("--bind_core", '{"device0": ["0", "1,0", "0-2"]}').cpus == ((0, 1, 2),)


def test_a_file_with_devices_is_read():
    said = local("--bind_numa=b.json", files={"b.json": '{"device0": ["1"]}'})
    assert said.memory == ((1,),)


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["--bind_core=maybe"], "as JSON"),
        (["--bind_core={"], "single quotes"),
        (["--bind_core=[]"], "in braces"),
        (['--bind_core={"gpu0": ["0"]}'], "neither scheduler nor deviceN"),
        (['--bind_core={"device0": [0]}'], "list of strings"),
        (['--bind_core={"device0": ["3-1"]}'], "'3-1'"),
        (['--bind_core={"device0": ["a"]}'], "'a'"),
        (['--bind_core={"device0": ["99999"]}'], "too large"),
        (['--bind_core={"bind_config": {}}'], "give this JSON to --bind_numa"),
        (["--bind_numa=none.json"], "No such file"),
        (["--bind_numa="], "not empty"),
        (['--bind_numa={"bind_config": 1}'], "braces"),
        (['--bind_numa={"bind_config": {"bind_cpu_mode": "core"}}'], "cpu, numa, none"),
        (['--bind_numa={"bind_config": {"bind_cpu_mode": "cpu"}, "bind_cpu": {"device0": "0"}}'], "braces"),
        (['--bind_numa={"bind_config": {"bind_cpu_mode": "numa"}, "bind_cpu": {"device0": [1]}}'], "[1]"),
        (['--bind_numa={"bind_config": {"bind_cpu_mode": "numa"}, "bind_cpu": [1]}'], "braces"),
    ],
)  # fmt: skip
def test_malformed_bindings_are_refused(words, phrase):
    with pytest.raises(UsageError) as caught:
        parsed(*words)
    assert caught.value.where.startswith("--bind_") and phrase in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["", "0", "1-2", "x", "numa", "cpu", "none"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["device0", "device_1", "scheduler", "bind_config", "bind_cpu", "bind_memory", "bind_cpu_mode", "main",
                 "bind_memory_mode", "devicex"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(["core", "numa"]), JSON)
def test_any_json_is_a_binding_or_refused(option, value):
    try:
        request = parsed(f"--bind_{option}", json.dumps(value))
    except UsageError as error:
        assert error.where.startswith("--bind_")
        return
    assert request.policy.local is not None or value is False


def test_cpus_that_cannot_be_shared_are_reported(monkeypatch):
    monkeypatch.setattr("mslaunch.host.usable_cpus.usable_cpus", lambda: {0, 1})
    assert parsed("--bind_core=True", "--worker_num=2").notes == ()
    assert "3 cannot share 2 cpus" in parsed("--bind_core=True", "--worker_num=3").notes[0]
    assert parsed("--bind_core=True", "--worker_num=3", "-H", "a").notes == ()
    assert "NUMA node" in parsed("--bind_numa=True", "--worker_num=999").notes[0]


# ---------------------------------------------------------------------------------------------------- bindings of ranks


def bound(said, ranks, topology=FLAT, **more):
    """(cpus, memory) of each rank on one host."""
    policy = Policy(bind_to="none", local=said)
    rows = tuple(Placement(rank, 0, 0, rank) for rank in range(ranks))
    jobmap = JobMap((Node("n01", 8, "-H"),), rows, 8, **more)
    assert wants_binding(policy, jobmap)
    done = bind(jobmap, policy, {"n01": topology})
    return [(row.cpus, row.memory) for row in done.placements], done


def cpus(*args, **more):
    return [row[0] for row in bound(*args, **more)[0]]


def test_even_shares_are_runs_of_cpus_and_the_last_gets_the_rest():
    assert cpus(LocalBinding(even_cpus=True), 2) == [(0, 1, 2), (3, 4, 5)]
    assert cpus(LocalBinding(even_cpus=True), 4) == [(0,), (1,), (2,), (3, 4, 5)]
    assert cpus(LocalBinding(even_cpus=True), 6) == [(at,) for at in range(6)]
    assert cpus(LocalBinding(even_cpus=True), 7) == [()] * 7, "fewer cpus than ranks: none is bound, as in msrun"


@given(st.integers(1, 70))
def test_even_shares_are_all_cpus_once(ranks):
    found = cpus(LocalBinding(even_cpus=True), ranks, topology=EPYC_8.topology())
    together = [cpu for share in found for cpu in share]
    assert together == (sorted(EPYC_8.cpus) if ranks <= len(EPYC_8.cpus) else [])


def test_listed_cpus_go_by_local_rank():
    said = LocalBinding(cpus=((3, 1), (), (5,)))
    assert cpus(said, 4) == [(1, 3), (), (5,), ()]


def test_each_rank_gets_a_numa_node():
    nodes = [tuple(sorted(cpu for cpu in range(32) if FOUR_NODES.objects[5][FOUR_NODES.cpus.index(cpu)] == node))
             for node in range(4)]  # fmt: skip
    found, _ = bound(LocalBinding(even_numa=True), 3, FOUR_NODES)
    assert found == [(nodes[node], (node,)) for node in range(3)]
    found, _ = bound(LocalBinding(even_numa=True), 5, FOUR_NODES)
    assert found == [((), ())] * 5, "fewer nodes than ranks"
    found, _ = bound(LocalBinding(even_numa=True, even_cpus=True), 2, FOUR_NODES)
    assert found == [(tuple(range(16)), (0,)), (tuple(range(16, 32)), (1,))], "cpus by the one, memory by the other"


def test_numa_nodes_have_the_kernels_numbers():
    """The affinity mask may leave node 1 alone, or nodes 2 and 5."""
    topology = FOUR_NODES._replace(numa=(2, 5, 6, 7))
    found, done = bound(LocalBinding(numa=((5,),), memory=((2, 5),), scheduler=(7,)), 2, topology)
    mine = {cpu for cpu, node in zip(topology.cpus, topology.objects[5]) if node == 1}
    assert found == [(tuple(sorted(mine)), (2, 5)), ((), ())]
    assert set(done.service_cpus) == {cpu for cpu, node in zip(topology.cpus, topology.objects[5]) if node == 3}


@pytest.mark.parametrize(
    ("said", "topology", "phrase"),
    [
        (LocalBinding(cpus=((6,),)), FLAT, "n01 has no cpu 6 that we may use"),
        (LocalBinding(memory=((1,),)), FLAT, "n01 has no NUMA node 1"),
        (LocalBinding(numa=((0,),)), FLAT._replace(numa=()), "does not tell its NUMA nodes"),
        (LocalBinding(scheduler=(3,)), FLAT, "no NUMA node 3"),
    ],
)
def test_cpus_that_a_host_does_not_have_are_refused(said, topology, phrase):
    with pytest.raises(UsageError, match="--bind_core") as caught:
        bound(said, 1, topology)
    assert phrase in str(caught.value)


def test_bindings_of_ranks_that_do_not_exist_are_ignored():
    assert cpus(LocalBinding(cpus=((1,), (99,))), 1) == [(1,)], "the JSON may be for larger hosts"


def test_the_plan_contains_the_even_share():
    policy = Policy(bind_to="none", local=LocalBinding(even_cpus=True))
    request = Request((AppContext(("a",), 2),), policy, cluster=ServicePolicy(first=False))
    _, jobmap = bound(policy.local, 2)
    plan = make_plans(request, jobmap, {}, "/", Endpoint("127.0.0.1", 1, 2), "1")[0]
    assert [[word for word in rank.env if "CPU_LIST" in word] for rank in plan.ranks] == [
        ["MSRUN_CPU_LIST=[0, 1, 2]"],
        ["MSRUN_CPU_LIST=[3, 4, 5]"],
    ]


def test_the_scheduler_is_bound_to_the_cpus_of_its_nodes():
    policy = Policy(bind_to="none", local=LocalBinding(scheduler=(0,)))
    request = Request((AppContext(("a",), 1),), policy)
    _, jobmap = bound(policy.local, 1)
    plan = make_plans(request, jobmap, {}, "/", Endpoint("127.0.0.1", 1, 2), "1")[0]
    assert plan.services[0].cpus == tuple(range(6)) and plan.ranks[0].cpus == ()
