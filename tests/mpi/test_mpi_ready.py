"""--ready with MPI: all ranks are one MPI_COMM_WORLD, though they start one program after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from stages import Library, Result, Stage

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def run(library: Library, stage: Stage, program: list[str]) -> Result:
    """A rank that is waited for, and two behind it."""
    variables = [word for pair in library.ranks_env(stage.place.hosts).items() for word in ("-x", "=".join(pair))]
    rest = [":", *variables, "-n", "2", *program]
    return stage.run(library, 1, [*program, *rest], "--fill", "--ready", "{master_port}")


def test_a_head_that_listens_before_mpi_init(library: Library, stage: Stage, python: Callable[..., list[str]]) -> None:
    ended = run(library, stage, python("listen_and_init.py", "before", "{master_port}"))
    assert ended.code == 0, ended.err
    assert sorted(ended.out.decode().split("\n")[:-1]) == [f"rank {rank} of 3 sum 3" for rank in range(3)]


def test_a_head_that_listens_afterwards_is_told(
    library: Library, here: Stage, python: Callable[..., list[str]]
) -> None:
    ended = run(library, here, python("listen_and_init.py", "after", "{master_port}"))
    assert (ended.code, ended.out) == (1, b"")
    assert "rank 0 is in MPI_Init, where all ranks meet, and others are not started before it listens" in ended.err
    assert "not started: ranks 1-2" in ended.err
