"""Rank 1 ends in the way that the first word says, the others wait for it; Python gets no chance to finalize.

before-init [CODE]    without having initialized MPI
killed-before-init    by SIGKILL
without-finalize [CODE]
killed                by SIGKILL, between two messages
abort CODE            by MPI_Abort
all-without-finalize  every rank does
"""

import os
import signal
import sys

how, code = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # of ours, and of the launchers of others
mine = next(os.environ[name] for name in names if name in os.environ)

if mine == "1" and how == "before-init":
    os._exit(code)
if mine == "1" and how == "killed-before-init":
    os.kill(os.getpid(), signal.SIGKILL)

from mpi4py import MPI  # noqa: E402  (this initializes)

world = MPI.COMM_WORLD
world.allreduce(1)
if how == "all-without-finalize":
    os._exit(0)
if world.rank == 1:
    if how == "without-finalize":
        os._exit(code)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "abort":
        world.Abort(code)
world.recv(source=1)
