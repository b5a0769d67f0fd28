"""The maker of an MPI library (Open MPI, MPICH, Intel MPI), from its file.

Names say little: libmpi.so.12 is MPICH's or Intel's, and who builds a library may choose.  So the names of symbols are
searched.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.elf import strings

if TYPE_CHECKING:
    from mslaunch.host.elf import Elf


#: how the names of MPI libraries begin; the Fortran ones of Open MPI and Intel MPI come with one of these
NAMES = (
    "libmpi.so", "libmpich.so", "libmpi_abi.so", "libmpi_dbg", "libmpi_mt.so", "libmpi_cray", "libmpi_gnu",
    "libmpi_intel", "libmpi_amd", "libmpi_nvidia", "libmpi_aocc", "libmpich_", "libmpi_ibm.so",
)  # fmt: skip


def maker(libmpi: Elf) -> str:
    """The maker as `MpiLibrary.name` has it; "" if this is no MPI library, or of an unknown maker."""
    names = strings(libmpi)
    if b"MPI_Init\0" not in names:
        return ""
    if b"ompi_mpi_comm_world\0" in names or any(n.startswith(("libopen-pal", "libopen-rte")) for n in libmpi.needed):
        return "Open MPI"
    if b"I_MPI_" in names:
        return "Intel MPI"
    return "MPICH" if b"MPIR_" in names or b"MPID" in names else ""
