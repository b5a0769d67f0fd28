"""Programs that mslaunch runs for its own purposes: none that a stranger has put into the working directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import LaunchError
from mslaunch.host.helper_programs import find_helper, find_typed
from mslaunch.launcher.monitoring.event_command import EventCommand
from mslaunch.resource_managers.managers import run_command
from mslaunch.runtime.loop import Loop
from mslaunch.transport.rsh_program import ProcessLink
from mslaunch.transport.spawned_command import SpawnedCommand

PATHS = ["/nowhere", "", ":{}", "{}:", ".:{}", "bin:{}", "{}::"]


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory to which all may write, with programs of these names in it and below it."""
    (tmp_path / "bin").mkdir()
    for folder in (tmp_path, tmp_path / "bin"):
        folder.chmod(0o1777)
        for name in ("srun", "scontrol", "true"):
            (folder / name).write_text("#!/bin/sh\ntouch ran\n")
            (folder / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", PATHS)
def test_a_program_of_our_choice(shared: Path, path: str) -> None:
    environ = {"PATH": path.format("/nowhere")}
    assert find_helper("srun", environ) == ""
    with Loop() as loop, pytest.raises(FileNotFoundError):
        SpawnedCommand(["srun"], environ, b"", loop)
    with pytest.raises(LaunchError, match=r"scontrol failed: .*No such file"):
        run_command(environ, ["scontrol", "show", "hostnames"])


@pytest.mark.parametrize("path", ["", *PATHS[2:]])
def test_a_program_that_was_typed(shared: Path, path: str) -> None:
    environ = {"PATH": path.format("/nowhere")}
    with pytest.raises(LaunchError, match="is not run, since every user can write to"):
        find_typed("srun", environ, str(shared))
    with Loop() as loop:
        with pytest.raises(LaunchError, match="is not run, since every user can write to"):
            EventCommand(loop, ["true"], environ, str(shared), 2, print)
        link = ProcessLink(Node("there", 1, "test"), ["true"], loop, environ)
        link.begin()
        failure = link.failure()
        link.close()
    assert failure and "is not run, since every user can write to" in failure.what
    assert not (shared / "ran").exists()


def test_one_in_a_directory_of_ours(shared: Path) -> None:
    for folder in (shared, shared / "bin"):
        folder.chmod(0o755)
    assert os.path.samefile(find_typed("srun", {"PATH": ":/nowhere"}, str(shared)), shared / "srun")
    assert os.path.samefile(find_typed("srun", {"PATH": "bin"}, "."), shared / "bin" / "srun")


def test_absolute_directories_and_names_with_a_slash(shared: Path) -> None:
    environ = {"PATH": f"/nowhere:{shared}"}
    assert find_helper("srun", environ) == find_typed("srun", environ, "/") == str(shared / "srun")
    assert find_typed("./srun", {}, str(shared)) == f"{shared}/./srun"
    assert find_typed("missing", environ, str(shared)) == ""
