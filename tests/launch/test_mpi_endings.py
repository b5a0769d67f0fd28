"""How jobs of MPI programs end: MPI_Abort, exits without MPI_Finalize, ranks that die where others wait for them.

The programs speak PMI-1 themselves, so that no MPI library is needed and each moment can be chosen.  For every possible
order of two events the report is the same, and names the cause, not a rank that died of it.
"""

from __future__ import annotations

import os
import re
import signal

import pytest
from launching import Result, program, through_rsh

TWO = through_rsh("alpha:2", "beta:2")
WHERE = pytest.mark.parametrize("where", [["--oversubscribe"], TWO], ids=["local", "two hosts"])


def mpi(*scripts: str, count: int = 4) -> list[str]:
    return ["-n", str(count), *program("pmi", *scripts)]


def report(ended: Result) -> list[str]:
    """The closing block, without what differs from run to run."""
    lines = ended.err.splitlines()
    first = max(number for number, line in enumerate(lines) if line.startswith("mslaunch: "))
    return [re.sub(r"( on \S+)?, after \d+\.\d s$", "", line) for line in lines[first:]]


# --- MPI_Abort


@WHERE
@pytest.mark.parametrize(("code", "exit_code"), [(0, 1), (7, 7), (256, 1), (-1, 255)])
def test_abort(run, where, code, exit_code):
    """mpirun 4.1.4 and hydra end with 0 if the code is 0 or 256, and nobody learns that the job was aborted."""
    ended = run([*where, *mpi("init,stay", f"init,abort={code}", "init,stay")])
    assert ended.code == exit_code
    assert report(ended) == [f"mslaunch: rank 1 called MPI_Abort with code {code}", "  ended by mslaunch: ranks 0, 2-3"]


def test_the_text_of_an_abort_is_shown_once(run):
    """Libraries send it by PMI, print it on standard error, or both."""
    ended = run(["--oversubscribe", *mpi("init,stay", "init,abort=7:no_grid", count=2)])
    assert report(ended)[:2] == ["mslaunch: rank 1 called MPI_Abort with code 7", "  | no_grid"]
    ended = run(["--oversubscribe", *mpi("init,stay", "init,err=no_grid,abort=7:no_grid", count=2)])
    assert report(ended)[:2] == ["mslaunch: rank 1 called MPI_Abort with code 7", "  | no_grid 1"]


@WHERE
def test_abort_is_no_failure_to_recover_from(run, where):
    ended = run([*where, "--enable-recovery", *mpi("init,stay", "init,abort=7", "init,stay")])
    assert ended.code == 7
    assert report(ended)[0] == "mslaunch: rank 1 called MPI_Abort with code 7"


# --- exits without MPI_Finalize


@WHERE
@pytest.mark.parametrize(
    ("last", "others", "how"),
    [
        ("init,fence", "init,fence,stay", "for which the others would wait, ended without MPI_Finalize"),
        ("exit=0", "init,stay", "for which others wait in MPI, ended without MPI_Init"),
        ("exit=0", "gone=3,init,stay", "for which others wait in MPI, ended without MPI_Init"),
        ("init,finalize", "gone=3,init,finalize,init,fence", "for which others wait in MPI, ended after MPI_Finalize"),
        ("init,finalize", "init,gone=3,fence", "for which others wait in MPI, ended after MPI_Finalize"),
    ],
    ids=["no finalize", "no init", "gone before the others", "one program less", "one fence less"],
)
def test_a_rank_that_ends_well_and_is_waited_for(run, where, last, others, how):
    """As with mpirun 4.1.4, which hangs in the third case."""
    ended = run([*where, *mpi(others, others, others, last)])
    assert ended.code == 1
    assert report(ended) == [f"mslaunch: rank 3, {how}", "  ended by mslaunch: ranks 0-2"]


def test_a_program_without_mpi_beside_mpi_programs(run):
    """mpirun 4.1.4 hangs if it ends before the others are in MPI_Init."""
    ended = run(["--oversubscribe", *mpi("init,stay", count=1), ":", "-n", "1", "true"])
    assert ended.code == 1
    assert report(ended)[0] == "mslaunch: rank 1, for which others wait in MPI, ended without MPI_Init"


@WHERE
def test_a_script_may_run_mpi_programs_one_after_the_other(run, where):
    ended = run([*where, *mpi("init,fence,finalize,init,fence,fence,finalize,say=well")])
    assert (ended.code, ended.lines) == (0, [f"well {rank}" for rank in range(4)]), ended.err


@WHERE
def test_a_script_whose_program_ended_well_may_fail(run, where):
    ended = run([*where, *mpi("init,fence,finalize,stay", "init,fence,finalize,exit=3", "init,fence,finalize,stay")])
    assert ended.code == 3
    assert report(ended) == ["mslaunch: rank 1 ended with exit code 3", "  ended by mslaunch: ranks 0, 2-3"]


@WHERE
def test_scripts_of_which_some_use_no_mpi(run, where):
    assert run([*where, *mpi("say=well")]).code == 0


# --- in a fence


@WHERE
@pytest.mark.parametrize(
    ("end", "code", "how"),
    [("kill=SIGKILL", 137, "was ended by SIGKILL (killed)"), ("exit=3", 3, "ended with exit code 3")],
)
def test_a_rank_dies_while_others_wait(run, where, end, code, how):
    ended = run([*where, *mpi("init,fence,fence", f"init,fence,{end}", "init,fence,fence")])
    assert ended.code == code
    assert report(ended) == [f"mslaunch: rank 1 {how}", "  ended by mslaunch: ranks 0, 2-3"]


@WHERE
def test_a_rank_dies_that_waits_itself(run, where):
    ended = run(
        [*where, *mpi("init,fence,fence", "init,fence,enter,kill=SIGKILL", "init,fence,fence", "init,fence,stay")]
    )
    assert ended.code == 137
    assert report(ended)[0] == "mslaunch: rank 1 was ended by SIGKILL (killed)"


@WHERE
def test_a_fence_that_one_never_enters(run, where):
    ended = run([*where, "--timeout", "4", *mpi("init,fence,fence", "init,fence,stay", "init,fence,fence")])
    assert ended.code == 110
    assert "the job was still running after 4 seconds (--timeout)" in report(ended)[0]
    assert report(ended)[1:] == ["  ended by mslaunch: ranks 0-3"]


@WHERE
def test_ctrl_c_in_a_fence(start, where):
    job = start([*where, *mpi("init,ready,fence", "init,ready,stay", "init,ready,fence")])
    job.expect(b"ready", 4)
    job.send(signal.SIGINT)
    ended = job.end()
    assert ended.code == 1
    assert report(ended)[0].startswith("mslaunch: ended by SIGINT")
    assert report(ended)[1:] == ["  ended by mslaunch: ranks 0-3"]


def test_a_host_is_lost_in_a_fence(start, tmp_path):
    log = tmp_path / "log"
    job = start([*TWO, *mpi("init,ready,fence", "init,ready,fence", "init,ready,stay")], env={"RSH_LOG": str(log)})
    job.expect(b"ready", 4)
    agents = dict(line.split() for line in log.read_text().splitlines())
    os.kill(int(agents["beta"]), signal.SIGKILL)
    ended = job.end()
    assert ended.code == 205
    assert report(ended)[0] == "mslaunch: the host was lost while ranks ran there"
    assert report(ended)[-2:] == ["  ended by mslaunch: ranks 0-1", "  lost with their host: ranks 2-3"]


# --- jobs that go on


@WHERE
@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("kill=SIGKILL", " was ended by SIGKILL (killed)"),
        ("exit=0", ", for which the others would wait, ended without MPI_Finalize"),
    ],
)
def test_with_recovery_the_others_may_finish(run, where, end, how):
    others = "init,fence,gone=1,finalize,say=well"
    ended = run([*where, "--enable-recovery", *mpi(others, f"init,fence,{end}", others)])
    assert (ended.code, ended.lines) == (0, ["well 0", "well 2", "well 3"])
    assert report(ended)[0] == f"mslaunch: rank 1{how}"


@WHERE
@pytest.mark.parametrize(
    ("options", "end", "code", "how"),
    [
        (["--enable-recovery"], "init,fence,kill=SIGKILL", 137, "was ended by SIGKILL (killed)"),
        (["--enable-recovery"], "init,fence,exit=0", 1, "ended without MPI_Finalize"),
        (["-mca", "orte_abort_on_non_zero_status", "0"], "init,fence,exit=3", 3, "ended with exit code 3"),
        (["-mca", "orte_abort_on_non_zero_status", "0"], "init,fence,finalize,exit=3", 3, "ended with exit code 3"),
    ],
    ids=["recovery, killed", "recovery, no finalize", "codes, in MPI", "codes, after MPI"],
)
def test_no_rank_waits_forever(run, where, options, end, code, how):
    """A job that goes on without a rank ends when the others wait for it."""
    others = "init,fence,gone=1,fence"
    ended = run([*where, *options, *mpi(others, end, others)])
    assert ended.code == code
    assert report(ended) == [
        f"mslaunch: rank 1, for which others wait in MPI, {how}", "  ended by mslaunch: ranks 0, 2-3",
    ]  # fmt: skip


def test_a_rank_that_is_started_again_joins_the_others(run):
    """It failed before MPI_Init, so the other ranks still wait for it."""
    where = through_rsh("alpha:1", "beta:1")
    ended = run(
        [*where, "--max-restarts", "1", *mpi("init,fence,finalize,say=well", "fall=3,init,fence,finalize", count=2)]
    )
    assert (ended.code, ended.lines) == (0, ["well 0"]), ended.err
