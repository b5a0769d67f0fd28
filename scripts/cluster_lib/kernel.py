"""System calls for which Python has no function, and handles of processes.

A pidfd is the handle that is signalled, the event that reports the end of the process, and (Linux 5.8) the way into all
its namespaces at once; so no number is looked up twice, and a reused pid is never signalled.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
from typing import NamedTuple

from cluster_lib import ClusterError

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MS_RDONLY, MS_REMOUNT = 0x1, 0x20

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP = 1, 24
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C  # netdevice(7)
_IFF_UP = 0x1
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def need_root() -> None:
    """Raise ClusterError if this is not root."""
    if os.geteuid() != 0:
        raise ClusterError("real hosts (mounts, port 22, login as root) need root: run this with sudo")


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    """setns(2); with a pidfd, `flags` may name several namespaces (Linux 5.8)."""
    _check(_libc.setns(fd, flags), "setns")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount {source} on {target}")


def die_with_parent(number: int) -> None:
    """Have the kernel send us this signal when our parent ends (0: no longer); prctl(2), PR_SET_PDEATHSIG."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0), "prctl")


def drop_capability(number: int) -> None:
    """No program that this process runs will have this capability; capabilities(7), prctl(2)."""
    _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)  # EINVAL: the kernel has fewer


def restore_signals() -> None:
    """Undo what the interpreter ignores, before an exec: otherwise every program of a host would ignore SIGPIPE."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def interface_up(name: str, address: str | None = None, netmask: str = "255.255.0.0") -> None:
    """Give an interface of this network namespace its IPv4 address, if any, and raise it; netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:

        def set_address(request: int, text: str) -> None:
            sockaddr = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))
            fcntl.ioctl(sock, request, struct.pack("16s16s8x", name.encode(), sockaddr))

        if address is not None:
            set_address(_SIOCSIFADDR, address)
            set_address(_SIOCSIFNETMASK, netmask)
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh22x", name.encode(), _IFF_UP))


def make_tap(name: str) -> int:
    """Make a TAP interface in this network namespace: what is written to the descriptor arrives there, and back."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return fd


class Process(NamedTuple):
    """One process and no other: `start` (ticks since boot, proc(5)) excludes a later one with the same pid."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now.  Raises ProcessLookupError."""
        found = _stat(pid)
        if found is None:
            raise ProcessLookupError(f"no process {pid}")
        return cls(pid, found[1])

    @property
    def alive(self) -> bool:
        """False once it has ended, though its parent may not have looked yet (state Z)."""
        found = _stat(self.pid)
        return found is not None and found[1] == self.start and found[0] not in "ZX"

    def open(self) -> int | None:
        """A pidfd of it, or None if it has ended."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.alive:  # asked after the opening: the descriptor is of this process or the answer is no
            return fd
        os.close(fd)
        return None

    def kill(self, timeout: float = 10.0) -> None:
        """SIGKILL, and wait until it has ended.  Raises ClusterError if that takes longer than `timeout` seconds."""
        fd = self.open()
        if fd is None:
            return
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            if not wait_readable([fd], timeout):
                raise ClusterError(f"process {self.pid} was killed but has not ended after {timeout:g} s")
        finally:
            os.close(fd)


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[19])


def wait_readable(fds: list[int], timeout: float) -> list[int]:
    """Those that are readable within `timeout` seconds; a pidfd is once its process has ended."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(max(0, timeout) * 1000)]
