"""Other processes of this host, as /proc shows them: their states, their descent, what each was started with.

A process may vanish at any time, or belong to another user: what cannot be read is empty, and no error.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING, signal
from mslaunch.host.system_files import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_PF_EXITING = 4
_ROUNDS = 100  # a process that cannot be killed, or forks faster than we look, must not hold us up for ever


def read(path: str) -> bytes:
    """A file's bytes."""
    try:
        with open(path, "rb", 0) as file:
            return file.read()
    except OSError:
        return b""


def numbers(folder: str = "/proc") -> list[int]:
    """The processes in /proc, or the threads in /proc/PID/task."""
    return [int(name) for name in listed(folder) if name.isdigit()]


def stat_fields(task: object) -> list[bytes]:
    """The fields of /proc/TASK/stat from the state on: state, parent, group, session, …; `task` is a pid, or more.

    proc(5): the name before them is in parentheses, and may itself hold spaces and parentheses.
    """
    return read(f"/proc/{task}/stat").rpartition(b")")[2].split()


def is_exiting(pid: int) -> bool:
    """Whether it is on its way out: others may see its connections closed before it can be reaped."""
    fields = stat_fields(pid)
    return bool(fields) and (fields[0] == b"Z" or bool(int(fields[6]) & _PF_EXITING))


def is_ours(pid: int) -> bool:
    """Whether a process has our user id for all of its own: real, effective, saved and of the file system, proc(5).

    One that has dropped our rights, or has others' beside them, is not; nor is one that has ended.
    """
    return ids(pid, b"Uid:") == {os.geteuid()}


def other_users(pids: Iterable[int]) -> set[int]:
    """The user ids of these processes that are neither ours nor root's, who has our rights anyway."""
    return {user for pid in pids for user in ids(pid, b"Uid:")} - {os.geteuid(), 0}


def identity(pid: int) -> tuple[bytes, set[int], set[int]] | None:
    """When a process began, its users and groups; None unless it is ours.

    What is read between two equal ones was read from one process, which had our rights: neither was its number given to
    another one meanwhile, nor has it become a setuid program.
    """
    fields, users = stat_fields(pid), ids(pid, b"Uid:")
    return (fields[19], users, ids(pid, b"Gid:")) if len(fields) > 19 and users == {os.geteuid()} else None


def ids(pid: int, field: bytes) -> set[int]:
    """The numbers of a line of /proc/PID/status, such as "Uid:" or "Groups:"."""
    lines = read(f"/proc/{pid}/status").split(b"\n")
    return {int(word) for line in lines if line.startswith(field) for word in line.split()[1:]}


def children(pid: int) -> list[int]:
    """What a process has started or adopted; none where the kernel does not tell (CONFIG_PROC_CHILDREN)."""
    files = [f"/proc/{pid}/task/{thread}/children" for thread in numbers(f"/proc/{pid}/task")]
    return [int(word) for file in files for word in read(file).split()]


def kill_marked(mark: str, found_are: Callable[[Sequence[int]], None]) -> int:
    """Kill every process of ours that was started with `mark` ("NAME=value") in its environment; how many these were.

    Again until there is none, since one may have forked meanwhile.  This process is spared, and what another user runs.
    `found_are` gets their numbers before they are killed.
    """
    word = os.fsencode(mark)
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        found = [pid for pid in numbers() if pid != os.getpid() and word in read(f"/proc/{pid}/environ").split(b"\0")]
        found_are(found)
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            except OSError:  # it has ended, or is not ours
                pass
        if not found:
            break
    return len(killed)


def family(roots: Sequence[int]) -> Iterator[int]:
    """The roots; then what they started, parents before children.

    A process whose parent is gone counts as a child of its session's leader.
    """
    yield from roots
    below: dict[int, list[int]] = {}
    leaders = set(roots)
    for pid in numbers():
        fields = stat_fields(pid)
        if len(fields) > 3:
            parent, session = int(fields[1]), int(fields[3])
            for above in {parent, session} if session in leaders else (parent,):
                below.setdefault(above, []).append(pid)
    wave = list(roots)
    reached = set(wave)
    while wave:
        wave = [child for pid in wave for child in below.get(pid, ()) if child not in reached]
        reached.update(wave)
        yield from wave


def strings(pid: int, what: str) -> list[str]:
    """The words of /proc/PID/cmdline or environ."""
    return [os.fsdecode(word) for word in read(f"/proc/{pid}/{what}").split(b"\0")[:-1]]


def link(pid: int, what: str) -> str:
    """Where /proc/PID/WHAT leads to."""
    try:
        return os.readlink(f"/proc/{pid}/{what}")
    except OSError:
        return ""
