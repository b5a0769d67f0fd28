"""The variables of mslaunch for programs that another mpirun or mpiexec has started, from what MPI itself knows.

    mpiexec -n 4 python -m mslaunch.under_mpirun net.py      runs net.py with RANK, RANK_ID, MASTER_ADDR and the rest
    mslaunch.under_mpirun.export_comm_world()                the same from within a program

Rank and size come from mpi4py's COMM_WORLD, the node-local rank from Split_type(COMM_TYPE_SHARED), the address from
rank 0's host.  This is the only module that changes os.environ.  For MindSpore, rank 0 has a child that holds the
scheduler's port and becomes the scheduler as soon as rank 0 loads MindSpore.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # python -m: the working directory, where others may have put a module that we want

from mslaunch.datamodel.request import ServicePolicy
from mslaunch.errors import EXIT_USAGE, LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks import table as frameworks
from mslaunch.frameworks.contract import RankInfo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from subprocess import Popen
    from typing import Any

    from mslaunch.host.free_ports import Listener

_USAGE = "mpiexec -n 4 python -m mslaunch.under_mpirun SCRIPT|-m MODULE|-c CODE [ARGUMENTS]"
#: whether Python puts a folder in front of sys.path: that of the script, or the working directory
_FOLDER_FIRST = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
_TOGETHER = 10.0  #: seconds to wait for the other ranks before the scheduler is ended

#: the child of rank 0: standard input says when to begin; arguments are the descriptor that holds the port, rank 0's
#: process, and the scheduler's command line
_WAITER = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)  # SIGTERM when rank 0 ends, however that happens
ctypes.CDLL(None).prctl(15, b"mslaunch-sched", 0, 0, 0)  # PR_SET_NAME, as the scheduler's own program has it
if os.getppid() != int(sys.argv[2]):
    sys.exit()
listener = int(sys.argv[1])
try:
    os.sched_setaffinity(0, range(os.cpu_count()))  # rank 0 may be bound to one core, which it needs itself
except OSError:
    pass
if not os.read(0, 1):
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.close(listener)
os.execv(sys.argv[3], sys.argv[3:])
"""


def export_comm_world() -> dict[str, str]:
    """Set our variables in os.environ, and return them; every rank of COMM_WORLD must call it once, at its beginning.

    Raises `LaunchError` without mpi4py.
    """
    world = _comm_world()
    place, held = _place(world)
    found = (word.partition("=") for word in (*frameworks.job_env(place), *frameworks.rank_env(place)))
    known = {name: value for name, _, value in found if not name.startswith("OMPI_")}
    waiter = _wait_for_scheduler(place, held)
    for listener in held:
        listener.close()
    if world.bcast(waiter is not None):
        _end_together(world, waiter)
    else:
        known = {name: value for name, value in known.items() if not name.startswith("MS_")}
    os.environ.update(known)
    for name, _, value in (word.partition("=") for word in frameworks.defaults(place.size, [os.environ], False)):
        os.environ.setdefault(name, value)
    return known


def main(argv: Sequence[str]) -> None:
    """The command: set the variables, then run a script, module or code, as python itself would."""
    if argv and argv[0] in ("-h", "--help"):
        sys.exit(print(f"usage: {_USAGE}"))
    if not argv or (argv[0] in ("-m", "-c") and len(argv) < 2):
        sys.exit(f"usage: {_USAGE}")
    if argv[0] not in ("-m", "-c") and not os.path.exists(argv[0]):
        sys.exit(f"mslaunch.under_mpirun: there is no file {argv[0]}")
    try:
        export_comm_world()
    except LaunchError as error:
        sys.stderr.write(f"mslaunch: {error}\n")
        sys.exit(error.code)
    try:
        _run(argv)
    except SystemExit as ended:
        if ended.code not in (None, 0):
            _abort(ended)
        raise
    except BaseException as error:  # else the other ranks would wait for this one
        _abort(error)
        raise


def _run(argv: Sequence[str]) -> None:
    import runpy

    if argv[0] == "-m":
        sys.argv[:] = argv[1:]
        _begin_path(os.getcwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv[:] = ["-c", *argv[2:]]
        _begin_path("")
        exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    else:
        sys.argv[:] = list(argv)
        _begin_path(os.path.dirname(os.path.realpath(argv[0])))
        runpy.run_path(argv[0], run_name="__main__")


def _begin_path(folder: str) -> None:
    """Put the folder there from which the program imports."""
    if _FOLDER_FIRST:
        sys.path.insert(0, folder)


def _abort(error: BaseException) -> None:
    """Print the error, and end all ranks; returns if there is only one."""
    world = _comm_world()
    if world.Get_size() == 1:
        return
    code = error.code if isinstance(error, SystemExit) else None
    if not isinstance(error, SystemExit):
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__)
    elif not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    world.Abort(code if isinstance(code, int) else EXIT_USAGE)


# --- what MPI knows


def _comm_world() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        what = f"mpi4py cannot be imported: {error}"
        todo = "install it for the MPI library that starts this program: pip install 'mslaunch[mpi]'"
        raise LaunchError(what, "mslaunch.under_mpirun", todo) from None
    return MPI.COMM_WORLD


def _place(world: Any) -> tuple[RankInfo, list[Listener]]:
    """The numbers of this rank, found by collective calls; and on rank 0 the listeners that hold the ports."""
    from mpi4py import MPI

    from mslaunch.host.free_ports import Listener
    from mslaunch.host.own_addresses import addresses

    rank, size = world.Get_rank(), world.Get_size()
    local = world.Split_type(MPI.COMM_TYPE_SHARED, rank)
    local_rank, local_size = local.Get_rank(), local.Get_size()
    leader = local.bcast(rank)
    gathered = world.allgather((leader, addresses()[0]))
    firsts = sorted({first for first, _ in gathered})
    local.Free()
    address = _address([gathered[first][1] for first in firsts])
    held = [Listener(), Listener()] if rank == 0 else []
    rendezvous = world.bcast((address, *(listener.port for listener in held)))
    place = RankInfo(rank, size, local_rank, local_size, firsts.index(leader), len(firsts), size, *rendezvous)
    return place, held


def _address(nodes: Sequence[str]) -> str:
    """The address from which this host reaches the second of these nodes."""
    from mslaunch.host.own_addresses import source_address

    return (source_address(nodes[1]) or nodes[0]) if len(nodes) > 1 else "127.0.0.1"


# --- MindSpore's scheduler


def _wait_for_scheduler(place: RankInfo, held: Sequence[Listener]) -> Popen[bytes] | None:
    """The child of rank 0 that becomes the scheduler; None on other ranks and without MindSpore."""
    if not held:
        return None
    import subprocess
    from importlib.util import find_spec

    from mslaunch.agent.services.mindspore_scheduler import Interpreter, scheduler_command, scheduler_env

    found = find_spec("mindspore")
    if found is None or not found.submodule_search_locations:
        return None
    interpreter = Interpreter(sys.executable, found.submodule_search_locations[0], os.getcwd(), dict(os.environ))
    plan = frameworks.services(place, ServicePolicy())[0]
    listener = held[1].fileno()
    waits = [sys.executable, "-I", "-S", "-c", _WAITER]  # -I: it takes no module from the working directory
    command = [*waits, str(listener), str(os.getpid()), *scheduler_command(interpreter)]
    env = {**scheduler_env(interpreter.env, plan.env), "PYTHONSAFEPATH": "1"}
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    waiter = subprocess.Popen(command, stdin=pipe, stdout=null, env=env, pass_fds=(listener,))
    begin = _BeginWithMindSpore(waiter)
    if "mindspore" in sys.modules:
        begin()
    else:
        sys.meta_path.insert(0, begin)
    return waiter


class _BeginWithMindSpore:
    """A finder of modules that finds none: it tells the child of rank 0 to begin when MindSpore is imported.

    Workers that ask before there is a scheduler may try again for 80 s (MindSpore 2.10, measured), so the first
    connection is too late a sign.  A module within the package is the sign, since many look whether there is a package.
    """

    def __init__(self, waiter: Popen[bytes]) -> None:
        self._waiter = waiter

    def __call__(self) -> None:
        pipe = self._waiter.stdin
        if pipe is None or pipe.closed:
            return
        try:
            pipe.write(b"\n")
            pipe.close()
        except OSError:  # the child was ended; the workers will say that no scheduler answers
            pass

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.startswith("mindspore."):
            self()


def _end_together(world: Any, waiter: Popen[bytes] | None) -> None:
    """At exit, wait for all ranks and end the scheduler; MPI still works then, and MindSpore is finished."""
    import atexit
    import time

    def ended() -> None:
        done = world.Ibarrier()
        deadline = time.monotonic() + _TOGETHER
        while not done.Test() and time.monotonic() < deadline:
            time.sleep(0.01)
        if waiter:
            waiter.terminate()
            waiter.wait()

    atexit.register(ended)


if __name__ == "__main__":
    main(sys.argv[1:])
