"""Claims to ports: two jobs of one user never choose the same one, not even while neither has bound it.

A port is given up 0.3 s before the scheduler takes it, and two jobs that choose from 8118 down must take different
ones.  A claim is a socket with an abstract name (unix(7)), gone with its process and seen by all that have this
network.  Such names belong to no user.  So each claim has a name that nobody can know before, and those of other users
do not count: nobody can take a port away by taking a name.
"""

from __future__ import annotations

import os
import time
from errno import EADDRINUSE

from mslaunch.faststd import socket, struct

_AF_UNIX, _SOCK_STREAM = 1, 1
_SOL_SOCKET, _SO_PEERCRED = 1, 17
_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid
_BACKLOG = 4096
_CLAIM = "mslaunch port "
_LOOKS = 8  # at the claims of others
_PAUSE = 0.002  # seconds between two looks


def claim(port: int) -> socket:
    """Claim a port; raises OSError if another process of ours has a claim to it."""
    sock = socket(_AF_UNIX, _SOCK_STREAM)
    name = f"{_CLAIM}{port} {os.getpid()} {os.urandom(8).hex()}"
    try:
        sock.bind(f"\0{name}")
        sock.listen(_BACKLOG)  # nobody accepts: it tells whose the name is
        for _ in range(_LOOKS):
            others = [other for other in _claims(port) if other != name]
            if not others:
                return sock
            if min(others) < name:  # of two that come at the same moment the first one of the alphabet may stay
                break
            time.sleep(_PAUSE)
    except OSError:
        sock.close()
        raise
    sock.close()
    raise OSError(EADDRINUSE, os.strerror(EADDRINUSE))


def _claims(port: int) -> list[str]:
    """The names of all claims of this user to a port.

    A name of another user may have line breaks, and what follows one may look like a row of ours.
    """
    prefix, found = f"@{_CLAIM}{port} ", []
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
            rows = [line.split(None, 7)[6:] for line in file if prefix in line]  # proc(5): inode, name
    except OSError:
        return []
    for inode, name in (row for row in rows if len(row) == 2):
        pid = name[len(prefix) :].partition(" ")[0]
        claimed = name[1:].rstrip("\n")
        if name.startswith(prefix) and pid.isdigit() and _has_socket(pid, inode) and _is_held(claimed):
            found.append(claimed)
    return found


def _has_socket(pid: str, inode: str) -> bool:
    """Whether this socket is open in this process of ours; those of other users do not let us look."""
    try:
        ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
        return ours and any(
            os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]" for fd in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


def _is_held(name: str) -> bool:
    """Whether a process of ours listens at this abstract name, as the kernel says to whom connects."""
    sock = socket(_AF_UNIX, _SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(f"\0{name}")
        uid = _CREDENTIALS.unpack(sock.getsockopt(_SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size))[1]
        return bool(uid == os.geteuid())
    except BlockingIOError:  # too many have asked
        return True
    except OSError:
        return False
    finally:
        sock.close()
