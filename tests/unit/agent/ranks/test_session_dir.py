"""The session directory of an agent: files are stored, ranks see them, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mslaunch.agent.ranks.session_dir import SessionDir, remove
from mslaunch.errors import LaunchError


class Reports:
    """What a session reports: directories to its guard, stored files to the launcher."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.stored: list[tuple[str, str]] = []

    def names(self) -> list[str]:
        os.set_blocking(self.reader, False)
        try:
            return os.read(self.reader, 1 << 16).decode().split("\0")[:-1]
        except BlockingIOError:
            return []


@pytest.fixture
def reports() -> Iterator[Reports]:
    made = Reports()
    yield made
    os.close(made.reader)
    os.close(made.writer)


@pytest.fixture
def session(tmp_path: Path, reports: Reports) -> Iterator[SessionDir]:
    made = SessionDir(f"{tmp_path}/mslaunch-1-a", reports.writer, lambda *report: reports.stored.append(report))
    yield made
    made.close()
    assert os.listdir(tmp_path) == []


def test_the_guard_has_the_name_before_there_is_a_directory(
    session: SessionDir, reports: Reports, tmp_path: Path
) -> None:
    assert (os.listdir(tmp_path), reports.names()) == ([], [session.path])
    session.rank_dir("rank.0")
    assert reports.names() == []
    assert [session.path] == [str(tmp_path / name) for name in os.listdir(tmp_path)]
    assert os.stat(session.path).st_mode & 0o777 == 0o700


def test_files_are_stored_with_their_modes(session: SessionDir, reports: Reports) -> None:
    for name, mode, pieces in (
        ("tool", 0o755, [b"#!/bin/sh\n", b"exit 3\n"]),
        ("data/in/x", 0o440, [b"\0" * 70000]),
        ("empty", 0o4600, []),
    ):
        session.begin(name, mode)
        for piece in [*pieces, b""]:
            session.write(piece)
        stored = Path(session.path, "files", name)
        assert (stored.read_bytes(), stored.stat().st_mode & 0o7777) == (b"".join(pieces), mode & 0o777)
    assert reports.stored == [("", "")] * 3


def test_each_rank_has_a_directory_with_all_files(session: SessionDir) -> None:
    for name in ("tool", "data/x"):
        session.begin(name, 0o700)
        session.write(b"1")
        session.write(b"")
    first, second = session.rank_dir("rank.0"), session.rank_dir("rank.12")
    for folder in (first, second):
        assert sorted(os.listdir(folder)) == ["data", "tool"]
        assert Path(folder, "data/x").read_bytes() == b"1"
    Path(first, "out").write_text("mine")
    assert sorted(os.listdir(second)) == ["data", "tool"]
    assert session.rank_dir("rank.0") == first and sorted(os.listdir(first)) == ["data", "out", "tool"], "asked again"


def test_the_first_error_is_reported_once(session: SessionDir, reports: Reports, tmp_path: Path) -> None:
    session.begin("x", 0o600)
    session.write(b"")
    session.begin("x/y", 0o600)  # x is a file
    session.write(b"dropped")
    session.write(b"")
    session.begin("z", 0o600)
    session.write(b"")
    assert [what[:39] for what, _ in reports.stored] == [
        "",
        "the file x/y could not be stored in " + str(tmp_path)[:3],
        "",
    ]
    assert "TMPDIR" in reports.stored[1][1]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_reported(session: SessionDir, reports: Reports) -> None:
    session.begin("x", 0o600)
    assert session._file
    os.dup2(os.open("/dev/full", os.O_WRONLY), session._file.fileno(), inheritable=False)
    for _ in range(3):
        session.write(b"y" * 70000)
    session.write(b"")
    assert len(reports.stored) == 1 and "the file x could not be stored" in reports.stored[0][0]
    assert "No space" in reports.stored[0][0]


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path, reports: Reports) -> None:
    made = SessionDir(f"{tmp_path}/gone/mslaunch-1-a", reports.writer, lambda *report: reports.stored.append(report))
    with pytest.raises(LaunchError, match="No such file"):
        made.rank_dir("rank.0")
    made.begin("x", 0o600)
    assert "No such file" in reports.stored[0][0]
    made.close()


def test_removing_follows_no_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(0o750)
    (mine / "kept").write_text("")
    tree = tmp_path / "tree"
    (tree / "locked" / "in").mkdir(parents=True)
    (tree / "locked" / "in" / "x").write_text("")
    os.symlink(mine, tree / "link")
    (tree / "locked" / "in").chmod(0o500)
    (tree / "locked").chmod(0)
    remove(str(tree))
    assert not tree.exists() and (mine / "kept").exists() and mine.stat().st_mode & 0o777 == 0o750
    remove(str(tree))  # it may have been done already


def test_a_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept" / "folder").mkdir(parents=True)
    (tmp_path / "session").symlink_to("kept")
    remove(str(tmp_path / "session"))
    assert (tmp_path / "kept" / "folder").is_dir()
