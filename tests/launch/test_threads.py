"""How many cpus the threads of a rank may use: of a program that names a framework, bound and not."""

from __future__ import annotations

import os

import pytest

SAYS = "f'{len(os.sched_getaffinity(0))} {os.environ.get(\"OMP_NUM_THREADS\")}\\n'.encode()"
SHOW = f"import os; os.write(1, {SAYS})\n"
MKL = "import os; os.write(1, f'{os.environ.get(\"MKL_DYNAMIC\")}\\n'.encode())\n"
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


@pytest.mark.parametrize(
    ("words", "script", "given", "found"),
    [
        (["-n", "1"], "import torch", {}, "FALSE"),
        (["-n", "1"], "import lightning", {}, "FALSE"),
        (["-n", "1"], "import torch", {"MKL_DYNAMIC": "TRUE"}, "TRUE"),
        (["-n", "1", "-x", "MKL_DYNAMIC=TRUE"], "import torch", {}, "TRUE"),
        (["-n", "1", "--bind-to", "hwthread"], "import torch", {}, None),
        (["-n", "2", "--oversubscribe"], "import torch", {}, None),
        (["-n", "1"], "import numpy", {}, None),
    ],
)
def test_a_rank_of_torch_that_is_alone_on_its_host_keeps_all_threads_of_mkl(run, tmp_path, words, script, given, found):
    show = f"{MKL}if 0:\n    {script}\n"
    (tmp_path / "train.py").write_text(show)
    ended = run([*words, "python3", str(tmp_path / "train.py")], env=given)
    assert set(ended.lines) == {str(found)}, ended.err


def test_torchruns_line_for_one_rank_keeps_them_too(run, tmp_path):
    (tmp_path / "train.py").write_text(MKL)
    for more, found in (([], "FALSE"), (["--nproc-per-node=2"], "None")):
        ended = run(["--dialect", "torchrun", *more, str(tmp_path / "train.py")])
        assert set(ended.lines) == {found}, ended.err


def test_ranks_that_are_to_be_bound_are(run, tmp_path):
    (tmp_path / "train.py").write_text(f"{SHOW}if 0:\n    import lightning\n")
    ended = run(["-n", "1", "--bind-to", "hwthread", "python3", str(tmp_path / "train.py")])
    assert ended.lines == ["1 None"], ended.err


def test_other_ranks_are_bound_as_by_mpirun(run, tmp_path):
    (tmp_path / "solve.py").write_text(f"{SHOW}# lightning strikes; see import tables of torchvision\n")
    ended = run(["-n", "1", "--use-hwthread-cpus", "python3", str(tmp_path / "solve.py")])
    assert ended.lines == ["1 None"], ended.err
