"""MindSpore's scheduler: which program it is, with which interpreter and variables, and when it cannot do its work.

MindSpore forms a job around one extra process, the scheduler, that registers the workers and trains nothing.  A program
of ranks that configures the scheduler itself is run for it, as msrun does; so it is for a parameter server.  Else a
light one is run by the interpreter of the ranks, for it must come from the very MindSpore that they use: that is read
off a rank that has loaded it or, before there are ranks, off their program.  The light one does not import MindSpore
(1.3 s and a hundred MiB more): it loads the extension module alone, under an empty package of that name.
"""

from __future__ import annotations

import os
import time

from mslaunch.agent.services.service_kind import ServiceCommand
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.processes import family, identity, link, other_users, read, strings
from mslaunch.host.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.agent.services.service_kind import ProgramOfRanks
    from mslaunch.runtime.loop import Loop, Timer

_MISSING = 93  # exit code of a light scheduler that has found no MindSpore
_CONFIGURES = b"set_ps_context"  # TLS, among others: the program says it to every process, the scheduler included
_ENTRIES = 256  # of a PATH that are looked at
_LOOKING = 2.0  # seconds that a search for an interpreter goes on; the agent does nothing else meanwhile
_TEXT = 1 << 20  # bytes of a program that are looked at
_EXTENSION = b"/mindspore/_c_expression"

#: The program of the scheduler; its arguments are a title for ps, MindSpore's package directory ("": it finds that
#: itself, without importing it) and the code to end with if there is none.  An extension that lacks what the short way
#: needs sends it the long way, in a process that saw nothing of the short one.  Neither way takes a module from the
#: working directory: Python 3.11 and later put it into no sys.path with PYTHONSAFEPATH, and from 3.13 on that matters
#: before the first line.  What ranks have in PYTHONPATH they may have MindSpore from, so only its search sees that.
STUB = """\
# mslaunch: the scheduler of a MindSpore job
import posix, sys
path = [entry for entry in sys.path if entry]
sys.path[:] = [entry for entry in path if entry[:1] == "/" and entry != posix.getcwd()]
import importlib.util, os, types
sys.path[:] = path
try:
    with open("/proc/self/comm", "w") as name:
        name.write("mslaunch-sched")
except OSError:
    pass
directory = sys.argv[2]
if not directory:
    try:
        places = importlib.util.find_spec("mindspore").submodule_search_locations
        directory = next(p for p in places if any(n.startswith("_c_expression") for n in os.listdir(p)))
    except Exception:
        os._exit(int(sys.argv[3]))
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
    os.environ["PYTHONSAFEPATH"] = "1"
    program = "import sys; sys.path[:] = filter(None, sys.path); from mindspore.communication import init; init()"
    os.execv(sys.executable, [sys.executable, "-c", program, sys.argv[1]])
try:
    schedule()
except Exception as error:  # and away at once: what it does at exit wants the whole of MindSpore
    text = f"mslaunch: MindSpore's scheduler failed, its lines above say why ({type(error).__name__})\\n"
    os.write(2, text.encode())
    os._exit(1)
"""

TITLE = "mslaunch-scheduler"

_SAFE = {"PYTHONSAFEPATH": "1"}

PATIENCE = 20.0  #: seconds; workers that still have heartbeats register within one or a few of them
_PACE = "MS_RETRY_INTERVAL_UPPER"  # seconds between two heartbeats, at most
_BEATS = 4  # of which so many are waited for
_REFUSES = b"Unable to process unreg message"

#: what makes a process a rank: for MindSpore (frameworks.mindspore), and for the libraries that it may load
_OF_A_RANK = ("MS_NODE_ID", "DEVICE_ID", "RANK_ID", "RANK", "LOCAL_RANK", "OMPI_COMMAND", "MPI_LOCALRANKID")
_OF_A_RANK_PREFIXES = ("OMPI_COMM_WORLD_", "PMI_", "PMIX_")


class SchedulerCommands:
    """The kind "mindspore": the scheduler, or a parameter server.  See `service_kind.ServiceKind`."""

    def __init__(self, own: ProgramOfRanks) -> None:
        self._own = own
        self._service = own.service

    def early(self, guessed: bool) -> ServiceCommand | None:
        """The program of the ranks, or else a light scheduler if that program has an interpreter.

        One that was started on a guess waits until a rank wants to meet others, however long that takes:
        MS_TOPO_TIMEOUT would end it, and ranks have their own.  11 days are near what 31 bits of milliseconds hold.
        """
        wdir = self._own.wdir()
        found: ServiceCommand | None = None
        if self._runs_program(wdir):
            found = self._program(wdir)
        else:
            try:
                found = self._light(self._program(wdir))
            except LaunchError:  # the ranks will report it, in the same words on all hosts
                pass
        if found and guessed:
            found.env["MS_TOPO_TIMEOUT"] = "999999"
        return found

    def on_connection(self, pids: Sequence[int] | None) -> ServiceCommand | None:
        """With the interpreter of a rank that has loaded MindSpore; None if none has.

        On a host that never had ranks (--scheduler may name one) those of others are believed, and a Python is guessed.
        """
        if pids is None:
            return self.early(False) or self._any_python()
        wdir = self._own.wdir()
        if self._runs_program(wdir):
            return self._program(wdir) if any(map(_package, family(pids))) else None
        found = find_interpreter(pids)
        if found is None:
            return None
        env = {**scheduler_env(found.env, self._service.env), **_SAFE}
        return ServiceCommand(found.path, scheduler_command(found), env, found.cwd)

    @staticmethod
    def watchdog(loop: Loop, give_up: Callable[[LaunchError], None], command: ServiceCommand) -> ReconnectWatchdog:
        """See there."""
        return ReconnectWatchdog(loop, give_up, command.env)

    @staticmethod
    def not_installed(command: ServiceCommand) -> LaunchError:
        """The interpreter has no MindSpore."""
        what = f"the MindSpore scheduler was not started: {command.path} has no MindSpore"
        return LaunchError(what, todo="install it there, or name another host with --scheduler")

    def _runs_program(self, wdir: str) -> bool:
        how = self._service.program
        return how == "ranks" or (how == "auto" and self._own.has_text(_CONFIGURES, _TEXT, wdir))

    def _env(self, wdir: str) -> dict[str, str]:
        return scheduler_env(self._own.env(wdir), self._service.env)

    def _program(self, wdir: str) -> ServiceCommand:
        return self._own.command(self._env(wdir), wdir)

    @staticmethod
    def _light(own: ServiceCommand, python: str = "") -> ServiceCommand | None:
        python = python or own.interpreter
        if not python:
            return None
        argv, env = searching_command(python, _MISSING), {**own.env, **_SAFE}
        return own._replace(path=python, argv=argv, env=env, missing=_MISSING)

    def _any_python(self) -> ServiceCommand | None:
        env = self._env("/")
        path = env.get("PATH", os.defpath)
        for name in ("python", "python3"):
            try:
                return self._light(ServiceCommand("", [], env, "/"), find_program(name, path, "/"))
            except LaunchError:
                pass
        todo = f"the PATH of the ranks is {path} there\nname another host with --scheduler"
        raise LaunchError("no python was found for the MindSpore scheduler", todo=todo)


class Interpreter(NamedTuple):
    """The Python of a process that has loaded MindSpore."""

    path: str  # absolute, as the process named it: a venv's link is not followed
    package: str  # the directory of MindSpore's package
    cwd: str
    env: dict[str, str]  # that the process was started with; undecodable bytes are surrogates


def find_interpreter(roots: Sequence[int]) -> Interpreter | None:
    """The interpreter of a process that has loaded MindSpore: one of `roots` (pids), or a process they started.

    None if there is none, or it may not be looked at, or its interpreter cannot be run from here (another mount
    namespace; a program with Python inside).  Raises `LaunchError` if one of them runs as another user: what such
    processes name is not run with our rights.  Takes 2 to 10 ms, 40 where ranks starve us: close the port first.
    """
    until = time.monotonic() + _LOOKING
    found = next(filter(None, (_look(pid, until) for pid in family(roots))), None)
    pids = list(family(roots))
    users = other_users(pids)
    if users and (found or any(map(_package, pids))):
        what = f"the MindSpore scheduler was not started: a rank that loads MindSpore runs as user {min(users)}"
        todo = "its interpreter is not run as the agent's user; --scheduler-runs ranks runs the program of the ranks"
        raise LaunchError(what, todo=todo)
    return found


def scheduler_command(interpreter: Interpreter) -> list[str]:
    """The argv that runs the scheduler; it reads no standard input."""
    return [interpreter.path, "-c", STUB, TITLE, interpreter.package]


def searching_command(path: str, missing: int) -> list[str]:
    """The same for an interpreter that may have no MindSpore: then it ends with `missing`."""
    return [path, "-c", STUB, TITLE, "", str(missing)]


def scheduler_env(base: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    """A rank's environment made that of the scheduler, or of what `extra` ("NAME=value") makes it; it wins over `base`.

    The scheduler needs MS_SCHED_HOST, MS_SCHED_PORT and MS_WORKER_NUM; the last one missing, it would end at once
    and well, having no worker to wait for (measured with MindSpore 2.10).
    """
    env = {n: v for n, v in base.items() if n not in _OF_A_RANK and not n.startswith(_OF_A_RANK_PREFIXES)}
    env["MS_ROLE"] = "MS_SCHED"
    env.update((name, value) for name, _, value in (word.partition("=") for word in extra))
    return env


class ReconnectWatchdog:
    """Whether workers find a scheduler that was started again; if some cannot any more, the job would never end.

    They register with their heartbeats.  A worker that is done has none any more: it only asks to unregister, twice a
    second and for ever (MindSpore 2.10, with MS_ENABLE_RECOVERY), which a scheduler refuses, in a line that it prints,
    until all have registered.  So if it still refuses after `patience`, some worker never will.
    """

    def __init__(self, loop: Loop, give_up: Callable[[LaunchError], None], env: Mapping[str, str]) -> None:
        """`env` is that of the scheduler; its workers have the same interval of heartbeats."""
        self._loop = loop
        self._give_up = give_up
        self.patience = max(PATIENCE, _BEATS * _seconds(env.get(_PACE, "")))
        self._wait: Timer | None = None
        self._refused = 0.0  # when it did so last

    def read(self, data: bytes) -> None:
        """What the scheduler printed; a line that comes in two pieces is not seen, but soon there is another."""
        if _REFUSES in data:
            self._refused = self._loop.now()
            self._wait = self._wait or self._loop.after(self.patience, self._over)

    def cancel(self) -> None:
        """It has ended; another one may follow."""
        if self._wait:
            self._wait.cancel()
            self._wait = None

    def _over(self) -> None:
        self.cancel()
        if self._loop.now() - self._refused < PATIENCE / 2:
            what = "ranks had done their work before all of them had registered with it, and could not end"
            self._give_up(LaunchError(what))


def _seconds(text: str) -> int:
    """0 for what is no number."""
    return int(text) if text.isdecimal() and len(text) < 7 else 0


# --- what


def _look(pid: int, until: float) -> Interpreter | None:
    """Only a process that was the same one, and ours, before and after."""
    before = identity(pid)
    package = _package(pid) if before else None
    if package is None:
        return None
    pairs = [word.partition("=") for word in strings(pid, "environ")]
    env = {name: value for name, _, value in pairs if name}
    cwd = link(pid, "cwd") or "/"
    path = _program(pid, cwd, env, until)
    if path is None or identity(pid) != before:
        return None
    return Interpreter(path, package, cwd, env)


def _package(pid: int) -> str | None:
    """The directory of MindSpore's package, if the process has its extension module mapped."""
    maps = read(f"/proc/{pid}/maps")
    at = maps.find(_EXTENSION)
    if at < 0:
        return None
    line = maps[maps.rfind(b"\n", 0, at) + 1 : maps.find(b"\n", at)]
    return os.path.dirname(os.fsdecode(line.split(None, 5)[5]))  # address perms offset device inode path


def _program(pid: int, cwd: str, env: Mapping[str, str], until: float) -> str | None:
    """The interpreter of the process, under a name that leads to its venv.

    Python finds its venv from argv[0], so that comes first; a process that changed its title still has the name of
    its file.  Each is taken only if it is the file that the process runs.
    """
    real = link(pid, "exe")
    if not os.path.basename(real).startswith(("python", "pypy")):
        return None
    first = (strings(pid, "cmdline") or [""])[0]
    folders = [""] if "/" in first else env.get("PATH", os.defpath).split(":")[:_ENTRIES]
    names = [os.path.join(folder, first) for folder in folders]
    if env.get("VIRTUAL_ENV"):
        names.append(os.path.join(env["VIRTUAL_ENV"], "bin", "python"))
    for name in [*names, real]:
        if time.monotonic() > until:
            return None
        path = os.path.join(cwd, name)
        try:
            if os.path.samefile(path, f"/proc/{pid}/exe"):
                return path
        except OSError:
            pass
    return None
