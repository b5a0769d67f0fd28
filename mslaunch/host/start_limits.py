"""How many more processes this host lets us start and serve: descriptors, processes, memory.

The least of the limits counts.  Each is counted as an agent meets it: a rank costs a process of our user, three
descriptors (its output, its errors, its PMI socket) and a little memory, before its program has done anything.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.processes import numbers, read
from mslaunch.host.system_files import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

_FDS = 3  # of each rank
_SPARE_FDS = 4  # that are open while one is started; some of those that are open now are closed before
_MEMORY = 256 << 10  # measured: 300 times sleep(1) took 233 KiB each, with its pipes and page tables
_CGROUPS = "/sys/fs/cgroup"


class Limit(NamedTuple):
    """One limit of this host."""

    ranks: int  # that can be started
    reason: str  # what it allows, as the object of a sentence


def least(ranks: int) -> Limit | None:
    """The limit that lets fewest of so many ranks start; None if all of them can."""
    short = [limit for limit in _limits() if limit.ranks < ranks]
    return min(short) if short else None


def fits(ranks: int) -> bytes:
    """The payload of FITS: how many of so many ranks can be started, and, behind a blank, the reason if not all can."""
    limit = least(ranks)
    return f"{limit.ranks} {limit.reason}".encode() if limit else b"%d" % ranks


def _limits() -> Iterator[Limit]:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # to which an agent raises its own
    if hard != resource.RLIM_INFINITY:
        used = len(listed("/proc/self/fd")) + _SPARE_FDS
        yield _limit((hard - used) // _FDS, f"{hard} open files in a process (ulimit -Hn)")
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if processes != resource.RLIM_INFINITY and os.geteuid():
        yield _limit(processes - _own_threads(), f"{processes} processes of a user (ulimit -u)")
    running = _number(read("/proc/loadavg").split(b"/")[-1].split(b" ")[0])
    for name in ("pid_max", "threads-max"):
        most = _number(read(f"/proc/sys/kernel/{name}"))
        if most is not None and running is not None:
            yield _limit(most - running, f"{most} processes (kernel.{name})")
    free = read("/proc/meminfo").partition(b"MemAvailable:")[2].split(b"kB")[0]
    if free.strip():
        yield _limit((int(free) << 10) // _MEMORY, f"{int(free) >> 10} MiB of memory, of which each takes {_SIZE}")
    yield from _of_cgroups()


def control_groups(*wanted: str) -> Iterator[str]:
    """The folders of our control group and of all above it (cgroups(7)), for these controllers of version 1.

    Those of version 2 have files of all controllers.
    """
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, path = os.fsdecode(line).split(":", 2)
        version1 = [name for name in controllers.split(",") if name in wanted]
        for root in [f"{_CGROUPS}/{name}" for name in version1] or [_CGROUPS] * (not controllers):
            group = path.rstrip("/")
            while True:
                yield root + group
                if not group:
                    break
                group = group.rpartition("/")[0]


def _of_cgroups() -> Iterator[Limit]:
    """The names of version 2, then those of version 1."""
    for folder in control_groups("pids", "memory"):
        yield from _of_group(folder)


def _of_group(folder: str) -> Iterator[Limit]:
    most, now = _number(read(f"{folder}/pids.max")), _number(read(f"{folder}/pids.current"))
    if most is not None and now is not None:
        yield _limit(most - now, f"{most} processes in its control group (pids.max)")
    for size, most, left in memory_of_group(folder):
        what = f"{most >> 20} MiB of memory in its control group ({size}), of which each takes {_SIZE}"
        yield _limit(left // _MEMORY, what)


def memory_of_group(folder: str) -> Iterator[tuple[str, int, int]]:
    """The name of a limit of memory, the limit, and what is left of it, in bytes."""
    for size, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        most, now = _number(read(f"{folder}/{size}")), _number(read(f"{folder}/{used}"))
        if most is not None and now is not None:
            left = most - now + _cached(read(f"{folder}/memory.stat").split())  # which the kernel takes back first
            yield size, most, left


def _cached(stat: list[bytes]) -> int:
    """Pages of files, in bytes; version 1 has the sum of a group and all below it as total_NAME, version 2 as NAME."""
    sizes = dict(zip(stat[::2], stat[1::2]))
    names = (b"inactive_file", b"active_file")
    return sum(_number(sizes.get(b"total_" + name, sizes.get(name, b""))) or 0 for name in names)


_SIZE = f"{_MEMORY >> 10} KiB"


def _limit(ranks: int, reason: str) -> Limit:
    return Limit(max(ranks, 0), reason)


def _own_threads() -> int:
    """What counts towards RLIMIT_NPROC: the threads of all processes of this user."""
    count = 0
    for pid in numbers():
        try:
            if os.stat(f"/proc/{pid}").st_uid == os.geteuid():
                count += len(listed(f"/proc/{pid}/task"))
        except OSError:  # it has ended
            continue
    return count


def _number(text: bytes) -> int | None:
    """None for "max", and for what is not there."""
    return int(text) if text.strip().isdigit() else None
