"""Programs that a cluster needs: where they are, which package has them, and running one with a time limit.

The sbin directories are searched as well: a user who becomes root by `su` or `sudo` often does not have them in PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from cluster_lib import ClusterError

TIMEOUT = 20.0  # seconds; what is run takes milliseconds

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_PACKAGES = {  # of Debian
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "bridge": "iproute2",
    "tc": "iproute2",
    "sleep": "coreutils",
}


def find(name: str) -> str:
    """The full path of a program.  Raises ClusterError with the name of its package."""
    found = shutil.which(name) or shutil.which(name, path=_SBIN)
    if found is None:
        raise ClusterError(f"`{name}` is missing: install the package {_PACKAGES[name]} (its name in Debian)")
    return os.path.abspath(found)


def run(command: list[str], text: str = "") -> None:
    """Run `command` with `text` at its standard input.  Raises ClusterError with what it said if it fails."""
    shown = " ".join(command)
    try:
        done = subprocess.run(
            [find(command[0]), *command[1:]], input=text.encode(), capture_output=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{shown}` took more than {TIMEOUT:g} s") from None
    if done.returncode:
        raise ClusterError(f"`{shown}` failed: {done.stderr.decode(errors='replace').strip()}")
