"""The real DeepSpeed and the Trainer of transformers, on CPUs: their own detection in our ranks.

MSLAUNCH_TEST_TRAINERS_PYTHON names a Python with other versions than those of tests/requirements/trainers.txt:
pip install torch transformers accelerate && DS_BUILD_OPS=0 pip install deepspeed --no-build-isolation
"""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import Cluster
from framework_jobs import END, launch, launch_from_head, with_hosts, with_trainers

TRAINERS, pytestmark = with_trainers("MSLAUNCH_TEST_TRAINERS_PYTHON")
DEEPSPEED = (
    """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import os

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import torch
import torch.distributed as dist

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # 0.14 would compile it, for which hosts lack headers
deepspeed.init_distributed(dist_backend="gloo")
config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Adam", "params": {"torch_adam": True}}}
engine, *_ = deepspeed.initialize(model=torch.nn.Linear(4, 1), config=config)
for _ in range(3):
    loss = engine(torch.ones(2, 4) * (1 + dist.get_rank())).pow(2).mean()
    engine.backward(loss)
    engine.step()
total = sum(one.sum().item() for one in engine.module.parameters())
print("MADE", dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]), round(total, 4), flush=True)
dist.destroy_process_group()
"""
    + END
)
TRAINER = (
    """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import tempfile

import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x=None, labels=None):
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, at):
        return {"x": torch.full((4,), at / 32), "labels": torch.tensor([at / 4])}


args = TrainingArguments(output_dir=tempfile.mkdtemp(), max_steps=3, per_device_train_batch_size=2, use_cpu=True,
                         report_to=[], save_strategy="no", disable_tqdm=True)
trainer = Trainer(model=Model(), args=args, train_dataset=Data())
trainer.train()
total = sum(one.sum().item() for one in trainer.model.parameters())
print("MADE", args.process_index, args.world_size, args.local_process_index, round(total, 4), flush=True)
torch.distributed.destroy_process_group()
"""
    + END
)


def check(lines: list[str], *local_ranks: int) -> None:
    """Each rank has its numbers, and all have equal parameters after training on unequal data."""
    rows = sorted(line.split()[1:] for line in lines if line.startswith("MADE "))
    size = str(len(local_ranks))
    assert [row[:3] for row in rows] == [[str(rank), size, str(local)] for rank, local in enumerate(local_ranks)]
    assert len({row[3] for row in rows}) == 1, rows


@pytest.mark.parametrize("program", [DEEPSPEED, TRAINER], ids=["deepspeed", "transformers"])
def test_ranks_of_one_host(program: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program)
    done = launch("-n", 2, TRAINERS, "train.py", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    check(done.stdout.splitlines(), 0, 1)


@with_hosts
@pytest.mark.parametrize("program", [DEEPSPEED, TRAINER], ids=["deepspeed", "transformers"])
def test_ranks_of_two_hosts(program: str, two_hosts: Cluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program)
    done = launch_from_head(two_hosts, "-H", "n01:2,n02:1", TRAINERS, "train.py", directory=tmp_path)
    assert done.code == 0, done.err
    check(done.lines, 0, 1, 0)
