"""The addresses of this host, of its interfaces and as others see it, and whether a name means it."""

from __future__ import annotations

import fcntl
import os

from mslaunch.faststd import socket

_AF_INET, _AF_INET6, _SOCK_DGRAM = 2, 10, 2
_SIOCGIFCONF = 0x8912
_ANY_PORT = 9
_AI_NUMERICHOST = 4


def addresses() -> list[str]:
    """The numeric addresses of this node's interfaces, loopback last; IPv6 without link-local ones."""
    found = _ipv4() + _ipv6()
    return sorted(dict.fromkeys(found), key=lambda address: address.startswith("127.") or address == "::1")


def _ipv4() -> list[str]:
    """netdevice(7), SIOCGIFCONF: 40 bytes an interface, the address at offset 20."""
    import array
    import struct

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
    import _socket

    try:
        with open("/proc/net/if_inet6") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [_socket.inet_ntop(_AF_INET6, bytes.fromhex(line[0])) for line in lines if line[3] != "20"]


def is_local(name: str) -> bool:
    """Whether `name` means this host: one of its names, or the address of an interface; no name service is asked.

    127.0.0.2 and its like count as other hosts, so that tests can use them as such.
    """
    own = os.uname().nodename
    if name in ("localhost", "127.0.0.1", "::1", "localhost.localdomain", own, own.split(".")[0]):
        return True
    if name.replace(".", "").isdigit() or ":" in name:
        return not name.startswith("127.") and name in addresses()
    return False


def source_address(host: str, resolve: bool = False) -> str:
    """The address of ours that `host` sees, by the kernel's routing table; "" if there is no way to it.

    No packet is sent: connect(2) of a datagram socket only chooses a route.

    `host` is an IP address (IPv6 perhaps with %interface), or, with `resolve`, a name, as ssh would look it up.
    """
    import _socket

    flags = 0 if resolve else _AI_NUMERICHOST
    try:
        found = _socket.getaddrinfo(host, _ANY_PORT, 0, _socket.SOCK_DGRAM, 0, flags)
    except (OSError, UnicodeError):
        return ""
    for family, kind, protocol, _, target in found:
        sock = _socket.socket(family, kind, protocol)
        try:
            sock.connect(target)
            own, _, interface = str(sock.getsockname()[0]).partition("%")
        except OSError:
            continue
        finally:
            sock.close()
        interface = host.partition("%")[2] or interface  # as the caller writes it: eth0, or its number
        return f"{own}%{interface}" if interface else own
    return ""
