"""The dynamic linker of one rank: which files the libraries are that a program will load.

The search is that of ld.so(8): RPATH, LD_LIBRARY_PATH, RUNPATH, the cache, the default directories.  Nothing is loaded.
The cache is searched and not parsed: a name is found in its text, then that place in the table, which takes
microseconds where a dictionary of all names takes a millisecond.
"""

from __future__ import annotations

import os
import struct

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.elf import MACHINES, Elf, folders_of, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CACHE = "/etc/ld.so.cache"
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"  # the new format; it may follow one of the old
_CACHE_HEADER = 48
_CACHE_ENTRY = 24  # flags, key, value (offsets from the magic), osversion, hwcap
_SAME = 16  # entries of one name

#: parts of the C library and of compilers: they lead nowhere, and nearly everything needs them
_LEAVES = frozenset((
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2",
    "libgcc_s.so.1", "libstdc++.so.6", "libgfortran.so.5", "libquadmath.so.0", "libgomp.so.1", "libz.so.1",
    "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
))  # fmt: skip
_WALK = 512  # libraries of one program
_LARGEST = 8 << 20  # of caches


class Loader:
    """ld.so of one rank, with its environment and working directory; remembers what it has read."""

    def __init__(self, env: Mapping[str, str], wdir: str) -> None:
        self.env = env
        self.wdir = wdir
        self._read: dict[str, Elf | None] = {}
        self._path = folders_of(env.get("LD_LIBRARY_PATH", "").replace(";", ":"), "", wdir)

    def read(self, path: str) -> Elf | None:
        """The file at `path`, which may be relative to the working directory; None if it is no ELF file."""
        path = os.path.join(self.wdir, path)
        if path not in self._read:
            self._read[path] = read(path)
        return self._read[path]

    def find(self, name: str, machine: int, rpath: tuple[str, ...] = (), runpath: tuple[str, ...] = ()) -> Elf | None:
        """The library that `name` means to the loader, or to dlopen(3)."""
        for path in [name] if "/" in name else self._candidates(name, machine, rpath, runpath):
            found = self.read(path)
            if found and found.machine == machine:
                return found
        return None

    def _candidates(self, name: str, machine: int, rpath: tuple[str, ...], runpath: tuple[str, ...]) -> Iterator[str]:
        yield from (f"{folder}/{name}" for folder in (*rpath, *self._path, *runpath))
        yield from _cached(name)
        yield from (f"{folder}/{name}" for folder in _default_folders(machine))

    def preloaded(self, machine: int) -> Iterator[Elf]:
        """The libraries of LD_PRELOAD."""
        for name in self.env.get("LD_PRELOAD", "").replace(":", " ").split():
            found = self.find(name, machine)
            if found:
                yield found

    def walk(self, start: Elf) -> Iterator[Elf]:
        """`start`, and all libraries that come with it, in the loader's order, once each."""
        seen = {start.soname or start.path}
        # the RPATH of who needs a library counts for it too, as long as none of them has a RUNPATH
        waiting: list[tuple[Elf, tuple[str, ...]]] = [(start, ())]
        for one, inherited in waiting:
            yield one
            rpath = () if one.runpath else one.rpath + inherited
            for name in one.needed:
                if name in seen or name in _LEAVES or len(waiting) >= _WALK:
                    continue
                seen.add(name)
                found = self.find(name, one.machine, rpath, one.runpath)
                if found and (found.soname == name or found.soname not in seen):
                    seen.add(found.soname)
                    waiting.append((found, rpath))


# --- the places that all programs share


def _default_folders(machine: int) -> tuple[str, ...]:
    debian = f"lib/{MACHINES[machine]}-linux-gnu"
    return f"/{debian}", f"/usr/{debian}", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"


class Cache:
    """What ldconfig(8) has noted: names and paths.  `data` begins with the magic; what is broken in it is not found."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._keys: list[int] = []  # where in `data` the name of each entry begins
        self._end = _CACHE_HEADER
        if len(data) >= _CACHE_HEADER:
            count = struct.unpack_from("<I", data, len(_CACHE_MAGIC))[0]
            count = min(count, (len(data) - _CACHE_HEADER) // _CACHE_ENTRY)
            self._end += count * _CACHE_ENTRY
            self._keys = memoryview(data)[_CACHE_HEADER : self._end].cast("I")[1::6].tolist()

    def paths(self, name: str) -> list[str]:
        """The paths for a name, best first.

        Names share their ends (`libmpi.so` is the end of a path), so each place where the text is may be the one that
        the table means.
        """
        key = os.fsencode(name) + b"\0"
        at = self._data.find(key, self._end)
        while at >= 0 and at not in self._keys:
            at = self._data.find(key, at + 1)
        if at < 0:
            return []
        found = []
        for entry in range(self._keys.index(at), len(self._keys)):  # one for each kind of cpu, and for each directory
            if not self._data.startswith(key, self._keys[entry]):
                break
            found.append(self._path(_CACHE_HEADER + entry * _CACHE_ENTRY))
        return [path for path in found[:_SAME] if path.startswith("/")]

    def _path(self, entry: int) -> str:
        value = struct.unpack_from("<I", self._data, entry + 8)[0]
        end = self._data.find(b"\0", value)
        return os.fsdecode(self._data[value:end]) if end >= 0 else ""


_cache: Cache | None = None


def _cached(name: str) -> list[str]:
    """The paths that ldconfig has noted for a name on this node."""
    global _cache
    if _cache is None:
        _cache = Cache(_read_cache())
    return _cache.paths(name)


def _read_cache() -> bytes:
    try:
        with open(CACHE, "rb") as file:
            data = file.read(_LARGEST)
    except OSError:
        return b""
    at = data.find(_CACHE_MAGIC)
    return data[at:] if at >= 0 else b""
