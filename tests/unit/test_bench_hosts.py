"""scripts/bench hosts: how the CPU of hosts is read, and how a row is judged."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from bench_lib import host_cpu, hosts, hosts_table, timing
from bench_lib.contenders import BASE, HYDRA, MPIRUN, OURS, SSH, SSHS, Launcher
from bench_lib.hosts_table import Targets
from bench_lib.timing import Sample

TICKS = os.sysconf("SC_CLK_TCK")
STAT = "7 ({name}) S 1 7 7 0 -1 4194560 100 200 0 0 {times} 20 0 1 0 5 1000 20\n"


def run(seconds, cpu=1.0, hosts=0.0, status=0, hung=False):
    return Sample(seconds, cpu, status, hung, 0, -1, hosts)


def judged(results, targets, count=1):
    """Name of the launcher → what it took, target, verdict, missed."""
    found = {}
    for row in hosts_table.rows("a case", count, results, targets):
        assert len(row.cells) == len(hosts_table.HEAD)
        found[row.cells[1]] = (*row.cells[-3:], row.missed)
    return found


# --- the CPU of hosts


@pytest.mark.parametrize("name", ["sshd", "a (b) c", ") S 1 1 1", ""])
def test_own_time_and_that_of_reaped_sessions_count_whatever_the_name_is(name):
    stat = STAT.format(name=name, times="10 20 300 4000")
    assert host_cpu.spent(stat) == pytest.approx(4330 / TICKS)


def test_files_opened_for_a_process_tell_what_its_children_used_once_it_is_idle():
    """A shell stands for an sshd: it reaps a child that has used CPU, more than a tick however slow the machine is."""
    script = "read go; sh -c 'n=0; while [ $n -lt 200000 ]; do n=$((n + 1)); done'; read go"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, text=True) as shell:
        paths = (f"/proc/{shell.pid}/stat", f"/proc/{shell.pid}/task/{shell.pid}/children")
        files = [tuple(os.open(path, os.O_RDONLY) for path in paths)]
        before = host_cpu.seconds(files)
        shell.stdin.write("\n")
        shell.stdin.flush()
        while not host_cpu.seconds(files) - before:  # nothing else can make it grow
            assert shell.poll() is None
        assert host_cpu.when_idle(files) > before
        shell.communicate("\n", timeout=20)


def test_a_host_that_never_becomes_idle_is_read_after_a_while():
    with subprocess.Popen(["sh", "-c", "sleep 60 & read end; kill $!"], stdin=subprocess.PIPE, text=True) as shell:
        paths = (f"/proc/{shell.pid}/stat", f"/proc/{shell.pid}/task/{shell.pid}/children")
        while not Path(paths[1]).read_text(encoding="ascii").strip():
            assert shell.poll() is None
        assert host_cpu.when_idle([tuple(os.open(path, os.O_RDONLY) for path in paths)], patience=0.05) >= 0
        shell.communicate("\n", timeout=20)


def test_what_is_run_inherits_none_of_these_files():
    pair = os.pipe()
    for fd in pair:
        os.set_inheritable(fd, True)
    host_cpu.keep([pair])
    assert not any(map(os.get_inheritable, pair))


BURNER = "import os, time\nwhile time.process_time() < 0.5: pass\nos.write(1, b'.')"
LEAVER = """\
import os, sys
end, entry = os.pipe()
os.posix_spawn(sys.executable, [sys.executable, "-c", sys.argv[1]], {}, file_actions=[(os.POSIX_SPAWN_DUP2, entry, 1)])
os.read(end, 1)
"""


def test_cpu_is_also_that_of_processes_the_command_did_not_wait_for():
    with timing.adopting():
        sample = timing.bounded([sys.executable, "-S", "-c", LEAVER, BURNER], 60.0)
    assert sample.good
    assert sample.cpu >= 0.5


# --- what is judged


def test_the_ratio_to_each_launcher_has_its_own_target():
    results = {OURS: [run(1.0)] * 3, MPIRUN: [run(2.0)] * 3, HYDRA: [run(0.5)] * 3}
    found = judged(results, Targets({MPIRUN: 0.6, HYDRA: 1.5}))
    assert found[MPIRUN] == ("0.50 ×", "≤ 0.6", "reached", False)
    assert found[HYDRA] == ("2.00 ×", "≤ 1.5", "NOT REACHED", True)
    assert found[OURS] == ("", "", "", False)


def test_another_that_never_ends_well_is_no_comparison_unless_we_do_not_either():
    hung = [run(60.0, status=1, hung=True)] * 3
    targets = Targets({MPIRUN: 0.6}, {MPIRUN: 2.0})
    assert judged({OURS: [run(1.0)] * 3, MPIRUN: hung}, targets)[MPIRUN][2:] == ("no comparison, no comparison", False)
    assert judged({OURS: hung, MPIRUN: hung}, targets)[MPIRUN][2:] == ("NOT REACHED, NOT REACHED", True)


def test_the_cpu_of_a_host_is_that_of_launcher_and_hosts_divided_by_their_number():
    samples = [run(1.0, cpu=0.4, hosts=1.2)] * 3
    assert hosts_table.of_a_host(samples, 32) == pytest.approx(0.05)
    assert judged({OURS: samples}, Targets(of_a_host=0.05), 32)[OURS] == ("", "CPU of a host ≤ 50 ms", "reached", False)
    assert judged({OURS: samples}, Targets(of_a_host=0.05), 31)[OURS][3]


def test_ssh_itself_uses_one_host():
    rows = hosts_table.rows("a case", 8, {OURS: [run(1.0, 0.4, 0.4)], SSH: [run(1.0, 0.1, 0.1)]}, Targets())
    assert [row.cells[5] for row in rows] == ["100 ms", "200 ms"]


def test_no_run_that_ended_well_has_no_cpu_of_a_host_and_misses_its_target():
    samples = [run(1.0, status=1)] * 3
    assert math.isnan(hosts_table.of_a_host(samples, 1))
    assert judged({OURS: samples}, Targets(of_a_host=0.05))[OURS][3]


def test_the_ratio_of_cpu_counts_hosts_on_both_sides():
    results = {OURS: [run(9.0, 1.0, 2.0)] * 5, SSHS: [run(1.0, 0.5, 0.5)] * 5}
    assert judged(results, Targets(cpu={SSHS: 2.5}))[SSHS] == (
        *("9.00 ×, CPU 3.00 ×", "CPU ≤ 2.5", "NOT REACHED"),
        True,
    )


@pytest.mark.parametrize(("bad", "missed"), [([], False), ([run(1.0, status=1)], True), ([run(1.0, hung=True)], True)])
def test_one_launch_that_fails_is_one_too_many_where_all_must_end(bad, missed):
    found = judged({OURS: [run(1.0)] * 4 + bad}, Targets(all_end=True))
    assert found[OURS][1:] == ("all end", "NOT REACHED" if missed else "reached", missed)


def test_beside_another_checkout_both_targets_of_ours_and_the_interval_are_shown():
    found = judged({OURS: [run(1.0)] * 9, BASE: [run(1.0)] * 9}, Targets({MPIRUN: 0.6}, of_a_host=0.5))
    assert found[OURS][3]
    assert found[BASE][0].startswith("1.000 × (1.000 to 1.000), CPU 1.000")


# --- what is run


def test_every_target_names_something_that_is_measured():
    for case in (*hosts.FEW, *hosts.MANY):
        for targets in (case.targets, case.curve or Targets()):
            assert {*targets.wall, *targets.cpu} <= set(case.others)


def test_only_launchers_that_are_installed_are_run_and_beside_a_checkout_only_ours(tmp_path):
    known = {name: Launcher(name, f"/bin/{name}", "") for name in (OURS, HYDRA)}
    case = hosts.Case(2, (MPIRUN, HYDRA, SSHS))
    assert list(hosts.commands(known, case, ["n01", "n02"], str(tmp_path))) == [OURS, HYDRA, SSHS]
    known[BASE] = Launcher(BASE, "/bin/base", "")
    assert list(hosts.commands({**known}, case, ["n01", "n02"], str(tmp_path)))[:2] == [OURS, BASE]


@pytest.mark.parametrize(("bad", "code"), [("", 0), ("n02", 1)])
def test_many_ssh_at_once_fail_if_one_does(tmp_path, bad, code):
    fake = tmp_path / "ssh"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n[ "$1" != "{bad}" ]\n', encoding="ascii")
    fake.chmod(0o755)
    command = hosts.commands({}, hosts.Case(3, (SSHS,)), ["n01", "n02", "n03"], str(tmp_path))[SSHS]
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(command, env=environ, timeout=20, check=False).returncode == code
    said = sorted((tmp_path / "said").read_text(encoding="ascii").splitlines())
    assert said == [f"n0{number} python3 -c pass" for number in (1, 2, 3)]
