"""Whose the other end of a TCP connection is, where it is on the same host: the kernel's table of sockets tells.

A socket belongs to the user that made it, also after it was handed on; only root can change that.
"""

from __future__ import annotations

from mslaunch.faststd import socket, struct
from mslaunch.host.tcp_peers import column

_AF_INET6, _AF_NETLINK, _SOCK_RAW = 10, 16, 3
_IPPROTO_TCP, _NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 6, 4, 20, 1
_ESTABLISHED = 1
_ANY_STATE, _ANY_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_MESSAGE = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBBI")  # inet_diag_req_v2: family, protocol, what else is wanted, padding, states
_FOUND = struct.Struct("=BBBB48xIIIII")  # inet_diag_msg: family, state, … expires, queues, uid, inode
_PATIENCE = 1.0  # seconds that the kernel may take


def owner(fd: int) -> int | None:
    """The uid at the other end of the connection `fd`.

    None: no process of this host has that end open, so it is on another host, or closed already.
    """
    sock = socket(fileno=fd)
    try:
        ours, theirs = sock.getsockname(), sock.getpeername()
        uid = _asked(sock.family, theirs, ours)
        uid = _in_table(theirs, ours, sock.family) if uid is None else uid
        sock.getpeername()  # else these addresses may be those of another connection by now
        return uid
    except OSError:  # it was reset
        return None
    finally:
        sock.detach()


def _asked(family: int, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The owner of the socket with these ends, by sock_diag(7); None if there is none, or the kernel does not tell."""
    ends = struct.pack("!HH", local[1], remote[1]) + _packed(family, local[0]) + _packed(family, remote[0])
    request = _REQUEST.pack(family, _IPPROTO_TCP, 0, 0, _ANY_STATE) + ends + struct.pack("=IQ", 0, _ANY_COOKIE)
    try:
        netlink = socket(_AF_NETLINK, _SOCK_RAW, _NETLINK_SOCK_DIAG)
    except OSError:
        return None
    try:
        netlink.settimeout(_PATIENCE)
        netlink.send(_MESSAGE.pack(_MESSAGE.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + request)
        answer = netlink.recv(1 << 12)
    except OSError:
        return None
    finally:
        netlink.close()
    if len(answer) < _MESSAGE.size + _FOUND.size or _MESSAGE.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    _, state, _, _, _, _, _, uid, inode = _FOUND.unpack_from(answer, _MESSAGE.size)
    return uid if state == _ESTABLISHED and inode else None


def _packed(family: int, address: str) -> bytes:
    import _socket

    return _socket.inet_pton(family, address.partition("%")[0]).ljust(16, b"\0")


def _in_table(local: tuple[str, int], remote: tuple[str, int], family: int) -> int | None:
    """The same from /proc/net/tcp, for which the kernel looks through all its sockets."""
    wanted = [b"%s:%04X" % (column(end[0].partition("%")[0]), end[1]) for end in (local, remote)]
    try:
        with open("/proc/net/tcp6" if family == _AF_INET6 else "/proc/net/tcp", "rb") as file:
            for line in file:
                words = line.split(None, 10)
                if words[1:3] == wanted and int(words[3], 16) == _ESTABLISHED and words[9] != b"0":
                    return int(words[7])
    except OSError:
        pass
    return None
