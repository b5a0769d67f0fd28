"""Shared memory of MPI libraries whose ranks were killed before they could remove it: files in /dev/shm.

MPICH 5 has some, which the last rank to finalize removes; those of Open MPI its PMIx server removes unless it was
killed, too.  Names are collected while some of the ranks live, for only their memory maps tell which files are theirs.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.processes import read

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED = b" /dev/shm/"
_NAMES = (b"mpich_shm_", b"Intel_MPI_", b"vader_segment.", b"sm_segment.")
_GONE = b" (deleted)"


def held(pids: Iterable[int]) -> set[bytes]:
    """The files that these processes share, and that would be left behind."""
    found: set[bytes] = set()
    for pid in pids:
        maps = read(f"/proc/{pid}/maps")
        for line in maps.split(b"\n") if _SHARED in maps else ():
            _, shared, name = line.partition(_SHARED)
            if shared and name.startswith(_NAMES) and not name.endswith(_GONE):
                found.add((_SHARED + name).lstrip())
    return found


def remove(paths: Iterable[bytes]) -> None:
    """Nobody uses them any more."""
    for path in paths:
        try:
            os.unlink(path)
        except OSError:  # the library has removed it after all
            pass
