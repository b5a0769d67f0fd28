"""How many ranks a host can start, from files of the kernel."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from mslaunch.host import start_limits
from mslaunch.host.start_limits import fits, least


@pytest.fixture
def generous(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host without limits, but for those of the control groups in a directory."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: unlimited)
    files = {"/proc/self/cgroup": b"0::/a/b\n", "/proc/loadavg": b"0 0 0 1/100 7\n"}

    def read(path: str) -> bytes:
        if path.startswith("/proc"):
            return files.get(path, b"")
        try:
            return Path(path).read_bytes()
        except OSError:
            return b""

    monkeypatch.setattr(start_limits, "read", read)
    monkeypatch.setattr(start_limits, "_CGROUPS", str(tmp_path))
    (tmp_path / "a" / "b").mkdir(parents=True)
    return tmp_path


def test_without_limits_all_can(generous: Path) -> None:
    assert least(1 << 30) is None and fits(1 << 30) == b"1073741824"


def test_the_groups_above_count_as_well(generous: Path) -> None:
    (generous / "a" / "b" / "pids.max").write_text("max\n")
    (generous / "a" / "pids.max").write_text("150\n")
    (generous / "a" / "pids.current").write_text("50\n")
    assert least(100) is None
    assert fits(101) == b"100 150 processes in its control group (pids.max)"


def test_memory_without_what_the_kernel_takes_back(generous: Path) -> None:
    group = generous / "a" / "b"
    (group / "memory.max").write_text(f"{64 << 20}\n")
    (group / "memory.current").write_text(f"{60 << 20}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {28 << 20}\nfile 3\n")
    assert least(128) is None
    limit = least(129)
    assert limit and limit.ranks == 128 and "64 MiB of memory in its control group" in limit.reason


def test_what_groups_below_have_cached_is_taken_back_as_well(generous: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1 counts what all below use, but tells their pages apart; those that were read twice are active."""
    known = start_limits.read
    of_version1 = {"/proc/self/cgroup": b"9:memory:/job/task\n"}
    monkeypatch.setattr(start_limits, "read", lambda path: of_version1.get(path) or known(path))
    group = generous / "memory" / "job"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(f"{64 << 20}\n")
    (group / "memory.usage_in_bytes").write_text(f"{64 << 20}\n")
    total = f"total_inactive_file {8 << 20}\ntotal_active_file {24 << 20}\n"
    (group / "memory.stat").write_text(f"inactive_file 0\nactive_file 0\n{total}")
    limit = least(129)
    assert limit and limit.ranks == 128


def test_the_least_limit_is_said(generous: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_NOFILE: (64, 1024), resource.RLIMIT_NPROC: (1000, 1000)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    of_folder = start_limits.listed
    monkeypatch.setattr(start_limits, "listed", lambda path: ["0"] * 20 if path.endswith("/fd") else of_folder(path))
    limit = least(5000)
    assert limit == ((1024 - 20 - 4) // 3, "1024 open files in a process (ulimit -Hn)")


def test_this_host_can_start_a_rank() -> None:
    assert least(1) is None
