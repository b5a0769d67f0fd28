"""The state of a file or directory that changes when a program gets ahead."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.host import file_state
from mslaunch.host.file_state import FileLook, FileState, state_of


def test_a_file_changes_with_its_size_and_its_time(tmp_path):
    file = tmp_path / "step"
    assert state_of(str(file)) == FileState()
    file.write_text("1")
    os.utime(file, ns=(0, 10))
    assert state_of(str(file)) == FileState(10, 1, 1)
    assert state_of(str(file)) == state_of(str(file))
    file.write_text("12")
    os.utime(file, ns=(0, 10))
    assert state_of(str(file)) == FileState(10, 2, 1)
    os.utime(file, ns=(0, 11))
    assert state_of(str(file)) == FileState(11, 2, 1)


def test_a_directory_has_the_state_of_all_that_is_below(tmp_path):
    below = tmp_path / "step-1" / "shards"
    below.mkdir(parents=True)
    (below / "a").write_bytes(b"12345")
    (below / "b").write_bytes(b"1")
    for number, path in enumerate([tmp_path, tmp_path / "step-1", below, below / "a", below / "b"]):
        os.utime(path, ns=(0, number))
    assert state_of(str(tmp_path)) == FileState(4, 6, 5)
    before = state_of(str(tmp_path))
    os.utime(below / "a", ns=(0, 7))
    assert state_of(str(tmp_path)) != before


def test_a_link_is_followed_at_the_top_only(tmp_path):
    real, elsewhere = tmp_path / "real", tmp_path / "elsewhere"
    real.mkdir()
    elsewhere.mkdir()
    (elsewhere / "large").write_bytes(bytes(100))
    (real / "out").symlink_to(elsewhere)
    (tmp_path / "link").symlink_to(real)
    found = state_of(str(tmp_path / "link"))
    assert found is not None and (found.size, found.entries) == (0, 2)
    (real / "round").symlink_to(real)  # a circle
    found = state_of(str(real))
    assert found is not None and found.entries == 3


def test_of_many_entries_the_first_count(tmp_path, monkeypatch):
    monkeypatch.setattr(file_state, "MOST", 3)
    for name in "abcdef":
        (tmp_path / name).write_text("x")
    found = state_of(str(tmp_path))
    assert found is not None and (found.size, found.entries) == (2, 3)


@pytest.mark.parametrize("path", ["", "a\0b", "/dev/null/x", "/nowhere/at/all"])
def test_what_is_not_there_has_no_state(path):
    assert state_of(path) == FileState()


def test_a_look_is_bounded(tmp_path, monkeypatch):
    read, write = os.pipe()

    def hangs(path):  # as a file system whose server is gone
        os.read(read, 1)
        return iter(())

    monkeypatch.setattr(file_state, "_statuses", hangs)
    assert state_of(str(tmp_path), 0.05) is None
    os.close(write)


def test_half_of_a_directory_is_no_state(tmp_path):
    """A look whose time is over tells nothing, even if some entries were seen."""
    look = FileLook(str(tmp_path), -1.0)
    look._thread.join(10)
    assert look.over and look.state is None


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_each_file_counts(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("files")
    for number, data in enumerate(contents):
        (folder / str(number)).write_bytes(data)
    found = state_of(str(folder))
    assert found is not None
    assert (found.size, found.entries) == (sum(map(len, contents)), len(contents) + 1)
