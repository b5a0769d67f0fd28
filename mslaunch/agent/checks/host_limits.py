"""What this host allows and has left: limits of processes, memory, disks, accelerators, ports; and which machine it is.

Read from the kernel, /proc and /sys; nothing is started, and nothing is written.
"""

from __future__ import annotations

import os
import time

from mslaunch.agent.ranks import devices
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.free_ports import Listener
from mslaunch.host.listeners import refused
from mslaunch.host.processes import read
from mslaunch.host.start_limits import control_groups, least, memory_of_group
from mslaunch.host.system_files import listed
from mslaunch.protocol.check_messages import HostFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.protocol.check_messages import HostQuestion

_SHM = "/dev/shm"
_NO_LIMIT = 1 << 60  # control groups of version 1 say so with a number near 2**63
_LONGEST = 1000  # characters of a reason


def collect(question: HostQuestion, environ: Mapping[str, str], came: float) -> HostFacts:
    """The facts; `came`: when the question came."""
    limit = least(question.ranks)
    tmp = question.tmp or environ.get("TMPDIR") or "/tmp"
    memory, left, most = _memory()
    return HostFacts(
        came,
        time.time(),
        os.uname().nodename,
        _machine(),
        _limits("RLIMIT_MEMLOCK"),
        _limits("RLIMIT_NOFILE"),
        tuple(sorted(listed("/sys/class/infiniband"))),
        _space(_SHM)[:2],
        tmp,
        _space(tmp)[1:],
        memory,
        left,
        most,
        _cpu_limit(),
        tuple(f"{kind.title} {len(names)}" for kind, names in devices.found(environ)),
        tuple(map(_busy, question.ports)),
        limit.reason[:_LONGEST] if limit else "",
    )


def _machine() -> str:
    """Alike for two agents that run on one kernel, with the same processes and network."""
    boot = read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip() or os.uname().nodename
    spaces = [boot]
    for name in ("pid", "net"):
        try:
            spaces.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            spaces.append("")
    return " ".join(spaces)


def _limits(name: str) -> tuple[int, int]:
    import resource

    soft, hard = resource.getrlimit(getattr(resource, name))
    return tuple(-1 if one == resource.RLIM_INFINITY else one for one in (soft, hard))  # type: ignore[return-value]


def _space(folder: str) -> tuple[int, ...]:
    """Size, free bytes and free files of its file system; () if we may not write there."""
    try:
        found = os.statvfs(folder)
    except (OSError, ValueError):
        return ()
    if not (os.access(folder, os.W_OK | os.X_OK) and not found.f_flag & os.ST_RDONLY):
        return ()
    files = found.f_favail if found.f_files else -1  # some file systems count none
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, files


def _memory() -> tuple[int, int, int]:
    """Of the machine, what is left for us, and the limit of our control groups (-1: none)."""
    rows = dict(line.partition(b":")[::2] for line in read("/proc/meminfo").splitlines())
    total, free = (int((rows.get(name) or b"-1").split()[0]) << 10 for name in (b"MemTotal", b"MemAvailable"))
    most, left = -1, free
    for folder in control_groups("memory"):
        for _, limit, rest in memory_of_group(folder):
            if limit < (total if total > 0 else _NO_LIMIT):
                most = limit if most < 0 else min(most, limit)
                left = min(left, rest)
    return total, left, most


def _cpu_limit() -> float:
    """cpu.max (version 2), cpu.cfs_quota_us (version 1); -1: none."""
    found = []
    for folder in control_groups("cpu"):
        words = read(f"{folder}/cpu.max").split() or [
            read(f"{folder}/cpu.cfs_quota_us").strip(),
            read(f"{folder}/cpu.cfs_period_us").strip(),
        ]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            found.append(int(words[0]) / int(words[1]))
    return min(found, default=-1.0)


def _busy(port: int) -> str:
    """Why a port is not free; "": it is."""
    try:
        Listener(port).close()
    except OSError as error:
        return refused(port, False, error).what[:_LONGEST]
    except LaunchError as error:
        return error.what[:_LONGEST]
    return ""
