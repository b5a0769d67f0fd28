"""ELF files made for tests: as small as the dynamic linker accepts, with every field that host/elf.py reads."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

X86, ARM = 62, 183

OPEN_MPI = ("MPI_Init", "ompi_mpi_comm_world")
MPICH = ("MPI_Init", "MPIR_Dup_fn")
INTEL = ("MPI_Init", "MPIR_Dup_fn", "I_MPI_Check")


def elf(
    *needed: str,
    soname: str = "",
    rpath: str = "",
    runpath: str = "",
    symbols: Sequence[str] = (),
    machine: int = X86,
) -> bytes:
    """A shared object; the first of `symbols` is a variable of 8 bytes that begins as zero, at address 0x10000."""
    names = b"\0"
    places = {}
    for name in dict.fromkeys((*symbols, *needed, soname, rpath, runpath)):
        places[name] = len(names)
        names += name.encode() + b"\0"
    start = 64 + 2 * 56
    table = start + (-len(names) % 8) + len(names)
    symtab = bytes(24)
    for index, name in enumerate(symbols):
        symtab += struct.pack("<IBBHQQ", places[name], 0x11, 0, 1, 0x10000 + 8 * index, 8)
    tags = [(1, places[name]) for name in needed]
    tags += [(tag, places[name]) for tag, name in ((14, soname), (15, rpath), (29, runpath)) if name]
    tags += [(5, start), (10, len(names)), (6, table), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *pair) for pair in tags)
    where = table + len(symtab)
    size = where + len(dynamic)
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    )
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, 0x20000, 4096)
    segments += struct.pack("<IIQQQQQQ", 2, 6, where, where, where, len(dynamic), len(dynamic), 8)
    return (head + segments + names).ljust(table, b"\0") + symtab + dynamic


def write(path: Path, data: bytes | str, mode: int = 0o755) -> Path:
    """A file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    path.chmod(mode)
    return path


def cache(*entries: tuple[str, str], old: bytes = b"") -> bytes:
    """An ld.so.cache of (name, path), which share their ends as ldconfig writes them."""
    table, text = b"", b""
    first = 48 + 24 * len(entries)
    for name, path in entries:
        at = (first + text.find(path.encode() + b"\0")) if path.encode() + b"\0" in text else first + len(text)
        if at == first + len(text):
            text += path.encode() + b"\0"
        key = at + len(path) - len(name) if path.endswith(name) else -1
        if key < 0:
            key = first + len(text)
            text += name.encode() + b"\0"
        table += struct.pack("<iIIIQ", 0x303, key, at, 0, 0)
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIIIIII", len(entries), len(text), 2, 0, 0, 0, 0)
    return old + head + table + text
