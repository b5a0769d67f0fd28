"""Rank 0 opens a port and publishes its name, rank 1 looks it up and connects; before that nobody finds the name."""

import sys

from mpi4py import MPI

world, NAME = MPI.COMM_WORLD, "mslaunch-test-service"


def serve():
    port = MPI.Open_port()
    MPI.Publish_name(NAME, port)
    world.Barrier()
    inter = MPI.COMM_SELF.Accept(port)
    assert inter.recv() == "from the client"
    inter.send("from the server", 0)
    inter.Disconnect()
    MPI.Unpublish_name(NAME, port)
    MPI.Close_port(port)


def connect():
    world.Barrier()
    inter = MPI.COMM_SELF.Connect(MPI.Lookup_name(NAME))
    inter.send("from the client", 0)
    assert inter.recv() == "from the server"
    inter.Disconnect()


def unknown():
    try:
        MPI.Lookup_name("mslaunch-test-nobody")
    except MPI.Exception as error:
        return error.Get_error_class() == MPI.ERR_NAME
    return False


world.Set_errhandler(MPI.ERRORS_RETURN)
(serve if world.rank == 0 else connect)()
sys.stdout.write(f"rank {world.rank} unknown {unknown()}\n")
