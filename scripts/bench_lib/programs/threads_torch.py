"""A rank that trains a small network of torch by itself, and says how long a step took, and in how many threads."""

import time

import torch

torch.manual_seed(0)
layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)]
network = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(network.parameters(), 0.01)
batch = torch.rand(256, 512)


def step():
    optimizer.zero_grad()
    network(batch).square().mean().backward()
    optimizer.step()


for _ in range(2):
    step()
begin, steps = time.perf_counter(), 0
while steps < 3 or time.perf_counter() - begin < 1.5:
    step()
    steps += 1
print(f"seconds {(time.perf_counter() - begin) / steps} threads {torch.get_num_threads()}", flush=True)
