"""What `--version --verbose` prints: the facts about this host and installation that a bug report needs.

Of variables only names are shown, and a home directory is written `~`.  No package is imported to learn its version,
and nothing has to be there: what cannot be read is left out, or called missing.  Programs are asked for their version,
each no longer than `_PATIENCE` seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mslaunch.errors import counted, printable
from mslaunch.host.start_limits import control_groups
from mslaunch.host.system_files import head_of, listed
from mslaunch.host.usable_cpus import count_cores, usable_cpus

_PACKAGES = ("paramiko", "cryptography", "mpi4py", "mindspore", "torch", "jax")
_PROGRAMS = ("python3", "ssh", "mpirun", "mpiexec", "mpiexec.hydra", "prterun", "srun", "msrun", "torchrun")
_EXPECTED = _PROGRAMS[:3]
_UNASKED = ("msrun", "torchrun")  # they import their library first, which takes seconds
_LIBRARIES = ("libmpi.so", "libmpich.so", "libmpi_cxx.so", "libpmix.so", "libpmi.so", "libpmi2.so")
_CACHE = "/etc/ld.so.cache"
#: begin the names of variables that change what mslaunch or an MPI library does
_STEERING = ("MSLAUNCH_", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "HYDRA_", "I_MPI_", "MPIEXEC_", "MS_", "PET_")
#: what marks a container: files, and variables
_CONTAINER_FILES = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}
_CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "Kubernetes", "APPTAINER_CONTAINER": "Apptainer", "SINGULARITY_CONTAINER": "Singularity",
    "container": "the variable `container` is set",
}  # fmt: skip
_CONTAINER_GROUPS = ("docker", "kubepods", "containerd", "libpod", "lxc", "garden")
_PLACES = ("/proc/self", "/sys/devices/system/cpu", "/dev/null", "/dev/ptmx", "/dev/pts", "/dev/shm", "/tmp")
_PATIENCE = 5.0
_WIDTH = 18  # of the names of facts
_LINE = 100  # letters of an answer of a program


def report(version: str, environ: Mapping[str, str], managers: Mapping[str, str]) -> str:
    """The text; `version`: what --version alone prints; `managers`: resource manager -> the variable that shows it."""
    facts: dict[str, Callable[[], Iterable[str]]] = {
        "installed as": lambda: [_installation()],
        "python": _python,
        "packages": _packages,
        "system": _system,
        "user": lambda: ["root" if os.geteuid() == 0 else "not root"],
        "cpus": _cpus,
        "control group": _control_group,
        "limits": _limits,
        "container": lambda: _container(environ),
        "resource manager": lambda: [name for name, variable in managers.items() if variable in environ] or ["none"],
        "programs": lambda: _programs(environ.get("PATH", os.defpath)),
        "MPI libraries": lambda: _libraries(environ),
        "variables set": lambda: [", ".join(sorted(name for name in environ if name.startswith(_STEERING))) or "none"],
        "missing": lambda: _missing(environ),
    }
    lines = []
    for name, learn in facts.items():
        for at, value in enumerate(_learned(learn)):
            lines.append(f"{'' if at else name + ':'}".ljust(_WIDTH) + value)
    home = environ.get("HOME", "").rstrip("/")
    text = "\n".join(lines)
    return printable(f"{version}\n\n{text.replace(home + '/', '~/') if home else text}")


def _learned(learn: Callable[[], Iterable[str]]) -> list[str]:
    """One fact must not hide the others, whatever is broken on a host that someone reports."""
    try:
        return list(learn())
    except Exception as error:
        return [f"not known: {type(error).__name__}: {error}"]


def _installation() -> str:
    """What kind of installation this is, and where."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = os.path.dirname(package)
    if not os.path.isdir(package):
        return f"an archive, {root}"
    import importlib.metadata

    found = [one for one in importlib.metadata.distributions(name="mslaunch", path=[root]) if one.read_text("WHEEL")]
    if found:
        tool = next((name for name in ("pipx", "uv/tools") if f"/{name}/" in root), "")
        by = (found[0].read_text("INSTALLER") or "an unknown installer").strip()
        return f"a wheel, by {tool.partition('/')[0] or by}{' tool' * (tool == 'uv/tools')}, {root}"
    if os.path.exists(os.path.join(root, "pyproject.toml")):
        return f"a source tree, {root}"
    return f"a directory, {root}"


def _python() -> Iterator[str]:
    """The interpreter, and that of the ranks if they call `python`."""
    import platform

    kind = " in a virtual environment" if sys.prefix != sys.base_prefix else ""
    yield f"{platform.python_implementation()} {platform.python_version()}, {sys.executable or 'no path'}{kind}"


def _packages() -> list[str]:
    import importlib.metadata

    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} -")
    return [", ".join(found)]


def _system() -> Iterator[str]:
    import platform

    name = os.uname()
    yield f"{name.sysname} {name.release} {name.machine}"
    rows = (line.partition("=") for line in _text("/etc/os-release").splitlines())
    release = {key: value.strip("\"'") for key, _, value in rows}
    if release.get("PRETTY_NAME"):
        yield release["PRETTY_NAME"]
    library, version = platform.libc_ver()
    yield f"{library or 'libc: not glibc'} {version}".strip()


def _cpus() -> Iterator[str]:
    usable = usable_cpus()
    yield f"{counted(len(usable), 'cpu')} of {os.cpu_count()}, {counted(count_cores(usable), 'core')}"


def _control_group() -> Iterator[str]:
    """The tightest of the limits of our control group and of those above it; versions 1 and 2."""
    tightest: dict[str, float] = {}

    def limit(name: str, value: float) -> None:
        tightest[name] = min(value, tightest.get(name, value))

    for folder in control_groups("memory", "pids", "cpu"):
        for file in ("memory.max", "memory.limit_in_bytes"):
            if (text := _text(f"{folder}/{file}").strip()).isdigit() and int(text) < 1 << 60:
                limit("MiB of memory", int(text) >> 20)
        if (text := _text(f"{folder}/pids.max").strip()).isdigit():
            limit("processes", int(text))
        quota = _text(f"{folder}/cpu.max").split() or [
            _text(f"{folder}/cpu.cfs_{part}_us").strip() for part in ("quota", "period")
        ]
        if len(quota) == 2 and all(map(str.isdigit, quota)) and int(quota[1]):
            limit("cpus", int(quota[0]) / int(quota[1]))
    yield ", ".join(f"{value:g} {name}" for name, value in tightest.items()) or "no limit seen"


def _limits() -> Iterator[str]:
    import resource

    def shown(value: int) -> str:
        return "unlimited" if value == resource.RLIM_INFINITY else str(value)

    rows = (("open files", "NOFILE"), ("processes", "NPROC"), ("locked memory", "MEMLOCK"), ("address space", "AS"))
    found = ((what, resource.getrlimit(getattr(resource, "RLIMIT_" + name))) for what, name in rows)
    yield ", ".join(f"{what} {shown(soft)} ({shown(hard)})" for what, (soft, hard) in found)


def _container(environ: Mapping[str, str]) -> list[str]:
    seen = [what for path, what in _CONTAINER_FILES.items() if os.path.exists(path)]
    seen += [what for name, what in _CONTAINER_VARIABLES.items() if name in environ]
    groups = _text("/proc/1/cgroup")
    seen += [f"the control group of process 1 names {word}" for word in _CONTAINER_GROUPS if word in groups]
    return [", ".join(seen) or "none seen"]


def _programs(path: str) -> Iterator[str]:
    """Each program of this name on PATH that comes first, and what it says of its version."""
    from mslaunch.host.helper_programs import find_helper

    for name in _PROGRAMS:
        file = find_helper(name, {"PATH": path})
        if file:
            real = os.path.realpath(file)
            said = "" if name in _UNASKED else ": " + _version(file, "-V" if name == "ssh" else "--version")
            yield f"{file}{f' -> {real}' * (real != file)}{said}"
        elif name in _EXPECTED:
            yield f"{name}: not on PATH"


def _version(file: str, option: str) -> str:
    """The first line with a digit of what a program says of its version."""
    import subprocess

    try:
        done = subprocess.run(
            [file, option], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return f"it does not answer: {getattr(error, 'strerror', None) or 'it took too long'}"
    text = done.stdout[: 1 << 16].decode("utf-8", "replace")
    lines = [*filter(None, (" ".join(line.split()) for line in text.splitlines())), "it says nothing"]
    return next((line for line in lines if any(map(str.isdigit, line))), lines[0])[:_LINE]


def _libraries(environ: Mapping[str, str]) -> list[str]:
    """Libraries of MPI and PMI that the dynamic linker knows of, or that lie in LD_LIBRARY_PATH or beside Python."""
    found = set(_noted(head_of(_CACHE, 1 << 24)))
    for folder in (*environ.get("LD_LIBRARY_PATH", "").split(":"), os.path.join(sys.prefix, "lib")):
        if folder:
            found.update(os.path.join(folder, name) for name in listed(folder) if name.startswith(_LIBRARIES))
    return sorted(found) or ["none found"]


def _noted(cache: bytes) -> Iterator[str]:
    """The paths in what ldconfig(8) has written; they stand between zeros."""
    for name in map(str.encode, _LIBRARIES):
        at = cache.find(b"/" + name)
        while at >= 0:
            begin, end = cache.rfind(b"\0", 0, at) + 1, cache.find(b"\0", at)
            yield os.fsdecode(cache[begin : end if end >= 0 else None])
            at = cache.find(b"/" + name, at + 1)


def _missing(environ: Mapping[str, str]) -> list[str]:
    """What a launch can do without, or not: places, and rights."""
    found = [path for path in _PLACES if not os.path.exists(path)]
    found += [f"{name} is not set" for name in ("HOME", "PATH", "TERM") if not environ.get(name)]
    for path in ("/tmp", environ.get("HOME", "")):
        if path and os.path.isdir(path) and not os.access(path, os.W_OK):
            found.append(f"{path} cannot be written to")
    return [", ".join(found) or "nothing"]


def _text(path: str) -> str:
    return head_of(path, 1 << 16).decode("utf-8", "replace")


def wanted(words: Sequence[str]) -> bool:
    """Whether --verbose stands among the options of a line that has --version."""
    names = {"v", "verbose"}
    at = next((at for at, word in enumerate(words) if _letters(word) & {"V", "version", "info"}), len(words))
    end = next((end for end in range(at, len(words)) if words[end][:1] != "-"), len(words))
    return any(_letters(word) & names for word in words[:end])


def _letters(word: str) -> set[str]:
    """The options that a word may name: itself, or the letters of a bundle."""
    if word[:1] != "-":
        return set()
    bare = word.lstrip("-")
    return {bare, *(bare if word[:2] != "--" and len(bare) == 2 else "")}
