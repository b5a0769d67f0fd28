"""--logs: which files it finds, and how it follows many of them."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mslaunch.cli.actions import job_logs
from mslaunch.errors import LaunchError
from mslaunch.jobs.job_registry import JobEntry, JobRegistry
from mslaunch.jobs.launcher_pid import process

ROOT = Path(__file__).parents[3]


def environ(tmp_path: Path) -> dict[str, str]:
    return {"MSLAUNCH_JOBS": str(tmp_path / "jobs")}


def add(tmp_path: Path, base: str, **facts: Any) -> JobEntry:
    """A job of a process that lives, with a file for each rank."""
    return JobRegistry(environ(tmp_path)).add(
        command=["mslaunch"], cwd="/", began=time.time(), process=process(os.getpid()), ranks=2, logs=base, grace=1.0,
        layouts=[[base, "%r.out", None]], **facts,
    )  # fmt: skip


END: dict[str, Any] = {"code": 0, "how": "all ranks succeeded", "ended": time.time()}


def logs(tmp_path: Path, *words: str, before: str = "") -> subprocess.CompletedProcess[bytes]:
    stage = ["sh", "-c", f'{before}exec "$@"', "sh", sys.executable, "-m", "mslaunch", "--logs", *words]
    env = {**os.environ, **environ(tmp_path), "PYTHONPATH": str(ROOT)}
    return subprocess.run(stage, env=env, capture_output=True, timeout=60, check=False)


def test_a_directory_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    base = os.path.join(os.fsencode(tmp_path), b"l\xff\xe9")
    os.mkdir(base)
    for rank in range(2):
        with open(os.path.join(base, b"%d.out" % rank), "wb") as file:
            file.write(b"of %d\n" % rank)
    add(tmp_path, os.fsdecode(base), **END)
    done = logs(tmp_path, "1")
    assert (done.returncode, done.stderr) == (0, b"")
    shown = os.path.join(os.fsencode(tmp_path), b"l??")  # a terminal may take the bytes for something else
    assert done.stdout == b"".join(b"==> %s/%d.out <==\nof %d\n" % (shown, rank, rank) for rank in range(2))
    assert logs(tmp_path, "1", "-f").stdout == b"[0] of 0\n[1] of 1\n"
    none = logs(tmp_path, "1", "-r", "7")
    assert none.returncode == 1 and b"Traceback" not in none.stderr and b"no log files" in none.stderr


def test_more_files_than_can_be_open_are_followed(tmp_path: Path) -> None:
    for rank in range(100):
        (tmp_path / f"{rank}.out").write_text(f"of {rank}\nno end")
    add(tmp_path, str(tmp_path), **END)
    done = logs(tmp_path, "1", "-f", before="ulimit -n 30; ")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        *(f"[{rank}] of {rank}" for rank in range(100)), *(f"[{rank}] no end" for rank in range(100)),
    ]  # fmt: skip


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Follows a job, with a step for each sleep; returns what was printed."""

    def run(*steps: Any) -> bytes:
        entry = add(tmp_path, str(tmp_path))
        left = list(steps)
        clock = [0.0]

        def sleep(seconds: float) -> None:
            clock[0] += seconds
            if left:
                left.pop(0)()
            else:
                entry.note(**END)

        monkeypatch.setattr(job_logs, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
        job_logs.logs(["1", "-f"], environ(tmp_path))
        return capfdbinary.readouterr().out

    return run


def _write(path: Path, text: str) -> Any:
    def act() -> None:
        with open(path, "a", encoding="ascii") as file:
            file.write(text)

    return act


def test_lines_are_printed_when_they_have_ended(tmp_path: Path, follow: Any) -> None:
    file = tmp_path / "0.out"
    file.write_text("a\nb")
    assert (
        follow(_write(file, "b"), _write(file, "\n\nc\nd"), _write(file, "e"))
        == b"[0] a\n[0] bb\n[0] \n[0] c\n[0] de\n"
    )


def test_a_line_without_an_end_is_shown_in_pieces(tmp_path: Path, follow: Any, capfdbinary: Any) -> None:
    (tmp_path / "0.out").write_text("x" * 200_000)
    piece, shown = b"[0] " + b"x" * (1 << 16) + b"\n", []
    rest = follow(lambda: shown.append(capfdbinary.readouterr().out), _write(tmp_path / "0.out", "\ny\n"))
    assert shown == [piece * 3], "before it has ended"
    assert rest == b"[0] " + b"x" * (200_000 - 3 * (1 << 16)) + b"\n[0] y\n"


def test_a_piece_is_followed_by_no_empty_line(tmp_path: Path, follow: Any) -> None:
    (tmp_path / "0.out").write_text("x" * (1 << 17))
    assert follow(_write(tmp_path / "0.out", "\n")) == (b"[0] " + b"x" * (1 << 16) + b"\n") * 2


def test_the_memory_for_a_line_without_an_end_is_bounded(tmp_path: Path) -> None:
    with open(tmp_path / "0.out", "wb") as file:
        file.truncate(256 << 20)
    add(tmp_path, str(tmp_path), **END)
    done = logs(tmp_path, "1", "-f", before="ulimit -v 200000; exec > /dev/null; ")
    assert (done.returncode, done.stderr) == (0, b"")


def test_each_state_of_a_progress_bar_is_shown(tmp_path: Path, follow: Any, capfdbinary: Any) -> None:
    bar, other, shown = tmp_path / "0.out", tmp_path / "1.out", []
    bar.write_text("\r 1 %\r 2 %\r 3 %")
    other.write_text("")
    see = lambda: shown.append(capfdbinary.readouterr().out)  # noqa: E731
    rest = follow(see, _write(other, "hello\r\n"), see, _write(bar, "\r\r\n4 %\r"), _write(bar, "\nend\r"))
    assert shown[0] == b"[0]  1 %\r[0]  2 %\r"
    assert shown[1] == b"\n[1] hello\r\n", "not over the bar of another rank"
    assert rest == b"[0]  3 %\r\r\n[0] 4 %\r\n[0] end\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_how_a_file_grows_changes_nothing(tmp_path: Path, size: int) -> None:
    text = b"\ra\rb\r\r\n\n\r\nc\r\rd\re"
    (tmp_path / "0.out").write_bytes(b"")
    tail, shown = job_logs.Tail(job_logs.LogFile(str(tmp_path), "0.out"), b"> "), []
    for end in range(size, len(text) + size, size):
        (tmp_path / "0.out").write_bytes(text[:end])
        shown += tail.pieces(end >= len(text))
    assert shown == [b"> a\r", b"> b\r\r\n", b"> \n", b"> \r\n", b"> c\r\r", b"> d\r", b"> e\n"]


def test_a_file_that_is_cut_or_replaced_is_read_from_its_begin(tmp_path: Path, follow: Any) -> None:
    file, other = tmp_path / "0.out", tmp_path / "other"
    file.write_text("first\n")
    other.write_text("other one\n")
    assert (
        follow(lambda: file.write_text("cut\n"), lambda: other.rename(file)) == b"[0] first\n[0] cut\n[0] other one\n"
    )


def test_new_files_are_looked_for_once_a_second(tmp_path: Path, follow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = glob.iglob
    monkeypatch.setattr(glob, "iglob", lambda path: (looks.append(path), real(path))[1])
    (tmp_path / "0.out").write_text("of 0\n")
    assert follow(_write(tmp_path / "1.out", "of 1\n"), *[lambda: None] * 23) == b"[0] of 0\n[1] of 1\n"
    assert 4 <= len(looks) <= 8, "in 5 seconds, and at both ends"


def test_what_ranks_put_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, follow: Any) -> None:
    file = tmp_path / "0.out"
    file.write_text("of 0\n")

    def fifo() -> None:
        file.unlink()
        os.mkfifo(file)

    assert follow(fifo, file.unlink, file.mkdir, lambda: None) == b"[0] of 0\n"


def test_a_file_that_cannot_be_read_is_said_in_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0.out").write_text("of 0\n")
    add(tmp_path, str(tmp_path), **END)
    real = os.open

    def refuse(path: Any, *words: Any, **how: Any) -> int:
        if str(path).endswith(".out"):
            raise PermissionError(13, "Permission denied")
        return real(path, *words, **how)

    monkeypatch.setattr(os, "open", refuse)
    for words in (["1"], ["1", "-f"]):
        with pytest.raises(LaunchError, match="cannot be read") as caught:
            job_logs.logs(words, environ(tmp_path))
        assert caught.value.where == str(tmp_path / "0.out")
