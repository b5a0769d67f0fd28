"""All ranks learn the sum: `mslaunch -n 4 python allreduce_horovod.py`; add `--horovod gloo` if Horovod has no MPI."""

import horovod.torch as hvd
import torch

hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum).item()
print(
    f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of {hvd.local_size()},"
    f" cross {hvd.cross_rank()} of {hvd.cross_size()}: sum {total:g}\n",
    end="",  # print() writes that by itself, and another rank's line may be between
    flush=True,
)
