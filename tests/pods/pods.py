"""Pods: containers on the hosts of `scripts/cluster`, named and furnished as an operator of Kubernetes does it.

A pod has the network of one host.  Its containers are processes of this machine (see `container`), so `/proc` shows
whatever lives in them.  Names come from a name server, by the search list of the kubelet's resolv.conf.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

sys.path += [str(Path(__file__).resolve().parents[1] / "hosts"), str(Path(__file__).resolve().parents[2] / "scripts")]

from cluster_lib import kernel
from clusters import BOUND, MARKS, ROOT, Cluster, Job, Result, cluster_of, wait_until
from container import BIN, HOME
from name_server import NameServer

__all__ = ["BOUND", "HOME", "MARKS", "ROOT", "Container", "Pod", "Pods", "Result", "Volume", "pods_on", "wait_until"]

PROGRAM = Path(__file__).with_name("container.py")
PATH = f"{BIN}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  #: what images of Debian have
USER = 1000  #: runAsUser of the operators' examples
NAMESPACE = "ns"
#: what the kubelet adds to every container; services without a name of their own
SERVICE = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBERNETES_PORT": "tcp://10.96.0.1:443",
}


class Pod(NamedTuple):
    """A pod: its host name, and the host of the cluster whose network it has."""

    name: str
    subdomain: str
    place: str
    address: str

    @property
    def full(self) -> str:
        """The name that the name server has once the service publishes it."""
        return f"{self.name}.{self.subdomain}.{NAMESPACE}.svc.cluster.local"


class Spec(NamedTuple):
    """A container, for `container.py`."""

    sandbox: int  # a process that has the network of the pod
    name: str
    user: int
    groups: list[int]
    command: list[str]
    environment: dict[str, str]
    directory: str
    etc: dict[str, str]
    mounts: list[tuple[str, str]]
    keep: list[str]  # folders of this machine that can be seen, and entered by anyone


class Volume:
    """A secret or configuration as the kubelet writes it (pkg/volume/util/atomic_writer.go): files behind `..data`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._versions = 0
        path.mkdir(parents=True)
        path.chmod(0o1777)  # as the kubelet's tmpfs: sshd's StrictModes would refuse it

    @property
    def current(self) -> Path:
        """The folder of the files themselves, which a `subPath` mounts."""
        return (self.path / "..data").resolve()

    def write(self, files: Mapping[str, str], mode: int = 0o644, group: int = -1, **modes: int) -> Volume:
        """These files instead of those before; `modes` are of single files, by their names without an ending."""
        self._versions += 1
        version = self.path / f"..2026_11_23_12_00_00.{self._versions}"
        version.mkdir()
        version.chmod(0o755)
        for name, text in files.items():
            path = version / name
            path.write_text(text)
            os.chown(path, -1, group)
            path.chmod(modes.get(name.partition(".")[0], mode))
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        new = self.path / "..data_tmp"
        new.symlink_to(version.name)
        new.rename(self.path / "..data")
        return self


_NOT_OURS = "0909097F:0016"  #: 127.9.9.9, where the host's own sshd listens


class Container:
    """A container that runs; what it prints and how it ends is that of its command."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.expect = job.expect
        self.end = job.end

    @property
    def first(self) -> int:
        """Its command, as this machine counts; 1 inside."""
        return self.job.launcher

    def processes(self) -> dict[int, str]:
        """All of them but the first."""
        with contextlib.suppress(OSError, IndexError):
            first = self.first
            space = os.readlink(f"/proc/{first}/ns/pid")
            return {pid: words for pid, words in _processes_in(space) if pid != first}
        return {}

    def listens(self, port: int) -> bool:
        """Whether something in the network of its pod listens at this port; proc(5), net/tcp."""
        assert self.job.process.poll() is None, self.job.process.stderr.read()
        with contextlib.suppress(OSError, IndexError):
            rows = [line.split() for line in Path(f"/proc/{self.first}/net/tcp").read_text().splitlines()[1:]]
            return any(int(row[1][9:], 16) == port and row[3] == "0A" and row[1] != _NOT_OURS for row in rows)
        return False

    def wait_quiet(self, bound: float = 10.0) -> None:
        """Until nothing lives there but the command."""
        wait_until(lambda: not self.processes(), bound, lambda: f"still there: {self.processes()}")

    def signal(self, number: int) -> None:
        """As the container runtime does it: to process 1."""
        os.kill(self.first, number)

    def kill(self) -> None:
        """After the grace: the kernel ends all processes with the first one."""
        self.signal(signal.SIGKILL)
        self.job.process.wait(BOUND)


def _processes_in(space: str) -> Iterator[tuple[int, str]]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has just ended
            alive = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            if alive and os.readlink(f"/proc/{name}/ns/pid") == space:
                yield int(name), Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()


class Pods:
    """Pods of one job, and what they share."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster = cluster
        self.directory = directory
        self.names = NameServer(_socket_in(self._sandbox("n01"), 53))
        self._running: list[Container] = []
        self._count = 0
        _make_image(directory / "launcher", f"{os.path.realpath(sys.prefix)}/bin/{os.path.basename(sys.executable)}")
        _make_image(directory / "worker", "")

    def pod(self, number: int, name: str, subdomain: str) -> Pod:
        """The pod on host `number`, counted from 1."""
        return Pod(name, subdomain, f"n{number:02d}", f"10.77.1.{number}")

    def publish(self, *pods: Pod) -> None:
        """Only these are known to the name server from now on."""
        self.names.publish({pod.full: pod.address for pod in pods})

    def volume(self, name: str) -> Volume:
        return Volume(self.directory / "volumes" / name)

    def run(
        self,
        pod: Pod,
        command: Sequence[object],
        *,
        user: int = USER,
        groups: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        etc: Mapping[str, str] | None = None,
        mounts: Mapping[str, Path] | None = None,
        image: str = "worker",
        directory: str = "/",
        stdin: int | IO[bytes] = subprocess.DEVNULL,
    ) -> Container:
        """Start a container; `mounts` are folders by their mount points."""
        self._count += 1
        path = self.directory / f"spec.{self._count}"
        home = HOME if user else "/root"
        spec = Spec(
            self._sandbox(pod.place),
            pod.name,
            user,
            list(groups),
            list(map(str, command)),
            {"PATH": PATH, "HOSTNAME": pod.name, **SERVICE, "HOME": home, **(env or {})},
            directory,
            {**_etc_of(pod), **(etc or {})},
            [
                (str(self.directory / image), BIN),
                *((str(source), target) for target, source in (mounts or {}).items()),
            ],
            [os.path.realpath(one) for one in {str(ROOT), sys.prefix, sys.base_prefix, str(PROGRAM.parent)}],
        )
        path.write_text(json.dumps(spec._asdict()))
        words = [sys.executable, "-I", "-S", str(PROGRAM), str(path)]
        self._running.append(Container(Job(words, cwd="/", env={"PATH": PATH}, stdin=stdin)))
        return self._running[-1]

    def _sandbox(self, host: str) -> int:
        state = json.loads((self._cluster.directory / "state.json").read_text())
        return int(next(place[2][0] for place in state["places"] if place[0] == host))

    def listener(self, pod: Pod, port: int) -> socket.socket:
        """A socket of this process in the network of that pod, for TCP."""
        return _socket_in(self._sandbox(pod.place), port, socket.SOCK_STREAM)

    def destroy(self, since: int = 0) -> None:
        """End the containers that run, but for the first `since`."""
        for container in self._running[since:]:
            container.job.destroy()
        del self._running[since:]

    @property
    def running(self) -> int:
        return len(self._running)


def _etc_of(pod: Pod) -> dict[str, str]:
    """What the kubelet writes, and accounts as `useradd -m mpiuser` makes them."""
    own = f"{pod.address}\t{pod.full}\t{pod.name}\n"
    search = f" {NAMESPACE}.svc.cluster.local svc.cluster.local"
    return {
        "hosts": f"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n{own}",
        "hostname": f"{pod.name}\n",
        "resolv.conf": f"search{search} cluster.local\nnameserver 10.77.1.1\noptions ndots:5\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
        "passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n"
        f"mpiuser:x:{USER}:{USER}::{HOME}:/bin/sh\n",
        "group": f"root:x:0:\nmpiuser:x:{USER}:\n",
        "shadow": "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\nmpiuser:*:19000:0:99999:7:::\n",
    }


def _socket_in(sandbox: int, port: int, kind: int = socket.SOCK_DGRAM) -> socket.socket:
    """A socket in the network of a pod, made by a thread that goes there and ends."""

    def make() -> socket.socket:
        fd = os.open(f"/proc/{sandbox}/ns/net", os.O_RDONLY)
        kernel.setns(fd, kernel.CLONE_NEWNET)
        os.close(fd)
        made = socket.socket(socket.AF_INET, kind)
        made.bind(("", port))
        return made

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result(BOUND)


def _make_image(directory: Path, launcher: str) -> None:
    """What an image brings besides Debian: python, and for launchers mslaunch, called by itself and as mpirun."""
    directory.mkdir()
    directory.chmod(0o755)
    (directory / "python").symlink_to(interpreter())
    if launcher:
        start = f"#!{launcher}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom mslaunch.__main__ import main\n"
        (directory / "mslaunch").write_text(start + "sys.exit(main())\n")
        (directory / "mslaunch").chmod(0o755)
        for name in ("mpirun", "mpiexec", "mpiexec.hydra"):
            (directory / name).symlink_to("mslaunch")


def interpreter() -> str:
    """One that the image of a worker has."""
    return next(path for path in ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable) if os.path.exists(path))


def make_key(directory: Path, *kind: str) -> dict[str, str]:
    """A key pair as operators make it: a private key in PEM, called id_rsa whatever its type, and authorized_keys."""
    path = directory / "key"
    words = ["ssh-keygen", "-q", "-m", "PEM", "-N", "", "-C", "", "-t", *kind, "-f", str(path)]
    subprocess.run(words, check=True, timeout=BOUND)
    private, public = path.read_text(), Path(f"{path}.pub").read_text()
    path.unlink()
    return {"id_rsa": private, "id_rsa.pub": public, "authorized_keys": public}


@contextlib.contextmanager
def pods_on(hosts: int, directory: Path) -> Iterator[Pods]:
    """Networks for so many pods; the hosts' own sshd listens where no pod asks."""
    with cluster_of(hosts, directory / "c", "--sshd-option", "ListenAddress 127.9.9.9") as cluster:
        pods = Pods(cluster, directory)
        try:
            yield pods
        finally:
            pods.destroy()
            pods.names.close()


def sshd() -> str:
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or "/usr/sbin/sshd"
