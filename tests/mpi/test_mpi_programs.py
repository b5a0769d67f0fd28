"""MPI programs under mslaunch alone: one world, and every way in which it may end, with each library in each place.

No MPI launcher runs in these tests.  The ranks are few, for those of MPI spin while they wait.
"""

from __future__ import annotations

import glob
import json
import re

import pytest
from stages import found

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def facts_of(ended, count):
    """What the ranks of world.py report, by rank."""
    well(ended)
    ranks = sorted((json.loads(line) for line in ended.out.decode().splitlines()), key=lambda one: one["rank"])
    assert [one["rank"] for one in ranks] == list(range(count)), ranks
    return ranks


def well(ended):
    """It ended with 0 and without a closing block."""
    assert ended.code == 0 and not blocks(ended.err), (ended.code, ended.err, ended.out)


def blocks(text):
    """The closing blocks on standard error."""
    return re.findall(r"^mslaunch: .*, after .*$", text, re.M)


# --- one world


@pytest.mark.parametrize("n", [1, 2, 4])
def test_one_world(library, stage, python, n):
    ranks = facts_of(stage.run(library, n, python("world.py")), n)
    assert {one["size"] for one in ranks} == {n}
    assert {one["library"].startswith(library.says) for one in ranks} == {True}, ranks
    # Open MPI 4.1.4 has no windows for one rank nor for threads on several hosts, whoever launches it.
    assert library.name == "openmpi4" or all(one["windows"] for one in ranks)
    each = stage.place.each(n)
    assert [one["shared"] for one in ranks] == [each if rank < each else n - each for rank in range(n)]
    assert len({one["host"] for one in ranks}) == min(n, stage.place.hosts)


def test_the_universe_is_the_allocation(library, here, python):
    """Three slots, two ranks."""
    ranks = facts_of(here.launch(["-H", "localhost:3", "-n", "2", *python("world.py")]), 2)
    universe = {one["universe"] for one in ranks}
    assert universe == {3} or (not library.open_mpi and universe == {None})


def test_two_programs_are_one_world(library, stage, python):
    """Two app contexts: one world, and the number of the program tells them apart."""
    program = python("world.py")
    variables = [f"{name}={value}" for name, value in library.ranks_env(stage.place.hosts).items()]
    second = [word for setting in variables for word in ("-x", setting)]  # of each program its own
    ranks = facts_of(stage.run(library, 1, [*program, ":", *second, "-n", "1", *program]), 2)
    assert [(one["size"], one["appnum"]) for one in ranks] == [(2, 0), (2, 1)]


def test_one_program_after_the_other(library, stage, python):
    """A script that runs two MPI programs; each of them is a world.

    Under its own launcher only Open MPI 5 does that; the others' second program fails in MPI_Init.  Here it may, but
    nothing may hang.
    """
    line = " ".join(python("world.py"))
    ended = stage.run(library, 2, ["sh", "-c", f"{line} && {line}"])
    if ended.code and library.name != "openmpi5":
        assert len(blocks(ended.err)) == 1
        return
    well(ended)
    ranks = [json.loads(line) for line in ended.lines]
    assert sorted((one["rank"], one["size"]) for one in ranks) == [(0, 2), (0, 2), (1, 2), (1, 2)]


def test_programs_in_c(library, stage, compiled):
    """What Python hides: no mpi4py, and the library found by the program's own run path."""
    ended = stage.run(library, 2, [compiled(library, "world")])
    near = 2 // stage.place.hosts
    assert (ended.code, ended.lines) == (0, [f"rank {rank} of 2, {near} near, sum 1" for rank in (0, 1)]), ended.err


def test_threads(library, here, python):
    ended = here.run(library, 2, python("threads.py"))
    assert (ended.code, ended.lines) == (0, ["rank 0 of 2: 25", "rank 1 of 2: 25"]), ended.err


@pytest.mark.parametrize("library", ["mpich", "openmpi5", "impi"], indirect=True)  # Open MPI 4.1 has none
def test_a_session(library, stage, compiled):
    ended = stage.run(library, 2, [compiled(library, "session")])
    assert (ended.code, ended.lines) == (0, [f"rank {rank} of 2, sum 1" for rank in (0, 1)]), ended.err


def test_no_program_of_mpi_notices(library, here):
    """A rank that has nothing to do with MPI, with the library's own interpreter."""
    ended = here.run(library, 2, [library.python, "-c", "print('here')"])
    assert (ended.code, ended.out, ended.err) == (0, b"here\nhere\n", "")


# --- worlds that meet


@pytest.mark.parametrize("library", ["mpich", "openmpi4", "openmpi5"], indirect=True)
def test_a_published_name_is_found(library, stage, python):
    meet(library, stage, python)


def test_a_published_name_is_found_by_intel_mpi(here, python_of):
    """On one node: between hosts, 2021.18.1 crashes in MPI_Comm_connect, under its own launcher too."""
    library = found("impi")
    meet(library, here, lambda *words: python_of(library, *words))


def meet(library, stage, python):
    ended = stage.run(library, 2, python("ports.py"))
    assert (ended.code, ended.lines) == (0, [f"rank {rank} unknown True" for rank in (0, 1)]), ended.err


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("one", ["child 0 of 2 appnum 0 x", "child 1 of 2 appnum 0 x"]),
        ("several", ["child 0 of 3 appnum 0 a", "child 1 of 3 appnum 1 b", "child 2 of 3 appnum 1 b"]),
        ("twice", ["child 0 of 1 appnum 0 a", "child 0 of 1 appnum 0 b"]),
    ],
)
def test_spawn(library, stage, python, how, wanted):
    ended = stage.run(library, 2, python("spawns.py", how))
    well(ended)
    assert ended.lines == wanted


def test_a_child_aborts(library, stage, python):
    ended = stage.run(library, 2, python("spawns.py", "abort"))
    assert ended.code == 9, ended.err
    assert len(blocks(ended.err)) == 1


def test_a_child_that_cannot_be_started(library, stage, python):
    """An error for who asked, or the end of the job with a sentence that names the program; not a hang."""
    ended = stage.run(library, 2, python("spawns.py", "missing"))
    if ended.code == 0:
        assert ended.lines == ["refused True"] * 2
    else:
        assert "/nonexistent/program" in ended.err


# --- the ways to end


def test_an_exception_that_hangs_the_job_is_in_the_report_of_the_time_limit(library, here, tmp_path):
    program = tmp_path / "raises.py"
    program.write_text(
        "from mpi4py import MPI\nworld = MPI.COMM_WORLD\nworld.barrier()\n"
        "if world.rank:\n    raise ValueError('bad input')\nworld.recv(source=1)\n"
    )
    ended = here.run(library, 2, [library.python, str(program)], "--timeout", "10")
    assert ended.code == 110, ended.err
    assert "s before (ValueError: bad input); " in ended.err
    assert f"-m mpi4py {program} would have ended the job" in ended.err


@pytest.mark.parametrize("code", [7, 1, 255])
def test_abort(library, stage, python, code):
    """Its code is the command's, in one closing block, which names the rank and the call.

    Between hosts the library of the other rank may see the closed connection, and abort as well, before we hear of
    this abort; nothing tells them apart, but it is rare, and never happens on one node.
    """
    ended = stage.run(library, 2, python("ends.py", "abort", code))
    for _ in range(2 if stage.place.hosts > 1 else 0):
        if "mslaunch: rank 0 called MPI_Abort" in ended.err and re.search("An error occurred|Fatal error", ended.err):
            ended = stage.run(library, 2, python("ends.py", "abort", code))
    assert ended.code == code, ended.err
    (block,) = blocks(ended.err)
    assert "rank 1" in block and "MPI_Abort" in block


def test_abort_in_c(library, here, compiled):
    ended = here.run(library, 2, [compiled(library, "abort"), "42"])
    assert ended.code == 42, ended.err
    assert len(blocks(ended.err)) == 1


def test_abort_with_zero_is_a_failure(library, here, python):
    ended = here.run(library, 2, python("ends.py", "abort", 0))
    assert ended.code != 0
    assert len(blocks(ended.err)) == 1


@pytest.mark.parametrize("how", ["before-init", "without-finalize"])
def test_a_rank_leaves_too_early(library, stage, python, how):
    """With exit code 0, which nobody else would notice: the others would wait for ever.

    Between hosts the library of the other rank may see the closed connection, and abort, before we hear of the end.
    """
    ended = stage.run(library, 2, python("ends.py", how))
    assert ended.code == 1, ended.err
    (block,) = blocks(ended.err)
    assert "MPI" in block and "rank 1, for which" in block, ended.err


@pytest.mark.parametrize("how", ["before-init", "without-finalize"])
def test_a_rank_fails(library, here, python, how):
    ended = here.run(library, 2, python("ends.py", how, 5))
    assert ended.code == 5, ended.err
    (block,) = blocks(ended.err)
    assert "rank 1 ended with exit code 5" in block


def test_all_leave_without_finalize(library, here, python):
    ended = here.run(library, 2, python("ends.py", "all-without-finalize"))
    assert ended.code == 1, ended.err
    (block,) = blocks(ended.err)
    assert re.search(r"rank [01]", block) and "MPI_Finalize" in ended.err


@pytest.mark.parametrize("how", ["killed-before-init", "killed"])
def test_a_rank_is_killed(library, stage, python, how):
    """The others stand in a fence, or wait for a message, and neither ends by itself."""
    ended = stage.run(library, 2, python("ends.py", how))
    assert ended.code == 137, ended.err
    (block,) = blocks(ended.err)
    assert "rank 1 was ended by SIGKILL" in block


# --- the wire-up is another one


@pytest.mark.parametrize(
    "program", [["world.py"], ["spawns.py", "several"], ["ends.py", "abort", 7]], ids=lambda it: it[0]
)
def test_pmi_2(stage, python_of, program):
    """The one client of PMI-2 that is to be had: Intel MPI with Slurm's libpmi2, which its own hydra does not serve."""
    library = found("impi")
    paths = glob.glob("/usr/lib/*/libpmi2.so.0")
    if not paths:
        pytest.skip("NOT TESTED, not installed: libpmi2-0")
    variables = ["I_MPI_PMI=pmi2", f"I_MPI_PMI_LIBRARY={paths[0]}"]
    options = ["--mpi", "pmi2", *(word for setting in variables for word in ("-x", setting))]
    ended = stage.run(library, 2, python_of(library, *program), *options)
    assert ended.code == (7 if program[0] == "ends.py" else 0), ended.err
    assert len(ended.lines) == {"world.py": 2, "spawns.py": 3, "ends.py": 0}[program[0]]


def test_ranks_that_came_up_alone_are_reported(library, here):
    """With the other family's protocol each rank believes that it is the only one, and waits for nobody."""
    wrong = "pmi1" if library.open_mpi else "pmix"
    script = "from mpi4py import MPI; import signal; print(MPI.COMM_WORLD.size, flush=True); signal.pause()"
    ended = here.run(library, 2, [library.python, "-c", script], "--mpi", wrong)
    assert ended.code != 0
    assert len(blocks(ended.err)) == 1
    if library.name != "mpich":  # which has seen PMIX_NAMESPACE, and failed in MPI_Init
        assert "alone" in ended.err and "libmpi" in ended.err, ended.err
