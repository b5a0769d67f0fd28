"""Signals that ask a program to end or to save, for a rank that may be a shell.

A shell waits for the program that it runs, and passes no signal on; by SIGTERM it dies at once, and its rank has ended
before the program could save.  So the signal goes to the program, and the shell is held back meanwhile.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.processes import children, link, read, stat_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mslaunch.runtime.loop import Loop

_SHELLS = {"sh", "dash", "bash", "zsh", "ksh", "ksh93", "mksh", "ash", "busybox", "csh", "tcsh", "fish"}
_LOOK = 0.02  # seconds between looks at programs, whose end is an event for their shells only
#: shells that must not go on before their programs have ended: they would run what comes next
held_back: set[int] = set()


def ask(pid: int, signum: int) -> None:
    """Send a signal to a rank, the leader of a process group, or to what it runs if it is a shell.

    A shell that handles or ignores the signal gets it as well.
    """
    for each in [each for each in _chain(pid) if not _is_held(each, signum)] or [pid]:
        send(each, signum)


def ask_to_end(pid: int, loop: Loop, running: Callable[[], bool]) -> None:
    """The same with SIGTERM; each shell that would die is stopped until what it runs has ended, and gets it then.

    The rest of the group is for `end_group`, once the rank is no more `running()`.
    """
    held: dict[int, list[int]] = {}
    for each in _chain(pid, held):
        if each not in held:
            send(each, signal.SIGTERM)

    def look() -> None:
        held_back.difference_update(held)
        for shell, programs in list(held.items()) if running() else ():
            if any(map(_lives, programs)):
                send(shell, signal.SIGSTOP)  # again: Ctrl-Z and fg continue all of a rank
            else:
                del held[shell]
                send(shell, signal.SIGTERM)
                send(shell, signal.SIGCONT)
        wait()

    def wait() -> None:
        if held and running():
            held_back.update(held)
            loop.after(_LOOK, look)

    wait()


def end_group(pid: int) -> None:
    """SIGTERM for the group of a rank, stopped shells included; a group that still exists keeps its number."""
    for signum in (signal.SIGTERM, signal.SIGCONT):
        try:
            os.killpg(pid, signum)
        except OSError:
            return


def send(pid: int, signum: int) -> None:
    """Send a signal to a process that may have ended, or run as another user by now."""
    try:
        os.kill(pid, signum)
    except OSError:
        pass


def _chain(pid: int, held: dict[int, list[int]] | None = None) -> list[int]:
    """A process; if it is a shell, also what it runs within the group, and so on.

    With `held`, shells that SIGTERM would kill are stopped before it is read what they run, which is added there.
    """
    found = [pid]
    for each in found:  # which grows
        if os.path.basename(link(each, "exe")) not in _SHELLS or not _runs(each, pid):
            continue
        if held is not None and _is_held(each, signal.SIGTERM):
            send(each, signal.SIGSTOP)
            held[each] = _runs(each, pid)
        found += _runs(each, pid)
    return found


def _runs(shell: int, group: int) -> list[int]:
    return [each for each in children(shell) if _lives(each) and stat_fields(each)[2:3] == [b"%d" % group]]


def _is_held(pid: int, signum: int) -> bool:
    """Whether it is a shell that runs something, and that the signal would kill."""
    if os.path.basename(link(pid, "exe")) not in _SHELLS or not any(map(_lives, children(pid))):
        return False
    return not _handles(read(f"/proc/{pid}/status").split(b"\n"), signum)


def _handles(status: Iterable[bytes], signum: int) -> bool:
    """Whether a process handles or ignores a signal; proc(5)."""
    bit = 1 << signum - 1
    return any(int(line.split()[1], 16) & bit for line in status if line.startswith((b"SigIgn:", b"SigCgt:")))


def _lives(pid: int) -> bool:
    return stat_fields(pid)[:1] not in ([], [b"Z"], [b"X"])
