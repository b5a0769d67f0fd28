"""Hints: a "no" must be true, whatever the file and wherever the library; a "yes" should be rare and cheap."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import elf_files
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mslaunch.agent.mpi.openmpi_hint import may_be_openmpi, needed

MPI = ("libc.so.6", "libmpi.so.40")


class World:
    """A directory with programs that are not installed on this system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": str(root / "home")}
        (root / "work").mkdir()

    def program(self, name, *libraries):
        return str(elf_files.write(self.root / name, elf_files.elf(*(libraries or ("libc.so.6",)))))

    def file(self, name, text, mode=0o755):
        return str(elf_files.write(self.root / name, text, mode))

    def ask(self, path, *argv, **env):
        return may_be_openmpi(str(path), [str(path), *argv], {**self.env, **env}, str(self.root / "work"))


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.program("work/app", *MPI)
    made.program("bin/known", *MPI)
    made.program("bin/tool")
    made.program("bin/python3", "libc.so.6", "libm.so.6")
    return made


@pytest.mark.parametrize("library, answer", [
    ("libm.so.6", False), ("libc.musl-x86_64.so.1", False), ("libmpi.so.40", True), ("libmpi.so.80", True),
    ("libmpi_ibm.so.3", True), ("libapp.so", True), ("libmpi_mpifh.so.40", True), ("libcuda.so.1", True),
])  # fmt: skip
def test_the_names_of_linked_libraries_decide(world, library, answer):
    assert world.ask(world.program("one", "libc.so.6", library)) is answer


@pytest.mark.parametrize("size", [1 << 16, 1 << 20])
def test_library_names_far_from_the_beginning_are_read(world, size):
    """patchelf writes them there, and so do linkers of large programs that export their symbols."""
    data = bytearray(elf_files.elf(*MPI))
    (offset,) = struct.unpack_from("<Q", data, 64 + 56 + 8)  # of the dynamic section
    (names,) = (value for tag, value in struct.iter_unpack("<QQ", data[offset:]) if tag == 5)
    moved = bytes(data[names:offset])
    end = len(data) + size
    for at in range(offset, len(data), 16):
        if data[at] == 5:
            struct.pack_into("<Q", data, at + 8, end)
    struct.pack_into("<QQ", data, 64 + 32, end + len(moved), end + len(moved))
    data[names:offset] = bytes(len(moved))
    far = elf_files.write(world.root / "far", bytes(data) + bytes(size) + moved)
    assert world.ask(far)
    assert not world.ask(world.program("near"))


@pytest.mark.parametrize("argv, answer", [
    (("sh", "-c", "echo hi"), False), (("sh", "-c", "./app"), True), (("sh", "-c", "cd x && (known)"), True),
    (("sh", "run.sh"), True), (("sh", "-c", "tool; true"), False), (("env", "A=1", "known"), True),
    (("env", "A=1", "tool"), False), (("env", "PATH=/opt/x/bin", "hidden"), True), (("nice", "-n", "1", "./app"), True),
    (("nice", "-n", "1", "tool", "x"), False), (("strange", "-x", "./app"), True), (("strange", "known"), False),
    (("env", "python3", "x.py"), False), (("sh", "-c", "python3 x.py"), False), (("static", "../work/app"), True),
])  # fmt: skip
def test_a_program_that_runs_another_is_not_ruled_out(world, argv, answer):
    """The program that needs Open MPI finds it by its own RPATH only, so nothing else on the system gives a hint."""
    for name in ("sh", "env", "nice", "strange", "static"):
        world.program(f"bin/{name}")
    world.file("work/run.sh", "# no first line\n./app\n", 0o644)
    world.file("work/x.py", "import mpi4py\n")
    assert world.ask(f"../bin/{argv[0]}", *argv[1:]) is answer


@pytest.mark.parametrize("text, answer", [
    ("#!/bin/sh\necho hi\n", False), ("#!/bin/sh\nexec ./app \"$@\"\n", True), ("#!/bin/sh -e\n# ./app\ntool\n", False),
    ("#!/usr/bin/env bash\nset -e\nknown | tee x\n", True), ("#!/bin/sh\nexec env A=1 ./app\n", True),
    ("#!/bin/sh\nexport PATH=/opt/x:$PATH\nhidden\n", True), ("#!/bin/sh\n" + "x\n" * 40_000, True),
    ("#!/usr/bin/env python3\n", False), ("#! /usr/bin/env -S python3 -u\n", False), ("#!../bin/tool\n", False),
    ("#!../bin/nowhere\n", True), ("#!\n", True), ("nothing\n", True), ("", True), ("#!/bin/sh\n\0\n", True),
])  # fmt: skip
def test_scripts_are_searched_for_programs(world, text, answer):
    assert world.ask(world.file("work/script", text)) is answer


@pytest.mark.parametrize("where", [
    "lib/python3.11/site-packages/mpi4py", "lib64/python3.9/site-packages/petsc4py",
    "home/.local/lib/python3.8/site-packages/h5py", "work/mpi4py", "given/mpi4py", "lib/python3/dist-packages/mpi4py",
])  # fmt: skip
@pytest.mark.parametrize("how", ["python3 x.py", "python3 -c pass", "script", "sh run.sh"])
def test_a_python_with_an_mpi_package_is_not_ruled_out(world, where, how):
    world.file("work/script", "#!/usr/bin/env python3\n")
    world.file("work/run.sh", "#!/bin/sh\nexec python3 x.py\n", 0o644)
    world.program("bin/sh")
    program, *argv = how.split()
    program = program if program == "script" else f"../bin/{program}"
    assert not world.ask(program, *argv, PYTHONPATH="../given")
    (world.root / where).mkdir(parents=True)
    assert world.ask(program, *argv, PYTHONPATH="../given")


def test_a_venv_of_a_python_with_an_mpi_package_is_not_ruled_out(world):
    (world.root / "venv/bin").mkdir(parents=True)
    (world.root / "venv/bin/python").symlink_to(world.root / "bin/python3")
    assert not world.ask(world.root / "venv/bin/python", "x.py")
    (world.root / "lib/python3.12/site-packages/mpi4py").mkdir(parents=True)
    assert world.ask(world.root / "venv/bin/python", "x.py")


def test_a_python_that_is_a_script_is_not_ruled_out(world):
    assert world.ask(world.file("shims/python3", "#!/bin/sh\necho hi\n"))


@pytest.mark.parametrize("name", ["LD_PRELOAD", "MPI4PY_LIBMPI"])
def test_variables_that_load_a_library_count(world, name):
    assert world.ask("../bin/tool", **{name: "/x"})


def test_a_file_that_cannot_be_read_is_not_ruled_out(world):
    os.mkfifo(world.root / "fifo")
    (world.root / "empty").write_bytes(b"")
    for name in ("fifo", "empty", "work", "nowhere"):
        assert world.ask(world.root / name)


def test_scripts_that_run_each_other_end_the_search(world):
    for name, other in (("a", "b"), ("b", "a")):
        world.file(f"work/{name}", f"#!/bin/sh\n./{other}\n")
    world.ask("./a")


@given(st.binary(max_size=300), st.integers(0, 400))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_broken_elf_files_raise_nothing(tmp_path_factory, rest, cut):
    whole = elf_files.elf(*MPI)
    path = elf_files.write(tmp_path_factory.mktemp("x") / "x", whole[:cut] + rest + whole[cut + len(rest) :])
    assert may_be_openmpi(str(path), ["x"], {}, "/") in (True, False)


def test_needed_libraries_are_those_of_readelf():
    """As readelf has it."""
    readelf = shutil.which("readelf")
    if not readelf:
        pytest.skip("needs readelf")
    for path in ("/bin/sh", "/bin/ls", os.path.realpath(sys.executable), "/usr/bin/env"):
        said = subprocess.run([readelf, "-d", path], capture_output=True, text=True, timeout=20, check=True).stdout
        libraries = [line.rpartition("[")[2][:-1] for line in said.splitlines() if "(NEEDED)" in line]
        with open(path, "rb") as file:
            assert needed(file.fileno(), file.read(4096)) == libraries


@pytest.mark.parametrize("argv", [["true"], ["sh", "-c", "echo hi"], ["env", "true"]])
def test_programs_without_mpi_cost_next_to_nothing(argv):
    path = shutil.which(argv[0])

    def took():
        begin = time.perf_counter()
        assert not may_be_openmpi(path, argv, {"PATH": "/usr/bin:/bin"}, "/")
        return time.perf_counter() - begin

    assert any(took() < 0.001 for _ in range(300)), "a tenth of that, where no other program runs meanwhile"


def test_a_fifo_is_not_opened(world):
    """Opening it for a look would end its writer with SIGPIPE."""
    os.mkfifo(world.root / "fifo")
    writer = subprocess.Popen(["sh", "-c", "echo text > fifo"], cwd=world.root)
    reader = subprocess.Popen(
        ["sh", "-c", "read go; cat fifo"], cwd=world.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert all(world.ask(world.root / "fifo") for _ in range(3000))  # until the writer waits in open
    try:
        assert reader.communicate(b"go\n", timeout=10)[0] == b"text\n"
        assert writer.wait(10) == 0
    finally:
        reader.kill()
        writer.kill()
