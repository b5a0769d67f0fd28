"""The accelerators of this host: how many of each kind its kernel shows, and by which names processes choose them.

Where the variable of a kind is set already (by a resource manager, or in a login), its list is what there is; it ends
at the first invalid number.  Else devices are numbered from 0, as the libraries number those that they can open.
"""

from __future__ import annotations

from mslaunch.datamodel.device_kinds import AMD, ASCEND, INTEL, NVIDIA
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.processes import read
from mslaunch.host.system_files import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.datamodel.device_kinds import DeviceKind

_INTEL = b"0x8086"  # its number as a vendor of PCI devices


def _numbered(folder: str, prefix: str) -> int:
    names = (name[len(prefix) :] for name in listed(folder) if name.startswith(prefix))
    return sum(rest.isascii() and rest.isdigit() for rest in names)


def _amd(root: str) -> int:
    """The nodes of the KFD's topology that are no CPUs: those have 0 as the number of their GPU."""
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    return sum(read(f"{nodes}/{node}/gpu_id").strip() not in (b"", b"0") for node in listed(nodes))


def _intel(root: str) -> int:
    cards = f"{root}/sys/class/drm"
    renders = (name for name in listed(cards) if name.startswith("renderD"))
    return sum(read(f"{cards}/{name}/device/vendor").strip() == _INTEL for name in renders)


_COUNTS: dict[DeviceKind, Callable[[str], int]] = {
    NVIDIA: lambda root: _numbered(f"{root}/dev", "nvidia"),
    ASCEND: lambda root: _numbered(f"{root}/dev", "davinci"),
    AMD: _amd,
    INTEL: _intel,
}


def found(environ: Mapping[str, str], root: str = "") -> list[tuple[DeviceKind, list[str]]]:
    """The kinds that are here, each with the names of its devices."""
    here = []
    for kind, count in _COUNTS.items():
        value = environ.get(kind.variable)
        names = [str(number) for number in range(count(root))] if value is None else visible(value) or []
        if names:
            here.append((kind, names))
    return here


def visible(value: str | None) -> list[str] | None:
    """The names that a variable has, by which a process chooses devices; None if it is not set."""
    if value is None:
        return None
    names = []
    for word in value.split(","):
        name = word.strip()
        if not name or name.startswith("-") or name.lower() in ("none", "void", "nodevfiles"):
            break
        names.append(name)
    return names


def fits(ranks: int, asked: bytes, environ: Mapping[str, str], root: str = "") -> bytes:
    """The payload of FITS for `ranks` that want devices, as `plan.device_shares.DeviceShares.question` asks for them.

    A line for each kind that is enough, with its names; without any, how many ranks could start, and the reason.
    """
    each, _, wanted = asked.decode().partition(" ")
    chosen = wanted.split(",") if wanted else []
    good, short = [], [(0, "what is there: it has no device of NVIDIA, Ascend, AMD or Intel")]
    for kind, here in found(environ, root):
        missing = [name for name in chosen if name not in here]
        names = chosen or here
        most = len(names) // int(each) if int(each) else ranks
        if missing:
            lacks = f"it has no {', '.join(missing)} (--devices)"
            short.append((0, f"the {kind.title} devices {', '.join(here)}: {lacks}"))
        elif most < ranks:
            some = f"{len(names)} {kind.title} device{'s' * (len(names) > 1)}"
            short.append((most, f"{some}, {each} for each rank (--devices-per-rank)"))
        else:
            good.append(f"{kind.name} {','.join(names)}")
    if good:
        return "\n".join([str(ranks), *good]).encode()
    most, reason = max(short[1:] or short)
    return f"{most} {reason}".encode()
