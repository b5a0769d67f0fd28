"""MPI_Comm_spawn in the way that the first word says; the children are this program too.

one        two children of the whole world, which form one world with it afterwards
several    MPI_Comm_spawn_multiple: one and two children, of two commands
twice      rank 0 alone spawns, twice
abort      a child calls MPI_Abort(9)
missing    the program does not exist
"""

import os
import sys
import traceback

from mpi4py import MPI

PROGRAM = os.path.abspath(__file__)


def child(how):
    parent = MPI.Comm.Get_parent()
    if how == "abort" and MPI.COMM_WORLD.rank == 1:
        MPI.COMM_WORLD.Abort(9)
    both = parent.Merge(high=True)
    line = (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, MPI.COMM_WORLD.Get_attr(MPI.APPNUM), sys.argv[3])
    both.gather(line, root=0)
    both.Free()
    parent.Disconnect()


def meet(inter, count):
    """What the children of `inter` said, at rank 0."""
    assert inter.Get_remote_size() == count
    both = inter.Merge(high=False)
    said = both.gather(None, root=0)
    both.Free()  # Open MPI hangs in the second Disconnect, whoever launches it
    inter.Disconnect()
    return said[-count:] if said else []


def parent(how):
    world, words = MPI.COMM_WORLD, [PROGRAM, "child", how]
    world.Set_errhandler(MPI.ERRORS_RETURN)
    if how == "several":
        commands, arguments = [sys.executable] * 2, [[*words, "a"], [*words, "b"]]
        report(meet(world.Spawn_multiple(commands, arguments, [1, 2]), 3))
    elif how == "twice":
        for name in "ab":
            if world.rank == 0:
                report(meet(MPI.COMM_SELF.Spawn(sys.executable, [*words, name], 1), 1))
            world.Barrier()
    elif how == "missing":
        try:
            world.Spawn("/nonexistent/program", [], 1)
        except MPI.Exception as error:
            sys.stdout.write(f"refused {error.Get_error_class() != MPI.SUCCESS}\n")
    else:
        report(meet(world.Spawn(sys.executable, [*words, "x"], 2), 2))


def report(children):
    for rank, size, number, name in children:
        sys.stdout.write(f"child {rank} of {size} appnum {number} {name}\n")


try:
    if sys.argv[1] == "child":
        child(sys.argv[2])
    else:
        parent(sys.argv[1])
except Exception:  # or MPI_Finalize would wait for the others, who wait for this rank
    traceback.print_exc()
    MPI.COMM_WORLD.Abort(1)
