"""Local symbols of ELF files: those of .symtab, which no loader reads and strip(1) removes (elf(5))."""

from __future__ import annotations

import os
import struct

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.host.elf import Elf

_SYMTAB = 2
_VARIABLE = 1  # STB_LOCAL, STT_OBJECT
_SECTIONS = 1 << 12
_LARGEST = 1 << 28  # bytes of a table; a library with debug symbols has some ten million
_PIECE = 24 << 15  # is read at once: whole entries


def local_variable(elf: Elf, names: tuple[bytes, ...]) -> int | None:
    """The address of the first of these variables that the file has, from where its beginning is mapped; never raises.

    None, too, where the variable does not begin as zero.
    """
    try:
        fd = os.open(elf.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        found = _address(fd, names)
    except (OSError, ValueError, struct.error, OverflowError):
        return None
    finally:
        os.close(fd)
    return None if found is None or not elf.blank[0] <= found < elf.blank[1] else found - elf.base


def _address(fd: int, names: tuple[bytes, ...]) -> int | None:
    head = os.pread(fd, 64, 0)
    (first,) = struct.unpack_from("<Q", head, 40)
    size, count = struct.unpack_from("<HH", head, 58)
    if size != 64 or count > _SECTIONS:
        return None
    sections = [*struct.iter_unpack("<IIQQQQIIQQ", os.pread(fd, size * count, first))]
    table = next((section for section in sections if section[1] == _SYMTAB), None)
    if table is None:
        return None
    texts = sections[table[6]] if table[6] < len(sections) else (0,) * 10
    if max(table[5], texts[5]) > _LARGEST:
        return None
    for name in names:
        at = _find(fd, texts[4], texts[5], b"\0" + name + b"\0", 1) + 1
        entry = _find(fd, table[4], table[5], struct.pack("<IB", at, _VARIABLE), 24) if at else -1
        if entry >= 0:
            return int(struct.unpack("<Q", os.pread(fd, 8, table[4] + entry + 8))[0])
    return None


def _find(fd: int, start: int, size: int, wanted: bytes, step: int) -> int:
    """Where the bytes are in a table, at a multiple of `step`; -1: nowhere.  They are read piece by piece."""
    for at in range(0, size, _PIECE):
        data = os.pread(fd, min(_PIECE + len(wanted) - 1, size - at), start + at)
        found = data.find(wanted)
        while found >= 0 and found % step:
            found = data.find(wanted, found + 1)
        if found >= 0:
            return at + found
    return -1
