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

HOST = HostAccess({"JOB": "7"}, lambda path: f"text of {path}", " ".join, lambda name: name == "here")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts resource managers in the table."""

    def fill(**systems: Callable[[HostAccess], Grant | None]) -> None:
        monkeypatch.setattr(launcher, "MANAGERS", {name: (name.upper(), name) for name in systems})
        monkeypatch.setattr(managers, "load", systems.__getitem__)
        for name in systems:
            monkeypatch.setenv(name.upper(), "7")

    return fill


def granted(*nodes: Node, **how: str) -> Grant:
    return Grant(Allocation(nodes, declared=True), "job 7", **how)  # type: ignore[arg-type]


def test_every_row_can_be_loaded() -> None:
    assert all(callable(load(row)) for _, row in MANAGERS.values())


def test_the_manager_with_a_grant_decides(table: Callable[..., None]) -> None:
    seen: list[str] = []

    def absent(host: HostAccess) -> None:
        seen.append(host.environ["JOB"])

    def present(host: HostAccess) -> Grant:
        seen.extend([host.read_text("/nodes"), host.run(["scontrol", "show"])])
        return granted(Node("n1", 2, "present"))

    table(absent=absent, present=present)
    assert detect({"a": "absent", "b": "present"}, HOST) == granted(Node("n1", 2, "present"))
    assert seen == ["7", "text of /nodes", "scontrol show"]


def test_without_a_manager_the_command_line_names_the_hosts(table: Callable[..., None]) -> None:
    table(absent=lambda host: None)
    assert detect({"a": "absent"}, HOST) is None
    assert len(launch(["true"], options=["--quiet", "-n", "2"]).ranks) == 2


def test_a_grant_is_the_allocation_of_a_launch(table: Callable[..., None]) -> None:
    table(here=lambda host: granted(Node("here", 3, "here", local=True)))
    assert len(launch(["true"], options=["--quiet"]).ranks) == 3


def here(host: HostAccess) -> Grant:
    return granted(Node("here", 3, "here", local=True))


def test_flux_decides_alone_and_others_not_together(table: Callable[..., None]) -> None:
    table(one=here, two=here, flux=here)
    assert detect({"one": "one", "flux": "flux"}, HOST) == here(HOST)
    with pytest.raises(LaunchError, match="2 systems have granted hosts: job 7 and job 7") as refused:
        detect({"one": "one", "two": "two"}, HOST)
    assert refused.value.todo == "choose: --resource-manager one or --resource-manager two"


def test_a_system_can_be_chosen(table: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    table(one=here, two=lambda host: granted(Node("here", 2, "here", local=True)), absent=lambda host: None)
    assert len(launch(["true"], options=["--quiet", "--resource-manager", "two"]).ranks) == 2
    monkeypatch.delenv("ONE")
    assert len(launch(["true"], options=["--quiet", "--resource-manager", "one"]).ranks) == 3
    with pytest.raises(LaunchError, match="this launch does not run under absent"):
        launch(["true"], options=["--quiet", "--resource-manager", "absent"])
    with pytest.raises(LaunchError, match="there is no resource manager 'three'"):
        launch(["true"], options=["--quiet", "--resource-manager", "three"])


def test_a_grant_can_be_left(table: Callable[..., None]) -> None:
    table(here=pytest.fail)
    assert len(launch(["true"], options=["--quiet", "--resource-manager", "none", "-n", "2"]).ranks) == 2


@pytest.mark.parametrize("options", [["-H", "localhost:2"], ["--hostfile", "hosts"], ["-H", "+n0"]])
def test_the_command_line_chooses_within_a_grant(
    options: list[str], table: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("localhost slots=1\n")
    table(here=lambda host: granted(Node("n1", 2, "job 7", local=True), Node("n2", 3, "job 7")))
    assert len(launch(["true"], options=["--quiet", *options]).ranks) == 2


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("n3", "n3 is not a host of job 7, which has n1, n2"),
        ("+n2", "there is no host number 2"),
    ],
)
def test_nothing_but_the_grant_can_be_chosen(hosts: str, message: str, table: Callable[..., None]) -> None:
    table(here=lambda host: granted(Node("n1", 3, "job 7", local=True), Node("n2", 3, "job 7")))
    with pytest.raises(LaunchError, match=message):
        launch(["true"], options=["--quiet", "-H", hosts])


def test_ranks_inherit_nothing_of_an_agent_s_own(table: Callable[..., None], tmp_path: Path) -> None:
    table(here=lambda host: here(host)._replace(scrub=("HERE", "NO_*")))
    file = tmp_path / "seen"
    launch(["sh", "-c", f"env > {file}"], options=["--quiet", "-n", "1", "-x", "YES=1"])
    assert "\nYES=1\n" in file.read_text()
    assert "HERE=" not in file.read_text()


def test_a_system_is_asked_only_under_its_variable(table: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    table(here=pytest.fail)
    monkeypatch.delenv("HERE")
    assert len(launch(["true"], options=["--quiet", "-n", "2"]).ranks) == 2


def test_a_grant_says_how_agents_are_started(table: Callable[..., None]) -> None:
    table(there=lambda host: granted(Node("there", 1, "there"), transport="pigeon"))
    with pytest.raises(LaunchError, match="there is no transport 'pigeon'"):
        launch(["true"], options=["--quiet"])


def test_commands() -> None:
    assert run_command({}, [sys.executable, "-c", "print(7)"]) == "7\n"
    for argv in (["/not/there"], ["false"]):
        with pytest.raises(LaunchError, match=f"the resource manager's {argv[0]} failed"):
            run_command({"PATH": "/usr/bin:/bin"}, argv)
