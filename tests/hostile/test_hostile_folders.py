"""Another user prepares, or exchanges, what the launcher writes: logs, --report-pid, the XML document.

We are root here, and the other user is the attacker; so no right that we lack hides a mistake.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_output import places_of
from launching import COMMAND, environment
from other_user import BOUND, UID, python_as

from mslaunch.datamodel.request import OutputPolicy
from mslaunch.launcher.stdio.log_files import RankLogs
from mslaunch.protocol.frames import STDOUT

pytestmark = pytest.mark.usefixtures("second_user")
RANKS = 140  # with two files each, more than stay open


@pytest.fixture
def precious(commons: Path) -> Path:
    """A file of ours in a directory that only we can enter."""
    folder = commons / "private"
    folder.mkdir(mode=0o700)
    (folder / "file").write_text("precious")
    return folder / "file"


def launch(folder: Path, *words: str, **how: object) -> subprocess.CompletedProcess[bytes]:
    line = [*COMMAND, *words, "-n", "1", "echo", "secret"]
    return subprocess.run(line, env=environment(), cwd=folder, capture_output=True, timeout=BOUND, check=False, **how)  # type: ignore[call-overload,no-any-return]


def attack(code: str, *paths: Path) -> None:
    done = python_as(UID, f"import os, sys; a = sys.argv[1:]; os.umask(0); {code}", *map(str, paths))
    assert done.returncode == 0, done.stderr


EXCHANGES = {
    "link": "os.rename(a[0] + '/1', a[0] + '/old'); os.symlink(a[1], a[0] + '/1')",
    "ours": "os.rename(a[0] + '/1', a[0] + '/old'); os.rename(a[0] + '/2', a[0] + '/1')",
    "theirs": "os.rename(a[0] + '/1', a[0] + '/old'); os.makedirs(a[0] + '/1/rank.000')",
}


@pytest.mark.parametrize("how", EXCHANGES)
def test_a_directory_that_is_exchanged_while_ranks_run_gets_no_output(commons: Path, how: str) -> None:
    base, private = commons / "logs", commons / "private"
    attack("os.mkdir(a[0], 0o777)", base)
    for folder in (private, base / "2"):
        (folder / "rank.000").mkdir(parents=True)
        (folder / "rank.000" / "stdout").write_text("original\n")
    said: list[str] = []
    logs = RankLogs(OutputPolicy(str(base)), places_of(RANKS), said.append)
    attack(EXCHANGES[how], base, private)
    logs.write(STDOUT, 0, b"injected\n")  # its file was the first to be closed
    logs.close()
    assert (private / "rank.000" / "stdout").read_text() == "original\n"
    found = base / "1" / "rank.000" / "stdout"
    assert (found.read_text() if found.exists() else "") in ("", "original\n")
    assert (base / "old" / "rank.000" / "stdout").read_text() == "injected\n"  # where it was, and not lost


def test_a_base_that_every_user_can_write_to_is_named_once(commons: Path) -> None:
    attack("os.mkdir(a[0], 0o777)", commons / "logs")
    done = launch(commons, "--output-filename", "logs")
    assert done.returncode == 0
    assert done.stderr.decode().count("every user can write to") == 1, done.stderr
    (commons / "logs").chmod(0o1777)
    assert b"every user" not in launch(commons, "--output-filename", "logs").stderr


@pytest.mark.parametrize("mode", ["0o755", "0o1777"])
def test_a_base_of_another_user_is_named_once(commons: Path, mode: str) -> None:
    attack(f"os.mkdir(a[0], 0o755); os.chmod(a[0], {mode})", commons / "logs")
    done = launch(commons, "--output-filename", "logs")
    assert done.returncode == 0
    assert done.stderr.decode().count(f"user {UID}, whose directory") == 1, done.stderr


LINKED = {
    "directory": (["--output-filename", "shared/logs"], "1/rank.0/stdout"),
    "directory below": (["--output-filename", "shared/logs/below"], "below/1/rank.0/stdout"),
    "files": (["--output", "file=shared/logs/out"], "out.0.out"),
    "events": (["--events", "shared/logs/events"], "events"),
    "metrics": (["--metrics", "shared/logs/metrics"], "metrics"),
    "pid": (["--report-pid", "shared/logs/pid"], "pid"),
    "XML": (["--xml-file", "shared/logs/xml"], "xml"),
}


@pytest.mark.parametrize("place", LINKED)
@pytest.mark.parametrize("target", ["private", "../private"])
def test_a_link_of_another_user_leads_nowhere(commons: Path, precious: Path, place: str, target: str) -> None:
    """He makes it in a directory of ours in which he may write, as those of a group are."""
    words, name = LINKED[place]
    path = precious.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")
    (commons / "shared").mkdir()
    (commons / "shared").chmod(0o777)
    attack("os.symlink(a[1], a[0])", commons / "shared" / "logs", Path(target) if target[0] == "." else precious.parent)
    done = launch(commons, *words)
    assert done.returncode == 1 and done.stdout == b"", done
    assert f"user {UID}, whose link" in done.stderr.decode(), done
    assert path.read_text() == "precious"


def test_a_link_of_another_user_makes_no_directory(commons: Path) -> None:
    attack("os.symlink(a[1], a[0])", commons / "logs", commons / "new")
    done = launch(commons, "--output-filename", "logs/below")
    assert done.returncode == 1 and f"user {UID}, whose link" in done.stderr.decode(), done
    assert not (commons / "new").exists()


def test_our_own_links_are_followed(commons: Path) -> None:
    (commons / "a" / "b").mkdir(parents=True)
    (commons / "a" / "up").symlink_to("../real")
    (commons / "link").symlink_to(commons / "a" / "b" / ".." / "up")
    (commons / "real").mkdir()
    done = launch(commons, "--output-filename", "link/logs", "--events", f"/proc/{os.getpid()}/root{commons}/link/file")
    assert done.returncode == 0, done
    assert (commons / "real" / "logs" / "1" / "rank.0" / "stdout").read_text() == "secret\n"
    assert (commons / "real" / "file").exists()


def test_links_without_end_are_refused(commons: Path) -> None:
    (commons / "one").symlink_to("two")
    (commons / "two").symlink_to("one")
    done = launch(commons, "--output-filename", "one/logs")
    assert done.returncode == 1 and b"Traceback" not in done.stderr and b"one" in done.stderr, done


OTHERS = {
    "a file": "open(a[0], 'x').close(); os.chmod(a[0], 0o666)",
    "a link": "os.symlink(a[1], a[0])",
    "a FIFO": "os.mkfifo(a[0], 0o666)",
    "a hard link": "os.link(a[1], a[0])",
}
PLACES = {
    "log": (["--output", "file=out"], "out.0.out"),
    "XML": (["--xml-file", "out.xml"], "out.xml"),
    "pid": (["--report-pid", "out.pid"], "out.pid"),
    "URI": (["--report-uri", "out.uri"], "out.uri"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("place", PLACES)
def test_what_another_user_has_put_there_is_not_written_to(
    commons: Path, precious: Path, place: str, kind: str
) -> None:
    words, name = PLACES[place]
    path = commons / name
    if kind == "a hard link":
        os.link(precious, path)  # the kernel may keep the other user from making it
    else:
        attack(OTHERS[kind], path, precious)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if kind == "a FIFO" else -1
    done = launch(commons, *words)
    said = done.stderr.decode()
    assert done.returncode == 1 and done.stdout == b"", done
    assert name in said and ("belongs to another user" in said or "link" in said), said
    assert precious.read_text() == "precious"
    if kind == "a file":
        assert path.read_text() == ""
    if reader >= 0:
        assert os.read(reader, 100) == b""
        os.close(reader)


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_the_shell_s_own_descriptors_work(commons: Path, path: str) -> None:
    done = launch(commons, "--report-pid", path)
    assert done.returncode == 0 and sorted(map(bytes.isdigit, done.stdout.split())) == [False, True]


def test_a_descriptor_of_the_shell_keeps_what_it_has(commons: Path, need: Callable[..., str]) -> None:
    script = f"exec 3>log; echo before >&3; {' '.join(COMMAND)} --report-pid /dev/fd/3 -n 1 true; echo after >&3"
    subprocess.run([need("bash"), "-c", script], env=environment(), cwd=commons, timeout=BOUND, check=True)
    before, pid, after = (commons / "log").read_text().split()
    assert (before, pid.isdigit(), after) == ("before", True, "after")


def test_devices_work(commons: Path) -> None:
    assert launch(commons, "--report-pid", "/dev/null", "-outfile-pattern", "/dev/null").stderr.count(b"device") == 0
    assert launch(commons, "--report-pid", "/dev/null", "--xml-file", "/dev/null").returncode == 0
