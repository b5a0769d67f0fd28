"""Horovod as a singleton: one that was built without MPI, and was initialised without the key store of a launcher.

horovod/common/operations.cc (0.28.1): `horovod_init` sets the first byte of `horovod_global`, HorovodGlobalState's
`initialize_flag`.  gloo/gloo_context.cc: without HOROVOD_GLOO_RENDEZVOUS_ADDR the process is rank 0 of 1.  That the
library is loaded says nothing: frameworks import it to see whether it is there.
"""

from __future__ import annotations

import os

from mslaunch.agent.mpi import live_environment
from mslaunch.agent.mpi.elf_local_symbols import local_variable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.elf import read, strings
from mslaunch.host.processes import read as read_proc

if TYPE_CHECKING:
    from mslaunch.host.elf import Elf

#: as GCC and clang mangle it; a library without it was stripped, and nothing is known of it
_STATE = (
    b"_ZN7horovod6common12_GLOBAL__N_114horovod_globalE",
    b"_ZN7horovod6common12_GLOBAL__N_1L14horovod_globalE",
)
#: among the names of a build with MPI, whatever its libmpi is called
_OF_MPI = (b"libmpi", b"MPI_Init", b"MPIContext")
_STORE = b"HOROVOD_GLOO_RENDEZVOUS_ADDR="


class LoneHorovod:
    """The library of a Horovod without MPI."""

    made_by = "Horovod"  #: as `frameworks.horovod` names it

    def __init__(self, state: int) -> None:
        self._state = state

    def proven(self, pid: int, start: int, maps: bytes) -> bool:
        """True if it was initialised in this process, which has its first byte at `start`, and nobody serves a store.

        A process may have set the variable itself, to what a server of its own is.
        """
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if os.pread(memory, 1, start + self._state) in (b"", b"\0"):
                return False
        except (OSError, OverflowError):
            return False
        finally:
            os.close(memory)
        now = live_environment.variables(pid)
        known = [*read_proc(f"/proc/{pid}/environ").split(b"\0"), *(now or ())]
        return now is not None and not any(word.startswith(_STORE) for word in known)


def library(path: str) -> LoneHorovod | None:
    """The library of this file; None if it has MPI, or nothing can be known of it."""
    file = read(path)
    if file is None or _has_mpi(file):
        return None
    state = local_variable(file, _STATE)
    return None if state is None else LoneHorovod(state)


def _has_mpi(file: Elf) -> bool:
    names = strings(file)
    return any(name in names for name in _OF_MPI)
