"""The rank of argv[1] sleeps, while all others wait for it in a barrier."""

import sys
import time

from mpi4py import MPI


def meet(comm):
    comm.Barrier()


def step(comm, sleeper):
    if comm.rank == sleeper:
        time.sleep(1000)
    meet(comm)


step(MPI.COMM_WORLD, int(sys.argv[1]))
