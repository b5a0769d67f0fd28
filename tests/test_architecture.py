"""The plan of the house, as tests: who may import whom, what travels to other hosts, who may start processes.

They read the sources, so a rule that is broken inside a function is seen as well.  docs/design.md has the reasons.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mslaunch.link.manifest import CORE, PARTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mslaunch"

FLOORS = {
    "lean": 0, "errors": 0, "model": 0, "frameworks": 1, "plan": 2, "wire": 3, "agent": 4, "link": 5, "launcher": 6,
    "engines": 7, "cli": 8, "api": 8, "mpi": 8, "__main__": 8, "__init__": 8,
}  # fmt: skip
#: imports within a floor between rooms that are not in one folder, and why
SIDEWAYS = {
    ("model", "lean"): "records are lean's NamedTuple",
    ("api", "cli"): "the API reads `options` with the command's own parser",
    ("__main__", "cli"): "python -m mslaunch is the command",
    ("__init__", "api"): "the public name is imported when first used",
}
#: who may start processes
STARTERS = {
    "cli.detach",
    "agent.guard",
    "agent.ranks",
    "link.fork",
    "link.exec",
    "link.sshstream",
    "link.sshconfig",
    "engines.installed",
    "mpi",
}
_STARTING = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen")
_STARTING_MODULES = ("subprocess", "multiprocessing", "pty")
READERS_OF_ENVIRON = {"cli.main", "api", "agent.entry", "mpi"}
WRITER_OF_ENVIRON = "mpi"  # its purpose is to change the process it runs in

IN_PARTS = sorted({module for modules in PARTS.values() for module in modules})

#: costs milliseconds at every start
HEAVY = {
    "typing", "json", "re", "enum", "signal", "socket", "selectors", "subprocess", "argparse", "dataclasses", "asyncio",
    "inspect", "tempfile", "shutil", "paramiko", "threading", "logging", "traceback", "random", "ctypes",
}  # fmt: skip


class Import(NamedTuple):
    """One import: of what, by which line, when."""

    name: str  # dotted; for `from a import b` both a and a.b are given
    line: int
    lazy: bool  # inside a function
    checking: bool  # under TYPE_CHECKING: never executed


def room(path: Path) -> str:
    """cli.main for mslaunch/cli/main.py, and cli for mslaunch/cli/__init__.py."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


SOURCES = {room(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}


def imports(tree: ast.AST, lazy: bool = False, checking: bool = False) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy, checking) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: imports are absolute"
            yield Import(node.module or "", node.lineno, lazy, checking)
            yield from (Import(f"{node.module}.{alias.name}", node.lineno, lazy, checking) for alias in node.names)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for part in node.body:
                yield from imports(ast.Module([part], []), lazy, True)
            for part in node.orelse:
                yield from imports(ast.Module([part], []), lazy, checking)
        else:
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from imports(node, lazy or inside, checking)


def rooms_imported(tree: ast.AST, checking: bool = True) -> Iterator[tuple[str, int]]:
    """The rooms of this package that are imported; `checking`: for annotations as well."""
    for found in imports(tree):
        name = found.name[len("mslaunch.") :] if found.name.startswith("mslaunch.") else ""
        if name in SOURCES and (checking or not found.checking):
            yield name, found.line


def wrong_floors(name: str, tree: ast.AST) -> list[str]:
    folder = name.split(".", maxsplit=1)[0]
    wrong = []
    for other, line in rooms_imported(tree):
        target = other.split(".")[0]
        if target == folder or (folder, target) in SIDEWAYS:
            continue
        if FLOORS[target] >= FLOORS[folder]:
            wrong.append(f"{name}:{line} imports {other} of floor {FLOORS[target]}, but is on floor {FLOORS[folder]}")
    return wrong


def test_every_room_has_a_floor() -> None:
    assert {name.split(".")[0] for name in SOURCES} == set(FLOORS)


@pytest.mark.parametrize("name", SOURCES)
def test_imports_go_down(name: str) -> None:
    assert wrong_floors(name, TREES[name]) == []


def test_every_room_is_in_the_plan_of_the_house() -> None:
    """docs/design.md names it, on its floor (`ssh*` stands for several), and marks those that travel."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if re.match(r"\| \d ", line)]
    assert len(rows) == 9
    for number, (_, folders, words, *_) in enumerate(rows):
        folder = re.sub(r"`mslaunch/`|[`/]", "", folders.partition(",")[0])
        rooms = {
            name.rpartition(".")[2] for name in SOURCES if name.rpartition(".")[0] == folder and name not in FLOORS
        }
        rooms |= {name for name, floor in FLOORS.items() if floor == number and not folder} - {""}
        named = dict(re.findall(r"`([\w*]+)`(▲?)", words))
        assert {room for room in rooms if not any(fnmatch.fnmatchcase(room, name) for name in named)} == set(), folders
        assert {name for name in named if not fnmatch.filter({*rooms, *FLOORS}, name)} == set(), folders
        prefix = f"mslaunch.{folder}." if folder else "mslaunch."
        sent = {*CORE, *IN_PARTS}
        assert {name for name, mark in named.items() if mark} == {name for name in named if prefix + name in sent}


def test_an_import_upwards_is_seen_wherever_it_hides() -> None:
    for text in (
        "from mslaunch.launcher import state",
        "def f():\n    import mslaunch.cli.main",
        "try:\n    from mslaunch.link.ssh import open_ssh\nexcept ImportError:\n    pass",
    ):
        assert len(wrong_floors("wire.loop", ast.parse(text))) >= 1, text
    assert wrong_floors("wire.loop", ast.parse("from mslaunch.model import Node")) == []


def test_no_exception_is_left_over() -> None:
    used = {
        (name.split(".")[0], other.split(".")[0]) for name, tree in TREES.items() for other, _ in rooms_imported(tree)
    }
    assert set(SIDEWAYS) <= used


def test_frameworks_do_not_know_each_other() -> None:
    for name, tree in TREES.items():
        if name.startswith("frameworks."):
            known = {other for other, _ in rooms_imported(tree) if other.startswith("frameworks.")}
            assert known <= {"frameworks.place"}, name


# --- what travels


def test_the_manifest_is_fresh() -> None:
    """What travels is what the agent reaches by imports, and what it asks for by name."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make-manifest"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", (*CORE, *IN_PARTS))
def test_what_travels_is_written_in_python_3_8(name: str) -> None:
    text = SOURCES[name[len("mslaunch.") :]].read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 8))
    assert any(found.name == "__future__" for found in imports(tree)) or len(tree.body) <= 1, "annotations are lazy"


def pythons_3_8() -> list[str]:
    found = [shutil.which("python3.8"), *map(str, (Path.home() / ".pyenv/versions").glob("3.8*/bin/python3.8"))]
    return [python for python in found if python and _runs(python)]


def _runs(python: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 8))"], capture_output=True, check=False
    )
    return not done.returncode


def test_what_travels_is_imported_by_python_3_8() -> None:
    pythons = pythons_3_8()
    if not pythons:
        pytest.skip("NOT TESTED, not installed: python3.8")
    program = "import importlib, sys\nfor name in sys.argv[2:]: importlib.import_module(name)"
    for python in pythons:
        path = f"import sys; sys.path.insert(0, sys.argv[1])\n{program}"
        done = subprocess.run(
            [python, "-I", "-S", "-c", path, str(ROOT), *CORE, *IN_PARTS],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


# --- what costs time at start


def test_the_way_to_the_first_rank_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "import mslaunch.cli.main, mslaunch.launcher.run, mslaunch.agent.entry, mslaunch.link.fork\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(ROOT)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "mslaunch.agent.agent" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_heavy_at_the_top_of_a_module(name: str) -> None:
    allowed = HEAVY - {"paramiko"} if name.startswith("link.ssh") or name == "link.knownhosts" else set()
    if name in (
        "agent.libpmix",
        "agent.pmixcalls",
        "agent.pmixplace",
        "agent.pmixvalues",
    ):  # a part: who asks for it needs that
        allowed = {"ctypes"}
    if name == "lean":  # it is the door to these, for interpreters without the C core
        allowed = {"signal", "socket"}
    at_top = {found.name.split(".")[0] for found in imports(TREES[name]) if not (found.lazy or found.checking)}
    assert at_top & HEAVY <= allowed


def test_paramiko_is_for_ssh_alone() -> None:
    users = {
        name: found
        for name, tree in TREES.items()
        for found in imports(tree)
        if found.name.split(".")[0] == "paramiko" and not found.checking
    }
    assert users and all(name.startswith("link.ssh") or name == "link.knownhosts" for name in users)
    assert all(found.lazy for found in users.values())


# --- who may do what


def names_of(tree: ast.AST, wanted: Callable[[ast.Attribute], bool]) -> list[int]:
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and wanted(node)]


def is_environ(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in ("environ", "environb", "getenv", "putenv", "unsetenv", "getenvb")
    )


def test_the_environment_is_read_in_few_places() -> None:
    assert {name for name, tree in TREES.items() if names_of(tree, is_environ)} == READERS_OF_ENVIRON
    for name, tree in TREES.items():
        assert not [found for found in imports(tree) if found.name in ("os.environ", "os.getenv")], name


def test_the_environment_is_assigned_nowhere() -> None:
    changing = ("update", "setdefault", "pop", "popitem", "clear")
    for name, tree in TREES.items():
        if name == WRITER_OF_ENVIRON:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript) and is_environ(node.value):
                assert isinstance(node.ctx, ast.Load), f"{name}:{node.lineno}"
            if isinstance(node, ast.Attribute) and is_environ(node):
                assert isinstance(node.ctx, ast.Load), f"{name}:{node.lineno}"
                assert node.attr not in ("putenv", "unsetenv"), f"{name}:{node.lineno}"
            if isinstance(node, ast.Attribute) and node.attr in changing:
                assert not is_environ(node.value), f"{name}:{node.lineno}"


def test_processes_are_started_in_few_places() -> None:
    def starts(node: ast.Attribute) -> bool:
        if not isinstance(node.value, ast.Name):
            return False
        by_os = node.value.id == "os" and (node.attr in _STARTING or node.attr.startswith(("exec", "spawn")))
        return by_os or (node.value.id == "subprocess" and node.attr in ("Popen", "run", "call", "check_output"))

    found = set()
    for name, tree in TREES.items():
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        if any(isinstance(call, ast.Attribute) and starts(call) for call in calls):
            found.add(name)
        outside = [one for one in imports(tree) if one.name.split(".")[0] in _STARTING_MODULES and not one.checking]
        assert not outside or name in STARTERS, f"{name} imports {outside}"
    assert found == STARTERS


def test_no_shell_in_between() -> None:
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                pytest.fail(f"{name}:{node.value.lineno} says shell=")


# --- how it is written


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_opens_with_what_it_does_and_is_short(name: str) -> None:
    text = SOURCES[name].read_text(encoding="utf-8")
    assert ast.get_docstring(TREES[name]), "a paragraph at its top: what it does, what it does not know"
    assert len(text.splitlines()) <= 400
    for node in ast.walk(TREES[name]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 45, f"{node.name} is too long to be read at once"


@pytest.mark.parametrize("name", [name for name, tree in TREES.items() if len(tree.body) > 1 and name != "__main__"])
def test_annotations_are_lazy(name: str) -> None:
    assert any(found.name == "__future__.annotations" for found in imports(TREES[name]))


#: where a test may sleep, and why
SLEEPERS = {
    "compat/stage.py": "does what recorded cases say, which pauses are a part of; looks for files and orphans, bounded",
    "hosts/test_hosts_much.py": "looks whether a rank with a slow reader writes nothing more: silence takes time",
    "hosts/clusters.py": "looks again and again, with a bound, at the process tables of other hosts",
    "launch/launching.py": "wait_until: what a process of another session does has no event for us; bounded",
    "launch/test_launch_output.py": "looks whether a blocked program writes nothing: silence takes time",
    "launch/test_signals.py": "kills the launcher at different moments of its beginning",
    "agent/agents.py": "looks again and again, with a bound, for processes that are not our children",
    "agent/test_agent.py": "looks again and again, with a bound, at another process's signal mask",
    "ssh/test_ssh_reach.py": "looks again and again, with a bound, for a process that tells nobody of its end",
}


def test_tests_wait_for_events() -> None:
    found = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            sleeps = isinstance(node, ast.Attribute) and node.attr == "sleep"
            if sleeps or (isinstance(node, ast.alias) and node.name == "sleep"):
                found.add(os.path.relpath(path, ROOT / "tests"))
    assert found - set(SLEEPERS) == set(), "wait for an event, or argue in SLEEPERS"
    assert found == set(SLEEPERS), "an exception is left over"
