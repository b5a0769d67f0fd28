"""Creates the cluster's processes: the anchor, the head and the hosts.

`up` forks the anchor, which is pid 1 of a pid namespace and owns the hub (a network namespace).  The anchor forks head
and hosts, each pid 1 of a pid namespace inside the anchor's, with its own network, mounts, names and IPC; a host's
pid 1 then becomes sshd, those of head and anchor become `sleep`.  So everything depends on one process: when the anchor
ends, the kernel ends the rest, and namespaces, mounts and links disappear with the last process, because none has a
name.  Until `up` sends "stay", the anchor dies with `up`.

`up` is outside and learns the pids through a unix socket: each process sends its name, and the kernel adds the sender's
pid as seen by the receiver (unix(7), SCM_CREDENTIALS).
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from cluster_lib import ClusterError, kernel, network, outfit
from cluster_lib.files import HEAD, Directory, Place

PATIENCE = 20.0  # seconds for any one step of `up`
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Plan(NamedTuple):
    """What `up` asked for, checked."""

    directory: Directory
    places: tuple[Place, ...]
    sshd: str
    keygen: str
    sleep: str
    delay: float | None  # ms; None with `loss` None: a plain bridge
    loss: float | None  # percent
    private_tmp: bool
    visible: tuple[str, ...] = ()  # directories that hosts find in a /tmp of their own

    @property
    def impaired(self) -> bool:
        """True if the network can delay and lose frames."""
        return self.delay is not None or self.loss is not None


class Gate(NamedTuple):
    """A pipe that nobody writes to: the places wait at it until the anchor closes `opener`."""

    wait: int
    opener: int


class Started(NamedTuple):
    """A place on its way: its pid as the anchor counts, and a socket to hear from it when its network can come."""

    name: str
    pid: int
    ready: socket.socket


# -- the anchor -------------------------------------------------------------------------------------------------


def start_anchor(plan: Plan) -> tuple[int, socket.socket]:
    """Fork the anchor; its pid, and the socket on which it and the places report (`read_report`)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ours.settimeout(PATIENCE)
    try:
        kernel.unshare(kernel.CLONE_NEWPID)  # of the children to come; we stay where we are
    except PermissionError:
        raise ClusterError(
            "this root may not make namespaces (no CAP_SYS_ADMIN): in a container, start that with --privileged"
        ) from None
    pid = os.fork()
    if pid == 0:
        ours.close()
        _end_with_report(theirs, lambda: _anchor(plan, theirs))
    theirs.close()
    return pid, ours


def read_report(sock: socket.socket) -> tuple[str, int]:
    """The next report and the pid of its sender.  Raises ClusterError if it is a failure, or on end or silence."""
    try:
        data, ancillary, _, _ = sock.recvmsg(4096, socket.CMSG_SPACE(12))
    except socket.timeout:
        raise ClusterError(f"the hosts were not made within {PATIENCE:g} s") from None
    if not data:
        raise ClusterError("the cluster ended while it was being made")
    if data[:1] == b"!":
        raise ClusterError(data[1:].decode(errors="replace"))
    pid = next((struct.unpack("iii", raw[:12])[0] for _, kind, raw in ancillary if kind == socket.SCM_CREDENTIALS), 0)
    return data.decode(), pid


def _end_with_report(report: socket.socket, work: Callable[[], None]) -> NoReturn:
    """Run what never returns in a forked child; a failure becomes a report."""
    try:
        work()
    except BaseException as error:
        what = str(error) if isinstance(error, (ClusterError, OSError)) else repr(error)
        with contextlib.suppress(OSError):  # `up` is gone
            report.send(b"!" + what.encode(errors="replace")[:4000])
    os._exit(1)


def _anchor(plan: Plan, report: socket.socket) -> None:
    kernel.die_with_parent(signal.SIGKILL)
    report.send(b"anchor")  # fails if `up` died before the line above
    os.setsid()
    _quiet()
    _let_go(report.fileno())
    _expect(report, b"go")  # the state names us: nothing is started that `down` would not find
    keygens = outfit.start_keygens(plan.directory, plan.places, plan.keygen)
    kernel.unshare(kernel.CLONE_NEWNET)
    kind = network.choose(plan.impaired)
    gate = Gate(*os.pipe())
    started = [_start_place(plan, place, report, gate, kind == "switch") for place in plan.places]
    _join(plan, kind, started)
    report.send(f"network {kind}".encode())
    outfit.wait_for(keygens)
    outfit.write_ssh_files(plan.directory, plan.places)
    os.close(gate.opener)
    _expect(report, b"stay")
    kernel.die_with_parent(0)
    report.send(b"staying")
    _become_sleep(plan)


def _join(plan: Plan, kind: str, started: list[Started]) -> None:
    """Connect the places as soon as their network namespaces are there; they furnish themselves meanwhile."""
    taps = {place.name: _wait_ready(place) for place in started}
    delay, loss = plan.delay or 0.0, plan.loss or 0.0
    if kind == "switch":
        network.start_switch(plan.directory.path, taps, delay, loss)
        for fd in taps.values():  # they would hold the namespaces of hosts that were killed
            os.close(fd)
        return
    network.lay_bridge({place.name: place.pid for place in started})
    if kind == "netem":
        network.impair(list(taps), delay, loss)


def _expect(report: socket.socket, word: bytes) -> None:
    if report.recv(64) != word:
        os._exit(1)  # `up` is gone


def _become_sleep(plan: Plan) -> None:
    """Sleep for good; SIGCHLD stays ignored across the exec, so that orphans of the namespace leave no zombies."""
    kernel.restore_signals()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.chdir("/")
    os.execv(plan.sleep, ["sleep", "infinity"])


def _quiet(log: str = "/dev/null") -> None:
    """Read nothing, and write to `log`."""
    null = os.open("/dev/null", os.O_RDWR)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for fd, source in ((0, null), (1, out), (2, out)):
        os.dup2(source, fd)
    for fd in {null, out} - {0, 1, 2}:
        os.close(fd)


def _let_go(keep: int) -> None:
    """Close what we inherited but for one descriptor: the cluster must not hold its starter's locks and pipes."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2 and fd != keep:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(fd)


# -- a place ----------------------------------------------------------------------------------------------------


def _start_place(plan: Plan, place: Place, report: socket.socket, gate: Gate, tap: bool) -> Started:
    """Fork pid 1 of a place."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kernel.unshare(kernel.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.close(gate.opener)
        _end_with_report(report, lambda: _place(plan, place, report, gate, (theirs, tap)))
    theirs.close()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    kernel.setns(own, kernel.CLONE_NEWPID)  # or the next unshare would be refused: one level at a time
    os.close(own)
    return Started(place.name, pid, ours)


def _wait_ready(place: Started) -> int:
    """Wait for a place's network namespace; the descriptor of its TAP device, or -1."""
    fds = array.array("i")
    with place.ready as sock:
        sock.settimeout(PATIENCE)
        data, ancillary, _, _ = sock.recvmsg(16, socket.CMSG_SPACE(fds.itemsize))
    if not data:
        raise ClusterError(f"{place.name} ended while it was being made")
    for _, _, raw in ancillary:
        fds.frombytes(raw[: fds.itemsize])
    return fds[0] if fds else -1


def _place(plan: Plan, place: Place, report: socket.socket, gate: Gate, cable: tuple[socket.socket, bool]) -> None:
    os.setsid()
    kernel.unshare(kernel.CLONE_NEWNET | kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
    _offer_network(*cable)
    socket.sethostname(place.name)
    _furnish(plan, place.name)
    os.read(gate.wait, 1)  # end of file: the network and the keys are there
    kernel.interface_up("lo")
    kernel.interface_up("eth0", place.address)
    report.send(place.name.encode())
    if place.name == HEAD:
        _become_sleep(plan)
    _become_sshd(plan, place.name)


def _offer_network(ready: socket.socket, tap: bool) -> None:
    """Report to the anchor that the network namespace exists, or send it the descriptor of a TAP device."""
    if not tap:
        ready.send(b"ready")
        return
    fd = kernel.make_tap("eth0")
    ready.sendmsg([b"ready"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    os.close(fd)


def _become_sshd(plan: Plan, name: str) -> None:
    directory = plan.directory
    _quiet(directory.join("log", name))
    kernel.restore_signals()
    os.chdir("/")
    os.umask(0o022)
    command = [plan.sshd, "-D", "-e", "-f", directory.join("etc", "sshd_config"), "-h", directory.join("keys", name)]
    os.execve(plan.sshd, command, {"PATH": outfit.SSHD_PATH})


def _furnish(plan: Plan, name: str) -> None:
    """Give this mount namespace its own /run, /dev/shm, /sys, /proc, perhaps /tmp, and its own files in /etc."""
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    keep = [plan.directory.path]
    cover("/run", "tmpfs", "mode=0755,size=16m", keep)
    os.makedirs("/run/sshd", mode=0o755)
    if os.path.isdir("/dev/shm"):
        cover("/dev/shm", "tmpfs", "mode=1777", [])
    if plan.private_tmp:
        cover("/tmp", "tmpfs", "mode=1777", [*keep, PROJECT, sys.prefix, sys.base_prefix, *plan.visible])
    with contextlib.suppress(OSError):  # for /sys/class/net; in some containers it may not be mounted
        cover("/sys", "sysfs", None, ["/sys/fs/cgroup"])
    etc = plan.directory.join("etc")
    for file in ("hosts", "shadow", f"passwd.{name}", f"hostname.{name}"):
        target = os.path.realpath(os.path.join("/etc", file.partition(".")[0]))
        if os.path.exists(target):
            kernel.mount(os.path.join(etc, file), target, None, kernel.MS_BIND)
    kernel.mount("proc", "/proc", "proc")


def cover(path: str, kind: str, options: str | None, keep: Sequence[str]) -> None:
    """Mount a new file system on `path`; those of `keep` that lie beneath it are mounted in their places again."""
    beneath = sorted({entry for entry in map(os.path.realpath, keep) if entry.startswith(os.path.realpath(path) + "/")})
    handles = [(entry, os.open(entry, os.O_PATH)) for entry in beneath if os.path.isdir(entry)]
    kernel.mount(kind, path, kind, 0, options)
    for entry, fd in handles:
        os.makedirs(entry, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{fd}", entry, None, kernel.MS_BIND | kernel.MS_REC)
        os.close(fd)
