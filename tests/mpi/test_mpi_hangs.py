"""MPI programs that hang: the rank that does something else than the others is named, with each library."""

from __future__ import annotations

import os
import re
import shutil
import time

import pytest
from stages import PROGRAMS, Stage, cluster_of, found, places

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
SECONDS = 4


def hung(ended):
    """What all ranks did, as the report and the closing block say it."""
    assert ended.code == 110, (ended.code, ended.err)
    (said,) = re.findall(rf"^mslaunch: no rank has printed anything for {SECONDS} seconds: (.*)$", ended.err, re.M)
    block = f"mslaunch: no rank has printed anything for {SECONDS} seconds (--hang-timeout)\n  {said}\n"
    assert block in ended.err
    return said


def test_a_rank_of_python_that_sleeps(library, here, python):
    """By the real py-spy."""
    if not shutil.which("py-spy"):
        pytest.skip("NOT TESTED, not installed: py-spy")
    ended = here.run(library, 3, python("sleeper.py", 1), "--hang-timeout", str(SECONDS))
    said = hung(ended)
    if library.name == "impi" and " in meet " in said:  # py-spy cannot always follow code of Intel's library
        assert said == "rank 1 in time.sleep (sleeper.py:15); 2 ranks in meet (sleeper.py:10)"
        return
    assert said == "rank 1 in time.sleep (sleeper.py:15); 2 ranks in MPI_Barrier (sleeper.py:10)"
    assert ended.err.count("  | MPI_Barrier\n") == 1


def test_a_rank_of_c_that_sleeps(library, here, compiled):
    """By gdb, without lines, for it is not compiled with -g; eu-stack says the same."""
    if not (shutil.which("gdb") or shutil.which("eu-stack")):
        pytest.skip("NOT TESTED, not installed: gdb")
    ended = here.run(library, 3, [compiled(library, "sleeper"), "1"], "--hang-timeout", str(SECONDS))
    assert re.fullmatch(r"rank 1 in (sleep|\w*nanosleep) \(main\); 2 ranks in MPI_Barrier \(meet\)", hung(ended))


def test_a_rank_of_c_that_sleeps_by_the_kernel_alone(library, here, compiled, tmp_path, monkeypatch):
    """Those that wait in MPI use the CPU, or poll."""
    for name in ("py-spy", "eu-stack", "gstack", "gdb"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ.get('PATH', os.defpath)}")
    said = hung(here.run(library, 3, [compiled(library, "sleeper"), "1"], "--hang-timeout", str(SECONDS)))
    assert said == "rank 1 in the system call clock_nanosleep; 2 ranks running"


@pytest.mark.root
@pytest.mark.limit(300)
def test_eight_ranks_on_four_hosts(tmp_path):
    """The one that sleeps is named first within 10 s after the time has passed."""
    if os.geteuid() or not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"):
        pytest.skip("needs root and sshd")
    if not shutil.which("py-spy"):
        pytest.skip("NOT TESTED, not installed: py-spy")
    library = found("mpich")
    with cluster_of(4, tmp_path / "c") as cluster:
        place = places.place_in(str(cluster.directory), 4, str(tmp_path))
        stage = Stage(place, tmp_path, cluster)
        program = [library.python, str(PROGRAMS / "sleeper.py"), "5"]
        plain = time.monotonic()
        stage.run(library, 8, [library.python, "-c", "from mpi4py import MPI"])
        began = time.monotonic()
        ended = stage.run(library, 8, program, "--hang-timeout", str(SECONDS), "-x", f"PATH={os.environ['PATH']}")
        assert time.monotonic() - began < (began - plain) + SECONDS + 20  # 10 on a machine that does nothing else
    said = "rank 5 in time.sleep (sleeper.py:15); 7 ranks in MPI_Barrier (sleeper.py:10)"
    assert hung(ended) == said
    assert re.search(r"^  rank 5 on n03, process \d+ \(.*\), from py-spy:", ended.err, re.M), ended.err
