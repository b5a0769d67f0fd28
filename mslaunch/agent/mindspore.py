"""MindSpore's scheduler: with which interpreter, and as which program, the agent runs it.

MindSpore forms a job around one extra process, the scheduler, that registers the workers and trains nothing.  It
must come from the very MindSpore that the ranks use, so the answer is read off a rank that has loaded it.  This
module starts nothing and knows no ports.  The surprising thing: the scheduler does not import MindSpore (1.3 s and
a hundred MiB more), it loads the extension module alone under an empty package of that name.
"""

from __future__ import annotations

import os

from mslaunch.lean import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_EXTENSION = b"/mindspore/_c_expression"

#: The program of the scheduler; its arguments are a title for ps and MindSpore's package directory.  An extension
#: that lacks what the short way needs sends it the long way, in a process that saw nothing of the short one.
STUB = """\
# mslaunch: the scheduler of a MindSpore job
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib, os, types
directory = sys.argv[2]
beside = os.path.dirname(directory)
sys.path.append(beside)
package = sys.modules["mindspore"] = types.ModuleType("mindspore")
package.__path__ = [directory]
try:
    core = importlib.import_module("mindspore._c_expression")
    core.MSContext.get_instance().set_device_target_inner("CPU")
    schedule = core.init_cluster
except Exception:
    paths = [os.environ.get("PYTHONPATH"), beside]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    program = "from mindspore.communication import init; init()"
    os.execv(sys.executable, [sys.executable, "-c", program, sys.argv[1]])
try:
    schedule()
except Exception as error:  # and away at once: what it does at exit wants the whole of MindSpore
    text = f"mslaunch: MindSpore's scheduler failed, its lines above say why ({type(error).__name__})\\n"
    os.write(2, text.encode())
    os._exit(1)
"""

TITLE = "mslaunch-scheduler"

#: what makes a process a rank: for MindSpore (frameworks.mindspore), and for the libraries that it may load
_OF_A_RANK = ("MS_NODE_ID", "DEVICE_ID", "RANK_ID", "RANK", "LOCAL_RANK", "OMPI_COMMAND", "MPI_LOCALRANKID")
_OF_A_RANK_PREFIXES = ("OMPI_COMM_WORLD_", "PMI_", "PMIX_")


class Interpreter(NamedTuple):
    """The Python of a process that has loaded MindSpore."""

    path: str  # absolute, as the process named it: a venv's link is not followed
    package: str  # the directory of MindSpore's package
    cwd: str
    env: dict[str, str]  # that the process was started with; undecodable bytes are surrogates


def find_interpreter(roots: Sequence[int]) -> Interpreter | None:
    """The interpreter of a process that has loaded MindSpore: one of `roots` (pids), or a process they started.

    None if there is none, or it may not be looked at, or its interpreter cannot be run from here (another mount
    namespace; a program with Python inside).  Takes 2 to 10 ms, 40 where ranks starve us: close the port first.
    """
    seen = set()
    for pid in _candidates(roots):
        if pid not in seen:
            seen.add(pid)
            found = _look(pid)
            if found:
                return found
    return None


def scheduler_command(interpreter: Interpreter) -> list[str]:
    """The argv that runs the scheduler; it reads no standard input."""
    return [interpreter.path, "-c", STUB, TITLE, interpreter.package]


def scheduler_env(base: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    """A rank's environment made the scheduler's.  `extra` is "NAME=value", and wins over `base`.

    The scheduler needs MS_SCHED_HOST, MS_SCHED_PORT and MS_WORKER_NUM; the last one missing, it would end at once
    and well, having nobody to wait for (facts, measured with MindSpore 2.10).
    """
    env = {n: v for n, v in base.items() if n not in _OF_A_RANK and not n.startswith(_OF_A_RANK_PREFIXES)}
    env.update((name, value) for name, _, value in (word.partition("=") for word in extra))
    env["MS_ROLE"] = "MS_SCHED"
    return env


# --- who


def _candidates(roots: Sequence[int]) -> Iterator[int]:
    """The roots, for it is nearly always one of them; then what they started, parents before children."""
    yield from roots
    children = _children(roots)
    wave = list(roots)
    reached = set(wave)
    while wave:
        wave = [child for pid in wave for child in children.get(pid, ()) if child not in reached]
        reached.update(wave)
        yield from wave


def _children(roots: Sequence[int]) -> dict[int, list[int]]:
    """Parent → children, of all processes.  One whose parent is gone counts as a child of its session's leader.

    proc(5): in /proc/PID/stat the name is in parentheses and may itself hold any of them; state, ppid, pgrp and
    session follow the last one.
    """
    children: dict[int, list[int]] = {}
    leaders = set(roots)
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if len(fields) > 3:
                pid, parent, session = int(name), int(fields[1]), int(fields[3])
                for above in {parent, session} if session in leaders else (parent,):
                    children.setdefault(above, []).append(pid)
    return children


# --- what


def _look(pid: int) -> Interpreter | None:
    package = _package(pid)
    if package is None:
        return None
    words = _strings(pid, "environ")
    env = {name: value for name, _, value in (word.partition("=") for word in words) if name}
    cwd = _link(pid, "cwd") or "/"
    path = _program(pid, cwd, env)
    return Interpreter(path, package, cwd, env) if path else None


def _package(pid: int) -> str | None:
    """The directory of MindSpore's package, if the process has its extension module mapped."""
    maps = _read(f"/proc/{pid}/maps")
    at = maps.find(_EXTENSION)
    if at < 0:
        return None
    line = maps[maps.rfind(b"\n", 0, at) + 1 : maps.find(b"\n", at)]
    return os.path.dirname(os.fsdecode(line.split(None, 5)[5]))  # address perms offset device inode path


def _program(pid: int, cwd: str, env: Mapping[str, str]) -> str | None:
    """The process's interpreter under a name of which the venv can be told.

    Python finds its venv from argv[0], so that comes first; a process that changed its title still has the name of
    its file.  Each is taken only if it is the file that the process runs.
    """
    real = _link(pid, "exe")
    if not os.path.basename(real).startswith(("python", "pypy")):
        return None
    first = (_strings(pid, "cmdline") or [""])[0]
    folders = [""] if "/" in first else env.get("PATH", os.defpath).split(":")
    names = [os.path.join(folder, first) for folder in folders]
    if env.get("VIRTUAL_ENV"):
        names.append(os.path.join(env["VIRTUAL_ENV"], "bin", "python"))
    for name in [*names, real]:
        path = os.path.join(cwd, name)
        try:
            if os.path.samefile(path, f"/proc/{pid}/exe"):
                return path
        except OSError:
            pass
    return None


# --- /proc, where everything may vanish at any time


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _strings(pid: int, what: str) -> list[str]:
    return [os.fsdecode(word) for word in _read(f"/proc/{pid}/{what}").split(b"\0")[:-1]]


def _link(pid: int, what: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{what}")
    except OSError:
        return ""
