"""Hints: could this program be one of Open MPI's?  A cheap look, so that others do not pay for the finder (`family`).

Yes or maybe brings the finder in; no is final.  An executable is asked for the names of libraries in its first part; a
script cannot be asked, so there it counts whether an Open MPI is to be found where programs look for one.  It reads few
files and follows nothing.  The surprising thing: it does not look for MPICH at all, for PMI is offered to everybody.
"""

from __future__ import annotations

import os

from mslaunch.lean import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CACHE = "/etc/ld.so.cache"
_HEAD = 1 << 16  # of an executable: the names of its libraries stand in front of its code
#: libraries that have nothing to do with MPI, by the beginning of their names
_PLAIN = (b"libc.so.", b"libm.so.", b"libdl.so.", b"libpthread.so.", b"librt.so.", b"libgcc_s.so.", b"libstdc++.so.",
          b"libselinux.so.", b"libtinfo.so.", b"libz.so.", b"libcap.so.", b"libacl.so.", b"libattr.so.", b"libgmp.so.",
          b"libcrypto.so.", b"libssl.so.", b"libreadline.so.", b"libpcre2-8.so.", b"libgfortran.so.",
          b"libquadmath.so.", b"libutil.so.", b"libnsl.so.", b"libcrypt.so.", b"libexpat.so.")  # fmt: skip
_NAMES = ("libmpi.so.40", "libmpi.so.20", "libmpi.so.80", "libopen-pal.so.40", "libopen-pal.so.80")


def may_be_openmpi(path: str, argv: list[str], env: Mapping[str, str], wdir: str) -> bool:
    """False if the program at `path`, started in `wdir` with these arguments and variables, does not use Open MPI."""
    if env.get("LD_PRELOAD") or env.get("MPI4PY_LIBMPI"):
        return True
    whole = os.path.join(wdir, path)
    try:
        with open(whole, "rb") as file:
            head = file.read(_HEAD)
    except OSError:  # a program that may be run and not read
        return True
    if head[:4] == b"\x7fELF" and not _runs_others(path):
        return any(not word.startswith(_PLAIN) for word in _libraries(head))
    return _is_there(_folders(whole, env))


def _runs_others(path: str) -> bool:
    """Interpreters, shells and wrappers load or start what their own file does not tell."""
    name = os.path.basename(path).rstrip("0123456789.")
    return name in _RUNNERS or name.startswith(("python", "pypy"))


_RUNNERS = frozenset(
    ("sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "fish", "busybox", "env", "nice", "numactl", "taskset", "time",
     "timeout", "stdbuf", "nohup", "setarch", "setsid", "strace", "ltrace", "gdb", "valgrind", "catchsegv", "perf",
     "xterm", "sudo", "chrt", "ionice", "prlimit", "julia", "perl", "ruby", "lua", "R", "Rscript", "node", "java",
     "make")
)  # fmt: skip


def _libraries(head: bytes) -> Iterable[bytes]:
    return (word for word in head.split(b"\0") if word.startswith(b"lib") and b".so" in word)


def _folders(path: str, env: Mapping[str, str]) -> list[str]:
    """Where a program that is run from `path` finds libraries, beside the loader's own places."""
    prefixes = [os.path.dirname(os.path.dirname(name)) for name in {path, os.path.realpath(path)}]
    prefixes += [env[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "OPAL_PREFIX", "MPI_HOME") if env.get(name)]
    return [*env.get("LD_LIBRARY_PATH", "").split(":"), *(os.path.join(prefix, "lib") for prefix in prefixes)]


def _is_there(folders: Iterable[str]) -> bool:
    if any(os.path.exists(os.path.join(folder, name)) for folder in folders if folder for name in _NAMES):
        return True
    try:
        with open(_CACHE, "rb") as file:
            known = file.read()
    except OSError:
        return True
    return any(name.encode() in known for name in _NAMES)
