"""The singleton alarm, on processes that only look like ranks of MPI, and on real ones that come up alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "unit"), str(TESTS.parent / "scripts")]

import elf_files  # noqa: E402
from mpi_lib import libraries  # noqa: E402

from mslaunch.agent.mpi import singleton  # noqa: E402
from mslaunch.agent.mpi.protocols import Offer  # noqa: E402
from mslaunch.agent.mpi.singleton import SingletonWatch, find  # noqa: E402
from mslaunch.protocol.mpi import Alone  # noqa: E402
from mslaunch.runtime.loop import Loop  # noqa: E402

BOUND = 30.0

#: maps files as the loader does, and sets the variable of the first on request
RANK = """\
import mmap, sys
files = [open(name, "rb") for name in sys.argv[1:]]
held = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) for file in files]
print("loaded", flush=True)
for line in sys.stdin:
    held[0][0x10000] = int(line)
    print("set", flush=True)
"""


class Program:
    """A process that obeys one-line commands."""

    def __init__(self, *argv: str, **env: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **env}
        )
        self.said = self.process.stdout.readline().strip()
        self.pid = self.process.pid

    def tell(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "set\n"

    def end(self) -> None:
        self.process.communicate(timeout=BOUND)


@pytest.fixture
def start() -> Iterator[object]:
    programs: list[Program] = []

    def make(*argv: str, **env: str) -> Program:
        programs.append(Program(*argv, **env))
        return programs[-1]

    yield make
    for program in programs:
        program.end()


@pytest.fixture
def library(tmp_path):
    """A library of Open MPI's that is mapped and has never run."""

    def make(name="libmpi.so.40.1", symbols=("ompi_mpi_state", *elf_files.OPEN_MPI)):
        return str(elf_files.write(tmp_path / name, elf_files.elf(soname=name, symbols=symbols).ljust(0x11000, b"\0")))

    return make


@pytest.fixture
def rank(start):
    """A rank with these files in memory."""
    return lambda *files, **env: start(sys.executable, "-c", RANK, *files, **env)


class Looked:
    """A watch that looks as fast as it can, and what it reported."""

    def __init__(self, loop, monkeypatch):
        monkeypatch.setattr(singleton, "LOOKS", (0.001,))
        monkeypatch.setattr(singleton, "CONFIRM", 0.001)
        self.loop = loop
        self.pids: dict[int, int] = {}
        self.met: set[int] = set()
        self.reports: list[tuple[int, Alone]] = []
        self.count = 0
        self.watch = None

    def begin(self, **pids):
        self.pids = {int(name[1:]): pid for name, pid in pids.items()}
        self.watch = SingletonWatch(
            self.loop,
            self.look,
            self.met,
            dict.fromkeys(self.pids, Offer("pmi")),
            lambda *one: self.reports.append(one),
            lambda name, then: then(),
        )

    def look(self):
        self.count += 1
        return self.pids

    def until(self, enough):
        def late():
            raise TimeoutError(self.reports)

        timer = self.loop.after(BOUND, late)
        self.loop.run(enough)
        timer.cancel()

    def reported(self, count):
        """The first reports, as (rank, certain)."""
        self.until(lambda: len(self.reports) >= count)
        return [(rank, one.certain) for rank, one in self.reports]

    def looks(self, count=4):
        """As many more looks, and what was reported by then."""
        end = self.count + count
        self.until(lambda: self.count >= end)
        return [(rank, one.certain) for rank, one in self.reports]


@pytest.fixture
def looked(monkeypatch):
    with Loop() as loop:
        yield Looked(loop, monkeypatch)


def test_a_library_is_loaded_and_then_initialised(looked, rank, library):
    """Each is reported once, and then the watch ends."""
    path = library()
    one = rank(path)
    looked.begin(r7=one.pid)
    assert looked.reported(1) == [(7, False)]
    assert looked.reports[0][1] == Alone(path, "Open MPI", False, "pmi")
    assert looked.looks() == [(7, False)]
    one.tell("1")  # MPI_Init has begun
    assert looked.looks() == [(7, False)]
    one.tell("2")
    assert looked.reported(2) == [(7, False), (7, True)]
    assert looked.watch._timer is None


def test_initialised_at_the_first_look(looked, rank, library):
    """The proof must be seen twice."""
    one = rank(library())
    one.tell("2")
    looked.begin(r0=one.pid)
    assert looked.reported(1) == [(0, False)]
    assert looked.reported(2) == [(0, False), (0, True)]
    assert looked.count <= 4  # two looks, each asks before and after


def test_contact_between_two_looks(looked, rank, library):
    """What a rank says to us may be under way while its proof is seen."""
    one = rank(library())
    one.tell("2")
    looked.begin(r0=one.pid)
    assert looked.reported(1) == [(0, False)]
    looked.met.add(0)
    looked.until(lambda: looked.watch._timer is None)
    assert len(looked.reports) == 1


def test_ranks_that_have_contacted_the_agent(looked, rank, library):
    one = rank(library())
    looked.met.add(0)
    looked.begin(r0=one.pid)
    looked.until(lambda: looked.watch._timer is None)
    assert (looked.reports, looked.count) == ([], 2)


def test_a_restarted_rank_is_watched_again(looked, rank, library):
    """The new process counts; after the end of all ranks, `again` starts the watch anew."""
    path = library()
    looked.begin(r0=rank(path).pid)
    looked.reported(1)
    looked.pids = {0: rank(path).pid}
    assert looked.reported(2) == [(0, False), (0, False)]
    looked.pids = {}
    looked.until(lambda: looked.watch._timer is None)
    looked.pids = {0: rank(path).pid}
    looked.watch.again()
    assert looked.reported(3) == [(0, False)] * 3


def test_a_shell_that_runs_the_program(looked, start, library):
    path = library()
    one = start("sh", "-c", '"$@"; exit', "sh", sys.executable, "-c", RANK, path)
    one.tell("2")
    looked.begin(r0=one.pid)
    assert looked.reported(2) == [(0, False), (0, True)]


@pytest.mark.parametrize("variable", ["PMI_RANK=7", "PMIX_NAMESPACE=x"])
def test_programs_of_another_launcher(looked, start, library, variable):
    """They have another number than the rank, so somebody else serves them."""
    one = start("sh", "-c", f'{variable} "$@"; exit', "sh", sys.executable, "-c", RANK, library(), PMI_RANK="0")
    one.tell("2")
    looked.begin(r0=one.pid)
    assert looked.looks() == []


def test_below_a_launcher(looked, start, library, tmp_path):
    """mpirun as a rank: by its name."""
    mpirun = elf_files.write(tmp_path / "mpirun", Path("/bin/sh").read_bytes())
    one = start(str(mpirun), "-c", '"$@"; exit', "sh", sys.executable, "-c", RANK, library())
    looked.begin(r0=one.pid)
    assert looked.looks() == []


def test_many_ranks_are_examined_a_few_at_a_time(looked, rank, library, monkeypatch):
    """The loop does its other work in between."""
    monkeypatch.setattr(singleton, "_SLICE", 0.0001)
    ranks = [rank(library()) for _ in range(6)]
    turns = []

    def turn():
        turns.append(len(looked.reports))
        looked.loop.after(0.0005, turn)

    looked.loop.after(0, turn)
    looked.begin(**{f"r{index}": one.pid for index, one in enumerate(ranks)})
    assert looked.reported(6) == [(index, False) for index in range(6)]
    assert len(set(turns)) > 2


def test_other_libraries(looked, rank, library):
    none = library("libmpi.so.1", ("something", "else"))
    near = library("libmpiwhatever.so", elf_files.MPICH)
    looked.begin(r0=rank(none, near).pid, r1=rank().pid)
    assert looked.looks() == []
    assert find(rank(none, near, library("libmpich.so.12", elf_files.MPICH)).pid)[1:] == ("MPICH", False)


def test_a_library_that_was_replaced(rank, library):
    """What is in memory is not the file of that name: nothing is known of it."""
    path = library("libmpi.so.41")
    one = rank(path)
    os.unlink(path)
    library("libmpi.so.41")
    assert find(one.pid) is None


def test_a_variable_that_the_file_fills(rank, tmp_path):
    """It may be set before anybody calls MPI_Init, so it proves nothing."""
    data = elf_files.elf(symbols=("MPIR_C_MPI_UNWEIGHTED", *elf_files.MPICH), soname="libmpi.so.12")
    whole = bytearray(data.ljust(0x11000, b"\0"))
    whole[64 + 32 : 64 + 40] = (0x11000).to_bytes(8, "little")  # p_filesz
    one = rank(str(elf_files.write(tmp_path / "libmpi.so.12", bytes(whole))))
    one.tell("2")
    assert find(one.pid)[1:] == ("MPICH", False)


def test_a_process_that_has_vanished(looked):
    gone = subprocess.Popen(["true"])
    gone.wait()
    looked.begin(r0=gone.pid, r1=(1 << 22) + 1)
    assert looked.looks() == []


def test_a_rank_that_ends_while_it_is_examined(monkeypatch, rank, library):
    """Its maps were there, its memory is not."""
    one = rank(library())
    one.tell("2")
    before = singleton.read

    def read(path):
        text = before(path)
        if path.endswith("/maps"):
            one.process.kill()
            one.process.wait()
        return text

    monkeypatch.setattr(singleton, "read", read)
    assert find(one.pid) is None


# --- the real ones

LOADED = """\
from mpi4py import rc
rc.initialize = False
from mpi4py import MPI
print("loaded", flush=True)
import sys
for line in sys.stdin:
    MPI.Init()
    print("set", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", libraries.NAMES)
def test_real_libraries_alone(looked, start, name):
    known = libraries.find_all().get(name)
    if not known:
        pytest.skip(f"NOT TESTED, not installed: {name} ({libraries.variable(name)})")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    one = start(known.python, "-c", LOADED, **root)
    looked.begin(r3=one.pid)
    looked.reported(1)
    assert looked.looks(20) == [(3, False)]
    expected = {"mpich": "MPICH", "impi": "Intel MPI"}.get(name, "Open MPI")
    assert looked.reports[0][1].family == expected
    one.tell("init")
    assert looked.reported(2) == [(3, False), (3, True)]
