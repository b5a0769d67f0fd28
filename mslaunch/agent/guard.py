"""The guard: the parent process of an agent, which kills and removes what the agent leaves behind.

It adopts every orphan of the ranks (`PR_SET_CHILD_SUBREAPER`, prctl(2)); once the agent has ended, it kills what is
left, by pid, and removes the session directories that the agent has named.  An agent that stays stopped (SIGSTOP) for
longer than a lease is killed, since the launcher has given it up; not if the guard was stopped as well.  If the guard
itself is killed, the agent sees the end of a pipe, ends its ranks, and takes the guard's place in this
(`end_leftovers`).

Both processes have names of their own (`GUARD`, `AGENT`), so that an administrator can tell what they are: the command
line of an agent is that of its launcher, or a constant one of `transport.bootstrap`.
"""

from __future__ import annotations

import gc
import os
import select
import time

from mslaunch.datamodel.node_report import from_wait_status
from mslaunch.faststd import TYPE_CHECKING, signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mslaunch.agent.mpi.shm_cleanup import SharedFile

GUARD, AGENT = "mslaunch-guard", "mslaunch-agent"  #: names of processes: the kernel keeps 15 bytes of each

_PR_SET_CHILD_SUBREAPER = 36
_SPARE = 4 << 20  # bytes of address space, never touched
_STOPPED = 60.0  # seconds that an agent may be stopped at most before it has said how long
_LATE = 1.0  # seconds: an alarm this late means that the guard was stopped, too, as all of a job may be for a while
_ROUNDS = 100  # below a process that cannot be killed, which may start others without end
_EARLY = 0.01  # seconds: timers are rounded
_IGNORED = ("SIGINT", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGPIPE", "SIGUSR1", "SIGUSR2")


def guarded(serve: Callable[[int, int], None], keep: tuple[int, ...], patience: float = 0) -> int:
    """Fork; `serve(guard, directories)` runs in the child, the agent; this process becomes the guard.

    `guard` can be read: one byte when the guard is ready to adopt orphans, so no rank may be started before, and the
    end when the guard dies.  (The agent is forked first: it can send HELLO in the milliseconds that finding prctl
    takes.)  `directories` takes the names, each with a NUL after it, of directories that must not outlive the agent, or
    `=SECONDS`, with a NUL as well: how long it may be stopped from now on; 0: for ever.
    `keep` are the descriptors of the link: the guard closes its copies, so that the link ends with the agent.
    `patience`: seconds that the launcher still waits for the agent to speak, 0 if unknown: so long, and no longer than
    a minute, it may be stopped before it has said how long.
    Returns, in the guard only, the exit code of the agent (128 + n for a signal).
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some parents leave it, it would eat exit codes
    alive, ours = os.pipe()
    names, directories = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    agent = os.fork()
    if not agent:
        os.close(null)
        os.close(ours)
        os.close(names)
        set_name(AGENT)
        status = 70
        try:
            serve(alive, directories)
            status = 0
        finally:
            os._exit(status)
    os.close(alive)
    os.close(directories)
    gc.enable()  # the loader of `transport.bootstrap` has disabled it
    set_name(GUARD)
    adopted = adopt_orphans()
    try:
        os.write(ours, b"!")
    except OSError:  # the agent has ended already
        pass
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(agent))
    for fd in keep:
        os.dup2(null, fd)
    return _watch(agent, names, (null, ours), adopted, [b"=%f" % min(patience or _STOPPED, _STOPPED)])


def _watch(agent: int, names: int, spare: tuple[int, ...], adopted: bool, told: list[bytes]) -> int:
    """Wait for the agent, and end and remove what it has left; the descriptors `spare` may be closed then.

    `told` is what counts as said by the agent at first, as `guarded` tells.
    """
    os.set_blocking(names, False)
    memory = bytes(_SPARE)
    code = _wait_for(agent, lambda: _patience(names, told))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    del memory  # what is left to do needs memory and descriptors, and there may be no more of either
    for fd in spare:
        os.close(fd)
    if adopted:
        _end_orphans()
    _remove_left(names, told)
    return code


def _pass_on(agent: int) -> None:
    """SIGTERM is for the agent, which ends its ranks in order."""
    try:
        os.kill(agent, signal.SIGTERM)
    except OSError:  # it has just been reaped
        pass


def set_name(name: str) -> None:
    """Set the name of this process, which top, `ps -o comm` and /proc/PID/comm show; a program it executes has its own.

    A write to /proc/self/comm does the same as PR_SET_NAME of prctl(2), since Linux 2.6.33 (proc(5)), and needs no
    ctypes.  Without /proc the process keeps the name that it has.
    """
    try:
        fd = os.open("/proc/self/comm", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(fd, name.encode())
    except OSError:
        pass
    finally:
        os.close(fd)


def adopt_orphans() -> bool:
    """Ask to become the parent of orphaned descendants; False where the kernel does not offer that.

    By the C core of ctypes, since the import of ctypes takes ten times as long.
    """
    try:
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, os.RTLD_NOW), "prctl")  # type: ignore[arg-type]
        return bool(_ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def end_leftovers(marks: Iterable[str]) -> None:
    """In an agent that may have lost its guard, once its ranks have ended: end what they left, as the guard would do.

    Orphans from before the time at which the agent adopted any have gone to another process: to the guard, or without
    one to whoever is above it.  These are found by `marks`, variables of the job that they were started with, unless
    they have dropped them.
    """
    _end_orphans()
    for mark in marks:
        kill_marked(mark)


def kill_marked(mark: str) -> int:
    """`processes.kill_marked`, and the removal of what was shared in memory."""
    from mslaunch.agent.mpi.shm_cleanup import held, remove
    from mslaunch.host import processes

    shared: set[SharedFile] = set()
    killed = processes.kill_marked(mark, lambda pids: shared.update(held(pids)))
    remove(shared)
    return killed


def _read_told(names: int, told: list[bytes]) -> None:
    """Add what the agent has said; it writes each entry at once."""
    try:
        told += os.read(names, 1 << 16).split(b"\0")[:-1]
    except BlockingIOError:
        pass


def _patience(names: int, told: list[bytes]) -> float:
    """The last SECONDS that the agent has said."""
    _read_told(names, told)
    return next(float(entry[1:]) for entry in reversed(told) if entry[:1] == b"=")


def _remove_left(names: int, told: list[bytes]) -> None:
    """Remove the directories of an agent that could not do it itself; usually there are none."""
    _read_told(names, told)
    for name in told:
        if name[:1] != b"=" and os.path.lexists(name):
            from mslaunch.agent.ranks.session_dir import remove

            remove(os.fsdecode(name))


def _wait_for(agent: int, patience: Callable[[], float]) -> int:
    """Its exit code; it is killed once it was stopped for `patience()` seconds, while we were not stopped."""
    due = 0.0  # 0: the agent is not stopped, or may be for ever

    def wait() -> None:
        nonlocal due
        seconds = patience()
        due = seconds and time.monotonic() + seconds
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def alarm(*_: object) -> None:
        """Runs within waitpid, and not only for our timer: any process of the user can send the signal."""
        late = time.monotonic() - due
        if due and late > _LATE:
            wait()
        elif due and late > -_EARLY:
            _kill(agent)

    signal.signal(signal.SIGALRM, alarm)
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED | os.WCONTINUED)
        if pid == agent:
            signal.alarm(0)
            if os.WIFSTOPPED(status):
                wait()
            elif not os.WIFCONTINUED(status):
                return from_wait_status(status).shell_code
            else:
                due = 0.0


def _end_orphans() -> None:
    """Kill and reap until there are no children; each may leave its own children to us.

    Processes of another user cannot be killed, and are left, but not what they have started as our user.  Shared memory
    of those that are killed is removed.
    """
    shared: set[SharedFile] = set()
    try:
        _end_all(shared)
    finally:
        if shared:
            from mslaunch.agent.mpi.shm_cleanup import remove

            remove(shared)


def _end_all(shared: set[SharedFile]) -> None:
    """Add the files in shared memory of whoever is killed to `shared`."""
    rounds = 0
    while True:  # an empty list of children is no proof that there are none: only ECHILD from waitpid is
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            found = _children()
            if found:
                from mslaunch.agent.mpi.shm_cleanup import held

                shared |= held(found)
            left = [pid for pid in found if _kill(pid)]
            if left:
                os.waitpid(-1, 0)
            elif found:
                rounds += 1
                if rounds > _ROUNDS or not (_kill_below(found, shared) or set(_children()) - set(found)):
                    return
            else:
                select.select([], [], [], 0.002)  # one is between two parents: no event tells when it has arrived
        except ChildProcessError:
            return
        except ProcessLookupError:
            continue


def _kill_below(pids: list[int], shared: set[SharedFile]) -> int:
    """Kill what processes of another user have started as our user, as `sudo -u ME` does; how many these were."""
    from mslaunch.agent.mpi.shm_cleanup import held
    from mslaunch.host.processes import family, is_exiting

    below = [pid for pid in family(pids) if pid not in pids and not is_exiting(pid)]
    shared |= held(below)
    killed = 0
    for pid in below:
        try:
            killed += _kill(pid)
        except ProcessLookupError:
            pass
    return killed


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def _children() -> list[int]:
    from mslaunch.host.processes import children, numbers, stat_fields

    me = os.getpid()
    if os.path.exists(f"/proc/{me}/task/{me}/children"):
        return children(me)
    return [pid for pid in numbers() if stat_fields(pid)[1:2] == [b"%d" % me]]  # without CONFIG_PROC_CHILDREN
