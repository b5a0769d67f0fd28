"""Trains as net.py does, survives what may happen to a job, and ends with the loss of a run that nothing happened to.

    mslaunch -n 4 --restart group python net_recovery.py
    mslaunch --hostfile hosts --restart group --min-ranks 2 python net_recovery.py

After each epoch every rank writes a checkpoint of its own, below CKPT_DIR (`checkpoints` if that is not set), and on
start all go on from the newest that any of them has. Since all ranks have the same parameters, one such rank is
enough: whoever has none, or an older one, on a host that took the place of a lost one, say, gets the parameters from
it. So CKPT_DIR need not be on a shared disk, and the number of ranks may change.

What makes the loss come out the same: the order of the images depends on the epoch's number alone. STEP_SECONDS slows
each step down, so that there is time to kill something. Runs without a launcher, too: `python net_recovery.py`.
"""

import getpass
import os
import sys
import tempfile
import time
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import mkdata
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

EPOCHS, BATCH = 10, 16
STEP_SECONDS = float(os.environ.get("STEP_SECONDS") or 0)
ATTEMPT = os.environ.get("MSLAUNCH_ATTEMPT") or "1"

ms.set_device("CPU")
ms.set_context(mode=ms.GRAPH_MODE)
launched = "MS_ROLE" in os.environ
if launched:
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    init()
rank, size = (get_rank(), get_group_size()) if launched else (0, 1)
ms.set_seed(1)  # the same first parameters everywhere
checkpoint = Path(os.environ.get("CKPT_DIR") or "checkpoints", f"rank_{rank}.ckpt")


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.dense = nn.Dense(28 * 28, 10, weight_init="normal", bias_init="zeros")

    def construct(self, images):
        return self.dense(self.flatten(images))


def create_dataset(**which):
    default = os.path.join(tempfile.gettempdir(), f"mslaunch-mnist-{getpass.getuser()}")
    path = os.environ.get("DATA_PATH") or mkdata.ensure(default)
    prepare = [
        ds.vision.Rescale(1.0 / 255.0, 0),
        ds.vision.Normalize(mean=(0.1307,), std=(0.3081,)),
        ds.vision.HWC2CHW(),
    ]
    images = ds.MnistDataset(path, **which).map(prepare, "image").map(ds.transforms.TypeCast(ms.int32), "label")
    return images.batch(BATCH)


network = Network()
loss_function = nn.CrossEntropyLoss()
optimizer = nn.SGD(network.trainable_params(), 1e-2)


def forward(images, labels):
    logits = network(images)
    return loss_function(logits, labels), logits


gradients_of = ms.value_and_grad(forward, None, network.trainable_params(), has_aux=True)
average = nn.DistributedGradReducer(optimizer.parameters) if launched else (lambda gradients: gradients)


def say(text):
    print(f"rank {rank}/{size}: attempt {ATTEMPT}: {text}", flush=True)


def gather(row):
    """The rows of all ranks."""
    mine = ms.Tensor(np.asarray(row, np.float32)[None])
    return (ops.AllGather()(mine) if launched else mine).asnumpy()


def save(epoch):
    """Under another name first: whoever is killed meanwhile leaves the checkpoint before this one whole."""
    draft = checkpoint.with_name(f"draft_{rank}_{os.getpid()}.ckpt")
    ms.save_checkpoint(network, str(draft), append_dict={"epoch": epoch})
    draft.replace(checkpoint)


def load():
    """The number of epochs that are behind all of us."""
    epochs = 0
    if checkpoint.exists():
        values = ms.load_checkpoint(str(checkpoint))
        epochs = int(values.pop("epoch").asnumpy())
        ms.load_param_into_net(network, values)
    everywhere = gather([epochs])[:, 0]
    newest = int(everywhere.max())
    if everywhere.min() < newest:
        share(int(everywhere.argmax()))
    if newest:
        how = "from its checkpoint" if epochs == newest else "with the parameters of another rank"
        say(f"goes on after {newest} epochs, {how}")
    return newest


def share(source):
    """All get the parameters of one rank."""
    for parameter in network.trainable_params():
        rows = gather(parameter.asnumpy().ravel())
        parameter.set_data(ms.Tensor(rows[source].reshape(parameter.shape)))


def train():
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    for epoch in range(load(), EPOCHS):
        ds.config.set_seed(epoch)
        losses = []
        for images, labels in create_dataset(num_shards=size, shard_id=rank):
            (loss, _), gradients = gradients_of(images, labels)
            optimizer(average(gradients))
            losses.append(float(loss.asnumpy()))
            time.sleep(STEP_SECONDS)
        save(epoch + 1)
        say(f"epoch {epoch}, loss {np.mean(losses):.4f}")


def loss_of_all_images():
    return float(np.mean([forward(images, labels)[0].asnumpy() for images, labels in create_dataset(shuffle=False)]))


train()
rows = gather(np.concatenate([parameter.asnumpy().ravel() for parameter in network.trainable_params()]))
if any(row.tobytes() != rows[0].tobytes() for row in rows):
    sys.exit(f"rank {rank}/{size}: the ranks do not have the same parameters")
say(f"loss {loss_of_all_images():.9f}, parameters equal on all {size} ranks")
