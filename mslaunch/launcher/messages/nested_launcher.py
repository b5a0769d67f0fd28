"""The note about a launcher as the program: n ranks of it are n jobs of their own, which is seldom what is meant.

Not where its words say how many hosts there are, or where they meet: then one of them on each host is a part of one
job, as torchrun and accelerate have it.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: program, or module of python -m -> the word that begins a launch, "" for any, and what to write instead
_PROGRAMS = {
    "torchrun": "",
    "torch.distributed.run": "",
    "torch.distributed.launch": "",
    "accelerate": "launch",
    "accelerate.commands.launch": "",
    "deepspeed": "",
    "deepspeed.launcher.runner": "",
    "msrun": "",
    "mindspore.parallel.cluster.run": "",
    "horovodrun": "",
    "paddle.distributed.launch": "",
    "mpirun": "",
    "mpiexec": "",
    "mslaunch": "",
}
#: their words by which several of them are one job
_TOGETHER = ("nnodes", "node_rank", "rdzv", "num_machines", "machine_rank", "worker_num", "hostfile", "host")
_PYTHON = "python"


def nested_text(argv: Sequence[str], ranks: int) -> str:
    """One line; "" if the program is no launcher, or the ranks of it are parts of one job."""
    name, words = _launcher(argv)
    first = _PROGRAMS.get(name)
    if first is None or ranks < 2 or (first and first not in words) or any(map(_joins, words)):
        return ""
    return (
        f"{name} is a launcher itself: these {ranks} ranks of it are {ranks} jobs, not one; for one job of {ranks} "
        f"ranks, write the program without {name}: mslaunch -n {ranks} python SCRIPT"
    )


def _launcher(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The name of the program, or of the module that python runs, and its words."""
    name = os.path.basename(argv[0])
    if not name.startswith(_PYTHON):
        return name, argv[1:]
    for at, word in enumerate(argv[1:], 1):
        if word == "-m":
            return "".join(argv[at + 1 : at + 2]), argv[at + 2 :]
        if not word.startswith("-"):
            return os.path.basename(word), argv[at + 1 :]
    return name, ()


def _joins(word: str) -> bool:
    return word.startswith("-") and word.lstrip("-").replace("-", "_").startswith(_TOGETHER)
