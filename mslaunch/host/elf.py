"""ELF files of programs and libraries, read as ld.so(8) does: headers, DT_NEEDED, RPATH, RUNPATH, symbol names.

Only 64-bit little-endian machines are read; anything else, and every broken file, is None.
"""

from __future__ import annotations

import os
import struct

from mslaunch.faststd import NamedTuple
from mslaunch.host.system_files import head_of

#: e_machine -> what Debian calls it in the names of its directories
MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64", 258: "loongarch64", 21: "powerpc64le"}

_HEAD = 2048  # holds the program headers of nearly every file
_SEGMENTS = 256  # more than that of anything is a broken file
_DYNAMIC = 1 << 15
_NAMES = 1 << 16  # a table of names up to this size is read at once
_LONGEST = 4096  # of one name
_STRINGS = 8 << 20
_SYMBOLS = 1 << 15
_VARIABLE = b"\x11"  # STB_GLOBAL, STT_OBJECT

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 6, 10, 14, 15, 29
_ONCE = (_DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH)


class Elf(NamedTuple):
    """A program or library."""

    path: str
    machine: int
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]  # directories, $ORIGIN replaced
    runpath: tuple[str, ...]
    names: tuple[int, int]  # where the names of its symbols are: offset in the file, size
    symbols: int = 0  # where their table is
    blank: tuple[int, int] = (0, 0)  # the addresses that are not filled from the file, but with zeros
    base: int = 0  # the address of the file's beginning; not 0 in a program that is not position-independent


def read(path: str) -> Elf | None:
    """The ELF file at `path`; never raises.  A fifo is not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        return _parsed(path, fd)
    except (OSError, ValueError, struct.error, OverflowError):
        return None
    finally:
        os.close(fd)


def strings(elf: Elf) -> bytes:
    """The names of its dynamic symbols, with NUL between them: what it offers and what it wants."""
    offset, size = elf.names
    return head_of(elf.path, min(size, _STRINGS), offset)


def variable(elf: Elf, name: bytes) -> tuple[int, int] | None:
    """Address and size of a variable that the library offers, and that is zero when it has just been loaded.

    The address is counted from where the file's beginning is mapped.
    """
    at = strings(elf).find(b"\0" + name + b"\0") + 1
    if not at or not elf.symbols:
        return None
    table = head_of(elf.path, _SYMBOLS * 24, elf.symbols)
    wanted = struct.pack("<I", at) + _VARIABLE
    for entry in range(0, len(table) - 23, 24):
        if table.startswith(wanted, entry):
            address, size = struct.unpack_from("<QQ", table, entry + 8)
            return (address - elf.base, size) if elf.blank[0] <= address < elf.blank[1] else None
    return None


# --- one file


def _parsed(path: str, fd: int) -> Elf | None:
    """The file by its program headers, as the loader reads it: sections may be missing."""
    head = os.pread(fd, _HEAD, 0)
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
        return None
    machine, _, _, first, _, _, _, size, count = struct.unpack_from("<HIQQQIHHH", head, 18)
    if machine not in MACHINES or size != 56 or count > _SEGMENTS:
        return None
    if first + size * count > len(head):
        head, first = os.pread(fd, size * count, first), 0
    table = head[first : first + size * count]
    loads = []
    where = blank = (0, 0)
    for kind, _, offset, address, _, filled, size, _ in struct.iter_unpack("<IIQQQQQQ", table):
        if kind == _PT_LOAD:
            loads.append((address, filled, offset))
            blank = (address + filled, address + size) if size > filled else blank
        elif kind == _PT_DYNAMIC:
            where = (offset, filled)
    if not where[1]:
        return Elf(path, machine, "", (), (), (), (0, 0))  # static
    section = os.pread(fd, min(where[1], _DYNAMIC), where[0])
    found = _dynamic(path, machine, fd, section[: len(section) & ~15], loads)
    base = next((address for address, _, offset in loads if not offset), 0)
    return found and found._replace(blank=blank, base=base)


def _dynamic(path: str, machine: int, fd: int, section: bytes, loads: list[tuple[int, int, int]]) -> Elf | None:
    words = memoryview(section).cast("Q").tolist()
    tags, values = words[::2], words[1::2]
    if 0 in tags:
        tags = tags[: tags.index(0)]
    needed = [value for tag, value in zip(tags, values) if tag == _DT_NEEDED]
    one = {tag: values[tags.index(tag)] for tag in _ONCE if tag in tags}

    def in_file(tag: int) -> int:
        where = one.get(tag, 0)
        return next((at + where - address for address, filled, at in loads if address <= where < address + filled), -1)

    start = in_file(_DT_STRTAB)
    if start < 0:
        return None
    wanted = needed + [one[tag] for tag in (_DT_SONAME, _DT_RPATH, _DT_RUNPATH) if tag in one]
    names = _names(fd, start, one.get(_DT_STRSZ, 0), wanted)

    def folders(tag: int) -> tuple[str, ...]:
        return folders_of(names[one[tag]], path, "") if tag in one else ()

    return Elf(
        path,
        machine,
        names[one[_DT_SONAME]] if _DT_SONAME in one else "",
        tuple(names[at] for at in needed if names[at]),
        folders(_DT_RPATH),
        folders(_DT_RUNPATH),
        (start, one.get(_DT_STRSZ, 0)),
        max(0, in_file(_DT_SYMTAB)),
    )


def _names(fd: int, start: int, size: int, wanted: list[int]) -> dict[int, str]:
    """The names at these places of the table; raises ValueError for a place that is outside, or a name without end."""
    if not wanted:
        return {}
    first = min(wanted)
    span = min(size, max(wanted) + _LONGEST) - first
    if span > _NAMES or span <= 0:  # a table of a large program, or broken
        pieces = [(at, os.pread(fd, max(0, min(_LONGEST, size - at)), start + at)) for at in wanted]
        return {at: os.fsdecode(piece[: piece.index(b"\0")]) for at, piece in pieces}
    data = os.pread(fd, span, start + first)
    return {at: os.fsdecode(data[at - first : data.index(b"\0", at - first)]) for at in wanted}


def folders_of(text: str, path: str, wdir: str) -> tuple[str, ...]:
    """The directories of a list with colons, for the file at `path`; an empty one is the working directory."""
    if not text:
        return ()
    if "$" in text:
        origin = os.path.dirname(os.path.realpath(path)) if path else "$ORIGIN"
        text = text.replace("${", "$").replace("}", "").replace("$ORIGIN", origin)
        lists = [text.replace("$LIB", lib) for lib in ("lib64", "lib")] if "$LIB" in text else [text]
        text = ":".join(lists)
    return tuple(os.path.join(wdir, folder) for folder in text.split(":"))
