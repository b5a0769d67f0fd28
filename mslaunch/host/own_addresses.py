"""The addresses of this host's network interfaces, read from the kernel."""

from __future__ import annotations

import fcntl
import struct

from mslaunch.faststd import socket

_AF_INET, _SOCK_DGRAM = 2, 2
_SIOCGIFCONF = 0x8912


def addresses() -> list[str]:
    """The numeric addresses of this node's interfaces, loopback last; IPv6 without link-local ones."""
    found = _ipv4() + _ipv6()
    return sorted(dict.fromkeys(found), key=lambda address: address.startswith("127.") or address == "::1")


def _ipv4() -> list[str]:
    """netdevice(7), SIOCGIFCONF: 40 bytes an interface, the address at offset 20."""
    import array

    buffer = array.array("B", bytes(40 * 256))
    asked = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
    sock = socket(_AF_INET, _SOCK_DGRAM)
    try:
        used = struct.unpack("iL", fcntl.ioctl(sock.fileno(), _SIOCGIFCONF, asked))[0]
    except OSError:
        return ["127.0.0.1"]
    finally:
        sock.close()
    return [".".join(map(str, buffer[at + 20 : at + 24])) for at in range(0, used, 40)]


def _ipv6() -> list[str]:
    """/proc/net/if_inet6: address, index, prefix length, scope (20 = link), flags, name."""
    try:
        with open("/proc/net/if_inet6") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    groups = [[line[0][at : at + 4].lstrip("0") or "0" for at in range(0, 32, 4)] for line in lines if line[3] != "20"]
    return [_shorten(group) for group in groups]


def _shorten(groups: list[str]) -> str:
    """RFC 5952: the first longest run of zero groups becomes "::"."""
    best, length, at = 0, 0, 0
    while at < 8:
        run = 0
        while at + run < 8 and groups[at + run] == "0":
            run += 1
        if run > length:
            best, length = at, run
        at += run or 1
    if length < 2:
        return ":".join(groups)
    return ":".join(groups[:best]) + "::" + ":".join(groups[best + length :])
