"""The file with the secret by which commands on several hosts know each other."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from mslaunch.errors import LaunchError
from mslaunch.launcher.peers.rendezvous_secret import read_or_make


def test_a_new_secret_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "config" / "mslaunch" / "secret"
    assert read_or_make(str(path)) == read_or_make(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["secret"]


def test_a_name_without_a_directory_is_one_in_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_or_make("secret") == read_or_make(str(tmp_path / "secret"))


def test_commands_that_make_it_at_the_same_time_have_one(tmp_path: Path) -> None:
    found: list[bytes] = []
    together = threading.Barrier(8)

    def read() -> None:
        together.wait()
        found.append(read_or_make(str(tmp_path / "secret")))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1 and os.listdir(tmp_path) == ["secret"]


def test_the_copy_of_a_secret_is_the_same_with_or_without_its_last_line_end(tmp_path: Path) -> None:
    for name, text in (("a", "0123456789abcdef\n"), ("b", "0123456789abcdef")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    assert read_or_make(str(tmp_path / "a")) == read_or_make(str(tmp_path / "b"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef")
    path.chmod(mode)
    with pytest.raises(LaunchError, match="others may read or write it"):
        read_or_make(str(path))


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("0123456789abcdef")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("open")
    (tmp_path / "open").write_text("0123456789abcdef")
    (tmp_path / "open").chmod(0o644)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "short").write_text("0123456789abcde")
    (tmp_path / "short").chmod(0o600)
    whys = {
        "link": "others may read",
        "pipe": "is no regular file",
        "short": "has 15 bytes",
        "real/below": "cannot be used",
    }
    for name, why in whys.items():
        with pytest.raises(LaunchError, match=why):
            read_or_make(str(tmp_path / name))


def test_a_link_leads_to_a_secret_as_in_a_volume_of_kubernetes(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "secret").write_text("0123456789abcdef")
    (tmp_path / "..data" / "secret").chmod(0o400)
    (tmp_path / "secret").symlink_to("..data/secret")
    assert read_or_make(str(tmp_path / "secret")) == read_or_make(str(tmp_path / "..data" / "secret"))


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED, only root can give a link away")
def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    """It could lead to a file of ours whose contents all know."""
    (tmp_path / "real").write_text("0123456789abcdef")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "secret").symlink_to("real")
    os.chown(tmp_path / "secret", 64321, 64321, follow_symlinks=False)
    with pytest.raises(LaunchError, match="a link of another user"):
        read_or_make(str(tmp_path / "secret"))


def test_a_file_of_the_kernel_is_no_secret() -> None:
    """All processes of this mount namespace know what is in it."""
    with pytest.raises(LaunchError, match="it has no size"):
        read_or_make("/proc/self/mountstats")


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED, only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef")
    path.chmod(0o600)
    os.chown(path, 65534, 65534)
    with pytest.raises(LaunchError, match="it belongs to another user"):
        read_or_make(str(path))
