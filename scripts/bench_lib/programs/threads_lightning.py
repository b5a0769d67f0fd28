"""A rank of Lightning, which trains a small network with the others, and says how long a step took, in what threads.

Under mpirun it sets the variables of torch.distributed itself, as such programs do.
"""

import os
import time

size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
if size > 1 and "RANK" not in os.environ:
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(size), GROUP_RANK="0", LOCAL_WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getppid() % 10000), TORCHELASTIC_RUN_ID="x")

import torch  # noqa: E402
from pytorch_lightning import LightningModule, Trainer  # noqa: E402

WARM, STEPS = 3, 60


class Network(LightningModule):
    def __init__(self):
        super().__init__()
        layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)]
        self.network = torch.nn.Sequential(*layers)
        self.begin = 0.0

    def training_step(self, batch, index):
        return self.network(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.rand(256 * STEPS * size, 512), batch_size=256)

    def _register_sharded_tensor_state_dict_hooks_if_available(self):
        pass  # Lightning's own imports a module of torch 1.13, which no Python 3.11 can import

    def on_train_batch_start(self, batch, index):
        if index == WARM:
            self.begin = time.perf_counter()

    def on_train_end(self):
        took = (time.perf_counter() - self.begin) / (STEPS - WARM)
        print(f"seconds {took} threads {torch.get_num_threads()}", flush=True)


quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
trainer = Trainer(accelerator="cpu", devices=size, strategy="ddp" if size > 1 else "auto", max_epochs=1, **quiet)
trainer.fit(Network())
