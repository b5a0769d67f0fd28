"""What a lost agent has left: only that process is killed, and only that directory is removed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mslaunch.agent.leftovers import clean_up
from mslaunch.host.processes import stat_fields

MARK = f"MSLAUNCH_JOBID=nobody{os.getpid()}"
NO_PROCESS = 1 << 22  # the kernel's limit


@pytest.fixture
def stopped() -> Iterator[int]:
    """A process with our command line that is stopped."""
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    yield pid
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def ask(pid: int, seconds: float, path: object = "") -> int:
    return int(clean_up(f"{MARK} {pid} {seconds} {path}".encode()))


def test_an_agent_that_is_stopped_is_killed(stopped: int) -> None:
    assert ask(stopped, 0) == 1
    assert os.WTERMSIG(os.waitpid(stopped, 0)[1]) == signal.SIGKILL


def test_a_younger_process_that_has_got_its_number_is_spared(stopped: int) -> None:
    assert ask(stopped, 3600.0) == 0
    assert stat_fields(stopped)[0] == b"T"


def test_a_process_that_runs_something_else_is_spared() -> None:
    other = os.posix_spawn("/bin/sleep", ["sleep", "99"], {})
    try:
        assert ask(other, 0) == 0
        assert os.waitpid(other, os.WNOHANG) == (0, 0)
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def test_its_directory_is_removed_and_no_other(tmp_path: Path) -> None:
    mine, other, foreign = (tmp_path / name for name in (f"mslaunch-{NO_PROCESS}-a 1", "mslaunch-7-a2", "data"))
    for folder in (mine, other, foreign):
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "x").write_text("x")
    for folder in (mine, other, foreign):
        ask(NO_PROCESS, 7, folder)
    assert {*tmp_path.iterdir()} == {other, foreign}


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / f"mslaunch-{NO_PROCESS}-a1"
    kept.mkdir()
    (kept / "x").write_text("x")
    link.symlink_to(kept)
    ask(NO_PROCESS, 7, link)
    assert (kept / "x").read_text() == "x"
