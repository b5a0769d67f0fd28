"""Ranks of programs that name MindSpore, torch or JAX are not bound unless somebody says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from machines import machine

from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.datamodel.node_report import Topology
from mslaunch.datamodel.request import AppContext, LocalBinding, Policy, Request
from mslaunch.plan.mapping.pipeline import Placed, place

HERE = Node("head", 8, "cores", local=True)
TOPOLOGY = machine("socket:2 core:4 thread:1", "far").topology()
FILES = {
    "/work/net.py": b"import mindspore as ms\n",
    "/work/./net.py": b"import mindspore\n",
    "/work/mpi.py": b"from mpi4py import MPI\n",
    "/data/train.py": b"#!/usr/bin/env python3\nfrom torch import nn\n",
}


def placed(policy: Policy, *programs: str, wdir: str | None = None, shown: bool = False) -> tuple[Placed, list[str]]:
    """The map of these programs with one rank each, and the nodes that were asked for their topologies."""
    asked: list[str] = []

    def ask(nodes: Sequence[Node]) -> Mapping[str, Topology]:
        asked.extend(node.name for node in nodes)
        return {node.name: TOPOLOGY for node in nodes}

    apps = tuple(AppContext(tuple(words.split()), 1, wdir=wdir) for words in programs)
    request = Request(apps, policy, report_bindings=shown)
    read = lambda path: FILES.get(path, b"")  # noqa: E731
    return place(request, Allocation((HERE,), False), ask, lambda name: False, "head", read, "/work"), asked


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("python net.py --epochs 2", "net.py names MindSpore"),
        ("./net.py", "net.py names MindSpore"),
        ("python /data/train.py", "train.py names torch"),
        ("python -m torch.distributed.run x", "-m names torch"),
        ("python -c import:jax", "-c names JAX"),
        ("python mpi.py", ""),
        ("python missing.py", ""),
        ("/opt/torch/bin/a.out", ""),
    ],
)
def test_programs_that_are_not_bound(words: str, why: str) -> None:
    found, _ = placed(Policy(), words)
    assert found.unbound == ({0: why} if why else {})
    assert bool(found.jobmap.placements[0].cpus) == (not found.unbound)


def test_a_script_counts_from_the_directory_of_its_ranks() -> None:
    assert placed(Policy(), "python train.py")[0].unbound == {}
    assert placed(Policy(), "python train.py", wdir="/data")[0].unbound == {0: "train.py names torch"}


@pytest.mark.parametrize(
    "policy",
    [
        Policy(bind_to="core"),
        Policy(pe=2),
        Policy(cpu_set="0-3"),
        Policy(map_by="socket"),
        Policy(local=LocalBinding(even_cpus=True)),
    ],
)
def test_an_explicit_binding_counts(policy: Policy) -> None:
    found, asked = placed(policy, "python net.py")
    assert found.unbound == {} and found.jobmap.placements[0].cpus and asked == ["head"]


def test_each_program_has_its_own_default() -> None:
    found, _ = placed(Policy(map_by="slot"), "python mpi.py", "python net.py")
    assert [bool(placement.cpus) for placement in found.jobmap.placements] == [True, False]
    assert found.unbound == {1: "net.py names MindSpore"}


def test_no_topology_is_requested_for_unbound_programs() -> None:
    assert placed(Policy(), "python net.py")[1] == []
    assert placed(Policy(), "python net.py", shown=True)[1] == ["head"]


def test_scripts_are_not_read_where_nothing_would_be_bound() -> None:
    assert placed(Policy(bind_to="none"), "python net.py")[0].unbound == {}
