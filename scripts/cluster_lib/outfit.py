"""The files that hosts read: keys, their own /etc, sshd's configuration, and homes.

/etc must exist when the hosts are made, keys only when their sshds start; so ssh-keygen runs while the kernel works.
"""

from __future__ import annotations

import os
import re
import subprocess

from cluster_lib import ClusterError
from cluster_lib.files import HEAD, Directory, Place, write

SSHD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SSHD_CONFIG = """\
Port 22
AddressFamily inet
AuthorizedKeysFile {directory}/etc/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
MaxStartups 300
MaxSessions 100
SetEnv PATH={path}
Subsystem sftp internal-sftp
"""

_SSH_CONFIG = """\
Host *
    IdentityFile ~/.ssh/id_ed25519
    IdentitiesOnly yes
    StrictHostKeyChecking yes
    UpdateHostKeys no
    KexAlgorithms ^curve25519-sha256
"""  # the last line: OpenSSH 9's default costs the client 0.1 s of CPU, and all these hosts share one machine's


def start_keygens(directory: Directory, places: tuple[Place, ...], keygen: str) -> list[subprocess.Popen[bytes]]:
    """Begin to make one key for the user and one for each host, all at once; `wait_for` ends it."""
    os.makedirs(directory.join("keys"), mode=0o700)
    names = ["user", *(place.name for place in places if place.name != HEAD)]
    common = [keygen, "-q", "-t", "ed25519", "-N", ""]
    return [
        subprocess.Popen(
            [*common, "-C", f"{name} of a test cluster", "-f", directory.join("keys", name)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for name in names
    ]


def wait_for(keygens: list[subprocess.Popen[bytes]]) -> None:
    """Raises ClusterError with what ssh-keygen said."""
    for process in keygens:
        said = process.communicate(timeout=20)[1]
        if process.returncode:
            raise ClusterError(f"ssh-keygen failed: {said.decode(errors='replace').strip()}")


def write_system_files(
    directory: Directory, places: tuple[Place, ...], shell: str, options: tuple[str, ...], sshd: str
) -> None:
    """What the hosts find in /etc, their sshd's configuration, and their empty homes."""
    for name in ("etc", "home", "log"):
        os.makedirs(directory.join(name), mode=0o755)
    hosts = "".join(f"{place.address}\t{place.name}\n" for place in places)
    write(directory.join("etc", "hosts"), "127.0.0.1\tlocalhost\n::1\tlocalhost\n" + hosts)
    write(directory.join("etc", "shadow"), "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n", 0o600)
    ours = _SSHD_CONFIG.format(directory=directory.path, path=SSHD_PATH) + _version_options(sshd)
    write(directory.join("etc", "sshd_config"), "".join(f"{line}\n" for line in options) + ours)  # sshd: first wins
    with open("/etc/passwd", encoding="utf-8", errors="surrogateescape") as file:
        others = [line for line in file.read().splitlines() if not line.startswith("root:")]
    if not any(line.startswith("sshd:") for line in others):  # sshd separates its privileges into this account
        others.append("sshd:x:101:65534::/run/sshd:/usr/sbin/nologin")
    rest = "".join(line + "\n" for line in others).encode(errors="surrogateescape").decode(errors="replace")
    for place in places:
        os.makedirs(directory.home(place.name), mode=0o700)
        root = f"root:x:0:0:root:{directory.home(place.name)}:{shell}\n"
        write(directory.join("etc", f"passwd.{place.name}"), root + rest)
        write(directory.join("etc", f"hostname.{place.name}"), place.name + "\n")


def _version_options(sshd: str) -> str:
    """OpenSSH 9.8 shuts a client out for its failures; tests fail on purpose."""
    said = subprocess.run([sshd, "-V"], capture_output=True, timeout=10, check=False).stderr.decode(errors="replace")
    found = re.search(r"OpenSSH_(\d+)\.(\d+)", said)
    new = found is not None and (int(found[1]), int(found[2])) >= (9, 8)
    return "PerSourcePenalties no\n" if new else ""


def write_ssh_files(directory: Directory, places: tuple[Place, ...]) -> None:
    """Each place's ~/.ssh, so that any can log in to any host; needs the keys."""
    user_key, user_public = (_read(directory.join("keys", name)) for name in ("user", "user.pub"))
    known = ""
    for place in places:
        if place.name != HEAD:
            kind, key = _read(directory.join("keys", f"{place.name}.pub")).split()[:2]
            known += f"{place.name},{place.address} {kind} {key}\n"
    write(directory.join("etc", "authorized_keys"), user_public, 0o600)
    for place in places:
        ssh = os.path.join(directory.home(place.name), ".ssh")
        os.makedirs(ssh, mode=0o700)
        write(os.path.join(ssh, "id_ed25519"), user_key, 0o600)
        write(os.path.join(ssh, "id_ed25519.pub"), user_public)
        write(os.path.join(ssh, "known_hosts"), known)
        write(os.path.join(ssh, "config"), _SSH_CONFIG, 0o600)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
