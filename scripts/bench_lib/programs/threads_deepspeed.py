"""A rank of DeepSpeed, which trains a small network with the others, and says how long a step took, in what threads.

Under mpirun, and by itself, it sets the variables of torch.distributed, as such programs do.
"""

import os
import time

size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
os.environ["DS_ACCELERATOR"] = "cpu"
if "RANK" not in os.environ:
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getppid() % 10000))

import deepspeed  # noqa: E402
import torch  # noqa: E402

WARM, STEPS = 3, 60
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # 0.14 would compile it, for which hosts lack headers
deepspeed.init_distributed(dist_backend="gloo")
layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)]
config = {"train_micro_batch_size_per_gpu": 256, "optimizer": {"type": "Adam", "params": {"torch_adam": True}}}
engine, *_ = deepspeed.initialize(model=torch.nn.Sequential(*layers), config=config)
batch = torch.rand(256, 512)
begin = 0.0
for index in range(STEPS):
    if index == WARM:
        begin = time.perf_counter()
    engine.backward(engine(batch).square().mean())
    engine.step()
print(f"seconds {(time.perf_counter() - begin) / (STEPS - WARM)} threads {torch.get_num_threads()}", flush=True)
torch.distributed.destroy_process_group()
