"""Each process has its number, and all learn the sum: `mslaunch -n 4 python sum_jax.py`, on one host or many."""

import jax

jax.distributed.initialize()  # finds the others by itself

import jax.numpy as jnp
from jax.experimental import multihost_utils

mine = jnp.array([jax.process_index()])
everyone = multihost_utils.process_allgather(mine).ravel()
print(
    f"process {jax.process_index()} of {jax.process_count()}, {len(jax.local_devices())} local device(s):"
    f" sum {int(everyone.sum())}\n",
    end="",  # print() writes that by itself, and another rank's line may be between
    flush=True,
)
