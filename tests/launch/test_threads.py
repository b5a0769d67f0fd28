"""How many cpus the threads of a rank may use: of a program that names a framework, bound and not."""

from __future__ import annotations

import os

import pytest

SHOW = "import os; print(len(os.sched_getaffinity(0)), os.environ.get('OMP_NUM_THREADS'))\n"
ALL = len(os.sched_getaffinity(0))
IMPORTS = ("torch", "jax", "lightning", "deepspeed", "accelerate", "transformers", "mindspore", "horovod.torch",
           "tensorflow.keras", "paddle")  # fmt: skip
pytestmark = pytest.mark.skipif(ALL < 2, reason="needs two cpus to tell one from all")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", IMPORTS)
def test_ranks_of_a_framework_have_all_cpus(run, tmp_path, name, ranks):
    """Nor does anybody set OMP_NUM_THREADS, which is 1 in the dialect of torchrun alone."""
    (tmp_path / "train.py").write_text(f"{SHOW}if 0:\n    import {name}\n")
    ended = run(["-n", str(ranks), "--oversubscribe", "python3", str(tmp_path / "train.py")])
    assert (ended.code, ended.lines) == (0, [f"{ALL} None"] * ranks), ended.err


def test_ranks_that_are_to_be_bound_are(run, tmp_path):
    (tmp_path / "train.py").write_text(f"{SHOW}if 0:\n    import lightning\n")
    ended = run(["-n", "1", "--bind-to", "hwthread", "python3", str(tmp_path / "train.py")])
    assert ended.lines == ["1 None"], ended.err


def test_other_ranks_are_bound_as_by_mpirun(run, tmp_path):
    (tmp_path / "solve.py").write_text(f"{SHOW}# lightning strikes; see import tables of torchvision\n")
    ended = run(["-n", "1", "--use-hwthread-cpus", "python3", str(tmp_path / "solve.py")])
    assert ended.lines == ["1 None"], ended.err
