"""Modules of UCX for InfiniBand, excluded by a variable where this node has no such network.

UCX loads its modules in every MPI_Init, and these bring libraries of their own and ask netlink for devices: 4 % of the
time of an MPI_Init of MPICH 5.0.2 (medians of 41).  Whoever has configured UCX, by a variable or a file, is left alone.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.system_files import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.host.dynamic_linker import Loader
    from mslaunch.host.elf import Elf

_MODULES = ("ib", "rdmacm")  # libuct_NAME.so; others (mlx5, efa) are loaded by the first
_DEVICES = "/sys/class/infiniband"
_SYSTEM = ("/etc/ucx", "/usr/etc/ucx", "/usr/local/etc/ucx")


def idle_modules(libmpi: Elf, loader: Loader, root: str = "") -> dict[str, str]:
    """The variable that spares ranks of `libmpi` the modules; none where it has no UCX, or a network for them.

    `root` is for tests.
    """
    if "UCX_MODULES" in loader.env or listed(root + _DEVICES):
        return {}
    libuct = next((one.path for one in loader.walk(libmpi) if one.soname.startswith("libuct.so.")), "")
    folder = os.path.dirname(os.path.realpath(os.path.join(loader.wdir, libuct)))
    installed = [name for name in listed(f"{folder}/ucx") if libuct]
    idle = [name for name in _MODULES if any(file.startswith(f"libuct_{name}.so") for file in installed)]
    if not idle or any(os.path.exists(f"{place}/ucx.conf") for place in _places(folder, loader.env, loader.wdir, root)):
        return {}
    return {"UCX_MODULES": "^" + ",".join(idle)}


def _places(folder: str, env: Mapping[str, str], wdir: str, root: str) -> list[str]:
    """Where files of parameters may be (UCX's `ucs_config_parse_config_files`); a prefix of its own is beside it."""
    own = [env[name] for name in ("UCX_CONFIG_DIR", "HOME") if env.get(name)]
    return [f"{folder}/../etc/ucx", *(root + place for place in _SYSTEM), *own, wdir]
