"""A MindSpore worker that writes to a file when it has begun, joined, and done its first step; then it continues.

Lines are `WHAT RANK PID TIME`, with TIME of the monotonic clock, which all processes of a machine share.  msrun runs
this program as its scheduler as well, up to `init()`, so only workers write.
"""

import os
import sys
import time

STEPS, TROUBLE = int(sys.argv[1]), sys.argv[2]
SAYS = os.open(os.environ["BENCH_SAYS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
RANK = os.environ.get("RANK_ID", "")


def say(what):
    if os.environ.get("MS_ROLE") == "MS_WORKER":
        os.write(SAYS, f"{what} {RANK} {os.getpid()} {time.monotonic()}\n".encode())


if TROUBLE == "before-init" and RANK == "1" and os.environ.get("MS_ROLE") == "MS_WORKER":
    say("trouble")
    raise ValueError("the data set is not there")

import mindspore as ms  # noqa: E402 - the trouble before it is one of the cases
import numpy as np  # noqa: E402
from mindspore import nn, ops  # noqa: E402
from mindspore.communication import init  # noqa: E402

ms.set_device("CPU")
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
init()
say("joined")


class Step(nn.Cell):
    """A collective, which is all that a step needs to wait for the others."""

    def __init__(self):
        super().__init__()
        self.reduce = ops.AllReduce()

    def construct(self, values):
        return self.reduce(values)


step = Step()
values = ms.Tensor(np.ones(1024, np.float32))
for number in range(STEPS):
    step(values).asnumpy()
    if not number:
        say("stepped")
    if number == 20 and RANK == "1" and TROUBLE == "exception":
        say("trouble")
        raise ValueError("the loss is not a number")
    if TROUBLE != "none":
        time.sleep(0.05)
