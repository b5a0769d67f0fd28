"""Singletons: ranks whose MPI library, or Horovod, has come up as rank 0 of 1, since they never contacted us.

A libmpi that finds no launcher does so silently, n times.  So the memory maps of ranks, and of what they started, are
read from time to time.  A library that is mapped may never be used.  *Certain* is only that MPI_Init has run: variables
in the memory of the process, or files in shared memory, prove it.
"""

from __future__ import annotations

import os
import time

from mslaunch.agent import on_demand
from mslaunch.agent.mpi.libmpi_maker import NAMES, maker
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host import elf
from mslaunch.host.processes import children, read
from mslaunch.protocol.mpi import Alone

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping
    from typing import Any

    from mslaunch.agent.mpi.protocols import Offer
    from mslaunch.runtime.loop import Loop, Timer

    Need = Callable[[str, Callable[[], None]], None]

#: seconds between looks; the last one counts again and again
LOOKS = (0.05, 0.1, 0.25, 0.6, 2.0, 7.0, 20.0, 60.0)
#: a process with a proof is looked at again after this: a rank may have contacted us just now
CONFIRM = 0.3

_SLICE = 0.004  # seconds of looking at once
_PAUSE = 0.004
_PER_RANK = 64  # processes that are looked at
_NAMES = tuple(name.encode() for name in NAMES)
#: mpi_lib.*.so, of torch mpi_lib_v2.*.so, below horovod/FRAMEWORK (setup.py of Horovod 0.28.1, `ext_modules`)
_HOROVOD = b"/mpi_lib"

#: variables that are 0 until MPI_Init sets them, and the least that they are then (found by experiment): the state of
#: Open MPI 4 and 5 (2: MPI_Init is over), and a pointer of MPICH 4.0 and Intel MPI
_PROOFS = ((b"ompi_mpi_state", 2), (b"MPIR_C_MPI_UNWEIGHTED", 1))
#: a file that MPI_Init maps: MPICH 5
_SEGMENT = b" /dev/shm/mpich_shm_"

#: programs that serve an MPI program themselves: what they started is not ours
_LAUNCHERS = (
    b"mpirun", b"mpiexec", b"mpiexec.hydra", b"hydra_pmi_proxy", b"hydra_bstrap_pr", b"pmi_proxy", b"orterun", b"orted",
    b"prterun", b"prte", b"prted", b"srun", b"slurmstepd", b"jsrun", b"aprun", b"mslaunch", b"mslaunch-guard",
)  # fmt: skip
#: variables by which a launcher tells a process who it is; other values than the rank's mean another launcher
_OF_A_LAUNCHER = (
    b"PMI_FD=", b"PMI_PORT=", b"PMI_RANK=", b"PMI_ID=", b"PMI_SIZE=", b"PMIX_NAMESPACE=", b"PMIX_RANK=",
    b"OMPI_COMM_WORLD_RANK=", b"SLURM_PROCID=", b"HYDI_CONTROL_FD=",
)  # fmt: skip


class SingletonWatch:
    """Looks at ranks until each has been reported or has contacted us.

    `pids` returns rank -> process id of those that run; ranks that are not in `offers` do not matter, and those that
    are in `joined` have contacted us.
    `report` is called at most twice for a rank: when a library is there, and when it was initialised.  `need` goes on
    when a module is here.
    """

    def __init__(
        self,
        loop: Loop,
        pids: Callable[[], dict[int, int]],
        joined: Container[int],
        offers: Mapping[int, Offer],
        report: Callable[[int, Alone], None],
        need: Need,
    ) -> None:
        self._loop = loop
        self._pids = pids
        self._joined = joined
        self._offers = offers
        self._report = report
        self._need = need
        self._reported: dict[tuple[int, int], bool] = {}  # rank and pid -> that it was certain
        self._suspects: set[tuple[int, int]] = set()  # a proof was seen once
        self._before = 0  # how many there were when this look began
        self._waiting: list[tuple[int, int]] = []
        self._count = 0
        self._timer: Timer | None = None
        self.again()

    def again(self) -> None:
        """Ranks were started: look soon, and then as often as at the beginning."""
        if self._timer:
            self._timer.cancel()
        self._count = 0
        self._timer = self._loop.after(LOOKS[0], self._look)

    def _look(self) -> None:
        self._waiting = self._unknown()
        self._suspects.intersection_update(self._waiting)
        self._before = len(self._suspects)
        self._go_on()

    def _unknown(self) -> list[tuple[int, int]]:
        """Ranks that may still be reported, and their processes."""
        known = [one for one in self._pids().items() if one[0] in self._offers and one[0] not in self._joined]
        return [one for one in known if not self._reported.get(one)]

    def _go_on(self) -> None:
        """Look for a short time: the maps of a large program take the kernel 2 ms, and output must be read, too."""
        self._timer = None
        until = time.monotonic() + _SLICE
        while self._waiting and time.monotonic() < until:
            rank, pid = self._waiting.pop(0)
            if rank not in self._joined:
                self._look_at(rank, pid)
        if self._waiting:
            self._timer = self._loop.after(_PAUSE, self._go_on)
        elif self._unknown():
            self._count += 1
            due = LOOKS[min(self._count, len(LOOKS) - 1)]
            if len(self._suspects) > self._before:
                due = min(due, max(CONFIRM, LOOKS[0]))
            self._timer = self._loop.after(due, self._look)

    def _look_at(self, rank: int, pid: int) -> None:
        found, key = find(pid, self._need), (rank, pid)
        if not found:
            self._suspects.discard(key)
            return
        path, made_by, initialised = found
        certain = initialised and key in self._suspects
        if initialised:
            self._suspects.add(key)
        if certain or key not in self._reported:
            self._reported[key] = certain
            self._report(rank, Alone(path, made_by, certain, self._offers[rank].family))


def find(pid: int, need: Need = lambda name, then: then()) -> tuple[str, str, bool] | None:
    """The MPI library in the memory of a process or of one that it started: path, maker, whether it is initialised.

    None if there is none.  Processes of another launcher are left out, and those that may not be inspected.  A Horovod
    is only found once it is initialised, and not before its module is here.
    """
    loaded = None
    for one in _family(pid):
        maps = read(f"/proc/{one}/maps")
        for path, inode, start in _libraries(maps):
            library = _known(one, path, inode, need)
            if library is None or (one != pid and _launched(one, pid)):
                continue
            initialised = library.proven(one, start, maps)
            found = os.fsdecode(path), library.made_by, initialised
            if initialised:
                return found
            loaded = loaded or (None if _HOROVOD in path else found)
    return loaded


def _family(pid: int) -> Iterator[int]:
    """A process and its descendants, parents first, without those of a launcher among them."""
    waiting = [pid]
    for one in waiting:
        yield one
        if len(waiting) >= _PER_RANK or read(f"/proc/{one}/comm").strip() in _LAUNCHERS:
            continue
        waiting += children(one)


def _launched(pid: int, rank: int) -> bool:
    """True if a process below a rank was started by another launcher."""

    def identity(one: int) -> list[bytes]:
        return sorted(word for word in read(f"/proc/{one}/environ").split(b"\0") if word.startswith(_OF_A_LAUNCHER))

    return identity(pid) != identity(rank)


# --- libraries in memory


def _libraries(maps: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Path, inode and address of each MPI library, and of Horovod's, which is that of its first byte."""
    for path, inode, start in _files_named(maps, b"/libmpi"):
        if path.rpartition(b"/")[2].startswith(_NAMES):
            yield path, inode, start
    for path, inode, start in _files_named(maps, _HOROVOD):
        if path.split(b"/")[-3:-2] == [b"horovod"]:
            yield path, inode, start


def _files_named(maps: bytes, begin: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The same of each file whose path has these bytes."""
    at = maps.find(begin)
    seen = set()
    while at >= 0:
        end = maps.find(b"\n", at)
        line = maps[maps.rfind(b"\n", 0, at) + 1 : end]
        words = line.split(None, 5)  # addresses, rights, offset, device, inode, path
        at = maps.find(begin, end) if end >= 0 else -1
        if len(words) == 6 and words[5] not in seen and not int(words[2], 16):  # the file's beginning
            seen.add(words[5])
            yield words[5], int(words[4]), int(words[0].partition(b"-")[0], 16)


class _LoadedLibrary:
    """A library's file: who made it, and where its variables are that prove that it was initialised."""

    def __init__(self, file: elf.Elf) -> None:
        self.made_by = maker(file)
        found = [(elf.variable(file, name), least) for name, least in _PROOFS if self.made_by]
        self._proofs = [(*place, least) for place, least in found if place and place[1] in (4, 8)]

    def proven(self, pid: int, start: int, maps: bytes) -> bool:
        """True if a variable, or a file, proves it in this process, which has the library's first byte at `start`."""
        if _SEGMENT in maps:
            return True
        if not self._proofs:
            return False
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return any(
                least <= int.from_bytes(os.pread(memory, size, start + address), "little")
                for address, size, least in self._proofs
            )
        except (OSError, OverflowError):
            return False
        finally:
            os.close(memory)


_files: dict[tuple[bytes, int], Any] = {}


def _known(pid: int, path: bytes, inode: int, need: Need) -> Any:
    """The library of a file as the process sees it, which may be in a container; None if it is not MPI's.

    A `_LoadedLibrary`, or a `LoneHorovod`.
    """
    key = path, inode
    if key not in _files:
        whole = f"/proc/{pid}/root{os.fsdecode(path)}"
        try:
            if os.stat(whole).st_ino != inode:
                return _files.setdefault(key, None)
        except OSError:
            return None
        if _HOROVOD in path:
            need("agent.mpi.lone_horovod", lambda: _files.setdefault(key, _horovod(whole)))
        else:
            file = elf.read(whole)
            library = _LoadedLibrary(file) if file else None
            _files[key] = library if library and library.made_by else None
    return _files.get(key)


def _horovod(path: str) -> Any:
    return on_demand.get("agent.mpi.lone_horovod").library(path)
