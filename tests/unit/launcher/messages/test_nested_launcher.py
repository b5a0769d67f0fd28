"""A launcher as the program is told; one of them for each host is not."""

from __future__ import annotations

import pytest

from mslaunch.launcher.messages.nested_launcher import nested_text


@pytest.mark.parametrize(
    "line",
    [
        "torchrun t.py", "python -m torch.distributed.run --nproc-per-node=1 t.py",
        "python3 -u -m torch.distributed.launch t",
        "accelerate launch t.py", "/opt/bin/msrun net.py", "deepspeed t.py --deepspeed",
        "python /usr/bin/torchrun t.py",
        "mpirun -n 2 ./solve",
    ],
)  # fmt: skip
def test_a_launcher_is_told(line: str) -> None:
    said = nested_text(line.split(), 3)
    assert "3 jobs, not one" in said and "\n" not in said


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes=3 --rdzv-backend=c10d --rdzv-endpoint=n1:29400 t.py", "accelerate config", "python t.py",
        "accelerate launch --num_machines 3 t.py", "python -m mine", "./torchrunner", "python", "sh -c torchrun",
        "msrun --worker_num=3 --local_worker_num=1 net.py",
    ],
)  # fmt: skip
def test_other_programs_are_not(line: str) -> None:
    assert nested_text(line.split(), 3) == ""


def test_one_rank_may_be_a_launcher() -> None:
    assert nested_text(["torchrun", "t.py"], 1) == ""
