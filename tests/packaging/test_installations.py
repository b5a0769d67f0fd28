"""The wheel where users have it: each Python, man and the shells, pipx, uv tool.

Packages come from the registry that pip and uv are configured for; nothing else is fetched.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from distributions import VERSIONS, Distributions, call, clean, interpreters
from launching import through_rsh

import mslaunch

PYTHONS = interpreters()
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSION = f"mslaunch {mslaunch.__version__}"

pytestmark = pytest.mark.limit(300)

ALL_MODULES = """\
import importlib, pkgutil, sys, mslaunch
names = [found.name for found in pkgutil.walk_packages(mslaunch.__path__, "mslaunch.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
assert len(names) > 200
print(mslaunch.__file__)
"""
CALLED = """\
from importlib import metadata
import mslaunch
outcome = mslaunch.launch(["sh", "-c", "exit $RANK"], np=1)
print(outcome.code, metadata.version("mslaunch"))
"""


@pytest.fixture(scope="module")
def here(installed: Callable[[str], Path]) -> Path:
    """The environment of the interpreter that runs the tests."""
    return installed(PYTHONS.get(HERE, sys.executable))


@pytest.mark.parametrize("version", [*VERSIONS, *(name for name in PYTHONS if name not in VERSIONS)])
def test_it_works_on_each_python(version: str, installed: Callable[[str], Path], tmp_path: Path) -> None:
    if version not in PYTHONS:
        pytest.skip(f"NOT TESTED, not installed: Python {version}")
    place = installed(PYTHONS[version])
    python, command = place / "bin" / "python", place / "bin" / "mslaunch"
    env = clean(MSLAUNCH_JOBS=str(tmp_path / "jobs"), PYTHONWARNINGS="error")

    def run(*words: object) -> str:
        return call(list(words), env=env, cwd=tmp_path)

    assert run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip() == version
    assert run(command, "--version").splitlines()[0] == VERSION
    assert run(python, "-m", "mslaunch", "--version").splitlines()[0] == VERSION
    page = Path(run(command, "--help", "hangs").split("More: ")[1].strip())
    assert page.is_relative_to(place) and page.read_text(encoding="utf-8").startswith("# ")
    facts = run(command, "--version", "--verbose")
    assert "a wheel, by uv, " in facts and "paramiko -" not in facts and "not known" not in facts
    assert Path(run(python, "-c", ALL_MODULES).strip()).is_relative_to(place)
    assert run(python, "-c", CALLED).split() == ["0", mslaunch.__version__]
    for start in ([command], [python, "-m", "mslaunch"]):
        ranks = run(*start, "-n", "2", "sh", "-c", "echo $RANK of $WORLD_SIZE").splitlines()
        assert sorted(ranks) == ["0 of 2", "1 of 2"]
    agents = through_rsh("one:1", "two:1")  # the agent's program travels out of the installed package
    agents[agents.index("--agent-python") + 1] = str(python)
    assert sorted(run(command, *agents, "sh", "-c", "echo rank $RANK").splitlines()) == ["rank 0", "rank 1"]


def test_man_finds_the_page(here: Path, need: Callable[..., str]) -> None:
    """man(1) looks into share/man beside a bin of PATH."""
    env = clean(PATH=f"{here}/bin:{os.environ['PATH']}", MANPATH="")
    del env["MANPATH"]
    assert call([need("man"), "-w", "mslaunch"], env=env).strip() == f"{here}/share/man/man1/mslaunch.1"


COMPLETES = {
    "bash": (
        ["--norc", "-c"],
        ". /usr/share/bash-completion/bash_completion; _completion_loader mslaunch || :; complete -p mslaunch; "
        "COMP_LINE='mslaunch --output-f' COMP_POINT=19; _mslaunch; echo ${COMPREPLY[@]}",
    ),
    "zsh": (
        ["-f", "-c"],
        "fpath=($PREFIX/share/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u -D; "
        "print $_comps[mslaunch]; autoload +X _mslaunch; whence -f _mslaunch | grep -c -- --output-filename",
    ),
    "fish": (["-c"], "complete -C 'mslaunch --output-f'"),
}
SAID = {"bash": "--output-filename", "zsh": "_mslaunch", "fish": "--output-filename"}


@pytest.mark.parametrize("shell", COMPLETES)
def test_the_shells_find_the_completion(shell: str, here: Path, need: Callable[..., str], tmp_path: Path) -> None:
    if shell == "bash" and not os.path.exists("/usr/share/bash-completion/bash_completion"):
        pytest.skip("NOT TESTED, not installed: bash-completion")
    options, script = COMPLETES[shell]
    env = clean(XDG_DATA_DIRS=f"{here}/share:/usr/share", PREFIX=str(here), HOME=str(tmp_path), TERM="dumb")
    assert SAID[shell] in call([need(shell), *options, script], env=env)


def test_pipx(distributions: Distributions, tmp_path: Path) -> None:
    """Installs, runs a job, makes shims and the man page, and takes all away again."""
    env = clean(
        PIPX_HOME=str(tmp_path / "pipx"), PIPX_BIN_DIR=str(tmp_path / "bin"), PIPX_MAN_DIR=str(tmp_path / "man"),
        HOME=str(tmp_path), PIPX_DEFAULT_PYTHON=PYTHONS.get(HERE, sys.executable),
        PATH=f"{tmp_path}/bin:{os.environ['PATH']}",
    )  # fmt: skip
    pipx = [sys.executable, "-m", "pipx"]
    call([*pipx, "install", distributions.wheel], env=env)
    command = tmp_path / "bin" / "mslaunch"
    assert call([command, "--version"], env=env).splitlines()[0] == VERSION
    assert call([command, "-n", "1", "sh", "-c", "echo rank $RANK"], env=env) == "rank 0\n"
    assert "a wheel, by pipx, " in call([command, "--version", "--verbose"], env=env)
    assert (tmp_path / "man" / "man1" / "mslaunch.1").read_text(encoding="utf-8").startswith(".TH MSLAUNCH")
    call([command, "--install-shims", tmp_path / "shims"], env=env)
    assert "(Open MPI)" in call([tmp_path / "shims" / "mpirun", "--version"], env=env)
    call([*pipx, "uninstall", "mslaunch"], env=env)
    assert not command.exists() and not (tmp_path / "man" / "man1" / "mslaunch.1").exists()
    assert VERSION in call([*pipx, "run", "--spec", distributions.wheel, "mslaunch", "--version"], env=env)


def test_uv_tool(uv: str, distributions: Distributions, tmp_path: Path) -> None:
    env = clean(
        UV_TOOL_DIR=str(tmp_path / "uv" / "tools"), UV_TOOL_BIN_DIR=str(tmp_path / "bin"), HOME=str(tmp_path),
        PATH=f"{tmp_path}/bin:{os.environ['PATH']}", UV_CACHE_DIR=str(tmp_path / "cache"),
    )  # fmt: skip
    python = ["--python", PYTHONS.get(HERE, sys.executable)]
    call([uv, "tool", "install", *python, distributions.wheel], env=env)
    command = tmp_path / "bin" / "mslaunch"
    assert call([command, "--version"], env=env).splitlines()[0] == VERSION
    assert call([command, "-n", "1", "sh", "-c", "echo rank $RANK"], env=env) == "rank 0\n"
    assert "a wheel, by uv tool, " in call([command, "--version", "--verbose"], env=env)
    call([command, "--install-shims", tmp_path / "shims"], env=env)
    assert "(Open MPI)" in call([tmp_path / "shims" / "mpirun", "--version"], env=env)
    call([uv, "tool", "uninstall", "mslaunch"], env=env)
    assert not command.exists()
    words = [uv, "tool", "run", *python, "--from", distributions.wheel, "mslaunch", "-n", "1", "echo", "once"]
    assert call(words, env=env).splitlines()[-1] == "once"


def test_pip_installs_the_source_distribution(
    uv: str, distributions: Distributions, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    """pip builds it in an environment of its own, for which it fetches setuptools."""
    call([uv, "venv", "-q", "--no-project", "--seed", "--python", PYTHONS.get(HERE, sys.executable), tmp_path / "venv"])
    python = tmp_path / "venv" / "bin" / "python"
    call([python, "-m", "pip", "install", "-q", "--no-deps", distributions.sdist])
    assert call([tmp_path / "venv" / "bin" / "mslaunch", "--version"]).splitlines()[0] == VERSION
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "mslaunch.1").exists()
    call([python, "-m", "pip", "uninstall", "-q", "-y", "mslaunch"])
    left = [path for path in (tmp_path / "venv").rglob("*mslaunch*") if "__pycache__" not in path.parts]
    assert left == [] and shutil.which("mslaunch", path=str(tmp_path / "venv" / "bin")) is None
