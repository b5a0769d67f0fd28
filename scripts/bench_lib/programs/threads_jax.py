"""A rank that trains a small network of JAX by itself, and says how long a step took, and on how many cpus.

XLA's pool has a thread for each cpu that the process may use.
"""

import os
import time

import jax
import jax.numpy as jnp

keys = jax.random.split(jax.random.key(0), 3)
weights = [0.05 * jax.random.normal(key, (512, 512)) for key in keys[:2]]
batch = jax.random.uniform(keys[2], (256, 512))


def loss(weights):
    return jnp.square(jax.nn.relu(batch @ weights[0]) @ weights[1]).mean()


@jax.jit
def step(weights):
    return [one - 0.01 * slope for one, slope in zip(weights, jax.grad(loss)(weights))]


for _ in range(2):
    weights = jax.block_until_ready(step(weights))
begin, steps = time.perf_counter(), 0
while steps < 3 or time.perf_counter() - begin < 1.5:
    weights = jax.block_until_ready(step(weights))
    steps += 1
print(f"seconds {(time.perf_counter() - begin) / steps} threads {len(os.sched_getaffinity(0))}", flush=True)
