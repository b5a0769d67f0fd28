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
from mslaunch.host.processes import link, read
from mslaunch.host.system_files import listed

_AF_UNIX, _SOCK_STREAM = 1, 1
_SOL_SOCKET, _SO_PEERCRED = 1, 17
_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid
# sock_diag(7), and linux/unix_diag.h for what its page leaves open
_AF_NETLINK, _SOCK_RAW, _NETLINK_SOCK_DIAG = 16, 3, 4
_SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _UDIAG_SHOW_NAME, _UNIX_DIAG_NAME = 20, 1, 1, 0
_ANY_STATE, _ANY_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_MESSAGE = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBHIIIQ")  # unix_diag_req: family, protocol, padding, states, inode, what, cookie
_FOUND_SIZE = 16  # unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
_PATIENCE = 1.0  # seconds that the kernel may take
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
    sockets: dict[str, set[str]] = {}
    for inode, name in (row for row in rows if len(row) == 2):
        pid = name[len(prefix) :].partition(" ")[0]
        claimed = name[1:].rstrip("\n")
        if not name.startswith(prefix) or not pid.isdigit():
            continue
        if pid not in sockets:  # once: another user can name one of our processes in any number of rows
            sockets[pid] = _sockets(pid)
        if f"socket:[{inode}]" in sockets[pid] and _is_held(claimed, inode):
            found.append(claimed)
    return found


def _sockets(pid: str) -> set[str]:
    """The sockets that a process has open, if it is ours; Linux does not show those of other users."""
    try:
        ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return set()
    if not ours or f"\nTgid:\t{pid}\n".encode() not in read(f"/proc/{pid}/status"):  # or it is one of many threads
        return set()
    return {link(int(pid), f"fd/{fd}") for fd in listed(f"/proc/{pid}/fd")}


def _is_held(name: str, inode: str) -> bool:
    """Whether a process of ours listens at this abstract name, as the kernel tells a process that connects.

    `inode`: a socket of ours that is said to have the name.
    """
    sock = socket(_AF_UNIX, _SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(f"\0{name}")
        uid = _CREDENTIALS.unpack(sock.getsockopt(_SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size))[1]
        return bool(uid == os.geteuid())
    except BlockingIOError:  # too many have asked
        return _name_of(int(inode)) == f"\0{name}".encode("utf-8", "replace")
    except OSError:
        return False
    finally:
        sock.close()


def _name_of(inode: int) -> bytes:
    """The name of a Unix socket by sock_diag(7), which does not mix it with other text; empty if it is not told."""
    request = _REQUEST.pack(_AF_UNIX, 0, 0, _ANY_STATE, inode, _UDIAG_SHOW_NAME, _ANY_COOKIE)
    try:
        netlink = socket(_AF_NETLINK, _SOCK_RAW, _NETLINK_SOCK_DIAG)
    except OSError:
        return b""
    try:
        netlink.settimeout(_PATIENCE)
        netlink.send(_MESSAGE.pack(_MESSAGE.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + request)
        answer = netlink.recv(1 << 12)
    except OSError:
        return b""
    finally:
        netlink.close()
    at = _MESSAGE.size + _FOUND_SIZE
    if len(answer) < at + _ATTRIBUTE.size or _MESSAGE.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return b""
    size, kind = _ATTRIBUTE.unpack_from(answer, at)  # the name comes first, where there is one
    return answer[at + _ATTRIBUTE.size : at + size] if kind == _UNIX_DIAG_NAME else b""
