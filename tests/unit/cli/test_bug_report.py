"""--version --verbose: what it shows, what it never shows, and that it works where nothing is there."""

from __future__ import annotations

import os
import re
import sys

import pytest
from command_lines import parse
from hypothesis import given, settings
from hypothesis import strategies as st

import mslaunch
from mslaunch.cli import bug_report
from mslaunch.cli.parser.options import Show

MANAGERS = {"slurm": "SLURM_JOB_ID", "pbs": "PBS_JOBID"}


def shown(words, environ, called="mslaunch"):
    with pytest.raises(Show) as caught:
        parse(words, environ, called)
    return caught.value.text


def fact(text, name):
    """The lines of one fact."""
    found = re.search(rf"^{re.escape(name)}: +(.*(?:\n +.*)*)", text, re.MULTILINE)
    assert found, text
    return [line.strip() for line in found[1].splitlines()]


@pytest.mark.parametrize(
    "words",
    [
        ["--version", "--verbose"], ["--verbose", "--version"], ["-V", "-v"], ["-v", "-V"], ["-Vv"], ["-vV"],
        ["-version", "-verbose"], ["-n", "2", "-v", "--version"], ["--version", "-q", "-v", "prog"],
    ],
)  # fmt: skip
def test_either_order_shows_the_facts(words, monkeypatch):
    monkeypatch.setattr(bug_report, "report", lambda version, environ, managers: f"all of {version}")
    assert shown(words, {}).startswith(f"all of mslaunch {mslaunch.__version__}")


@pytest.mark.parametrize(
    "words",
    [["--version"], ["-V"], ["-qV"], ["-n", "1", "--version", "prog", "-v"], ["--version", "prog", "--verbose"]],
)
def test_plain_version_stays_as_it_is(words):
    assert len(shown(words, {}).splitlines()) == 2


def test_the_dialect_of_the_name_shows_its_version_first():
    assert shown(["--version", "-v"], {}, "mpirun").startswith("mpirun (Open MPI) 4.1.4\n\nmslaunch ")
    assert "HYDRA" in shown(["-v", "-version"], {}, "mpiexec.hydra").partition("installed as:")[0]


def test_facts_of_this_host():
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MSLAUNCH_TEST_")}
    text = bug_report.report("mslaunch 1", environ, MANAGERS)
    assert fact(text, "python")[0].startswith(f"CPython {sys.version.split()[0]}, ")
    assert re.search(r"paramiko \d", fact(text, "packages")[0]) and "mindspore " in fact(text, "packages")[0]
    assert fact(text, "system")[0] == " ".join(os.uname()[at] for at in (0, 2, 4))
    assert fact(text, "cpus")[0].startswith(f"{len(os.sched_getaffinity(0))} cpu")
    assert "not known" not in text
    assert max(len(line) for line in text.splitlines()) < 250


def test_a_resource_manager_is_named_by_its_variable():
    environ = {"PATH": "/nowhere", "SLURM_JOB_ID": "17"}
    assert fact(bug_report.report("m", environ, MANAGERS), "resource manager") == ["slurm"]
    assert fact(bug_report.report("m", {}, MANAGERS), "resource manager") == ["none"]


NAMES = st.sampled_from(
    ["MSLAUNCH_GRACE", "OMPI_MCA_btl", "I_MPI_FABRICS", "AWS_SECRET_ACCESS_KEY", "TOKEN", "container"]
)


@settings(deadline=None)
@given(st.dictionaries(NAMES, st.just("hunter2\x1b[31m")))
def test_only_names_of_variables_are_shown_and_only_of_those_that_steer(environ):
    text = bug_report.report("m", {"PATH": "", **environ}, {})
    assert "hunter2" not in text and "\x1b" not in text and "TOKEN" not in text and "AWS" not in text
    steering = sorted(name for name in environ if name.startswith(("MSLAUNCH_", "OMPI_MCA_", "I_MPI_")))
    assert fact(text, "variables set") == [", ".join(steering) or "none"]


def test_a_home_directory_is_not_named():
    home = os.path.dirname(os.path.dirname(os.path.abspath(mslaunch.__file__)))
    text = bug_report.report("m", {"HOME": home, "PATH": f"{home}/bin", "LD_LIBRARY_PATH": home}, {})
    assert f"{home}/" not in text


def programs_of(folder, **scripts):
    """What is said of programs that are these shell scripts."""
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    rows = fact(bug_report.report("m", {"PATH": str(folder)}, {}), "programs")
    return dict(row.replace(f"{folder}/", "").split(": ", 1) for row in rows)


def test_programs_that_fail_or_write_control_characters_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(bug_report, "_PATIENCE", 60.0)
    rows = programs_of(tmp_path / "a", mpiexec=r"printf 'Open MPI \033[31m 9.9\n'", ssh="exit 3")
    assert rows["mpiexec"] == "Open MPI ?[31m 9.9" and rows["ssh"] == "it says nothing"
    assert rows["python3"] == rows["mpirun"] == "not on PATH" and len(rows) == 4
    (tmp_path / "a" / "srun").write_bytes(b"\x7fELF")
    (tmp_path / "a" / "srun").chmod(0o755)
    (row,) = (row for row in fact(bug_report.report("m", {"PATH": f"{tmp_path}/a"}, {}), "programs") if "srun" in row)
    assert row.startswith(f"{tmp_path}/a/srun: it does not answer: ")


def test_a_program_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(bug_report, "_PATIENCE", 0.2)
    assert programs_of(tmp_path / "a", mpirun="read line </dev/zero")["mpirun"] == (
        "it does not answer: it took too long"
    )


def test_the_cache_of_the_linker_is_searched_and_may_be_broken():
    cache = b"\0/opt/mpi/lib/libmpi.so.40\0libmpi.so.40\0/usr/lib/libpmix.so.2\0/usr/lib/libmpic.so"
    assert sorted(bug_report._noted(cache)) == ["/opt/mpi/lib/libmpi.so.40", "/usr/lib/libpmix.so.2"]
    assert list(bug_report._noted(b"")) == []
    assert list(bug_report._noted(b"/x/libmpi.so.4")) == ["/x/libmpi.so.4"]


def test_one_fact_that_cannot_be_learned_hides_no_other(monkeypatch):
    def broken():
        raise ValueError("such a host")

    monkeypatch.setattr(bug_report, "_system", broken)
    text = bug_report.report("m", {"PATH": ""}, {})
    assert fact(text, "system") == ["not known: ValueError: such a host"]
    assert fact(text, "missing")


@pytest.mark.parametrize(
    ("files_of_group", "said"),
    [
        ({"memory.max": "2147483648\n", "cpu.max": "150000 100000", "pids.max": "max"}, "2048 MiB of memory, 1.5 cpus"),
        ({"memory.max": "max", "cpu.max": "max 100000", "pids.max": "64"}, "64 processes"),
        ({"memory.limit_in_bytes": "9223372036854771712", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
         "no limit seen"),
        ({"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}, "0.5 cpus"),
        ({}, "no limit seen"),
    ],
)  # fmt: skip
def test_limits_of_the_control_group(tmp_path, monkeypatch, files_of_group, said):
    for name, text in files_of_group.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(bug_report, "control_groups", lambda *names: [str(tmp_path)])
    assert list(bug_report._control_group()) == [said]
