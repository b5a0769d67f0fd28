"""Shared memory of MPI libraries whose ranks were killed before they could remove it: files in /dev/shm.

MPICH 5 has some, which the last rank to finalize removes; those of Open MPI its PMIx server removes unless it was
killed, too.  Names are collected while some of the ranks live, for only their memory maps tell which files are theirs.

What a process maps is its own choice, and it may have dropped our rights.  So names count only if all of its user ids
are ours, and what is removed is the very file that it had mapped, in /dev/shm itself, a regular file and our own.
"""

from __future__ import annotations

import os
import stat

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.processes import identity, read

if TYPE_CHECKING:
    from collections.abc import Iterable

_FOLDER = b"/dev/shm/"
_NAMES = (b"mpich_shm_", b"Intel_MPI_", b"vader_segment.", b"sm_segment.")
_GONE = b" (deleted)"


class SharedFile(NamedTuple):
    """A file in /dev/shm that a process has mapped."""

    name: bytes
    device: tuple[int, int]  # major, minor
    inode: int


def held(pids: Iterable[int]) -> set[SharedFile]:
    """The files that these processes share, and that would be left behind."""
    found: set[SharedFile] = set()
    for pid in pids:
        before = identity(pid)
        maps = read(f"/proc/{pid}/maps") if before else b""
        files = {file for file in map(_mapped, maps.split(b"\n")) if file} if _FOLDER in maps else set()
        if files and identity(pid) == before:  # it may have dropped our rights, or its number may be another's
            found |= files
    return found


def _mapped(line: bytes) -> SharedFile | None:
    """What a line of /proc/PID/maps says: address, permissions, offset, device, inode, path, proc_pid_maps(5)."""
    fields = line.split(None, 5)
    if len(fields) < 6 or not fields[5].startswith(_FOLDER) or fields[5].endswith(_GONE):
        return None
    name = fields[5][len(_FOLDER) :]
    if b"/" in name or not name.startswith(_NAMES):
        return None
    major, _, minor = fields[3].partition(b":")
    return SharedFile(name, (int(major, 16), int(minor, 16)), int(fields[4]))


def remove(files: Iterable[SharedFile]) -> None:
    """Nobody uses them any more."""
    try:
        folder = os.open(_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    for file in files:
        try:
            if _is_it(file, os.stat(file.name, dir_fd=folder, follow_symlinks=False)):
                os.unlink(file.name, dir_fd=folder)
        except OSError:  # the library has removed it after all
            pass
    os.close(folder)


def _is_it(file: SharedFile, found: os.stat_result) -> bool:
    same = (os.major(found.st_dev), os.minor(found.st_dev)) == file.device and found.st_ino == file.inode
    return same and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
