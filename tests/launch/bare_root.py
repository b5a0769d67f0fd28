"""Runs the command where little is there: a root of its own that cannot be written to, without what one expects.

The root has /usr, this project, a writable /work, and on PATH a handful of programs: no ps, no kill, no ssh.  It has no
/etc, so users have no names; no /sys; no /dev/pts, /dev/ptmx and /dev/shm.  `Bare` says what else is missing.  It lives
in a mount namespace of the command, and is gone with it; /work and processes are seen by the next command as well.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from launching import ROOT, wait_until

sys.path.append(str(Path(__file__).resolve().parents[1] / "hostile"))
from other_user import UID

PYTHON = "/usr/bin/python3"  # of the system: its libraries are below /usr
BOUND = 60.0
TOOLS = ("sh", "cat", "env", "sleep", "python3")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")  # of /usr, where a system is merged, or folders of their own
_STAGE = """\
set -e
mount -t tmpfs -o mode=755 none "$1"
cd "$1"
mkdir usr src work tmp dev proc tools
mount --rbind /usr usr
for name in {links}; do
    if [ -L /$name ]; then cp -P /$name $name; elif [ -d /$name ]; then mkdir $name; mount --rbind /$name $name; fi
done
for name in {tools}; do ln -s "$(PATH=/usr/bin:/bin command -v $name)" tools/$name; done
mount --bind "$2" src
mount --bind "$3" work
chmod 1777 tmp
{more}
mount -o remount,ro,mode=755 .
shift 3
exec "$@"
"""
_NULL = "mknod -m 666 dev/null c 1 3"
_PROC = "mount -t proc proc proc"


class Bare(NamedTuple):
    """What is there, and who runs the command."""

    uid: int = 0
    null: bool = True  # /dev/null
    proc: bool = True  # /proc
    processes: int = 0  # of the user, at most; 0: no limit
    registry: bool = False  # a registry of detached jobs, from a time when /tmp could be written to


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class BareRoot:
    """A place for one root; `mark` is a variable by which processes are found that a command has left."""

    def __init__(self, place: Path) -> None:
        self.root, self.work = place / "root", place / "work"
        self.mark = f"TEST_MARK_{os.getpid()}_{time.monotonic_ns()}"
        self.root.mkdir()
        self.work.mkdir()
        self.work.chmod(0o777)

    def run(self, bare: Bare, *words: object, **env: str) -> Ended:
        """Run `mslaunch` with these words; `env` is its environment beside PATH and TERM=dumb: there is no HOME."""
        line = [PYTHON, "-m", "mslaunch", *map(str, words)]
        given = {"PATH": "/tools", "PYTHONPATH": "/src", "PYTHONDONTWRITEBYTECODE": "1", "TERM": "dumb", self.mark: "1"}
        given.update(env)
        inside = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in given.items()), *line]
        if bare.processes:
            inside = ["/usr/bin/prlimit", f"--nproc={bare.processes}", *inside]
        if bare.uid:
            user = ["/usr/bin/setpriv", f"--reuid={bare.uid}", f"--regid={bare.uid}", "--clear-groups"]
            inside = [*user, "--no-new-privs", *inside]
        registry = f"install -d -m 700 -o {bare.uid} tmp/mslaunch-{bare.uid}"
        more = "\n".join([_NULL] * bare.null + [_PROC] * bare.proc + [registry] * bare.registry)
        stage = _STAGE.format(links=" ".join(_LINKS), tools=shlex.join(TOOLS), more=more)
        enter = ["/usr/sbin/chroot", str(self.root), "/usr/bin/env", "-C", "/work", *inside]
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", stage, "sh", str(self.root), str(ROOT), str(self.work), *enter],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND, check=False,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def jobs(self, bare: Bare) -> dict[str, str]:
        """The variable that names a registry of detached jobs in /work."""
        return {"MSLAUNCH_JOBS": f"/work/jobs-{bare.uid}"}

    def left(self) -> list[int]:
        """Processes that commands have left."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
        return found

    def destroy(self) -> None:
        """End what a test that failed has left."""
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait_gone(self) -> None:
        """No process is left; fails if one is."""
        wait_until(lambda: not self.left(), 15, lambda: f"still there: {self.left()}")


ROOT_USER, OTHER_USER = Bare(), Bare(UID)
