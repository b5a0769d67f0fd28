"""A small network trained by DistributedDataParallel: `mslaunch -n 4 python ddp_torch.py`, on one host or many.

It needs no graphics card.  In the end all ranks compare their parameters.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # so that only DistributedDataParallel can make them equal
    net = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inputs = torch.randn(64, 4)
    targets = inputs.sum(dim=1, keepdim=True)
    first = last = float("nan")
    for step in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step()
        last = loss.item()
        first = last if step == 0 else first
    mine = torch.cat([each.detach().ravel() for each in net.parameters()])
    others = [torch.zeros_like(mine) for _ in range(size)]
    dist.all_gather(others, mine)
    equal = all(torch.equal(mine, other) for other in others)
    print(
        f"rank {rank} of {size}: loss {first:.4f} -> {last:.4f}, parameters {'equal' if equal else 'DIFFER'}\n",
        end="",  # print() writes that by itself, and another rank's line may be between
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
