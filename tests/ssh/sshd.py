"""Private sshd hosts on 127.0.0.x: own keys, own configuration, own known_hosts, all under one directory.

An `SshLab` is a user with a home; `lab.sshd()` starts a host that lets this user in.  It needs no privilege: sshd
runs as whoever runs the tests and can log in that account only.  Run as root it also wants /run/sshd to exist.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
ME = pwd.getpwuid(os.getuid()).pw_name

CONFIG = """
ListenAddress {address}:{port}
PidFile none
AuthorizedKeysFile {directory}/authorized_keys
StrictModes no
SetEnv HOME={directory}
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
LogLevel VERBOSE
MaxStartups 200:30:400
MaxSessions 100
PerSourceMaxStartups none
"""


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "", *more: str) -> Path:
    """A new key pair; returns the path of the private half."""
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path), *more]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return path


def public(path: Path) -> str:
    """`type base64` of a key pair."""
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


def free_port(address: str) -> int:
    bare = address.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in bare else socket.AF_INET) as sock:
        sock.bind((bare, 0))
        return int(sock.getsockname()[1])


class Sshd:
    """One host."""

    def __init__(self, directory: Path, address: str, authorized: str, options: str, host_keys: Sequence[Path]) -> None:
        self.directory = directory
        self.address = address
        self.host_keys = host_keys
        self.port = free_port(address)
        (directory / "authorized_keys").write_text(authorized)
        usual = CONFIG.format(address=address, port=self.port, directory=directory)
        said = {line.split()[0] for line in options.splitlines()}  # for most keywords the first wins, not for all
        lines = [line for line in usual.splitlines() if line and line.split()[0] not in said]
        lines += [f"HostKey {key}" for key in host_keys]
        (directory / "sshd_config").write_text("\n".join([*options.splitlines(), *lines, ""]))
        self._log = b""
        assert SSHD
        self.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(directory / "sshd_config")], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.wait_log("Server listening on")

    @property
    def name(self) -> str:
        """As it stands in known_hosts."""
        return f"[{self.address}]:{self.port}"

    @property
    def known_line(self) -> str:
        return f"{self.name} {public(self.host_keys[0])}\n"

    def log(self) -> str:
        """What it has logged so far."""
        assert self.process.stderr
        while select.select([self.process.stderr], [], [], 0)[0]:
            data = os.read(self.process.stderr.fileno(), 1 << 16)
            if not data:
                break
            self._log += data
        return self._log.decode(errors="replace")

    def wait_log(self, text: str, seconds: float = 20.0) -> str:
        """Wait until it logs `text`."""
        end = time.monotonic() + seconds
        assert self.process.stderr
        while text not in self.log():
            left = end - time.monotonic()
            if left <= 0 or self.process.poll() is not None:
                raise AssertionError(f"sshd did not log {text!r}:\n{self.log()}")
            select.select([self.process.stderr], [], [], left)
        return self.log()

    def stop(self) -> None:
        """End the listener and every connection it serves."""
        children = _children(self.process.pid)
        self.process.terminate()
        self.process.wait()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 15)
        if self.process.stderr:
            self.process.stderr.close()


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class SshLab:
    """A user with a home, a key and some hosts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.ssh = self.home / ".ssh"
        self.ssh.mkdir(mode=0o700, parents=True)
        self.key = keygen(self.ssh / "id_ed25519")
        self.hosts: list[Sshd] = []
        self._agents: list[int] = []
        self.environ = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)

    def sshd(
        self,
        options: str = "",
        *,
        host_keys: Sequence[str | Path] = ("ed25519",),
        known: bool = True,
        authorized: str | None = None,
        address: str | None = None,
    ) -> Sshd:
        """Start a host; `options` are lines of sshd_config that come first; `host_keys` are kinds, or keys."""
        number = len(self.hosts) + 2
        place = self.directory / f"host{number}"
        place.mkdir()
        keys = [kind if isinstance(kind, Path) else keygen(place / f"host_{kind}", kind) for kind in host_keys]
        if authorized is None:
            authorized = public(self.key) + "\n"
        host = Sshd(place, address or f"127.0.0.{number}", authorized, options, keys)
        self.hosts.append(host)
        if known:
            self.known_hosts(host.known_line)
        return host

    def known_hosts(self, *lines: str, replace: bool = False) -> None:
        """Lines for ~/.ssh/known_hosts."""
        path = self.ssh / "known_hosts"
        before = path.read_text() if path.exists() and not replace else ""
        path.write_text(before + "".join(lines))

    def config(self, text: str) -> None:
        """The text of ~/.ssh/config."""
        (self.ssh / "config").write_text(text)

    def agent(self, *keys: Path) -> None:
        """Start ssh-agent with these keys; the environment then names it."""
        sock = self.directory / f"agent{len(self._agents)}"
        done = subprocess.run(["ssh-agent", "-a", str(sock), "-s"], check=True, capture_output=True, text=True)
        self._agents.append(int(done.stdout.split("SSH_AGENT_PID=")[1].split(";")[0]))
        self.environ["SSH_AUTH_SOCK"] = str(sock)
        if keys:
            environ = {**os.environ, "SSH_AUTH_SOCK": str(sock)}
            subprocess.run(["ssh-add", "-q", *map(str, keys)], check=True, env=environ, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        for host in self.hosts:
            host.stop()
        for pid in self._agents:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 15)
