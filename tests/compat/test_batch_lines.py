"""Launch lines of batch scripts are understood as their authors meant them, or refused with what to write instead.

Parsing, the hosts of the job and mapping only, as in test_launch_lines; nothing is started.
"""

from __future__ import annotations

import shlex
from string import Template

import pytest
from batch_lines import GIVEN, LINES, BatchLine
from test_launch_lines import CORES, HERE, machine, parser

from mslaunch.cli.parser.options import UnknownOptionError
from mslaunch.datamodel.jobmap import Allocation, JobMap, Node
from mslaunch.datamodel.request import Request
from mslaunch.errors import UsageError
from mslaunch.launcher.launch import MANAGERS
from mslaunch.plan.mapping.mapper import map_job
from mslaunch.plan.mapping.pipeline import allocate
from mslaunch.plan.number_ranges import ranges

TITLE = "a job"


def granted(line: BatchLine) -> Allocation | None:
    counts = [int(count) for count in line.job.split(",") if count]
    nodes = (Node(f"node{at}", count, TITLE) for at, count in enumerate(counts, 1))
    return Allocation(tuple(nodes), True) if counts else None


def words_of(line: BatchLine) -> list[str]:
    return shlex.split(Template(line.words).substitute(GIVEN))[1:]


def understood(line: BatchLine) -> tuple[Request, JobMap]:
    hosts = granted(line)
    text = "".join(f"{node.name}\n" * (node.slots or 0) for node in hosts.nodes) if hosts else ""

    def read(name: str) -> str:
        if name.endswith("mca-params.conf"):
            raise FileNotFoundError(name)
        return text

    environ = {"PATH": "/usr/bin", **({MANAGERS["slurm"][0]: "1"} if hosts else {})}
    request = parser(line.dialect)(words_of(line), environ, read)
    allocation = allocate(request, read, "localhost".__eq__, HERE, CORES, hosts, TITLE)
    return request, map_job(request, allocation, {node.name: machine() for node in allocation.nodes})


def placed(jobmap: JobMap) -> str:
    """As `BatchLine.meant` says it."""
    ranks: dict[str, list[int]] = {}
    for placement in jobmap.placements:
        ranks.setdefault(jobmap.nodes[placement.node].name, []).append(placement.rank)
    return "; ".join(f"{name} {ranges(numbers)}" for name, numbers in ranks.items())


@pytest.mark.parametrize("line", [line for line in LINES if line.meant], ids=lambda line: line.words[:60])
def test_a_line_of_a_batch_script_is_understood_as_it_was_meant(line: BatchLine) -> None:
    request, jobmap = understood(line)
    assert placed(jobmap) == line.meant
    assert request.apps[-1].argv[-1] == words_of(line)[-1], "a word was lost or taken for an option"


@pytest.mark.parametrize("line", [line for line in LINES if not line.meant], ids=lambda line: line.words[:60])
def test_a_line_of_a_batch_script_is_refused_with_what_to_write(line: BatchLine) -> None:
    with pytest.raises(UsageError) as refused:
        understood(line)
    assert not isinstance(refused.value, UnknownOptionError)
    assert line.instead and refused.value.todo.startswith(line.instead)


def test_there_are_a_hundred_and_fifty_of_a_hundred_repositories() -> None:
    assert len({line.words for line in LINES}) >= 150
    assert len({line.source.partition(":")[0] for line in LINES}) >= 100
    assert sum(bool(line.meant) for line in LINES) >= 0.9 * len(LINES)
