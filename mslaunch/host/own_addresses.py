"""The addresses of this host, of its interfaces and as others see it, and whether a name means it."""

from __future__ import annotations

import os

from mslaunch.faststd import socket, struct

_AF_INET, _AF_INET6 = 2, 10
_ANY_PORT = 9
_AI_NUMERICHOST = 4
# netlink(7), rtnetlink(7)
_AF_NETLINK, _SOCK_RAW = 16, 3
_RTM_NEWADDR, _RTM_GETADDR, _REQUEST_DUMP = 20, 22, 0x301
_IFA_ADDRESS, _IFA_LOCAL, _SCOPE_LINK = 1, 2, 253
_HEAD = struct.Struct("=IHHIIBBBBI")  # nlmsghdr, ifaddrmsg
_SECONDS = 2.0  # for an answer of the kernel, which has it at once
_MAPPED = "::ffff:"  # an IPv4 address in a socket of IPv6


def addresses() -> list[str]:
    """The numeric addresses of this node's interfaces, IPv6 without link-local ones.

    Addresses of bridges come late and loopback last: containers and virtual machines are behind most bridges, and other
    hosts may have a bridge with the same address (docker0, virbr0).
    """
    try:
        known = _of_interfaces()
    except OSError:
        known = [("127.0.0.1", 0)]
    bridges = {index for index in dict(known).values() if _is_bridge(index)}
    known.sort(key=lambda found: (is_loopback(found[0]), found[1] in bridges, ":" in found[0]))
    return list(dict(known))


def _is_bridge(index: int) -> bool:
    """Whether the interface with this number is a bridge (Documentation/ABI/testing/sysfs-class-net of Linux)."""
    import _socket

    try:
        return os.path.isdir(f"/sys/class/net/{_socket.if_indextoname(index)}/bridge")
    except OSError:  # it has gone
        return False


def is_loopback(address: str) -> bool:
    """Whether it leads from each host to itself."""
    return address.startswith("127.") or address == "::1"


def leads_back(sock: socket) -> bool:
    """Whether the address that `sock` is connected to belongs to the host that it was called from.

    The same private address, of a bridge for containers for example, is on many hosts, and leads each to itself.  The
    kernel calls a secondary address of an interface from the primary one, so that the ends differ (`ip route show table
    local`).  Of loopback, only the same address at both ends counts, so that tests can use 127.0.0.2 as another host.
    """
    own, other = (bare_address(found[0]) for found in (sock.getsockname(), sock.getpeername()))
    return own == other or (not is_loopback(other) and other in addresses())


def bare_address(address: str) -> str:
    """An address of a socket without an interface; one of IPv4 on a socket of IPv6 as that of IPv4 (RFC 4291)."""
    number = address.partition("%")[0]
    return number[len(_MAPPED) :] if number.startswith(_MAPPED) else number


def network_stack() -> str:
    """A word for the network stack of this process: the boot of its kernel, and its namespace; "" if it is not known.

    Processes with the same word have the same addresses, and each address leads to all of them.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/net')}"
    except OSError:
        return ""


def _of_interfaces() -> list[tuple[str, int]]:
    """Addresses and the numbers of their interfaces, by RTM_GETADDR; raises OSError.

    (SIOCGIFCONF needs `array`, whose import costs 5 ms.)
    """
    sock = socket(_AF_NETLINK, _SOCK_RAW, 0)
    found: list[tuple[str, int]] = []
    try:
        sock.settimeout(_SECONDS)
        sock.send(_HEAD.pack(_HEAD.size, _RTM_GETADDR, _REQUEST_DUMP, 1, 0, 0, 0, 0, 0, 0))
        while _take(sock.recv(1 << 16), found):
            pass
    finally:
        sock.close()
    return found


def _take(data: bytes, found: list[tuple[str, int]]) -> bool:
    """Add the addresses of one datagram; whether more are to come."""
    import _socket

    while len(data) >= _HEAD.size:
        size, kind, _, _, _, family, _, _, scope, index = _HEAD.unpack_from(data)
        if kind != _RTM_NEWADDR:
            return False
        its = _attributes(data[_HEAD.size : size])
        address = its.get(_IFA_LOCAL) or its.get(_IFA_ADDRESS)  # where both are there, the second is the peer's
        if address and (family == _AF_INET or (family == _AF_INET6 and scope != _SCOPE_LINK)):
            found.append((_socket.inet_ntop(family, address), index))
        data = data[max(size + 3 & ~3, _HEAD.size) :]
    return not data


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        if size < 4:
            break
        found[kind] = data[4:size]
        data = data[(size + 3) & ~3 :]
    return found


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
    name = host.encode() if host.isascii() else host  # of a str the module makes IDNA, by `re`, which is slow to import
    try:
        found = _socket.getaddrinfo(name, _ANY_PORT, 0, _socket.SOCK_DGRAM, 0, flags)
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
