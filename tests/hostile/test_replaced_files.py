"""Files that a rank or another user has put where the launcher reads, writes or finds a program."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import COMMAND, environment
from other_user import BOUND, UID, python_as

from mslaunch.backends.openmpi import rank_wrapper
from mslaunch.errors import LaunchError
from mslaunch.host.programs import find_program
from mslaunch.host.system_files import head_of
from mslaunch.jobs.job_registry import JobRegistry
from mslaunch.jobs.launcher_pid import process

pytestmark = pytest.mark.usefixtures("second_user")


def run(*words: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)], cwd=cwd, env=environment(**env), capture_output=True, text=True, timeout=BOUND,
        check=False,
    )  # fmt: skip


def attack(code: str, *paths: Path) -> None:
    done = python_as(UID, f"import os, sys; a = sys.argv[1:]; os.umask(0); {code}", *map(str, paths))
    assert done.returncode == 0, done.stderr


# --- error.json


@pytest.fixture
def private(tmp_path: Path) -> Path:
    path = tmp_path / "private.json"
    path.write_text(json.dumps({"message": "the secret"}))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("how", ["mkfifo", "ln -s /dev/zero", "mkdir", "ln -s PRIVATE"])
def test_what_is_in_the_place_of_an_error_file_is_not_read(tmp_path: Path, private: Path, how: str) -> None:
    script = f"{how.replace('PRIVATE', str(private))} $TORCHELASTIC_ERROR_FILE; exit 3"
    words = ["--dialect", "torchrun", f"--log-dir={tmp_path}/logs", "--record", tmp_path / "run"]
    done = run(*words, "--no-python", "sh", "-c", script, cwd=tmp_path, TORCHELASTIC_ERROR_FILE=str(tmp_path / "ours"))
    assert done.returncode == 1 and "exit code 3" in done.stderr, done
    assert "the secret" not in done.stderr and not (tmp_path / "ours").exists()
    assert "the secret" not in (tmp_path / "run" / "run.json").read_text()


@pytest.mark.parametrize("up", [1, 2])
def test_no_error_file_is_read_through_a_directory_that_was_replaced(tmp_path: Path, up: int) -> None:
    """By that of another rank, or by any."""
    script = """
        set -e
        above=$TORCHELASTIC_ERROR_FILE; below=; for turn in $UP; do
            below=/$(basename "$above")$below; above=$(dirname "$above")
        done
        mkdir -p $(dirname private$below)
        echo '{"message": "the secret"}' > private$below
        mv "$above" aside; ln -s "$PWD/private" "$above"; exit 3"""
    words = ["--dialect", "torchrun", f"--log-dir={tmp_path}/logs", "--no-python", "sh", "-c", script]
    done = run(*words, cwd=tmp_path, UP=" ".join("x" * up), TORCHELASTIC_ERROR_FILE=str(tmp_path / "ours"))
    assert done.returncode == 1 and "exit code 3" in done.stderr, done
    assert "the secret" not in done.stderr and not (tmp_path / "ours").exists()


def test_a_long_line_of_an_error_file_is_cut(tmp_path: Path) -> None:
    script = """
        (printf '{"message": "begin'; head -c 500000 /dev/zero | tr '\\0' x; printf '"}') > $TORCHELASTIC_ERROR_FILE
        exit 3"""
    words = ["--dialect", "torchrun", f"--log-dir={tmp_path}/logs", "--no-python", "sh", "-c", script]
    done = run(*words, cwd=tmp_path)
    assert "beginxxx" in done.stderr and len(done.stderr) < 5000


@pytest.mark.parametrize("how", ["link", "hard link", "theirs", "fifo"])
def test_our_own_error_file_is_written_through_nothing(commons: Path, tmp_path: Path, how: str) -> None:
    precious, ours = tmp_path / "precious", commons / "ours.json"
    precious.write_text("precious")
    if how == "link":
        attack("os.symlink(a[0], a[1])", precious, ours)
    elif how == "hard link":
        os.rename(precious, commons / "precious")
        os.link(commons / "precious", ours)
        precious = commons / "precious"
    else:
        attack("os.mkfifo(a[0])" if how == "fifo" else "open(a[0], 'w').close()", ours)
    script = """echo '{"message": "so it is"}' > $TORCHELASTIC_ERROR_FILE; exit 3"""
    words = ["--dialect", "torchrun", f"--log-dir={tmp_path}/logs", "--no-python", "sh", "-c", script]
    done = run(*words, cwd=tmp_path, TORCHELASTIC_ERROR_FILE=str(ours))
    assert done.returncode == 1 and "so it is" in done.stderr, done
    assert precious.read_text() == "precious"
    assert how != "theirs" or ours.read_text() == ""


def test_the_head_of_a_file_that_is_exchanged_is_read_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    assert head_of(str(tmp_path / "link"), 9) == b"text"
    assert head_of(str(tmp_path / "link"), 9, flags=os.O_NOFOLLOW) == b""
    assert head_of(str(tmp_path / "fifo"), 9) == head_of("/dev/zero", 9) == head_of(str(tmp_path), 9) == b""


# --- --logs


@pytest.fixture
def show(commons: Path, tmp_path: Path) -> Callable[..., str]:
    """`--logs` of a job of two ranks, whose files are commons/out.N.out or the files of a pattern."""

    def run_logs(*words: str, pattern: str = "out.%m.out", whole: bool = True) -> str:
        environ = environment(MSLAUNCH_JOBS=str(tmp_path / "jobs"))
        entry = JobRegistry(environ).add(
            command=["mslaunch"], cwd="/", began=time.time(), process=process(os.getpid()), ranks=2, whole=whole,
            logs=str(commons), grace=1.0, layouts=[[str(commons), pattern, None]],
        )  # fmt: skip
        entry.note(code=0, how="all ranks succeeded", ended=time.time())
        done = run("--logs", entry.number, *words, cwd=tmp_path, MSLAUNCH_JOBS=environ["MSLAUNCH_JOBS"])
        assert "Traceback" not in done.stderr, done
        return done.stdout + done.stderr

    for rank in range(2):
        (commons / f"out.{rank}.out").write_text(f"of {rank}\n")
    return run_logs


@pytest.mark.parametrize("words", [[], ["-f"]])
def test_files_of_another_user_are_no_logs(show: Callable[..., str], commons: Path, words: list[str]) -> None:
    attack("open(a[0] + '/out.7.out', 'w').write('owned')", commons)
    attack("os.symlink('/etc/passwd', a[0] + '/out.8.out')", commons)
    attack("os.mkfifo(a[0] + '/out.9.out')", commons)
    (commons / "out.1.out").unlink()
    attack("open(a[0] + '/out.1.out', 'w').write('owned')", commons)
    shown = show(*words)
    assert "of 0" in shown and "owned" not in shown and "root:" not in shown, shown


@pytest.mark.parametrize("words", [[], ["-f"]])
def test_links_to_our_own_files_are_no_logs(
    show: Callable[..., str], commons: Path, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "1.out").write_text("private")
    attack("os.symlink(a[1], a[0] + '/host')", commons, tmp_path / "host")
    attack("os.mkdir(a[0] + '/other')", commons)
    (commons / "mine").mkdir()
    (commons / "mine" / "0.out").write_text("of 0")
    (commons / "other" / "1.out").write_text("ours, in a folder of another user")
    shown = show(*words, pattern="%h/%r.out")
    assert "of 0" in shown and "private" not in shown and "another user" not in shown, shown


def test_a_rank_that_the_job_has_not_is_not_shown(show: Callable[..., str], commons: Path) -> None:
    (commons / "out.5.out").write_text("of another job")
    assert "of another job" not in show()
    assert "of another job" in show(whole=False)  # of a share the first rank is not known here
    (commons / "2").mkdir()
    (commons / "2" / "rank.4").mkdir()
    (commons / "2" / "rank.4" / "stdout").write_text("of a rank that was spawned")
    assert "of a rank that was spawned" in show(pattern="%w/%d/stdout")


def test_a_name_is_shown_without_what_acts_on_a_terminal(show: Callable[..., str], commons: Path) -> None:
    for name in ("\033]0;owned\a", "\x9b2J", "ho\u202est"):
        (commons / f"{name}.0.out").write_text("of 0\n")
    shown = show(pattern="%h.%r.out")
    assert shown.count("of 0") == 4 and "==> " in shown
    assert not any(char in shown for char in "\033\a\x9b\u202e"), shown


# --- programs in the working directory

#: what is done to the working directory and the tool in it, both ours -> who can put a tool there, or change it
FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "ours": (lambda tool: None, ""),
    "sticky": (lambda tool: tool.parent.chmod(0o1777), "every user"),
    "for all": (lambda tool: tool.parent.chmod(0o777), "every user"),
    "of a group": (lambda tool: (os.chown(tool.parent, 0, UID), tool.parent.chmod(0o775)), f"group {UID}"),
    "of another user": (lambda tool: os.chown(tool.parent, UID, UID), f"user {UID}"),
    "a file of another user": (lambda tool: os.chown(tool, UID, UID), f"user {UID}"),
    "a file for all": (lambda tool: tool.chmod(0o777), "every user"),
}


@pytest.fixture
def tool(commons: Path) -> Path:
    (commons / "place").mkdir(0o755)
    path = commons / "place" / "pyhton"
    path.write_text("#!/bin/sh\necho ran\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("change", FOLDERS)
def test_a_program_that_is_in_no_path_is_run_only_if_it_is_ours(tool: Path, change: str) -> None:
    act, who = FOLDERS[change]
    act(tool)
    for path in ("/usr/bin:/bin", "/usr/bin:", ""):
        if not who:
            assert find_program("pyhton", path, str(tool.parent)) == str(tool)
            continue
        with pytest.raises(LaunchError) as caught:
            find_program("pyhton", path, str(tool.parent))
        assert caught.value.code == 127
        assert f"'pyhton' is not in PATH, and {tool} is not run, since {who} can write to {tool.parent}" in str(
            caught.value
        )
        assert "type ./pyhton if you mean that file" in caught.value.todo
    assert find_program("./pyhton", "", str(tool.parent)) == "./pyhton"
    assert os.path.samefile(find_program("pyhton", "/usr/bin:.", str(tool.parent)), tool)
    assert find_program("pyhton", f"/usr/bin:{tool.parent}", str(tool.parent)) == str(tool)


@pytest.mark.parametrize("change", FOLDERS)
def test_the_wrapper_of_an_installed_mpirun_does_the_same(tool: Path, change: str) -> None:
    act, who = FOLDERS[change]
    act(tool)
    line = rank_wrapper.wrap(1, ["pyhton"], str(tool.parent), "", rank_wrapper.LocalPaths(), False, 0, [".", "."])
    env = {"PATH": "/usr/bin:/bin", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=BOUND, check=False)
    if who:
        assert (done.returncode, done.stdout) == (127, "") and f"{who} can write to" in done.stderr, done
        assert "type ./pyhton" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, "ran\n"), done


@pytest.mark.parametrize("words", [[], ["--check"], ["--detach"], ["--preload-binary"]])
def test_a_misspelt_program_in_a_place_for_all(tool: Path, words: list[str]) -> None:
    tool.parent.chmod(0o1777)
    os.chown(tool, UID, UID)
    done = run(*words, "-n", "1", "pyhton", cwd=tool.parent)
    assert done.returncode == (3 if words == ["--check"] else 127) and "ran" not in done.stdout.split(), done
    said = " ".join((done.stdout + done.stderr).split())
    assert "every user can write to" in said and "type ./pyhton" in said, said
    if not words:
        assert run("-n", "1", "./pyhton", cwd=tool.parent).stdout == "ran\n"
