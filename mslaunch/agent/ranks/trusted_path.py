"""Whether only this user and root decide what a path leads to: asked before a program is run that was found there.

The names come from processes of the job, and such a process may run as another user by now.
"""

from __future__ import annotations

import os
import stat

from mslaunch.host.system_files import who_else

_LINKS = 40  # that a path may lead through, as in the kernel: path_resolution(7)


def is_trusted(path: str) -> bool:
    """Whether no other user can change the file of an absolute path, or exchange it, a directory or a link above it.

    Others can put entries into a directory with the sticky bit, such as /tmp, but cannot exchange ours: so it may be
    above the file's own directory if we own what lies in it.  A file of root's there may be somebody else's hard link.
    """
    try:
        return _leads_where_we_say(path)
    except OSError:  # a part of it is missing, or cannot be looked at
        return False


def _leads_where_we_say(path: str) -> bool:
    waiting, at, links = _parts(path), "/", 0
    found = os.lstat(at)
    while not _others_can_exchange(found):
        if not waiting:
            return stat.S_ISDIR(found.st_mode) or not who_else(found)
        part = waiting.pop()
        if part == "..":
            at = os.path.dirname(at)
            found = os.lstat(at)
            continue
        entry = os.lstat(os.path.join(at, part))
        if who_else(found) and (entry.st_uid != os.geteuid() or stat.S_ISREG(entry.st_mode)):
            return False
        if not stat.S_ISLNK(entry.st_mode):
            at, found = os.path.join(at, part), entry
            continue
        links += 1
        leads = os.readlink(os.path.join(at, part))
        if links > _LINKS or entry.st_uid not in (0, os.geteuid()):
            return False
        waiting += _parts(leads)
        if leads.startswith("/"):
            at, found = "/", os.lstat("/")
    return False


def _parts(path: str) -> list[str]:
    """Its parts, the first one last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _others_can_exchange(found: os.stat_result) -> bool:
    """Whether others can change a file, or exchange entries of a directory that are not their own."""
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and found.st_uid in (0, os.geteuid())
    return bool(who_else(found)) and not sticky
