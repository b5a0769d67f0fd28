"""The processes that hold accelerators of this host open, though the ranks of the attempt before have ended.

Found by the links in /proc/PID/fd, which this user may read of its own processes, and root of all.  A process that is
older than the job is left out: it is a daemon, or somebody's who has the device anyway.  So is one of another job of
mslaunch, which may have other devices: both would be waited for in vain.  One that is being killed shows no
descriptors, while the driver may still free its memory; so it counts as well.
"""

from __future__ import annotations

import os
import time

from mslaunch.agent.ranks.devices import visible
from mslaunch.datamodel.device_kinds import AMD, ASCEND, INTEL, NVIDIA
from mslaunch.datamodel.node_plan import JOB_MARK
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.processes import is_exiting, link, numbers, read, stat_fields
from mslaunch.host.system_files import head_of, listed
from mslaunch.protocol import frames
from mslaunch.protocol.held_devices import MOST, Holder, pack_holders, unpack_question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

#: a folder of /dev, what the names there begin with before a number, and the kinds whose ranks open them; (): others
_FILES = (
    ("", "nvidia", (NVIDIA,)),
    ("", "davinci", (ASCEND,)),
    ("", "kfd", (AMD,)),
    ("/dri", "renderD", (AMD, INTEL)),
    ("", "accel", ()),
    ("/accel", "accel", ()),
)
_ONE = "kfd"  # serves all devices, and has no number
_NUMBERED = (NVIDIA, ASCEND)  # kinds whose names in --devices are the numbers of their files
_DESCRIPTORS = 1 << 16  # of a process that are looked at
_PASSWD = 1 << 20  # bytes of /etc/passwd that are searched


def handle(context: Any, frame: frames.Frame) -> None:
    """HELD; `context` is the `AgentContext`, whose module imports from this folder."""
    context.link.send(frames.HOLDERS, frames.NO_RANK, answer(frame.payload, context.environ))


def answer(payload: bytes, environ: Mapping[str, str], root: str = "") -> bytes:
    """The payload of HOLDERS, for that of HELD; `environ` is what ranks inherit, `root` a folder with a /dev."""
    question = unpack_question(payload)
    files = device_files(environ, question.names, root)
    return pack_holders(holders(files, question.seconds, question.jobid)[:MOST] if files else [])


def device_files(environ: Mapping[str, str], names: Sequence[str], root: str = "") -> set[str]:
    """The paths of the accelerators that ranks may use: those that `names` has, if these are numbers, or all."""
    hidden = [kind for kind in (NVIDIA, ASCEND, AMD, INTEL) if visible(environ.get(kind.variable)) == []]
    chosen = set(names) if names and all(name.isascii() and name.isdigit() for name in names) else None
    found = set()
    for folder, prefix, kinds in _FILES:
        if kinds and all(kind in hidden for kind in kinds):
            continue
        some = chosen if any(kind in _NUMBERED for kind in kinds) else None
        for name in listed(f"{root}/dev{folder}"):
            number = name[len(prefix) :]
            fits = not number if prefix == _ONE else number.isascii() and number.isdigit()
            if name.startswith(prefix) and fits and (some is None or number in some):
                found.add(f"{root}/dev{folder}/{name}")
    return found


def holders(files: set[str], seconds: float, jobid: str = "") -> list[Holder]:
    """The processes that have begun in the last so many seconds, and hold one of these files or are being killed.

    Those that have the mark of another job than `jobid` are left out.
    """
    began = (time.clock_gettime(time.CLOCK_BOOTTIME) - seconds) * os.sysconf("SC_CLK_TCK")
    found = []
    for pid in numbers():
        fields = stat_fields(pid)
        if len(fields) < 20 or int(fields[19]) < began:
            continue
        ended = fields[0] == b"Z"  # its first thread; others may still hang in a driver
        if ended and int(fields[17]) < 2:
            continue
        held = _held(pid, files, numbers(f"/proc/{pid}/task") if ended else ())
        if not _is_of_another_job(pid, jobid) if held else (_is_ours(pid) and is_exiting(pid)):
            found.append(Holder(pid, os.fsdecode(read(f"/proc/{pid}/comm").strip()), _user(pid), held))
    return found


def _held(pid: int, files: set[str], threads: Sequence[int] = ()) -> str:
    """The first of the files that a process has open, or ""; where its first thread has ended, as `threads` have."""
    found: set[str] = set()
    for folder in [f"task/{thread}/fd" for thread in threads] or ["fd"]:
        descriptors = listed(f"/proc/{pid}/{folder}")[:_DESCRIPTORS]
        found |= files.intersection(link(pid, f"{folder}/{number}") for number in descriptors)
    return min(found, default="")


def _is_of_another_job(pid: int, jobid: str) -> bool:
    """A process whose environment names a job; nobody else's can be read."""
    marks = [word for word in read(f"/proc/{pid}/environ").split(b"\0") if word.startswith(JOB_MARK.encode())]
    return bool(marks) and marks[-1] != f"{JOB_MARK}{jobid}".encode()


def _is_ours(pid: int) -> bool:
    return _owner(pid) == os.geteuid()


def _owner(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def _user(pid: int) -> str:
    """The name of its user in /etc/passwd, or the number: a name service would have to be waited for."""
    owner = str(_owner(pid))
    for line in os.fsdecode(head_of("/etc/passwd", _PASSWD)).splitlines():
        words = line.split(":")
        if words[2:3] == [owner]:
            return words[0]
    return owner
