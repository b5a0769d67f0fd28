"""docs/tutorial.md, command by command: each runs in one shell, in a copy of the project, and prints what is shown.

A fence with a title is a file of that name.  In a fence of `console`, a line that begins with `$ ` is a command, and
the lines below it are its output: `…` in a line stands for any text, a line that is only `…` for any lines.  Lines of
ranks come in any order, so these are compared as a set.  pip finds what it is told to install: the packages of the
environments of the tests are visible in the one that the page makes, so that nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
MINDSPORE = os.environ.get("MSLAUNCH_TEST_MINDSPORE_PYTHON", "")
SECONDS = 120.0  #: for each command; training with MindSpore takes about 15
FENCE = re.compile(r"^```(\w*)(?: title=\"(.+?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: a line that depends on the cores of this machine
CORES = re.compile(r"mslaunch: \d+ ranks share \d+ cores?")
RANKS = re.compile(r"rank \d")


class Fence(NamedTuple):
    """A fence of the page."""

    section: str
    language: str
    title: str
    text: str


def fences(page: str) -> list[Fence]:
    found = []
    for fence in FENCE.finditer(page):
        section = re.findall(r"^## (.*)$", page[: fence.start()], re.MULTILINE)[-1]
        found.append(Fence(section, fence[1], fence[2] or "", fence[3]))
    return found


def commands(text: str) -> list[tuple[str, list[str]]]:
    """(command, lines of output) of a fence."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    assert parts[0] == "", "a fence of `console` begins with a command"
    return [(command, output.splitlines()) for command, output in zip(parts[1::2], parts[2::2])]


def pattern(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…")))


def differs(shown: list[str], printed: list[str]) -> str:
    """How the output of a command differs from that of the page; empty if it does not."""
    printed = [line for line in printed if not CORES.fullmatch(line)]
    left = [line for line in printed if RANKS.match(line)]
    for line in filter(RANKS.match, shown):
        match = next((other for other in left if re.fullmatch(pattern(line), other)), None)
        if match is None:
            return f"no line {line!r}"
        left.remove(match)
    if left and "…" not in shown:
        return f"more lines of ranks: {left}"
    whole = "".join("(?:.*\n)*" if line == "…" else pattern(line) + "\n" for line in shown if not RANKS.match(line))
    others = "".join(f"{line}\n" for line in printed if not RANKS.match(line))
    return "" if re.fullmatch(whole, others) else "other lines than on the page"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a …", "b"], ["a 1 s", "b"], True),
        (["a", "b"], ["b", "a"], False),
        (["rank 0", "rank 1"], ["rank 1", "mslaunch: 2 ranks share 1 core", "rank 0"], True),
        (["rank 0"], ["rank 0", "rank 1"], False),
        (["rank 0", "rank 1"], ["rank 0"], False),
        (["…", "end"], ["any", "lines", "end"], True),
        (["…", "end"], ["any", "lines", "end", "more"], False),
        ([], ["a warning"], False),
        (["a.c"], ["abc"], False),
    ],
)
def test_other_output_is_seen(shown: list[str], printed: list[str], same: bool) -> None:
    assert (differs(shown, printed) == "") == same


class Shell:
    """One bash for all commands of the page."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        words = ["bash", "--norc", "--noprofile"]
        self.process = subprocess.Popen(words, cwd=directory, env=environment, start_new_session=True, **streams)  # type: ignore[call-overload]

    def run(self, command: str) -> list[str]:
        """The lines that it prints.  `$?` is there for the next one."""
        end = f"END-{time.monotonic_ns()}"
        told = f"(exit $code)\n{{ {command}\n}} </dev/null\ncode=$?; echo {end}\n"
        self.process.stdin.write(told.encode())
        self.process.stdin.flush()
        printed, deadline = b"", time.monotonic() + SECONDS
        while not printed.endswith(f"{end}\n".encode()):
            ready = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]
            assert ready, f"{command}: not ended after {SECONDS:g} s, printed {printed.decode()}"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"{command}: ended the shell, printed {printed.decode()}"
            printed += data
        return printed.decode().removesuffix(f"{end}\n").splitlines()

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.stdout.close()


def links_to(packages: Path, directory: Path) -> Path:
    """A directory with the same packages.

    Not pip, which then comes into the new environment, nor mslaunch, nor what an environment other than that of the
    tests builds packages with.
    """
    left_out = r"pip\b|__editable__|mslaunch\b|.*\.pth$"
    if packages != Path(sysconfig.get_path("purelib")):
        left_out += "|setuptools|pkg_resources|_distutils_hack"
    directory.mkdir()
    for path in packages.iterdir():
        if not re.match(left_out, path.name):
            (directory / path.name).symlink_to(path)
    return directory


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    project = tmp_path / "mslaunch"
    kept = shutil.ignore_patterns(".*", "__pycache__", "tests", "build", "*.egg-info", "log_output")
    shutil.copytree(ROOT, project, ignore=kept)
    packages = project / ".venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    known = list((Path(MINDSPORE).parents[1] / "lib").glob("python*/site-packages")) if MINDSPORE else []
    known.append(Path(sysconfig.get_path("purelib")))
    seen = [links_to(path, tmp_path / f"known-{number}") for number, path in enumerate(known)]
    (packages / "tests.pth").write_text("".join(f"{path}\n" for path in seen))
    (tmp_path / "run").mkdir(mode=0o700)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "MSLAUNCH_JOBS": str(tmp_path / "jobs"),  # so that the first job is number 1
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),  # a cluster of its own
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # which means that there is none
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    made = Shell(project, environment)
    yield made
    try:
        if (tmp_path / "run" / "mslaunch-cluster").exists():
            made.run("scripts/cluster down")
        if (tmp_path / "jobs" / "1").exists():
            made.run("mslaunch --stop 1")
    finally:
        made.close()


def follow(page: list[Fence], shell: Shell, directory: Path) -> None:
    """Type it all."""
    for fence in page:
        if fence.section == "Leave it running":  # a launch that took more than a second before may have been job 1
            shell.run(f"export MSLAUNCH_JOBS={directory.parent / 'jobs'}")
        if fence.title:
            (directory / fence.title).write_text(fence.text, encoding="utf-8")
            continue
        for command, shown in commands(fence.text):
            printed = shell.run(command)
            why = differs(shown, printed)
            text = "\n".join(printed)
            if command.startswith("pip install"):
                assert shell.run("command -v pip") == [str(directory / ".venv" / "bin" / "pip")]
            assert not why, f"docs/tutorial.md, {fence.section}: {why}\n$ {command}\n{text}\nshow what is printed now"


def sections(*names: str) -> list[Fence]:
    return [fence for fence in fences(PAGE.read_text(encoding="utf-8")) if fence.section in names]


INSTALL, TRAIN = "Install it", "Train with MindSpore"


def test_each_fence_is_run() -> None:
    found = fences(PAGE.read_text(encoding="utf-8"))
    assert {fence.language for fence in found if not fence.title} == {"console"}
    assert PAGE.read_text(encoding="utf-8").count("\n```") == 2 * len(found)
    assert not re.search(r"\n\n    \S", PAGE.read_text(encoding="utf-8")), "a block without a fence would not be run"
    assert len(sections(INSTALL)) == 1
    assert len(sections(TRAIN)) == 2


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.limit(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd")
def test_the_tutorial_can_be_followed(shell: Shell, tmp_path: Path) -> None:
    page = [fence for fence in fences(PAGE.read_text(encoding="utf-8")) if fence.section != TRAIN]
    follow(page, shell, tmp_path / "mslaunch")


@pytest.mark.slow
def test_the_command_of_the_readme_installs_and_runs(shell: Shell, tmp_path: Path) -> None:
    blocks = re.findall(r"(?<=\n\n) {4}(.*)\n(?=\n)", (ROOT / "README.md").read_text(encoding="utf-8"))
    first, second = blocks[:2]
    assert second == "scripts/test"
    assert os.access(ROOT / second, os.X_OK)
    assert shell.run("python3 -m venv .venv; . .venv/bin/activate; export PIP_QUIET=1") == []
    printed = shell.run(first)
    assert sum(line.endswith("token passed 4 hands, sum 6, ok") for line in printed) == 4, printed
    assert shell.run("command -v mslaunch") == [str(tmp_path / "mslaunch" / ".venv" / "bin" / "mslaunch")]
    kept = tmp_path / "mslaunch" / "log_output" / "1"
    assert sorted(path.name for path in kept.iterdir()) == [f"rank.{rank}" for rank in range(4)]


@pytest.mark.slow
@pytest.mark.mindspore
@pytest.mark.limit(400)
@pytest.mark.skipif(not MINDSPORE, reason="MSLAUNCH_TEST_MINDSPORE_PYTHON should name a Python that has MindSpore")
def test_its_section_on_mindspore_can_be_followed(shell: Shell, tmp_path: Path) -> None:
    follow(sections(INSTALL, TRAIN), shell, tmp_path / "mslaunch")
