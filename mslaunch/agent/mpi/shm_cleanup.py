"""Leftovers: shared memory of MPI libraries whose ranks were killed before they could remove it.

These are files in /dev/shm: those of MPICH 5, which the last rank to finalize removes, and those of Open MPI, which its
PMIx server removes unless it was killed, too.  It knows no protocol, only processes of ours, by number.  The surprising
thing: names are collected while some of the ranks live, for only their memory tells which of the files are theirs.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED = b" /dev/shm/"
_NAMES = (b"mpich_shm_", b"Intel_MPI_", b"vader_segment.", b"sm_segment.")
_GONE = b" (deleted)"


def held(pids: Iterable[int]) -> set[bytes]:
    """The files that these processes share, and that would be left behind."""
    found: set[bytes] = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", "rb", 0) as file:
                maps = file.read()
        except OSError:  # it has just ended
            continue
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
