"""A head that listens at a port before or after MPI_Init, and ranks that only call that: WHEN PORT."""

import os
import socket
import sys


def init() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    sys.stdout.write(f"rank {world.rank} of {world.size} sum {world.allreduce(world.rank)}\n")
    sys.stdout.flush()


when, port = sys.argv[1], int(sys.argv[2])
if os.environ["RANK"] != "0":
    init()
elif when == "before":
    server = socket.create_server(("", port))
    init()
else:
    init()
    server = socket.create_server(("", port))
