"""MPI_THREAD_MULTIPLE: four threads of each rank, each with a communicator of its own, talk at once."""

import sys
import threading

from mpi4py import MPI

world = MPI.COMM_WORLD
assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
sums = {}


def talk(number, comm):
    sums[number] = sum(comm.allreduce(comm.rank + turn) for turn in range(5))


comms = [world.Dup() for _ in range(4)]
threads = [threading.Thread(target=talk, args=pair) for pair in enumerate(comms)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
assert len(set(sums.values())) == 1 and len(sums) == 4
sys.stdout.write(f"rank {world.rank} of {world.size}: {sums[0]}\n")
