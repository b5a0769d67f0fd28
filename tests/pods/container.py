"""Runs the container of a pod: `container.py SPEC`, where SPEC is a file with `pods.Spec` as JSON.

As containerd does it: a container has its own processes, mounts and host name, and shares the network of its pod, here
that of a host of `scripts/cluster`.  Its command is process 1 there, has no terminal, only the environment that was
asked for, and the capabilities that containerd leaves (oci/spec_opts in containerd, `defaultUnixCaps`).  The root file
system cannot be written to where Kubernetes would forbid it: homes, /etc and what is mounted; /tmp is its own.

This process stays outside and stands in for its command: it passes signals on and ends as that ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from cluster_lib import kernel
from cluster_lib.build import cover
from cluster_lib.enter import PASSED_ON, stand_in_for

HOME = "/home/mpiuser"
BIN = "/usr/local/sbin"  #: the first folder of a container's PATH, empty in Debian
_READ_ONLY = ("/home", "/root", "/opt")
#: CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE
#: SETFCAP
_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}


def main() -> NoReturn:
    spec = json.loads(Path(sys.argv[1]).read_text())
    kernel.die_with_parent(signal.SIGKILL)
    pod = os.pidfd_open(spec["sandbox"])
    kernel.setns(pod, kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
    os.close(pod)
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    kernel.unshare(kernel.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        try:
            _become(spec)
        except OSError as error:
            print(f"container: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(125)
    stand_in_for(pid)


def _become(spec: dict[str, Any]) -> NoReturn:
    os.setsid()
    os.umask(0o022)
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS)
    socket.sethostname(spec["name"])
    _furnish(spec)
    _drop_rights(spec["user"], spec["groups"])
    kernel.die_with_parent(signal.SIGKILL)  # the kernel forgets it where the user changes
    os.chdir(spec["directory"])
    kernel.restore_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON | {signal.SIGCHLD})
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])


def _furnish(spec: dict[str, Any]) -> None:
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("proc", "/proc", "proc")
    keep = spec["keep"]
    sources = {source: os.open(source, os.O_PATH) for source, _ in spec["mounts"]}  # they may lie in a /tmp of ours
    cover("/run", "tmpfs", "mode=0755,size=16m", [])
    os.makedirs("/run/sshd", mode=0o755)
    cover("/dev/shm", "tmpfs", "mode=1777,size=64m", [])
    cover("/sys", "sysfs", None, ["/sys/fs/cgroup"])
    _own_etc(spec["etc"])
    for path in _READ_ONLY:
        cover(path, "tmpfs", "mode=0755,size=1m", keep)
    os.makedirs(HOME)
    for source, target in spec["mounts"]:
        _mount(f"/proc/self/fd/{sources[source]}", target)
        os.close(sources[source])
    cover("/tmp", "tmpfs", "mode=1777", keep)
    _open_ways(keep)
    for path in (*_READ_ONLY, "/etc"):
        kernel.mount("none", path, None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


def _own_etc(files: dict[str, str]) -> None:
    """The machine's /etc with other files in it."""
    os.makedirs("/run/etc/upper")
    os.makedirs("/run/etc/work")
    kernel.mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work")
    for name, text in files.items():
        path = Path("/etc", name)
        path.unlink(missing_ok=True)  # a symbolic link perhaps, as resolv.conf is in places
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _mount(source: str, target: str) -> None:
    """A file or folder, read-only, as Kubernetes mounts secrets, configurations and /etc/hosts."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Path(target).touch()
    kernel.mount(source, target, None, kernel.MS_BIND)
    kernel.mount("none", target, None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


def _open_ways(paths: list[str]) -> None:
    """Any user of an image can enter the folders of its programs; on this machine one above may be a user's own."""
    for path in map(Path, paths):
        for above in reversed(path.parents):
            if not above.stat().st_mode & 0o001:
                cover(str(above), "tmpfs", "mode=0755,size=1m", paths)
                break


def _drop_rights(user: int, groups: list[int]) -> None:
    for number in set(range(64)) - _CAPABILITIES:
        kernel.drop_capability(number)
    os.setgroups(groups)
    os.setgid(user)
    os.setuid(user)


if __name__ == "__main__":
    main()
