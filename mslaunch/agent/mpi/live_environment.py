"""The environment of a process as it is now: with what it has set itself (setenv(3)), which /proc/PID/environ lacks.

`environ` of the C library leads to it.  A program that was linked to the variable holds it itself, by a copy
relocation (ld.so(8)), so the program is asked first.
"""

from __future__ import annotations

import os
import struct

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host import elf
from mslaunch.host.processes import read

if TYPE_CHECKING:
    from collections.abc import Iterator

_C_LIBRARIES = (b"libc.so.6", b"libc-2.", b"ld-musl-", b"libc.musl-")
_VARIABLES = 1 << 13
_LONGEST = 256  #: bytes that are read of each


def variables(pid: int) -> list[bytes] | None:
    """NAME=value of each, the beginning of a long one; None where they cannot be read."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = next(_places(pid), None)
        return None if found is None else _words(memory, found)
    except (OSError, OverflowError, struct.error):
        return None
    finally:
        os.close(memory)


def _places(pid: int) -> Iterator[int]:
    """Addresses of `environ`, that of the program first."""
    try:
        program = os.fsencode(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return
    files: dict[bytes, int] = {}  # the address of its first byte
    for line in read(f"/proc/{pid}/maps").splitlines():
        words = line.split(None, 5)  # addresses, rights, offset, device, inode, path
        if len(words) == 6 and not int(words[2], 16):
            files.setdefault(words[5], int(words[0].partition(b"-")[0], 16))
    libraries = [path for path in files if path.rpartition(b"/")[2].startswith(_C_LIBRARIES)]
    for path in (program, *libraries):
        file = elf.read(f"/proc/{pid}/root{os.fsdecode(path)}") if path in files else None
        found = elf.variable(file, b"__environ") if file else None
        if found:
            yield files[path] + found[0]


def _words(memory: int, place: int) -> list[bytes] | None:
    (start,) = struct.unpack("<Q", os.pread(memory, 8, place))
    if not start:
        return []
    table = os.pread(memory, 8 * _VARIABLES, start)  # it ends early where the memory does
    pointers = memoryview(table[: len(table) & ~7]).cast("Q").tolist()
    if 0 not in pointers:
        return None
    return [os.pread(memory, _LONGEST, at).partition(b"\0")[0] for at in pointers[: pointers.index(0)]]
