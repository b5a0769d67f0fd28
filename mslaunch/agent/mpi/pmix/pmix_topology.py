"""The topology that libpmix gives to ranks: the machine as XML, and where each rank is bound.

A rank of Open MPI that is not given it looks at the whole machine by itself, which costs each 20 ms and more of cpu.
The agent's libpmix has looked already, with the hwloc that it brings along.  Nothing here is required: what a library
lacks is left out.
"""

from __future__ import annotations

import ctypes

from mslaunch.agent.mpi.pmix.pmix_values import STRING, Item, text
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class _XmlTopology(ctypes.Structure):
    """pmix_topology_t: who made it, and what is his."""

    _fields_ = (("source", ctypes.c_char_p), ("topology", ctypes.c_void_p))


class _Cpuset(ctypes.Structure):
    """pmix_cpuset_t: who made it, and a bitmap of his."""

    _fields_ = (("source", ctypes.c_char_p), ("bitmap", ctypes.c_void_p))


def topology_items(library: Any) -> list[Item]:
    """Job info that spares ranks to look at the machine; `library` is libpmix, as ctypes has it, initialised."""
    xml = _xml(library)
    return [Item("pmix.hwlocxml2", STRING, xml)] if xml else []


def _xml(library: Any) -> str:
    """The topology that libpmix has, in hwloc 2's XML; "" where it cannot be had."""
    found = _XmlTopology()
    try:
        load, export = library.PMIx_Load_topology, library.hwloc_topology_export_xmlbuffer
        free = library.hwloc_free_xmlbuffer
    except AttributeError:  # before 4.0, or with a hwloc of its own
        return ""
    if load(ctypes.byref(found)) != 0 or not found.topology:
        return ""
    buffer, size = ctypes.c_void_p(), ctypes.c_int()
    export.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulong)
    if export(found.topology, ctypes.byref(buffer), ctypes.byref(size), 0) != 0:
        return ""
    words = ctypes.string_at(buffer.value or 0)
    free.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    free(found.topology, buffer)
    return text(words)


def place_items(library: Any, cpus: Iterable[int]) -> list[Item]:
    """Job info of a rank that is bound to `cpus`, the kernel's numbers; none of one that is not bound."""
    words = ",".join(map(str, cpus))
    try:
        allocate, read, free = (getattr(library, f"hwloc_bitmap_{name}") for name in ("alloc", "list_sscanf", "free"))
        makers = [
            ("pmix.cpuset", library.PMIx_server_generate_cpuset_string),
            ("pmix.locstr", library.PMIx_server_generate_locality_string),
        ]
    except AttributeError:
        return []
    if not words:
        return []
    allocate.restype = ctypes.c_void_p
    bitmap = ctypes.c_void_p(allocate())
    read(bitmap, words.encode())
    made = [(key, _generated(make, _Cpuset(b"hwloc", bitmap))) for key, make in makers]
    free(bitmap)
    return [Item(key, STRING, value) for key, value in made if value]


def _generated(make: Any, cpuset: _Cpuset) -> str:
    words = ctypes.c_char_p()
    return text(words.value) if make(ctypes.byref(cpuset), ctypes.byref(words)) == 0 else ""
