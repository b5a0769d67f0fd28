"""Launch lines that no one here wrote are understood as their authors meant them (`launch_lines.LINES`).

Parsing, allocation and mapping only: the same functions that a launch goes through before it reaches out, with the
files and variables of each line at hand and nothing started.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from string import Template
from typing import Any

import pytest
from launch_lines import LINES, Line

from mslaunch.datamodel.jobmap import Allocation, Endpoint, JobMap
from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.datamodel.request import Request
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.pipeline import allocate
from mslaunch.plan.node_plans import make_plans

HERE = "here"
CORES = 8
ENVIRON = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/usr/lib", "LD_PRELOAD": "darshan.so", "NCCL_SOCKET_IFNAME": "eth0",
           "NCCL_DEBUG": "WARN"}  # fmt: skip


def parser(dialect: str) -> Callable[..., Request]:
    if dialect == "hydra":
        from mslaunch.cli.hydra.parse import parse
    else:
        from mslaunch.cli.mpirun.parse import parse
    return parse


def understood(line: Line) -> tuple[Request, Allocation, JobMap]:
    words = shlex.split(Template(line.words).substitute(line.given))[1:]
    environ = {**ENVIRON, **({"OMPI_MCA_orte_default_hostfile": "default"} if "default" in line.files else {})}
    request = parser(line.dialect)(words, environ, lambda name: _read(line, name))
    allocation = allocate(request, lambda name: _read(line, name), lambda name: name == "localhost", HERE, CORES)
    nodes = tuple(node._replace(slots=node.slots or CORES) for node in allocation.nodes)
    allocation = allocation._replace(nodes=nodes)
    return request, allocation, map_job(request, allocation, {node.name: machine() for node in nodes})


def _read(line: Line, name: str) -> str:
    if name not in line.files:
        raise FileNotFoundError(name)
    return line.files[name]


def machine() -> Topology:
    """8 cores in one socket."""
    alone = {"hwthread": range(CORES), "core": range(CORES), "board": ()}
    return Topology(tuple(range(CORES)), tuple(tuple(alone.get(level, [0] * CORES)) for level in LEVELS))


def placed(jobmap: JobMap) -> str:
    """As `Line.meant` says it."""
    ranks: dict[str, list[int]] = {}
    for placement in jobmap.placements:
        ranks.setdefault(jobmap.nodes[placement.node].name, []).append(placement.rank)
    spans = {name: f"{all_[0]}-{all_[-1]}" if all_[1:] else f"{all_[0]}" for name, all_ in ranks.items()}
    assert all(all_ == list(range(all_[0], all_[-1] + 1)) for all_ in ranks.values()), ranks
    return "; ".join(f"{name} {span}" for name, span in spans.items())


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.words.split(" ", 1)[1][:60])
def test_a_line_is_understood_as_it_was_meant(line: Line) -> None:
    request, _, jobmap = understood(line)
    assert placed(jobmap) == line.meant
    plan = make_plans(request, jobmap, ENVIRON, "/launch", Endpoint("10.0.0.1", 1, 2), "1a2b")[0]
    given = dict(word.split("=", 1) for words in (plan.env, plan.apps[0].env) for word in words)
    for word in line.env:
        name, equals, value = word.partition("=")
        assert given[name] == (value if equals else ENVIRON[name])
    for word in line.mca:
        name, _, value = word.partition("=")
        assert given["OMPI_MCA_" + name] == value
    assert request.output.directory == (line.logs.partition("/")[0] or None)
    assert program(request) == [word for word in shlex.split(Template(line.words).substitute(line.given)) if word][-1]


def program(request: Request) -> Any:
    """The last word of the last program, which only a right reading of all options before it leaves there."""
    return request.apps[-1].argv[-1]


def test_there_are_sixty_different_ones() -> None:
    assert len({line.words for line in LINES}) >= 60
    assert len({line.source.partition(":")[0] for line in LINES}) >= 15
