"""Whose the other end of a TCP connection is: a user of this host, by the kernel's table of sockets, or another host.

A socket belongs to the user that made it, also after it was handed on; only root can change that.  The table lists what
is in our own network namespace, so a process in a container with a network of its own counts as another host.  An IPv4
connection has one entry for each end, whether its socket is one of IPv4 or one of IPv6 with mapped addresses.
"""

from __future__ import annotations

import os
import sys
from errno import ENOENT

from mslaunch.datamodel.node_plan import ANY_HOST
from mslaunch.faststd import TYPE_CHECKING, socket, struct
from mslaunch.host.own_addresses import addresses, bare_address, is_loopback
from mslaunch.host.processes import read

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_AF_INET, _AF_INET6, _AF_NETLINK, _SOCK_RAW = 2, 10, 16, 3
_SOL_SOCKET, _SO_LINGER = 1, 13
_IPPROTO_TCP, _NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NLMSG_ERROR = 6, 4, 20, 1, 2
_CONNECTED = (1, 4, 5, 8)  # ESTABLISHED, FIN_WAIT1 and 2, CLOSE_WAIT: not one that begins at the same address just now
_ANY_STATE, _ANY_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_MESSAGE = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBBI")  # inet_diag_req_v2: family, protocol, what else is wanted, padding, states
_FOUND = struct.Struct("=BBBB48xIIIII")  # inet_diag_msg: family, state, … expires, queues, uid, inode
_ERROR = struct.Struct("=i")  # nlmsgerr: a negative errno
_NOBODY = -1
_PATIENCE = 1.0  # seconds that the kernel may take
_MOST = 64  # connections that are reset at a time
_MAPPED = "::ffff:"  # an IPv4 address in a socket of IPv6


def owner(fd: int) -> int | None:
    """The uid at the other end of the connection `fd`.

    None: no process of this host has that end open, so it is on another host, or closed already.
    """
    sock = socket(fileno=fd)
    try:
        return _owner(sock, [])
    except OSError:  # it was reset
        return None
    finally:
        sock.detach()


def turn_away(accept: Callable[[], socket], hosts: Collection[str]) -> list[str | None]:
    """Accept and reset all connections that wait.

    For each None if our own user has opened it, or a process on one of `hosts`; else who it was, "" if unknown.  What a
    process of this host has opened and closed meanwhile is unknown.
    """
    visitors: list[socket] = []
    try:
        while len(visitors) < _MOST:
            visitors.append(accept())
    except OSError:  # there is no more, or the next one has been reset
        pass
    table: list[bytes] = []
    found = [_stranger(visitor, hosts, table) for visitor in visitors]
    for visitor in visitors:
        visitor.setsockopt(_SOL_SOCKET, _SO_LINGER, struct.pack("ii", 1, 0))
        visitor.close()
    return found


def refusal(port: int, who: str) -> str:
    """What the user is told of the first that was refused."""
    return f"port {port} is kept for a service of this job; a connection of {who} was refused"


def _stranger(connection: socket, hosts: Collection[str], table: list[bytes]) -> str | None:
    try:
        address = _plain(connection.getpeername())[0]
        uid = _owner(connection, table)
    except OSError:  # it has been reset
        return ""
    if uid is not None:
        return None if uid == os.geteuid() else user_name(uid)
    if is_loopback(address) or address in addresses():
        return ""
    return None if address in hosts or ANY_HOST in hosts else address


def _owner(connection: socket, table: list[bytes]) -> int | None:
    """The user of the other end; `table` keeps what was read of the kernel's table.  Raises OSError: it was reset."""
    peer, own = _plain(connection.getpeername()), _plain(connection.getsockname())
    uid = _asked(peer, own)
    if uid is None:  # never only because the other end is closed: any user could have the whole table read that way
        connection.getpeername()  # a connection that was reset is unknown to the kernel, too
        uid = _in_table(peer, own, table)
    connection.getpeername()  # else these addresses may be those of another connection by now
    return None if uid == _NOBODY else uid


def _plain(name: tuple[str, int]) -> tuple[str, int]:
    """Address and port, as one writes them."""
    return bare_address(name[0]), name[1]


def _asked(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """The owner of the socket at `peer`, or `_NOBODY`; None: the kernel does not tell."""
    found = _diagnosed(peer, own)
    if found:
        _, state, _, _, _, _, _, uid, inode = _FOUND.unpack(found)
        return uid if state in _CONNECTED and inode else _NOBODY
    if found == b"" and _diagnosed(own, peer):  # without its module tcp_diag, the kernel does not find our end either
        return _NOBODY
    return None


def _diagnosed(local: tuple[str, int], remote: tuple[str, int]) -> bytes | None:
    """What sock_diag(7) says of the TCP socket with these two addresses: b"" if there is none, None on other errors."""
    family = _family(local[0])
    ends = struct.pack("!HH", local[1], remote[1])
    ends += _packed(local[0]).ljust(16, b"\0") + _packed(remote[0]).ljust(16, b"\0")
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
    kind, said = _MESSAGE.unpack_from(answer)[1], answer[_MESSAGE.size :]
    if kind == _NLMSG_ERROR and _ERROR.unpack_from(said)[0] == -ENOENT:
        return b""
    return said[: _FOUND.size] if kind == _SOCK_DIAG_BY_FAMILY and len(said) >= _FOUND.size else None


def _in_table(peer: tuple[str, int], own: tuple[str, int], table: list[bytes]) -> int | None:
    """The owner from proc(5)'s /proc/net/tcp and tcp6, for which the kernel looks through all its sockets.

    Columns: number, local address, remote one, state, queues, timer, retransmissions, user, timeout, inode.
    """
    if not table:
        table.append(read("/proc/net/tcp") + read("/proc/net/tcp6"))
    for mapped in ("", _MAPPED) if ":" not in peer[0] else ("",):
        row = b": %s:%04X %s:%04X " % (column(mapped + peer[0]), peer[1], column(mapped + own[0]), own[1])
        at = table[0].find(row)
        if at >= 0:
            words = table[0][at : table[0].find(b"\n", at)].split()
            return int(words[7]) if int(words[3], 16) in _CONNECTED and words[9] != b"0" else None
    return None


def column(address: str) -> bytes:
    """An address as in the table: 32 bits at a time, in the order of this machine."""
    packed = _packed(address)
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return b"".join(b"%08X" % word for word in words)


def plain_address(text: bytes) -> str:
    """The address of such a column; an IPv4 one that stands in a socket of IPv6 as it is."""
    import _socket

    words = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return _plain((_socket.inet_ntop(_AF_INET if len(packed) == 4 else _AF_INET6, packed), 0))[0]


def _family(address: str) -> int:
    return _AF_INET6 if ":" in address else _AF_INET


def _packed(address: str) -> bytes:
    import _socket

    return _socket.inet_pton(_family(address), address)


def user_name(uid: int) -> str:
    """`user NAME`."""
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
