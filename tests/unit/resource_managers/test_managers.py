"""Resource managers: their arguments, and the effect of their grant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mslaunch import launch
from mslaunch.datamodel.jobmap import Allocation, Node
from mslaunch.errors import LaunchError
from mslaunch.faststd import load
from mslaunch.launcher import launch as launcher
from mslaunch.launcher.launch import MANAGERS
from mslaunch.resource_managers import managers
from mslaunch.resource_managers.managers import Grant, HostAccess, detect, run_command

HOST = HostAccess({"JOB": "7"}, lambda path: f"text of {path}", " ".join)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts resource managers in the table."""

    def fill(**systems: Callable[[HostAccess], Grant | None]) -> None:
        monkeypatch.setattr(launcher, "MANAGERS", {name.upper(): name for name in systems})
        monkeypatch.setattr(managers, "load", systems.__getitem__)
        for name in systems:
            monkeypatch.setenv(name.upper(), "7")

    return fill


def granted(*nodes: Node, **how: str) -> Grant:
    return Grant(Allocation(nodes, declared=True), **how)  # type: ignore[arg-type]


def test_every_row_can_be_loaded() -> None:
    assert all(callable(load(row)) for row in MANAGERS.values())


def test_the_first_manager_with_a_grant_decides(table: Callable[..., None]) -> None:
    seen: list[str] = []

    def absent(host: HostAccess) -> None:
        seen.append(host.environ["JOB"])

    def present(host: HostAccess) -> Grant:
        seen.extend([host.read_text("/nodes"), host.run(["scontrol", "show"])])
        return granted(Node("n1", 2, "present"))

    table(absent=absent, present=present, never=pytest.fail)
    assert detect(["absent", "present", "never"], HOST) == granted(Node("n1", 2, "present"))
    assert seen == ["7", "text of /nodes", "scontrol show"]


def test_without_a_manager_the_command_line_names_the_hosts(table: Callable[..., None]) -> None:
    table(absent=lambda host: None)
    assert detect(["absent"], HOST) is None
    assert len(launch(["true"], options=["--quiet", "-n", "2"]).ranks) == 2


def test_a_grant_is_the_allocation_of_a_launch(table: Callable[..., None]) -> None:
    table(here=lambda host: granted(Node("here", 3, "here", local=True)))
    assert len(launch(["true"], options=["--quiet"]).ranks) == 3


@pytest.mark.parametrize("options", [["-H", "localhost:2"], ["--hostfile", "hosts"], ["--default-hostfile", "hosts"]])
def test_hosts_of_the_command_line_come_first(
    options: list[str], table: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then nobody asks for a grant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    table(here=pytest.fail)
    assert len(launch(["true"], options=["--quiet", *options]).ranks) == 2


def test_a_system_is_asked_only_under_its_variable(table: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    table(here=pytest.fail)
    monkeypatch.delenv("HERE")
    assert len(launch(["true"], options=["--quiet", "-n", "2"]).ranks) == 2


def test_a_grant_says_how_agents_are_started(table: Callable[..., None]) -> None:
    table(there=lambda host: granted(Node("there", 1, "there"), transport="srun"))
    with pytest.raises(LaunchError, match="there is no transport 'srun'"):
        launch(["true"], options=["--quiet"])


def test_commands() -> None:
    assert run_command([sys.executable, "-c", "print(7)"]) == "7\n"
    for argv in (["/not/there"], ["false"]):
        with pytest.raises(LaunchError, match=f"the resource manager's {argv[0]} failed"):
            run_command(argv)
