"""The secret that commands on several hosts share: the contents of a file that only its user may read.

A home directory that all hosts mount has it for all of them; else it has to be copied there once.  As with ssh(1),
a file that others may read or write is refused.  A link of this user's or of root's is followed, as to the files of a
volume of Kubernetes.  One of another user's could lead to a file that this user alone may read, whose contents all
know, such as those in /proc; these have no size.
"""

from __future__ import annotations

import os
import stat

from mslaunch.errors import LaunchError

_FEWEST, _MOST = 16, 4096  # bytes
_MADE = 32  # random bytes of a new one


def read_or_make(path: str) -> bytes:
    """The key made of the secret in the file, 32 bytes.  A file that is missing is made.  Raises `LaunchError`."""
    from hashlib import blake2b

    try:
        try:
            text = _read(path)
        except FileNotFoundError:
            _make(path)
            text = _read(path)
    except OSError as error:
        raise LaunchError(
            f"it cannot be used: {error.strerror}",
            path,
            "commands on several hosts need one: --rdzv-conf=secret_file=FILE",
        ) from None
    if not _FEWEST <= len(text) <= _MOST:
        todo = f"remove it, and copy the new one, which the next run makes, to the other hosts: {path}"
        raise LaunchError(f"it has {len(text)} bytes, and a secret {_FEWEST} to {_MOST}", path, todo)
    return blake2b(text, digest_size=32).digest()


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise LaunchError("it is no regular file", path, "commands on several hosts share its secret")
        if facts.st_uid != os.geteuid():
            raise LaunchError("it belongs to another user", path, "remove it, or name another one by --rdzv-conf")
        if facts.st_mode & 0o77:
            raise LaunchError("others may read or write it", path, f"chmod 600 {path}")
        if os.lstat(path).st_uid not in (0, os.geteuid()):
            raise LaunchError("it is a link of another user", path, "remove it, or name another one by --rdzv-conf")
        if not facts.st_size:
            raise LaunchError(
                "it has no size, as a file of /proc", path, f"remove it, and the next run makes one: {path}"
            )
        return file.read(_MOST + 1).strip()


def _make(path: str) -> None:
    """A new one, in one step: commands on other hosts may do the same on the same file server."""
    os.makedirs(os.path.dirname(path) or ".", 0o700, exist_ok=True)
    own = f"{path}.{os.urandom(8).hex()}"
    fd = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(os.urandom(_MADE).hex().encode() + b"\n")
            file.flush()
            os.fsync(fd)
        try:
            os.link(own, path)
        except FileExistsError:
            pass
    finally:
        os.unlink(own)
