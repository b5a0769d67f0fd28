"""Everything that one MPI_COMM_WORLD can do, checked; prints the facts that the library knows of the job, as JSON."""

import json
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size


def ring():
    """To the right and from the left: small, on the edge of eager sending, and far above it."""
    for length in (1, 1 << 10, 1 << 16, 1 << 22):
        mine, theirs = bytearray([rank]) * length, bytearray(length)
        world.Sendrecv(mine, (rank + 1) % size, recvbuf=theirs, source=(rank - 1) % size)
        assert theirs == bytearray([(rank - 1) % size]) * length, length


def window():
    """Everyone puts its rank into its right neighbour's memory; False if the library has no such windows here."""
    memory = bytearray(8)
    try:
        win = MPI.Win.Create(memory, comm=world)
    except MPI.Exception:
        return False
    win.Fence()
    win.Put(rank.to_bytes(8, "little"), (rank + 1) % size)
    win.Fence()
    win.Free()
    assert int.from_bytes(memory, "little") == (rank - 1) % size
    return True


assert world.allreduce(rank) == size * (size - 1) // 2
assert world.allgather(str(rank)) == [str(number) for number in range(size)]
assert world.bcast("x" * 300000 if rank == 0 else None) == "x" * 300000
ring()
windows = window()
half = world.Split(rank % 2, rank)
assert half.allreduce(1) == len(range(rank % 2, size, 2))
shared = world.Split_type(MPI.COMM_TYPE_SHARED)
hosts = world.allgather(MPI.Get_processor_name())
assert sorted(shared.allgather(rank)) == [number for number, host in enumerate(hosts) if host == hosts[rank]]
known = {
    "rank": rank,
    "size": size,
    "shared": shared.size,
    "windows": windows,
    "appnum": world.Get_attr(MPI.APPNUM),
    "universe": world.Get_attr(MPI.UNIVERSE_SIZE),
    "host": hosts[rank],
    "library": MPI.Get_library_version().split("\n")[0],
}
sys.stdout.write(json.dumps(known) + "\n")
