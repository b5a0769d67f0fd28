"""Who has opened a TCP connection to us: a user of this host, as the kernel's table of sockets says, or another host.

The table is proc(5)'s /proc/net/tcp, with the user of each socket.  It lists what is in our own network namespace, so
a process in a container with a network of its own counts as another host.
"""

from __future__ import annotations

import os
import sys

from mslaunch.datamodel.node_plan import ANY_HOST
from mslaunch.faststd import TYPE_CHECKING, struct
from mslaunch.host.own_addresses import addresses
from mslaunch.host.processes import read

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mslaunch.faststd import socket

_AF_INET, _AF_INET6 = 2, 10
_SOL_SOCKET, _SO_LINGER = 1, 13
_MOST = 64  # connections in one look at the table
_MAPPED = "::ffff:"  # an IPv4 address in a socket of IPv6


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
    table = read("/proc/net/tcp") + read("/proc/net/tcp6")
    found = [_stranger(visitor, hosts, table) for visitor in visitors]
    for visitor in visitors:
        visitor.setsockopt(_SOL_SOCKET, _SO_LINGER, struct.pack("ii", 1, 0))
        visitor.close()
    return found


def refusal(port: int, who: str) -> str:
    """What the user is told of the first that was refused."""
    return f"port {port} is kept for a service of this job; a connection of {who} was refused"


def _stranger(connection: socket, hosts: Collection[str], table: bytes) -> str | None:
    try:
        peer, own = (_plain(name()) for name in (connection.getpeername, connection.getsockname))
    except OSError:  # it has been reset
        return ""
    uid = _user(peer, own, table)
    if uid is not None:
        return None if uid == os.geteuid() else user_name(uid)
    address = peer[0]
    if address.startswith("127.") or address == "::1" or address in addresses():
        return ""
    return None if address in hosts or ANY_HOST in hosts else address


def _plain(name: tuple[str, int]) -> tuple[str, int]:
    """Address and port, as one writes them."""
    address = name[0].partition("%")[0]
    return (address[len(_MAPPED) :] if address.startswith(_MAPPED) else address), name[1]


def _user(peer: tuple[str, int], own: tuple[str, int], table: bytes) -> int | None:
    """The user whose socket is `peer`; None if it is not of this host, or no process has it any more.

    Columns: number, local address, remote one, state, queues, timer, retransmissions, user, timeout, inode.
    """
    for mapped in ("", _MAPPED) if ":" not in peer[0] else ("",):
        row = b": %s:%04X %s:%04X " % (column(mapped + peer[0]), peer[1], column(mapped + own[0]), own[1])
        at = table.find(row)
        if at >= 0:
            words = table[at : table.find(b"\n", at)].split()
            return int(words[7]) if words[9] != b"0" else None
    return None


def column(address: str) -> bytes:
    """An address as in the table: 32 bits at a time, in the order of this machine."""
    import _socket

    packed = _socket.inet_pton(_AF_INET6 if ":" in address else _AF_INET, address)
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return b"".join(b"%08X" % word for word in words)


def user_name(uid: int) -> str:
    """`user NAME`."""
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
