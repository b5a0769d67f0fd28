"""Another local user: programs run with a second uid that owns nothing here and shares no group with us.

No account is made: the kernel knows users by number.  A directory that such a program needs must be open to it, and so
must every directory above it, which pytest's `tmp_path` is not: use the fixture `commons`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

UID = 64321  # the other user; Debian's policy leaves 60000 to 64999 to local agreements
OUR_UID = 64322  # the victim, where the tests run as root and root's rights would hide the attack
BOUND = 30.0  # seconds


def as_user(uid: int, words: list[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a program as this user, without groups, capabilities or the way back (setpriv(1))."""
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    how.setdefault("env", {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent"})
    return subprocess.Popen([*user, "--", *words], **how)


def run_as(uid: int, words: list[str], **how: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a program as this user to its end."""
    process = as_user(uid, words, **how)
    out, err = process.communicate(timeout=BOUND)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def python_as(uid: int, code: str, *words: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """Run lines of Python as this user; only the standard library, by an interpreter that all may read."""
    return run_as(uid, [interpreter(), "-I", "-S", "-c", code, *words], **how)


def interpreter() -> str:
    """Ours may lie below a home directory that others cannot enter."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable):
        if os.access(path, os.X_OK):
            return path
    raise AssertionError("no interpreter")
