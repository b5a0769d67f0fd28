"""JAX: no variables of its own; `jax.distributed.initialize` takes its arguments from the program."""

from __future__ import annotations

from mslaunch.frameworks.contract import Framework

JAX = Framework("JAX", words=("jax",))
