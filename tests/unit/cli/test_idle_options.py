"""Options that do nothing without another one, or beside it: a note tells of each, in every dialect that has it."""

from __future__ import annotations

import pytest
from command_lines import parse

#: the beginning of a line in each dialect, and its program
DIALECTS = {
    "mpirun": ("", "a"),
    "hydra": ("--dialect hydra", "a"),
    "msrun": ("--dialect msrun --worker_num=2", "net.py"),
    "torchrun": ("--dialect torchrun", "train.py"),
}
ALONE = "it is for --restart group"


def notes(line: str, dialect: str = "mpirun") -> list[str]:
    first, program = DIALECTS[dialect]
    return list(parse([*first.split(), *line.split(), program], {}).notes)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("--json", "--json has no effect without --check"),
        ("--health-check-timeout 5", "--health-check-timeout has no effect without --health-check"),
        ("--stacks-on timeout", "--stacks-on timeout has no effect without --timeout"),
        ("--stacks-on hang", "--stacks-on hang has no effect without --hang-timeout"),
    ],
)
def test_what_needs_another_option(line: str, note: str, dialect: str) -> None:
    assert notes(line, dialect) == [note]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--get-stack-traces", ["--get-stack-traces has no effect without --timeout"]),
        ("--report-state-on-timeout", ["--report-state-on-timeout has no effect without --timeout"]),
        ("--runtime-options get-stack-traces=0", []),
        (
            "--stacks-on timeout,hang,failure",
            [
                "--stacks-on timeout has no effect without --timeout",
                "--stacks-on hang has no effect without --hang-timeout",
            ],
        ),
        ("--check --detach", ["--detach has no effect beside --check"]),
        ("--detach --progress plain", ["--progress plain has no effect beside --detach"]),
        (
            "--max-no-progress 2 --hang-timeout 5 --progress-file f",
            [f"--max-no-progress has no effect: {ALONE}"],
        ),
        ("--ready-timeout 9", ["--ready-timeout has no effect: no program has --ready"]),
    ],
)
def test_what_mpirun_alone_has(line: str, told: list[str]) -> None:
    assert notes(line) == told


@pytest.mark.parametrize(
    "line",
    [
        "--check --json",
        "--health-check true --health-check-timeout 5",
        "--stacks-on timeout --timeout 9",
        "--get-stack-traces --timeout 9",
        "--stacks-on hang --hang-timeout 9",
        "--stacks-on failure",
        "--stacks-on none",
        "--restart group --progress-file f --max-no-progress 2",
        "--ready 80 --ready-timeout 9",
        "--detach",
    ],
)
def test_what_has_its_effect(line: str) -> None:
    words = [*line.split(), "a", ":", "b"] if "--ready " in line else [*line.split(), "a"]
    assert parse(words, {}).notes == ()


def test_a_time_limit_of_the_environment_counts() -> None:
    assert parse(["--get-stack-traces", "a"], {"MPIEXEC_TIMEOUT": "9"}).notes == ()


def test_restarts_of_torchrun_are_those_of_a_group() -> None:
    line = ["--max-restarts", "2", "--progress-file", "f", "--max-no-progress", "2", "train.py"]
    assert parse(["--dialect", "torchrun", *line], {}).notes == ()
