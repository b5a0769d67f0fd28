"""Trains one dense layer on MNIST with MindSpore, data-parallel: the network of MindSpore's own tutorial.

    pip install -r requirements.txt
    mslaunch -n 4 python net.py

Each rank reads its share of the images, the gradients are averaged over all ranks, and so every rank must end with
the same parameters, bit for bit. That is checked. DATA_PATH names a directory with MNIST's training files; without it
a small set is made (mkdata.py). Runs without a launcher, too: `python net.py`.
"""

import getpass
import os
import sys
import tempfile

import mindspore as ms
import mindspore.dataset as ds
import mkdata
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

EPOCHS, BATCH = 10, 16

ms.set_device("CPU")
ms.set_context(mode=ms.GRAPH_MODE)
launched = "MS_ROLE" in os.environ
if launched:
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    init()
rank, size = (get_rank(), get_group_size()) if launched else (0, 1)
ms.set_seed(1)  # the same first parameters everywhere


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.dense = nn.Dense(28 * 28, 10, weight_init="normal", bias_init="zeros")

    def construct(self, images):
        return self.dense(self.flatten(images))


def create_dataset():
    default = os.path.join(tempfile.gettempdir(), f"mslaunch-mnist-{getpass.getuser()}")
    path = os.environ.get("DATA_PATH") or mkdata.ensure(default)
    images = ds.MnistDataset(path, num_shards=size, shard_id=rank)
    prepare = [
        ds.vision.Rescale(1.0 / 255.0, 0),
        ds.vision.Normalize(mean=(0.1307,), std=(0.3081,)),
        ds.vision.HWC2CHW(),
    ]
    images = images.map(prepare, "image").map(ds.transforms.TypeCast(ms.int32), "label")
    return images.batch(BATCH)


network = Network()
loss_function = nn.CrossEntropyLoss()
optimizer = nn.SGD(network.trainable_params(), 1e-2)


def forward(images, labels):
    logits = network(images)
    return loss_function(logits, labels), logits


gradients_of = ms.value_and_grad(forward, None, network.trainable_params(), has_aux=True)
average = nn.DistributedGradReducer(optimizer.parameters) if launched else (lambda gradients: gradients)


def train():
    """The loss of the first step and the mean loss of the last epoch, on this rank's images."""
    first, losses = None, []
    dataset = create_dataset()
    for epoch in range(EPOCHS):
        losses = []
        for images, labels in dataset:
            (loss, _), gradients = gradients_of(images, labels)
            optimizer(average(gradients))
            losses.append(float(loss.asnumpy()))
        first = losses[0] if first is None else first
        print(f"rank {rank}/{size}: epoch {epoch}, loss {np.mean(losses):.4f}", flush=True)
    return first, float(np.mean(losses))


def parameters_everywhere():
    """One row of all parameters for each rank."""
    mine = np.concatenate([parameter.asnumpy().ravel() for parameter in network.trainable_params()])
    mine = ms.Tensor(mine[None])
    return (ops.AllGather()(mine) if launched else mine).asnumpy()


first, last = train()
rows = parameters_everywhere()
if len(rows) != size or any(row.tobytes() != rows[0].tobytes() for row in rows):
    sys.exit(f"rank {rank}/{size}: the ranks do not have the same parameters")
if not last < first / 2:
    sys.exit(f"rank {rank}/{size}: the loss did not fall: {first:.2f} -> {last:.2f}")
print(f"rank {rank}/{size}: loss {first:.2f} -> {last:.2f}, parameters equal on all {size} ranks", flush=True)
