"""A record of somebody else is a program of theirs: --rerun does not run it unless told to, and shows it first."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from launching import COMMAND, environment
from other_user import BOUND, UID, python_as

HOW = "with --report, then run it with --rerun-untrusted"


def write(path: Path, *program: str) -> Path:
    facts = {"schema": 1, "state": "ended", "command": ["mslaunch", "-n", "1", *program], "cwd": str(path.parent)}
    path.write_text(json.dumps(facts))
    return path


def rerun(option: str, path: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    line = [*COMMAND, option, str(path)]
    return subprocess.run(line, env=environment(**variables), capture_output=True, timeout=BOUND, check=False)


def assert_refused(path: Path, why: str) -> None:
    done = rerun("--rerun", path)
    assert (done.returncode, done.stdout) == (1, b""), done
    assert done.stderr.decode().startswith(f"mslaunch: --rerun {path}: {why}") and HOW in done.stderr.decode()
    told = rerun("--rerun-untrusted", path)
    assert (told.returncode, told.stdout) == (0, b"ran\n"), told


def test_the_record_of_another_user(second_user: None, commons: Path) -> None:
    path = write(commons / "run.json", "echo", "ran")
    os.chown(path, UID, UID)
    assert_refused(path, f"it belongs to user {UID}")


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o602])
def test_a_record_that_others_can_write(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "run.json", "echo", "ran")
    path.chmod(mode)
    assert_refused(path, "others can write it")


def test_a_record_that_a_group_can_write(second_user: None, tmp_path: Path) -> None:
    path = write(tmp_path / "run.json", "echo", "ran")
    os.chown(path, -1, UID)
    path.chmod(0o664)
    assert_refused(path, "others can write it")


def test_a_record_of_ours_that_others_have_linked(second_user: None, commons: Path) -> None:
    """What a rank has printed into a log of ours may be JSON; where links are not protected, others may name it."""
    log = write(commons / "log", "echo", "ran")
    log.chmod(0o666)  # as fs.protected_hardlinks wants it
    python_as(UID, "import os, sys; os.link(*sys.argv[1:])", str(log), str(commons / "run.json"))
    log.chmod(0o644)
    if (commons / "run.json").exists():
        assert_refused(commons / "run.json", "it has more than one name")


def test_a_record_of_ours_runs_in_a_directory_of_all(commons: Path) -> None:
    path = write(commons / "run.json", "echo", "ran")
    assert not stat.S_IMODE(path.stat().st_mode) & 0o002
    assert rerun("--rerun", path).stdout == b"ran\n"


def test_the_line_is_shown_whole_before_it_runs(tmp_path: Path) -> None:
    mark = tmp_path / "a b\x1b[2J\nmslaunch: all is well"
    path = write(tmp_path / "run.json", "-x", "KEY=…", "sh", "-c", f"echo ran >&2 # {'x' * 50_000} ${{KEY}}", str(mark))
    done = rerun("--rerun", path, KEY="sesame-4711")
    first, line, ran = done.stderr.decode().splitlines()
    assert first == f"mslaunch: --rerun runs, in {tmp_path}:"
    assert line.startswith("  mslaunch -n 1 -x 'KEY=…' sh -c ") and "x" * 50_000 in line
    assert "\\x1b[2J\\nmslaunch" in line and "sesame" not in line
    assert (done.returncode, ran) == (0, "ran")
