"""The MPI library that a Python program would load, and whether it seems to load one at all.

mpi4py is looked for where this interpreter would look (venv, user site, PYTHONPATH, Debian's directories), and its
library as mpi4py itself does.  It may be installed and not used, so the program's text is searched for its name.  No
Python is run.  A program that cannot be read counts as one that uses MPI: to serve it needlessly costs a tenth of a
second, and not to serve it makes n copies of rank 0.
"""

from __future__ import annotations

import os

from mslaunch.agent.mpi.openmpi_hint import PACKAGES
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.system_files import head_of, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mslaunch.host.dynamic_linker import Loader
    from mslaunch.host.elf import Elf


_TEXT = 1 << 18  # of a module
_NEAR = 32  # modules next to the script that are read
_WITH_MPI4PY = (b"mpi4py", b"mpi4jax", b"dedalus", b"firedrake", b"schwimmbad", b"pylops_mpi")
#: packages that may be linked to an MPI library themselves
_LINKED = PACKAGES[1:]
_EXTENSIONS = 16  # files of a package that are looked at
_FOLDERS = 24
_ABIS = ("mpich", "openmpi", "mpiabi", "impi")
_WITH_VALUE = "WX"  # options of the interpreter that take a value


class Python:
    """One command line of an interpreter: `path` is its file as the rank names it, and `argv` its arguments.

    `strict`: a program that cannot be read counts as one that uses no package.
    """

    def __init__(self, path: str, argv: Sequence[str], loader: Loader, machine: int, strict: bool) -> None:
        self._loader = loader
        self._strict = strict
        self._machine = machine
        self._kind, self._what, self._rest, self._flags = parse(argv)
        env = {} if self._flags & {"E", "I"} else loader.env
        self._prefix, self._base, self._name, isolated = _prefixes(os.path.join(loader.wdir, path), env)
        user = not isolated and not (self._flags & {"s", "I"} or env.get("PYTHONNOUSERSITE"))
        home = loader.env.get("HOME")
        self._user = (env.get("PYTHONUSERBASE") or (f"{home}/.local" if home else "")) if user else ""
        near = os.path.dirname(self._what) if self._kind == "script" else ""
        self._near = os.path.join(loader.wdir, near)
        given = [os.path.join(loader.wdir, entry) for entry in env.get("PYTHONPATH", "").split(":") if entry]
        self._path = [*([] if "I" in self._flags else [self._near]), *given, *self._sites(isolated)]
        self._texts: list[bytes] | None = None

    def starts(self) -> Iterator[tuple[Elf, str]]:
        """Files that would be loaded, best first, and the package that loads each: MPI libraries, or linked to one."""
        folder = self._package("mpi4py")
        if folder:
            yield from ((elf, "mpi4py") for elf in self._of_mpi4py(folder))
        for name in _LINKED:
            folder = self._package(name)
            files = map(self._loader.read, _extensions(folder)) if folder and self.mentions(name) else ()
            yield from ((elf, name) for elf in files if elf and elf.machine == self._machine)

    def mentions(self, package: str) -> bool:
        """True if the program seems to use this package, or (unless `strict`) if that cannot be known."""
        if self._kind == "module" and self._what.split(".")[0] == package:
            return True
        if self._texts is None:
            self._texts = self._program()
        words = _WITH_MPI4PY if package == "mpi4py" else (package.encode(),)
        if not self._texts:
            return not self._strict
        return any(word in text for text in self._texts for word in words)

    # --- where it looks

    def _sites(self, isolated: bool) -> Iterator[str]:
        if self._user:
            yield f"{self._user}/lib/{self._name}/site-packages"
        for prefix in dict.fromkeys((self._prefix, self._prefix if isolated else self._base)):
            for lib in ("lib", "lib64"):
                yield f"{prefix}/{lib}/{self._name}/site-packages"
            if prefix == "/usr":
                yield f"/usr/local/lib/{self._name}/dist-packages"
                yield "/usr/lib/python3/dist-packages"

    def _package(self, name: str) -> str:
        return next((f"{entry}/{name}" for entry in self._path if os.path.isdir(f"{entry}/{name}")), "")

    # --- how mpi4py finds its library

    def _of_mpi4py(self, folder: str) -> Iterator[Elf]:
        """A build for several ABIs searches for a library when it is imported.  Any other is linked to one."""
        modules = [name for name in listed(folder) if name.startswith("MPI.") and name.endswith(".so")]
        abi = self._loader.env.get("MPI4PY_MPIABI", "").lower().replace("-", "").replace("_", "").replace(" ", "")
        if abi or not any(name.split(".")[1] in _ABIS for name in modules):
            wanted = "mpich" if abi == "impi" else abi
            paths = [f"{folder}/{name}" for name in modules if not wanted or name.split(".")[1] == wanted]
            yield from filter(None, map(self._loader.read, paths))
        else:
            yield from filter(None, (self._loader.find(name, self._machine) for name in self._libmpis()))

    def _libmpis(self) -> Iterator[str]:
        """What mpi4py passes to dlopen(3), in order: MPI4PY_LIBMPI, or the installation's lib/ and bare names."""
        given = self._loader.env.get("MPI4PY_LIBMPI", "")
        prefixes = dict.fromkeys((self._prefix, self._user, self._base))
        usual = [f"{prefix}/lib" for prefix in prefixes if prefix not in ("", "/usr")]
        for entry in given.split(":") if given else [*usual, ""]:
            folder = expanded(entry, self._loader.env)
            if folder and not os.path.isdir(os.path.join(self._loader.wdir, folder)):
                yield folder
            else:
                for version in ("", ".12", ".40"):
                    yield os.path.join(folder, f"libmpi.so{version}")

    # --- what it runs

    def _program(self) -> list[bytes]:
        """The texts of the program: the script, scripts in its arguments, and modules next to it; [] if unknown."""
        if self._kind == "text":
            main, folder = os.fsencode(self._what), self._near
        else:
            path = self._module() if self._kind == "module" else os.path.join(self._loader.wdir, self._what)
            if os.path.isdir(path):
                path += "/__main__.py"
            main, folder = head_of(path, _TEXT), os.path.dirname(path)
        if not main or b"PK\3\4" in main[:4096]:  # a zip with a program in it
            return []
        words = [] if self._strict else self._rest[:_NEAR]
        named = [os.path.join(self._loader.wdir, word) for word in words if word.endswith(".py")]
        return [main, *(head_of(path, _TEXT) for path in (*named, *imported(main, folder, listed(folder))))]

    def _module(self) -> str:
        """The file of `-m a.b`."""
        name = self._what.replace(".", "/")
        entries = (*self._path, f"{self._base}/lib/{self._name}")
        paths = (f"{entry}/{name}{end}" for entry in entries for end in (".py", "/__main__.py"))
        return next(filter(os.path.isfile, paths), "")


def parse(argv: Sequence[str]) -> tuple[str, str, list[str], set[str]]:
    """What an interpreter is to run ("script", "module", "text" or "stdin"), its name, its arguments, and the options.

    >>> parse(["python", "-um", "timeit", "-n", "1"])[:3]
    ('module', 'timeit', ['-n', '1'])
    """
    flags: set[str] = set()
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "-" or not word.startswith("-"):
            return ("stdin" if word == "-" else "script"), word, words, flags
        if word.startswith("--"):
            if word == "--check-hash-based-pycs" and words:
                words.pop(0)
            continue
        for index, letter in enumerate(word[1:], 2):
            if letter in "cm" or letter in _WITH_VALUE:
                value = word[index:] or (words.pop(0) if words else "")
                if letter in "cm":
                    return ("text" if letter == "c" else "module"), value, words, flags
                break
            flags.add(letter)
    return "stdin", "", [], flags


def imported(text: bytes, folder: str, names: Sequence[str]) -> list[str]:
    """The files next to a module that it imports, of these `names` in its folder."""
    modules = {name[:-3]: f"{folder}/{name}" for name in names if name.endswith(".py")}
    folders = {name for name in names if "." not in name}
    found: dict[str, None] = {}
    at = text.find(b"import ")
    while at >= 0 and len(found) < _NEAR:
        end = text.find(b"\n", at)
        line = text[text.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(text)].strip()
        at = text.find(b"import ", end) if end >= 0 else -1
        for module, inside in _imports(os.fsdecode(line[:1000])):
            first, _, below = module.lstrip(".").partition(".")
            if first in modules:
                found[modules[first]] = None
            elif first in folders:
                names_below = filter(None, ("__init__", below.replace(".", "/"), inside))
                found.update((f"{folder}/{first}/{name}.py", None) for name in names_below)
            elif not first and inside in modules:  # from . import inside
                found[modules[inside]] = None
    return list(found)[:_NEAR]


def _imports(line: str) -> Iterator[tuple[str, str]]:
    """The modules of a line `import a.b as c, d` or `from a import b, c`, each with a name that is taken from it."""
    words = line.replace(",", " , ").replace("(", " ").replace(")", " ").split()
    if words[:1] == ["from"] and len(words) > 3 and words[2] == "import":
        yield from ((words[1], name) for name in words[3:])
    elif words[:1] == ["import"]:
        yield from ((name, "") for name in words[1:])


# --- installations


def _prefixes(path: str, env: Mapping[str, str]) -> tuple[str, str, str, bool]:
    """sys.prefix, sys.base_prefix, the library's directory (python3.11), and whether only a venv's packages count."""
    real = os.path.realpath(path)
    base = env.get("PYTHONHOME", "").split(":")[0] or os.path.dirname(os.path.dirname(real))
    prefix, isolated, version = base, False, ""
    folder = os.path.dirname(path)
    for home in (os.path.dirname(folder), folder):
        config = head_of(f"{home}/pyvenv.cfg", 4096)
        if config:
            lines = [line.partition("=") for line in os.fsdecode(config).splitlines()]
            config_values = {key.strip().lower(): value.strip() for key, _, value in lines}
            prefix, isolated = home, config_values.get("include-system-site-packages", "").lower() != "true"
            if config_values.get("home"):
                base = os.path.dirname(config_values["home"])
            version = ".".join((config_values.get("version") or config_values.get("version_info") or "").split(".")[:2])
            break
    name = os.path.basename(real)
    if "." not in name and version and not name.startswith("pypy"):
        name = f"python{version}"
    if "." not in name or not os.path.isdir(f"{prefix}/lib/{name}"):
        found = [one for one in listed(f"{prefix}/lib") if one.startswith(("python3.", "pypy3."))]
        name = max(found, key=len, default=name)
    return prefix, base, name, isolated


def behind_shim(path: str, env: Mapping[str, str], wdir: str) -> str:
    """The interpreter that pyenv's shim of that name would run; "" if it is no shim."""
    folder, name = os.path.split(os.path.join(wdir, path))
    if os.path.basename(folder) != "shims":
        return ""
    root = env.get("PYENV_ROOT") or os.path.dirname(folder)
    versions = env.get("PYENV_VERSION", "").replace(":", " ").split()
    while not versions:
        versions = os.fsdecode(head_of(f"{wdir}/.python-version", 1024)).split()
        if wdir == os.path.dirname(wdir):
            break
        wdir = os.path.dirname(wdir)
    versions = versions or os.fsdecode(head_of(f"{root}/version", 1024)).split() or ["system"]
    for version in versions:
        if version == "system":
            found = [f"{one}/{name}" for one in env.get("PATH", "").split(":") if os.path.basename(one) != "shims"]
        else:
            installed = [one for one in listed(f"{root}/versions") if one == version or one.startswith(f"{version}.")]
            newest = sorted(installed, key=lambda one: (one == version, len(one), one), reverse=True)
            found = [f"{root}/versions/{one}/bin/{name}" for one in newest]
        existing = next(filter(os.path.isfile, found), "")
        if existing:
            return existing
    return ""


def expanded(text: str, env: Mapping[str, str]) -> str:
    """A text with $NAME, ${NAME} and a leading ~ replaced, by the rank's environment and not by ours."""
    if text == "~" or text.startswith("~/"):
        text = env.get("HOME", "~") + text[1:]
    for name in sorted(env, key=len, reverse=True) if "$" in text else ():
        text = text.replace("${" + name + "}", env[name]).replace("$" + name, env[name])
    return text


# --- files


def _extensions(folder: str) -> list[str]:
    """Extension modules and libraries of a package, those in its own directory first."""
    found: list[str] = []
    waiting = [folder]
    for one in waiting:
        for name in sorted(listed(one)):
            if name.endswith(".so") or ".so." in name:
                found.append(f"{one}/{name}")
            elif "." not in name and len(waiting) < _FOLDERS and not name.startswith("_") and name != "tests":
                waiting.append(f"{one}/{name}")  # a directory, or else it lists nothing
        if len(found) >= _EXTENSIONS:
            break
    return found[:_EXTENSIONS]
