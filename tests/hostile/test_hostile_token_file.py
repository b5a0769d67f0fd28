"""The file with the token of agents: what others may have put in its place is not read, and nobody else can read it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mslaunch.transport.bootstrap.command_lines import file_argv
from mslaunch.transport.token_file import NAME, UNREADABLE, TokenFile

PROGRAM = b"print('it ran', sys.argv[1])\n"


def agent(*directories: Path) -> tuple[int, str]:
    """How an agent ends that is to find its program there, and what it says."""
    argv = file_argv(sys.executable, 5, map(str, directories), "n1")
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def placed(place: Path) -> Path:
    """The directory of a file that is right."""
    return Path(TokenFile([str(place)], PROGRAM).directories[0])


def test_it_is_run_from_the_first_place_that_has_it(tmp_path: Path) -> None:
    directory = placed(tmp_path)
    assert agent(tmp_path / "elsewhere", directory) == (0, "it ran n1\n")


def test_only_the_user_can_read_it_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = placed(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / NAME).stat().st_mode) == 0o600


def test_a_place_keeps_the_name_that_other_hosts_know(tmp_path: Path) -> None:
    """An automounter may lead elsewhere on each."""
    (tmp_path / "mount").mkdir()
    (tmp_path / "home").symlink_to("mount")
    directory = placed(tmp_path / "home")
    assert directory.parent == tmp_path / "home"
    assert agent(directory) == (0, "it ran n1\n")


def test_what_a_link_in_its_place_leads_to_stays(tmp_path: Path) -> None:
    """In a directory without the sticky bit others can exchange it."""
    file = TokenFile([str(tmp_path)], PROGRAM)
    (directory,) = map(Path, file.directories)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / NAME).write_text("precious")
    directory.rename(tmp_path / "moved")
    directory.symlink_to("private")
    file.remove()
    assert (tmp_path / "private" / NAME).read_text() == "precious"


def test_it_is_in_each_place_that_takes_it_and_removed(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    file = TokenFile([str(home), str(tmp_path / "gone"), "", "relative", str(work), str(home)], PROGRAM)
    assert [Path(directory).parent for directory in file.directories] == [home, work]
    file.remove()
    file.remove()
    assert [*home.iterdir(), *work.iterdir()] == []


def link_to_file(directory: Path) -> None:
    (directory / NAME).rename(directory / "other")
    (directory / NAME).symlink_to("other")


def second_name(directory: Path) -> None:
    """As one may give to a file of the user elsewhere."""
    (directory / "other").hardlink_to(directory / NAME)


def link_to_directory(directory: Path) -> None:
    moved = directory.rename(directory.with_name("moved"))
    directory.symlink_to(moved)


def fifo(directory: Path) -> None:
    """It must not block."""
    (directory / NAME).unlink()
    os.mkfifo(directory / NAME, 0o600)


def folder(directory: Path) -> None:
    (directory / NAME).unlink()
    (directory / NAME).mkdir(0o700)


def owned_by_another(path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    "spoil",
    [
        link_to_file,
        second_name,
        link_to_directory,
        fifo,
        folder,
        pytest.param(lambda directory: (directory / NAME).chmod(0o640), id="a group may read it"),
        pytest.param(lambda directory: (directory / NAME).chmod(0o602), id="others may write it"),
        pytest.param(lambda directory: directory.chmod(0o701), id="others may enter"),
        pytest.param(lambda directory: owned_by_another(directory / NAME), id="a file of another user"),
        pytest.param(owned_by_another, id="a directory of another user"),
        pytest.param(lambda directory: (directory / NAME).unlink(), id="no file"),
    ],
)
def test_nothing_else_is_run(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    directory = placed(tmp_path)
    spoil(directory)
    assert agent(directory) == (UNREADABLE, "")
