"""The detection of a program's MPI library: with files that the tests make, and with real libraries if installed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import elf_files
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mslaunch.agent.mpi import library_of_program, library_of_python
from mslaunch.agent.mpi.library_of_program import MpiLibrary
from mslaunch.agent.mpi.openmpi_hint import may_be_openmpi, which
from mslaunch.host import dynamic_linker, elf

sys.path.append(str(Path(__file__).resolve().parents[4] / "scripts"))

from mpi_lib import libraries

VERSION = "python3.11"


@pytest.fixture
def bare(monkeypatch):
    """No cache and no default directories, so that only what a test makes is found."""
    monkeypatch.setattr(dynamic_linker, "_cache", dynamic_linker.Cache(b""))
    monkeypatch.setattr(dynamic_linker, "_default_folders", lambda machine: ())


class World:
    """A directory with programs, and the environment in which a rank looks for them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.env = {"PATH": str(root / "bin"), "HOME": str(root / "home")}

    def library(self, name, symbols, *needed, **more):
        return elf_files.write(
            self.root / name, elf_files.elf(*needed, soname=os.path.basename(name), symbols=symbols, **more)
        )

    def program(self, name, *needed, rpath=""):
        return str(
            elf_files.write(self.root / "bin" / name, elf_files.elf(*needed, rpath=rpath or str(self.root / "lib")))
        )

    def script(self, name, text):
        return str(elf_files.write(self.work / name, text))

    def find(self, path, *argv, **env):
        """The library that is found; if it is Open MPI's, the quick hint must not have ruled it out."""
        program = str(path), [str(path), *argv], {**self.env, **env}, str(self.work)
        found = library_of_program.find(*program)
        assert not (found and found.family == "pmix") or may_be_openmpi(*program)
        return found


@pytest.fixture
def world(tmp_path, bare):
    """Three MPI libraries, each in a directory of its own name, and a tool that uses none."""
    made = World(tmp_path)
    made.library("mpich/libmpi.so.12", elf_files.MPICH)
    made.library("intel/libmpi.so.12", elf_files.INTEL)
    made.library("open/libmpi.so.40", elf_files.OPEN_MPI)
    made.library("lib/libplain.so", ("plain",))
    made.program("tool", "libplain.so")
    for name in ("env", "timeout", "nice", "bash", "sh"):
        made.program(name, "libc.so.6")
    for name in ("mpich", "intel", "open"):
        made.program(f"p-{name}", "libmpi.so.40" if name == "open" else "libmpi.so.12", rpath=str(tmp_path / name))
    return made


def named(found):
    return found and (found.family, found.name)


OPEN, MPICH, INTEL = ("pmix", "Open MPI"), ("pmi", "MPICH"), ("pmi", "Intel MPI")


# --- programs


@pytest.mark.parametrize("name, who", [("mpich", MPICH), ("intel", INTEL), ("open", OPEN), ("none", None)])
def test_the_linked_library_is_found(world, name, who):
    world.program("p-none", "libplain.so")
    assert named(world.find(world.root / "bin" / f"p-{name}")) == who


def test_the_path_of_the_library_is_known(world):
    os.rename(world.root / "mpich/libmpi.so.12", world.root / "mpich/libmpi.so.12.1")
    (world.root / "mpich/libmpi.so.12").symlink_to("libmpi.so.12.1")
    assert world.find("../bin/p-mpich") == MpiLibrary(
        "pmi", "MPICH", str(world.root / "mpich/libmpi.so.12.1"), "", False
    )


def test_a_library_linked_through_others_is_found(world):
    world.library("lib/libscience.so", (), "libmore.so", runpath="$ORIGIN")
    world.library("lib/libmore.so", (), "libmpi.so.40", runpath=str(world.root / "open"))
    assert named(world.find(world.program("p", "libplain.so", "libscience.so"))) == OPEN


def test_a_preloaded_library_is_found(world):
    tool = world.root / "bin/tool"
    assert named(world.find(tool, LD_PRELOAD=f"nowhere.so {world.root}/intel/libmpi.so.12")) == INTEL
    assert named(world.find(tool, LD_PRELOAD="libmpi.so.40", LD_LIBRARY_PATH=str(world.root / "open"))) == OPEN


@pytest.mark.parametrize("symbols", [(), ("MPI_Init_thread",), ("MPI_Init", "other"), ("MPIR_Dup_fn", "decode_frame")])
def test_a_libmpi_without_mpi_symbols_is_ignored(world, symbols):
    world.library("lib/libmpi.so.1", symbols)
    assert world.find(world.program("p", "libmpi.so.1")) is None


def test_open_mpi_is_recognised_by_its_dependencies(world):
    world.library("lib/libmpi.so.99", ("MPI_Init",), "libopen-pal.so.99")
    assert named(world.find(world.program("p", "libmpi.so.99"))) == OPEN


# --- PMIx


def pmix_of(world, folder="open"):
    found = world.find(world.root / "bin/p-open")
    return found.pmix.replace(str(world.root), ""), found.embedded


@pytest.mark.parametrize("place", ["open/openmpi/libpmix.so.2", "open/libpmix.so.2"])
def test_pmix_beside_the_library_is_found(world, place):
    world.library(place, ("PMIx_server_init",))
    assert pmix_of(world) == (f"/{place}", False)


def test_the_linked_pmix_is_preferred(world):
    """The one that libmpi or libopen-pal needs is loaded, whatever other copies exist."""
    world.library("open/libpmix.so.2", ())
    world.library("elsewhere/libpmix.so.2", ())
    world.library("open/libopen-pal.so.80", ("PMIx_Init",), "libpmix.so.2", runpath=str(world.root / "elsewhere"))
    world.library("open/libmpi.so.40", elf_files.OPEN_MPI, "libopen-pal.so.80", runpath="$ORIGIN")
    assert pmix_of(world) == ("/elsewhere/libpmix.so.2", False)


@pytest.mark.parametrize("plugins", ["open/openmpi", "open/openmpi/lib/openmpi3"])
def test_pmix_that_a_plugin_needs_is_found(world, plugins):
    world.library("elsewhere/libpmix.so.2", ())
    world.library(f"{plugins}/mca_pmix_ext3x.so", (), "libpmix.so.2", runpath=str(world.root / "elsewhere"))
    assert pmix_of(world) == ("/elsewhere/libpmix.so.2", False)


def test_pmix_built_into_the_library_is_found(world):
    world.library("open/libopen-pal.so.40", ("PMIx_Init", "PMIx_Abort"))
    world.library("open/libmpi.so.40", elf_files.OPEN_MPI, "libopen-pal.so.40", runpath="$ORIGIN")
    assert pmix_of(world) == ("", True)
    world.library("venv/lib/openmpi/libpmix.so.2", ())
    found = world.find(world.root / "bin/p-open")
    assert library_of_program.find_pmix(found, {}) == ""
    assert (
        library_of_program.find_pmix(found, {"VIRTUAL_ENV": f"{world.root}/venv"})
        == f"{world.root}/venv/lib/openmpi/libpmix.so.2"
    )


def test_pmix_built_into_a_plugin_is_found(world):
    elf_files.write(world.root / "open/openmpi/mca_pmix_pmix3x.so", elf_files.elf())
    assert pmix_of(world) == ("", True)


def test_an_open_mpi_without_pmix_has_none(world):
    assert pmix_of(world) == ("", False)


def test_pmix_is_searched_for_in_the_environment(world):
    """In prefixes, PATH and LD_LIBRARY_PATH of the rank."""
    own = elf.read("/proc/self/exe")
    assert library_of_program.any_pmix(world.env) == ""
    world.library("loader/libpmix.so.2", (), machine=own.machine)
    assert (
        library_of_program.any_pmix({"LD_LIBRARY_PATH": f"{world.root}/loader"}) == f"{world.root}/loader/libpmix.so.2"
    )
    world.library("lib/libpmix.so.2", ())
    assert library_of_program.any_pmix(world.env) == f"{world.root}/lib/libpmix.so.2"
    world.library("opal/lib/libpmix.so.2", ())
    assert (
        library_of_program.any_pmix({**world.env, "OPAL_PREFIX": f"{world.root}/opal"})
        == f"{world.root}/opal/lib/libpmix.so.2"
    )


# --- programs that run other programs


@pytest.mark.parametrize("words", [
    "env A=1 -u B p-open x", "timeout 10 nice -n 5 p-open", "bash -c 'cd x; exec p-open $A'", "bash -ec p-open",
    "env -S p-open", "sh -x run.sh", "run.sh", "bash -c 'exec \"$@\"' x p-open", "passes.sh p-open", "env run.sh",
])  # fmt: skip
def test_wrappers_are_followed(world, words):
    import shlex

    world.script("run.sh", "#!/bin/sh\n# p-mpich is not run\nset -e\nA=2 p-open \\\n  -v | tool\n")
    world.script("passes.sh", '#!/usr/bin/env bash\nexport A=1\nexec "$@"\n')
    name, *rest = shlex.split(words)
    path = name if name.endswith(".sh") else world.root / "bin" / name
    if words.startswith("env run"):
        rest = ["./run.sh"]
    assert named(world.find(path, *rest)) == OPEN


@pytest.mark.parametrize("words", ["env", "env tool p", "timeout 5 nothere", "bash", "bash -c", "bash -c nothere"])
def test_wrappers_of_wrappers_are_followed(world, words):
    name, *rest = words.split()
    assert world.find(world.root / "bin" / name, *rest) is None


def test_variables_that_a_wrapper_sets_count(world):
    world.program("p", "libmpi.so.40", rpath="/nowhere")
    where = f"LD_LIBRARY_PATH={world.root}/open"
    assert named(world.find(world.root / "bin/env", where, "p")) == OPEN
    assert named(world.find(world.root / "bin/sh", "-c", f"export {where}:$LD_LIBRARY_PATH; p")) == OPEN


def test_the_first_program_with_a_library_decides(world):
    assert named(world.find(world.root / "bin/bash", "-c", "tool; p-intel; p-open")) == INTEL


def test_a_script_with_many_words_costs_little(world, monkeypatch):
    """At most forty lookups, however long the script is."""
    looked = []
    monkeypatch.setattr(library_of_program, "which", lambda *words: looked.append(words) or which(*words))
    text = "#!/bin/sh\n" + "".join(f"word{number} x\n" for number in range(4000))
    assert world.find(world.script("long.sh", f"{text}p-open\n")) is None
    assert len(looked) == 40


def test_a_script_that_runs_itself_ends_the_search(world):
    assert world.find(world.script("me.sh", f"#!/bin/sh\n{world.work}/me.sh\n./me.sh\n")) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200), st.lists(st.text(st.characters(exclude_characters="\0"), max_size=8), max_size=4))
def test_any_script_and_arguments_are_searched_without_error(world, text, words):
    for head in (b"#!", b"#!/bin/sh\n", b"#!/usr/bin/env ", b"#!/usr/bin/env bash\n", b""):
        path = elf_files.write(world.work / "any", head + text)
        library_of_program.find(str(path), ["any", *words], world.env, str(world.work))
    for name in ("bash", "env"):
        world.find(world.root / "bin" / name, *words)
    world.find(world.root / "bin/bash", "-c", os.fsdecode(text.replace(b"\0", b"")))


# --- Python


@pytest.fixture
def python(world):
    """An installation without mpi4py; `python.site` is its site-packages."""
    world.site = world.root / "py/lib" / VERSION / "site-packages"
    elf_files.write(world.site / "json/__init__.py", "")
    world.python = str(elf_files.write(world.root / "py/bin" / VERSION, elf_files.elf("libplain.so")))
    (world.root / "py/bin/python").symlink_to(VERSION)
    world.script("mpi.py", "from mpi4py import MPI\n")
    world.script("plain.py", "import sys\nprint(sys.argv)\n")
    return world


def install(site, who, root):
    """mpi4py, linked to a library."""
    library = "libmpi.so.40" if who == "open" else "libmpi.so.12"
    elf_files.write(site / "mpi4py/__init__.py", "")
    elf_files.write(
        site / "mpi4py/MPI.cpython-311-x86_64-linux-gnu.so", elf_files.elf(library, runpath=str(root / who))
    )


@pytest.fixture
def wheel(python):
    """mpi4py as its wheels are: it looks for a library when it is imported."""
    for abi, library in (("mpich", "libmpi.so.12"), ("openmpi", "libmpi.so.40")):
        elf_files.write(python.site / f"mpi4py/MPI.{abi}.cpython-311-x86_64-linux-gnu.so", elf_files.elf(library))
    return python


def test_python_without_mpi4py_uses_no_mpi(python):
    assert python.find(python.python, "mpi.py") is None


def test_pmi_if_mpi4py_is_installed_pmix_only_if_it_is_used(python):
    install(python.site, "mpich", python.root)
    assert named(python.find(python.python, "plain.py")) == MPICH
    install(python.site, "open", python.root)
    assert python.find(python.python, "plain.py") is None
    assert named(python.find(python.python, "mpi.py")) == OPEN


@pytest.mark.parametrize("words, used", [
    ("mpi.py", True), ("plain.py", False), ("plain.py mpi.py", True), ("-u -W ignore -Xdev mpi.py", True),
    ("-um plain", False), ("-m mpi", True), ("-mmpi", True), ("-m mpi4py", True), ("-m mpi4py.bench hello", True),
    ("-m package", True), ("-m package.none", True), ("-m json", False), ("nowhere.py", True), ("", True), ("-", True),
    ("-c pass", False), ("-c import+mpi4py", True), ("near.py", True), ("far.py", False), ("inside.py", True),
    ("program", True), ("program.zip", True),
])  # fmt: skip
def test_whether_a_script_uses_mpi4py(python, words, used):
    install(python.site, "open", python.root)
    python.script("near.py", "import os, mpi as m\n")
    python.script("far.py", "import near\n# nothing here\n")
    python.script("inside.py", "def f():\n    from package.deep import x\n")
    python.script("package/__init__.py", "")
    python.script("package/deep.py", "import mpi4py\n")
    python.script("package/__main__.py", "from .deep import x\n")
    python.script("program/__main__.py", "import mpi4py\n")
    elf_files.write(python.site / "json/__main__.py", "import sys\n")
    elf_files.write(python.work / "program.zip", b"PK\3\4 and so on")
    argv = [word.replace("+", " ") for word in words.split()]
    assert named(python.find(python.python, *argv)) == (OPEN if used else None)


def strictly(world, path, *argv):
    """Whether the program is one of MPI beyond doubt."""
    found = library_of_program.find(str(path), [str(path), *argv], world.env, str(world.work), strict=True)
    return found is not None


@pytest.mark.parametrize("who", ["mpich", "open"])
@pytest.mark.parametrize("words, certain", [
    ("mpi.py", True), ("-m mpi", True), ("-m mpi4py", True), ("-c import+mpi4py", True), ("near.py", True),
    ("plain.py", False), ("plain.py mpi.py", False), ("-m json mpi.py", False), ("-c pass", False),
    ("nowhere.py", False), ("-m nowhere", False), ("", False), ("-", False), ("program.zip", False),
    ("plain.py {bin}/p-mpich", False),
])  # fmt: skip
def test_an_installed_mpi4py_leaves_doubt(python, who, words, certain):
    install(python.site, who, python.root)
    python.script("near.py", "import mpi\n")
    elf_files.write(python.work / "program.zip", b"PK\3\4 and mpi4py")
    argv = [word.replace("+", " ").format(bin=python.root / "bin") for word in words.split()]
    assert strictly(python, python.python, *argv) is certain


@pytest.mark.parametrize("words, certain", [
    ("p-open", True), ("env A=1 p-mpich x", True), ("timeout 10 nice -n 5 p-intel", True), ("run.sh", True),
    ("bash -c 'exec p-open $A'", True), ("env run.sh", True),
    ("tool {bin}/p-mpich", False), ("env tool {bin}/p-mpich", False), ("plain.sh {bin}/p-mpich", False),
    ("bash plain.sh {bin}/p-mpich", False), ("bash -c true {bin}/p-mpich", False), ("timeout 10 tool p-intel", False),
])  # fmt: skip
def test_arguments_of_a_program_leave_doubt(world, words, certain):
    import shlex

    world.script("run.sh", "#!/bin/sh\nset -e\nexec p-open\n")
    world.script("plain.sh", "#!/bin/sh\ntool\n")
    name, *rest = (word.format(bin=world.root / "bin") for word in shlex.split(words))
    path = name if name.endswith(".sh") else world.root / "bin" / name
    assert strictly(world, path, *(f"./{word}" if word == "run.sh" else word for word in rest)) is certain


def test_only_the_beginning_of_a_long_script_is_read(python):
    install(python.site, "open", python.root)
    python.script("long.py", "#" * (1 << 18) + "\nimport mpi4py\n")
    assert python.find(python.python, "long.py") is None


def test_packages_linked_to_mpi_are_found(python):
    """Packages that are linked to an MPI library themselves, if the program mentions them."""
    elf_files.write(python.site / "h5py/defs.so", elf_files.elf("libmpi.so.40", runpath=str(python.root / "open")))
    elf_files.write(python.site / "petsc4py/lib/arch/PETSc.so", elf_files.elf("libplain.so"))
    linked = elf_files.elf("libmpi.so.40", runpath=str(python.root / "open"))
    elf_files.write(python.site / "horovod/torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so", linked)
    python.script("hvd.py", "import horovod.torch as hvd\n")
    python.script("hdf.py", "import h5py\n")
    python.script("petsc.py", "import petsc4py\n")
    assert named(python.find(python.python, "hdf.py")) == OPEN
    assert named(python.find(python.python, "hvd.py")) == OPEN
    assert python.find(python.python, "petsc.py") is None
    assert python.find(python.python, "plain.py") is None


def test_a_library_linked_to_the_interpreter_is_found(python):
    python.library("py/lib/libpython3.11.so", (), "libmpi.so.12", runpath=str(python.root / "intel"))
    elf_files.write(Path(python.python), elf_files.elf("libpython3.11.so", runpath="$ORIGIN/../lib"))
    assert named(python.find(python.python, "plain.py")) == INTEL


# --- where mpi4py is


def test_mpi4py_of_a_venv(python):
    """A venv has its own packages, and those of the system only if its pyvenv.cfg says so."""
    elf_files.write(python.root / "venv/pyvenv.cfg", f"home = {python.root}/py/bin\nversion = 3.11.7\n", 0o644)
    venv = python.root / "venv/bin/python"
    venv.parent.mkdir()
    venv.symlink_to(python.python)
    install(python.site, "mpich", python.root)
    assert python.find(venv, "mpi.py") is None
    install(python.root / "venv/lib" / VERSION / "site-packages", "open", python.root)
    assert named(python.find(venv, "mpi.py")) == OPEN
    assert named(python.find(python.python, "mpi.py")) == MPICH


def test_mpi4py_of_the_system_in_a_venv(python):
    text = f"home = {python.root}/py/bin\ninclude-system-site-packages = true\nversion_info = 3.11.7.final.0\n"
    elf_files.write(python.root / "venv/pyvenv.cfg", text, 0o644)
    venv = python.root / "venv/bin/python"
    venv.parent.mkdir()
    venv.symlink_to(python.python)
    install(python.site, "mpich", python.root)
    assert named(python.find(venv, "mpi.py")) == MPICH


def test_mpi4py_in_user_site_and_pythonpath(python):
    user = python.root / "home/.local/lib" / VERSION / "site-packages"
    install(user, "mpich", python.root)
    install(python.root / "path", "intel", python.root)
    find = python.find
    assert named(find(python.python, "mpi.py")) == MPICH
    assert named(find(python.python, "mpi.py", PYTHONPATH=f"/x:{python.root}/path")) == INTEL
    for none in (find(python.python, "-s", "mpi.py"), find(python.python, "mpi.py", PYTHONNOUSERSITE="1")):
        assert none is None
    assert named(find(python.python, "-E", "mpi.py", PYTHONPATH=f"{python.root}/path")) == MPICH
    assert find(python.python, "-I", "mpi.py", PYTHONPATH=f"{python.root}/path") is None
    assert find(python.python, "mpi.py", PYTHONUSERBASE="/nowhere") is None


def test_mpi4py_beside_the_script(python):
    install(python.work, "mpich", python.root)
    assert named(python.find(python.python, "mpi.py")) == MPICH


def test_scripts_that_name_their_interpreter(python):
    install(python.site, "open", python.root)
    path = {"PATH": f"{python.root}/py/bin:{python.env['PATH']}"}
    for first in (f"{python.python} -u", f"{python.root}/bin/env python", f"{python.root}/bin/env -S python -u"):
        script = python.script("start", f"#!{first}\nimport mpi4py\n")
        assert named(python.find(script, **path)) == OPEN
    assert named(python.find(python.root / "bin/env", "python", "mpi.py", **path)) == OPEN
    assert python.find(python.root / "bin/env", "python", "plain.py", **path) is None


def test_pyenv_shims_are_followed(python):
    """The version is named by a variable, by a file in a parent directory, or by pyenv's global file."""
    root = python.root / "pyenv"
    shim = elf_files.write(root / "shims/python", '#!/usr/bin/env bash\nexec pyenv exec python "$@"\n')
    for version, who in (("3.9.1", "mpich"), ("3.9.18", "intel"), ("3.12.0", "open")):
        name = f"python{version.rpartition('.')[0]}"
        elf_files.write(root / "versions" / version / "bin" / name, elf_files.elf())
        (root / "versions" / version / "bin/python").symlink_to(name)
        install(root / "versions" / version / "lib" / name / "site-packages", who, python.root)
    elf_files.write(root / "version", "3.12.0\n", 0o644)
    assert named(python.find(shim, "mpi.py")) == OPEN
    elf_files.write(python.root / ".python-version", "3.9.1\n", 0o644)
    assert named(python.find(shim, "mpi.py")) == MPICH
    assert named(python.find(shim, "mpi.py", PYENV_VERSION="3.9")) == INTEL
    path = f"{root}/shims:{python.root}/py/bin"
    assert python.find(shim, "mpi.py", PYENV_VERSION="system", PATH=path) is None


# --- which library mpi4py takes


def test_the_wheel_takes_the_library_installed_beside_it(wheel):
    assert wheel.find(wheel.python, "mpi.py") is None
    wheel.library("py/lib/libmpi.so.12", elf_files.MPICH)
    elf_files.write(wheel.root / "py/lib/libmpi.so", "INPUT(libmpi.so.12)\n")
    assert named(wheel.find(wheel.python, "mpi.py")) == MPICH
    wheel.library("home/.local/lib/libmpi.so", elf_files.OPEN_MPI)
    assert named(wheel.find(wheel.python, "mpi.py")) == MPICH  # the system's prefix is last, but has .12 before


def test_the_wheel_takes_the_library_that_the_loader_finds(wheel):
    assert named(wheel.find(wheel.python, "mpi.py", LD_LIBRARY_PATH=str(wheel.root / "open"))) == OPEN
    both = f"{wheel.root}/open:{wheel.root}/intel"
    assert named(wheel.find(wheel.python, "mpi.py", LD_LIBRARY_PATH=both)) == INTEL  # .12 is asked for first


def test_the_wheel_takes_the_library_that_a_variable_names(wheel):
    root = wheel.root
    wheel.library("py/lib/libmpi.so.12", elf_files.MPICH)

    def find(**env):
        return named(wheel.find(wheel.python, "mpi.py", **env))

    assert find(MPI4PY_LIBMPI=f"{root}/open/libmpi.so.40") == OPEN
    assert find(MPI4PY_LIBMPI=f"/nowhere.so:{root}/intel") == INTEL
    assert find(MPI4PY_LIBMPI="$MINE/libmpi.so.40", MINE=f"{root}/open") == OPEN
    assert find(MPI4PY_LIBMPI="libmpi.so.40", LD_LIBRARY_PATH=f"{root}/open") == OPEN
    assert find(MPI4PY_MPIABI="Open_MPI", LD_LIBRARY_PATH=f"{root}/open") == OPEN
    assert find(MPI4PY_MPIABI="impi", LD_LIBRARY_PATH=f"{root}/intel") == INTEL


def test_an_unused_open_mpi_does_not_lead_to_another_library(wheel):
    """mpi4py would load Open MPI, so an MPICH that is also installed must not count."""
    wheel.library("py/lib/libmpi.so", elf_files.OPEN_MPI)
    wheel.library("py/lib/libmpi.so.12", elf_files.MPICH)
    assert wheel.find(wheel.python, "plain.py") is None


# --- the command line of Python


@given(
    st.lists(
        st.sampled_from(
            ["-u", "-m", "-c", "-W", "x", "-Wx", "--help", "-", "-Xc", "-um", "--", "--check-hash-based-pycs"]
        )
    )
)
def test_any_python_command_line_is_read(words):
    kind, what, rest, _ = library_of_python.parse(["python", *words])
    assert kind in ("script", "module", "text", "stdin")
    assert len(rest) <= len(words) and (what or kind != "script")


# --- the real ones

PROGRAMS = [("hpcc", OPEN), ("NPopenmpi", OPEN), ("NPmpich2", MPICH)]


@pytest.mark.parametrize("program, who", PROGRAMS)
def test_debians_mpi_programs_are_recognised(need, program, who):
    found = library_of_program.find(need(program), [program], os.environ, "/")
    assert named(found) == who
    assert os.path.isfile(found.path) and os.path.realpath(found.path) == found.path
    if who == OPEN:
        assert os.path.isfile(found.pmix) and not found.embedded


@pytest.mark.parametrize("name", libraries.NAMES)
def test_detection_agrees_with_mpi4py(tmp_path, name):
    """mpi4py reports which library it has loaded."""
    import subprocess

    known = libraries.find_all().get(name)
    if not known:
        pytest.skip(f"NOT TESTED, not installed: {name} ({libraries.variable(name)})")
    code = (
        "from mpi4py import rc; rc.initialize = False\nfrom mpi4py import MPI\nimport os\n"
        "for line in open('/proc/self/maps'):\n"
        "    if '/libmpi' in line: print(os.path.realpath(line.split(None, 5)[5].strip())); break\n"
    )
    said = subprocess.run([known.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    found = library_of_program.find(known.python, [known.python, "-c", code], os.environ, str(tmp_path))
    assert found is not None and found.path == said
    assert (found.family == "pmix") == known.open_mpi
    assert not known.open_mpi or os.path.isfile(found.pmix)
    expected = {"mpich": "MPICH", "impi": "Intel MPI"}.get(name, "Open MPI")
    assert found.name == expected


@pytest.mark.parametrize("program", ["true", "bash", "git", sys.executable])
def test_programs_without_mpi_cost_little(need, program, tmp_path):
    """Less than a millisecond on an idle machine; the best of many runs counts, and the bound allows for load."""
    path = need(program)
    argv = [path, "-c", "pass"] if program == sys.executable else [path]

    def once():
        begun = time.perf_counter()
        found = library_of_program.find(path, argv, os.environ, str(tmp_path))
        assert found is None or found.family == "pmi" or program == sys.executable
        return time.perf_counter() - begun

    assert min(once() for _ in range(20)) < 0.005
