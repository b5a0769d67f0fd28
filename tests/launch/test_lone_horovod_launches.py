"""Jobs whose ranks have a Horovod without MPI, and no key store: each rank comes up as the only one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import ROOT, Result, through_rsh

sys.path.append(str(ROOT / "tests" / "agent"))
from horovod_core import RANK, built

ALONE = ["--oversubscribe", "-n", "2"]
#: it waits for ever if it is not ended
ENDED = ["load", "init", "wait"]
WHERE = pytest.mark.parametrize("where", [[], through_rsh("alpha:1", "beta:1")], ids=["here", "elsewhere"])


def program(library: str, *words: str) -> list[str]:
    return [sys.executable, "-S", "-c", RANK, library, *words]


@WHERE
def test_the_job_ends_with_what_to_write(run: Callable[..., Result], tmp_path: Path, where: list[str]) -> None:
    """Also where the module that finds it is not on the host before it is needed."""
    library = built(tmp_path)
    ended = run([*where, *ALONE, *program(library, *ENDED)], bound=60.0)
    assert ended.code == 1
    assert f"came up alone, as rank 0 of 1, with Horovod ({library})" in ended.err
    assert "this Horovod has no MPI: give --horovod gloo, or --mpi none if each rank is to run alone" in ended.err
    assert "has loaded" not in ended.err
