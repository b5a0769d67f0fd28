"""Reads of files and directories, and who else can change one; what cannot be read is empty."""

from __future__ import annotations

import os
import stat

#: how a file that somebody else may have put there is opened: neither waiting for a writer nor taking a terminal
OPEN_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def head_of(path: str, size: int, offset: int = 0, flags: int = 0, folder: int | None = None) -> bytes:
    """At most `size` bytes of a regular file, and nothing of anything else; `flags` may forbid to follow a link.

    `folder`: the descriptor of a directory that a relative path is in.
    """
    try:
        found = os.stat(path, dir_fd=folder)
        if not stat.S_ISREG(found.st_mode):  # to open a FIFO takes its writer from the program that it is for
            return b""
        fd = os.open(path, OPEN_READ | flags, dir_fd=folder)
    except (OSError, ValueError):
        return b""
    try:
        return os.pread(fd, size, offset) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(fd)


def listed(folder: str) -> list[str]:
    """The names in a directory."""
    try:
        return os.listdir(folder)
    except (OSError, ValueError):
        return []


# --- who else can change it


def who_else(found: os.stat_result) -> str:
    """Which other users can change a file, or put files into a directory; "" if only we and root can.

    The rule is ssh's for ~/.ssh/config.  The group may write if it is our own and has no other member.
    """
    if found.st_uid not in (0, os.geteuid()):
        return f"user {found.st_uid}"
    if found.st_mode & stat.S_IWOTH:
        return "every user"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"group {found.st_gid}"
    return ""


def _is_private(gid: int) -> bool:
    """Whether the group is our own and has no other member: Debian's umask 002, and Debian's ssh, allow that."""
    import grp
    import pwd

    try:
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)}
    return me.pw_gid == gid and members == {me.pw_name}
