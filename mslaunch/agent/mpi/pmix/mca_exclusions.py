"""Transports of Open MPI that are excluded by MCA parameters, since this node lacks their hardware.

Trying them is slow.  The libraries of PSM and PSM2 (InfiniPath, Omni-Path) of Debian's 4.1 measure the clock for 100 ms
each while they are loaded; the one-sided transport over OFI of 5.0 sleeps for a second when it finds nothing and is
closed.  So MPI_Init takes 260 ms instead of 60, or 1.2 s instead of 0.2, on every host without such a network.  The
administrator's files of parameters must be read, for a variable overrides them: `mtl = ^ofi` there becomes
`^ofi,psm,psm2`.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.system_files import head_of, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class _Transport(NamedTuple):
    """A plugin, and without which devices it can do nothing: beginnings of names, "" for any, below directories."""

    framework: str
    name: str
    file: str  # below the directory of libmpi: only where this is there, it is worth a word
    devices: tuple[tuple[str, str], ...]


_RDMA = (("/sys/class/infiniband", ""), ("/sys/class/cxi", ""), ("/dev", "hfi1"), ("/dev", "kgni"))
_DEBIAN = "openmpi/lib/openmpi3/mca_mtl_"
_TRANSPORTS = (
    _Transport("mtl", "psm", f"{_DEBIAN}psm.so", (("/dev", "ipath"), ("/sys/class/infiniband", "qib"))),
    _Transport("mtl", "psm2", f"{_DEBIAN}psm2.so", (("/dev", "hfi1"), ("/sys/class/infiniband", "hfi1"))),
    _Transport("btl", "ofi", "libopen-pal.so.80", _RDMA),
)
_FILE = 1 << 20  # bytes of a file of parameters
_SYSTEM = "/etc/openmpi/openmpi-mca-params.conf"  # Debian's


def idle_transports(libmpi: str, environ: Mapping[str, str], root: str = "") -> dict[str, str]:
    """The variables that spare ranks of `libmpi` to look for them; none where the user has chosen transports.

    `environ` is what ranks inherit; `root` is for tests.
    """
    if not libmpi or any(f"OMPI_MCA_{name}" in environ for name in ("mca_base_param_files", "mca_param_files")):
        return {}
    lib = os.path.dirname(libmpi)
    idle: dict[str, list[str]] = {}
    for one in _TRANSPORTS:
        if os.path.exists(os.path.join(lib, one.file)) and not _present(one.devices, root):
            idle.setdefault(one.framework, []).append(one.name)
    files = _files(lib, environ, root)
    chosen = {framework: _without(names, _value_in(framework, files)) for framework, names in idle.items()}
    found = {f"OMPI_MCA_{framework}": value for framework, value in chosen.items() if value}
    return {name: value for name, value in found.items() if name not in environ}


def _without(names: Iterable[str], value: str) -> str:
    """The value of a parameter, and `names` excluded; "" if it names what to use, or excludes them already."""
    if value and not value.startswith("^"):
        return ""
    known = [word for word in value[1:].split(",") if word]
    more = [name for name in names if name not in known]
    return "^" + ",".join([*known, *more]) if more else ""


def _present(devices: Iterable[tuple[str, str]], root: str) -> bool:
    return any(name.startswith(beginning) for folder, beginning in devices for name in listed(root + folder))


def _files(lib: str, environ: Mapping[str, str], root: str) -> list[str]:
    """The files of parameters, strongest first (mpirun(1), "MCA parameters")."""
    beside = os.path.join(os.path.dirname(lib), "etc", "openmpi-mca-params.conf")
    system = root + _SYSTEM if lib.startswith(f"{root}/usr/lib") else beside
    return [os.path.join(environ.get("HOME", "/"), ".openmpi", "mca-params.conf"), system]


def _value_in(name: str, files: Iterable[str]) -> str:
    """The value of a parameter in the first file that has it; in a file the last line counts."""
    for path in files:
        text = head_of(path, _FILE).decode("utf-8", "replace")
        lines = [line.partition("#")[0].partition("=") for line in text.splitlines()]
        values = [value.strip() for key, _, value in lines if key.strip() == name]
        if values:
            return values[-1]
    return ""
