"""A cheap test whether a program could use Open MPI, so that others do not pay for `library_of_program`.

Yes or maybe loads that module.  No is final: an executable is asked for the libraries that it needs, Python for
packages that use MPI, a shell and its like for the programs that they name.  No library is followed.  MPICH is not
looked for, since PMI is offered to every program.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.system_files import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "csh", "tcsh", "fish", "busybox"))
PYTHONS = ("python", "pypy")
#: packages that use MPI or are linked to it
PACKAGES = ("mpi4py", "h5py", "petsc4py", "slepc4py", "horovod", "dolfinx", "netCDF4", "adios2", "gpaw", "lammps")
#: programs that run the program in their arguments
WRAPPERS = frozenset((
    "env", "nice", "numactl", "taskset", "time", "timeout", "stdbuf", "nohup", "setarch", "linux64", "x86_64",
    "strace", "ltrace", "gdb", "gdbserver", "valgrind", "catchsegv", "ionice", "chrt", "setsid", "prlimit",
    "setpriv", "unshare", "nsenter", "sudo", "xterm", "perf", "nsys", "ncu", "vtune", "rocprof", "hpcrun",
    "tau_exec", "likwid-pin", "likwid-perfctr", "rr", "heaptrack", "uv", "conda", "mamba", "poetry", "pipenv",
    "hatch", "pdm", "ddt", "map", "script", "xvfb-run", "dbus-run-session", "cgexec", "systemd-run", "hwloc-bind",
    "make", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
))  # fmt: skip
#: words of the shell, and programs that one finds in every script
_BUILTINS = frozenset((
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "function",
    "set", "shift", "exec", "eval", "export", "unset", "cd", "echo", "test", "source", "local", "return", "exit",
    "trap", "ulimit", "umask", "wait", "read", "true", "false", "printf", "declare", "readonly", "pwd", "cat",
    "mkdir", "rm", "cp", "mv", "ls", "sleep", "date", "grep", "sed", "awk", "cut", "head", "tail", "hostname", "id",
    "dirname", "basename", "tr", "sort",
))  # fmt: skip
#: libraries that have nothing to do with MPI, by the beginning of their names
PLAIN = (
    "ld-linux", "libacl.so.", "libanl.so.", "libatomic.so.", "libattr.so.", "libc.musl-", "libc.so", "libcap.so.",
    "libcrypt.so.", "libcrypto.so.", "libdl.so.", "libexpat.so.", "libffi.so.", "libgcc_s.so.", "libgfortran.so.",
    "libgmp.so.", "libgomp.so.", "libm.so.", "libmvec.so.", "libncurses", "libnsl.so.", "libnuma.so.", "libpcre2-8.so.",
    "libpthread.so.", "libpython3", "libquadmath.so.", "libreadline.so.", "libresolv.so.", "librt.so.",
    "libselinux.so.", "libssl.so.", "libstdc++.so.", "libtinfo.so.", "libtinfow.so.", "libutil.so.", "libz.so.",
)  # fmt: skip
_SPLIT = bytes.maketrans(b";|&()`\"'<>\n\t\0", b" " * 13)
_TEXT = 1 << 16  # of a script
_LOOKS = 40  # at words that may be programs
_DEPTH = 4  # scripts of scripts
_SHORT = 256  # no library that matters has a longer name
_DYNAMIC = 1 << 15
_NAMES = 1 << 20


def may_be_openmpi(path: str, argv: Sequence[str], env: Mapping[str, str], wdir: str) -> bool:
    """False if the program at `path`, started in `wdir` with these arguments and variables, does not use Open MPI."""
    if env.get("LD_PRELOAD") or env.get("MPI4PY_LIBMPI"):
        return True
    return _Inspection(env, wdir).at(path, argv)


class _Inspection:
    """One inspection, and what it has seen so far."""

    def __init__(self, env: Mapping[str, str], wdir: str) -> None:
        self._env = env
        self._wdir = wdir
        self._seen: set[str] = set()
        self._deep = 0

    def at(self, path: str, argv: Sequence[str]) -> bool:
        """True unless something rules it out."""
        path = os.path.join(self._wdir, path)
        if not os.path.isfile(path):  # to open a FIFO takes its writer from the program that it is for
            return True
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # the file may be exchanged meanwhile
        except OSError:  # a program that may be run and not read
            return True
        try:
            head = os.pread(fd, _TEXT, 0)
            libraries = needed(fd, head) if head[:4] == b"\x7fELF" else None
        except (OSError, ValueError, TypeError, LookupError, OverflowError, StopIteration):  # broken
            return True
        finally:
            os.close(fd)
        if libraries is None:
            return self._script(path, head, argv)
        if not all(name.startswith(PLAIN) for name in libraries):
            return True
        name = os.path.basename(path)
        if name.startswith(PYTHONS):
            return self._has_packages(path, argv)
        if name in SHELLS:
            return self._any(argv[1:], near=True) or any(self._text(os.fsencode(word)) for word in argv[1:])
        return self._any(word for word in argv[1:] if "/" in word or name in WRAPPERS)

    def _script(self, path: str, text: bytes, argv: Sequence[str]) -> bool:
        """A text for an interpreter; what is no text at all may be anything."""
        line = text.partition(b"\n")[0].translate(_SPLIT).split()
        if text[:2] != b"#!" or len(text) >= _TEXT or os.path.basename(path).startswith(PYTHONS):  # a shim
            return True
        self._seen.add(path)
        words = [os.fsdecode(word) for word in (line[0][2:], *line[1:]) if word]
        if not words:
            return True
        inner = next((word for word in words[1:] if word[:1] != "-" and "=" not in word), words[0])
        ran = inner if os.path.basename(words[0]) == "env" else words[0]
        if os.path.basename(ran) in SHELLS:
            return self._any(argv[1:]) or self._text(text)
        found = which(ran, self._env, self._wdir)
        return not found or self._deeper(found, [ran, path, *argv[1:]])

    def _text(self, text: bytes) -> bool:
        """What a shell reads: a script, or the TEXT of `bash -c TEXT`."""
        return b"\0" in text or any(self._any(words, near=True) for words in lines(text))

    def _any(self, words: Iterable[str], near: bool = False) -> bool:
        """True if any of these words may be a program that may be Open MPI's; `near`: files that it may read, too."""
        for word in words:
            name, assigned, _ = word.partition("=")
            if assigned and name.isidentifier():
                if name in ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "MPI4PY_LIBMPI"):
                    return True
            elif may_be_program(word) and word not in self._seen and not word.endswith(".py"):
                self._seen.add(word)
                found = which(word, self._env, self._wdir) or (os.path.join(self._wdir, word) if near else "")
                if len(self._seen) > _LOOKS or (os.path.isfile(found) and self._deeper(found, [word])):
                    return True
        return False

    def _deeper(self, path: str, argv: Sequence[str]) -> bool:
        self._deep += 1
        found = self._deep > _DEPTH or self.at(path, argv)
        self._deep -= 1
        return found

    def _has_packages(self, path: str, argv: Sequence[str]) -> bool:
        """True if a package that uses MPI lies where this interpreter may look for it."""
        script = next((word for word in argv[1:] if word[:1] != "-"), "")
        places = [self._wdir, os.path.dirname(os.path.join(self._wdir, script))]
        places += [os.path.join(self._wdir, entry) for entry in self._env.get("PYTHONPATH", "").split(":") if entry]
        user = self._env.get("PYTHONUSERBASE") or os.path.join(self._env.get("HOME", "/"), ".local")
        bases = [self._env.get("PYTHONHOME", "").partition(":")[0], user]
        bases += [os.path.dirname(os.path.dirname(one)) for one in (path, os.path.realpath(path))]
        bases += ["/usr/local"] if "/usr" in bases else []
        libs = [f"{base}/{lib}" for base in filter(None, dict.fromkeys(bases)) for lib in ("lib", "lib64")]
        pythons = [f"{lib}/{name}" for lib in libs for name in listed(lib) if name.startswith(("python3", "pypy3"))]
        places += [f"{python}/{packages}" for python in pythons for packages in ("site-packages", "dist-packages")]
        return any(os.path.isdir(f"{place}/{name}") for place in dict.fromkeys(places) for name in PACKAGES)


def needed(fd: int, head: bytes) -> list[str]:
    """The names of the libraries that an ELF file asks for; raises what it may for one that is broken.

    `elf` reads all of it.  None are found on other machines than those with 64 bits, the lowest first.
    """
    entries, start = _dynamic(fd, head)
    found = [os.pread(fd, _SHORT, start + value).partition(b"\0")[0] for tag, value in entries if tag == 1]
    return [os.fsdecode(name) for name in found]


def dynamic_names(fd: int, head: bytes) -> bytes:
    """The names of libraries and functions that an ELF file asks for or offers, with NULs between; b"": it is static.

    Raises what it may, also for more of them than a program has.
    """
    entries, start = _dynamic(fd, head)
    size = dict(entries).get(10, 0)
    if size > _NAMES:
        raise ValueError(size)
    return os.pread(fd, size, start)


def _dynamic(fd: int, head: bytes) -> tuple[list[tuple[int, int]], int]:
    """The entries of the dynamic section, and where in the file their names begin; none for a static program."""
    if head[4:6] != b"\x02\x01":
        return [], 0
    first, count = int.from_bytes(head[32:40], "little"), int.from_bytes(head[56:58], "little")
    words = memoryview(os.pread(fd, 56 * count, first)).cast("Q").tolist()
    segments = [words[at : at + 7] for at in range(0, len(words), 7)]  # kind, offset, address, …, size in the file
    dynamic = next((one for one in segments if one[0] & 0xFFFFFFFF == 2), None)
    if dynamic is None:
        return [], 0
    words = memoryview(os.pread(fd, min(dynamic[4], _DYNAMIC) & ~15, dynamic[1])).cast("Q").tolist()
    entries = list(zip(words[::2], words[1::2]))
    names = next(value for tag, value in entries if tag == 5)
    start = next(
        one[1] + names - one[2] for one in segments if one[0] & 0xFFFFFFFF == 1 and 0 <= names - one[2] < one[4]
    )
    return entries, start


def lines(text: bytes) -> Iterator[list[str]]:
    """The words of each line of a shell's text that may be programs and arguments."""
    for line in text.replace(b"\\\n", b" ").split(b"\n"):
        if line.lstrip()[:1] != b"#":
            words = [os.fsdecode(word) for word in line.translate(_SPLIT).split()]
            yield [word for word in words if word not in _BUILTINS]


def may_be_program(word: str) -> bool:
    """False for options, numbers and what only a shell can read."""
    return word[:1] not in ("-", "+", "$", "[", "") and not word.isdigit()


def which(word: str, env: Mapping[str, str], wdir: str) -> str:
    """The program that a word means to a shell; "" if there is none."""
    folders = [""] if "/" in word else env.get("PATH", os.defpath).split(":")
    for folder in folders:
        path = os.path.join(wdir, folder, word)
        try:
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
        except ValueError:  # no name of a file
            return ""
    return ""
