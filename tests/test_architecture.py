"""The architecture as tests: which module may import which, what travels, who may start processes.

The sources are read, not run, so that a rule broken inside a function or under TYPE_CHECKING is seen as well.
docs/design.md has the reasons.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mslaunch.transport.bootstrap.manifest import CORE, PARTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mslaunch"

#: top first; a module imports from its own layer and those below
LAYERS = (
    ("cli", "api", "under_mpirun", "reports", "__main__", "__init__"),
    ("jobs",),
    ("backends", "preflight"),
    ("launcher",),
    ("transport", "resource_managers"),
    ("agent",),
    ("host",),
    ("protocol",),
    ("plan",),
    ("frameworks",),
    ("runtime",),
    ("datamodel",),
    ("errors", "faststd", "package_finder"),
)
LAYER = {name: -number for number, names in enumerate(LAYERS) for name in names}
#: imports against the layers; this list may only shrink
UPWARDS: set[tuple[str, str]] = set()
#: circles among the direct children of a folder; this list may only shrink
CIRCLES: dict[str, list[set[str]]] = {}
#: base names that stand in two folders: each dialect has these, and an executable's entry is its main
SAME_NAMES = {"main", "options", "parse", "readers"}
#: folders that may have fewer than 4 modules, and why; this list may only shrink
SMALL_FOLDERS = {}
#: a folder of kinds may have few modules of its own: a table, and a subfolder for each kind
KINDS = {"backends"}
#: who may import a module by its name
LOADERS = {"faststd": "load, for rows of tables", "agent.on_demand": "get, for parts that travel"}
#: who may ask where a module lies, without importing it
FINDERS = {
    "under_mpirun": "whether MindSpore is installed",
    "package_finder": "types of a finder",
    "transport.ssh.paramiko_import": "paramiko",
    "cli.bug_report": "versions of installed packages",
}
#: what of importlib imports nothing
HARMLESS = ("importlib.util", "importlib.machinery", "importlib.metadata")
#: classes with more than 20 methods, inherited ones counted; may only shrink, to six (reasons: docs/design.md)
LARGE_CLASSES = {
    "launcher.job.job_state.JobState": 34,
}
#: who may start processes
STARTERS = {
    "cli.bug_report",
    "jobs.detach",
    "agent.guard",
    "agent.ranks.rank",
    "agent.ranks.session_dir",
    "launcher.monitoring.event_command",
    "launcher.monitoring.event_file",
    "transport.fork",
    "resource_managers.managers",
    "transport.batch_tasks",
    "transport.rsh_program",
    "transport.spawned_command",
    "transport.ssh_command",
    "transport.ssh.tcp_and_proxy",
    "transport.ssh.config.ssh_program",
    "backends.openmpi.find_mpirun",
    "under_mpirun",
}
_STARTING = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen")
_STARTING_MODULES = ("subprocess", "multiprocessing", "pty")
READERS_OF_ENVIRON = {"cli.main", "api", "agent.main", "agent.call_launcher", "under_mpirun"}
WRITER_OF_ENVIRON = "under_mpirun"  # its purpose is to change the process it runs in

IN_PARTS = sorted({module for modules in PARTS.values() for module in modules})

#: costs milliseconds at every start
HEAVY = {
    "typing", "json", "re", "enum", "signal", "socket", "selectors", "subprocess", "argparse", "dataclasses", "asyncio",
    "inspect", "tempfile", "shutil", "paramiko", "threading", "logging", "traceback", "random", "ctypes",
    "functools",
}  # fmt: skip


class Import(NamedTuple):
    """One import: of what, by which line, when."""

    name: str  # dotted; for `from a import b` both a and a.b are given
    line: int
    lazy: bool  # inside a function
    checking: bool  # under TYPE_CHECKING: never executed


def dotted(path: Path) -> str:
    """cli.main for mslaunch/cli/main.py, and cli for mslaunch/cli/__init__.py."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


SOURCES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}
MODULES = [name for name, path in SOURCES.items() if path.name != "__init__.py"]
FOLDERS = [name for name, path in SOURCES.items() if path.name == "__init__.py" and name != "__init__"]


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


def ours_imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The modules of ours that a file imports, lazily and for annotations too, and those it asks for by name.

    Rows of tables, as "plan.mapping.ppr:map_by_pattern", are such names too (`faststd.load`).
    """
    for found in imports(tree):
        name = found.name[len("mslaunch.") :] if found.name.startswith("mslaunch.") else ""
        if name in SOURCES:
            yield name, found.line
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in PARTS:
            yield node.value, node.lineno
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
            module = node.value.partition(":")[0]
            if module in SOURCES and "." in module:
                yield module, node.lineno


def upwards(name: str, tree: ast.AST) -> list[tuple[str, int]]:
    """The imports of a module that go to a layer above its own."""
    own = LAYER[name.split(".", maxsplit=1)[0]]
    return [(other, line) for other, line in ours_imported(tree) if LAYER[other.split(".")[0]] > own]


def test_every_module_has_a_layer() -> None:
    assert {name.split(".")[0] for name in SOURCES} <= set(LAYER), "give it a layer in LAYERS, and in docs/design.md"


def test_imports_go_down() -> None:
    found = {(name, other) for name, tree in TREES.items() for other, _ in upwards(name, tree)}
    assert found - UPWARDS == set(), "imports of a layer above"
    assert UPWARDS - found == set(), "an exception is left over"


def test_an_import_upwards_is_seen_wherever_it_hides() -> None:
    for text in (
        "from mslaunch.launcher.job import events",
        "def f():\n    import mslaunch.cli.main",
        "try:\n    from mslaunch.transport.fork import open_local\nexcept ImportError:\n    pass",
        "if TYPE_CHECKING:\n    from mslaunch.agent.agent import Agent",
        "def f():\n    on_demand.get('agent.stack_traces')",
        "ROWS = {'slot': 'plan.mapping.by_slot_or_object:map_by_slot'}",
    ):
        assert len(upwards("runtime.loop", ast.parse(text))) >= 1, text
    assert upwards("runtime.loop", ast.parse("from mslaunch.datamodel.jobmap import Node")) == []


def test_reports_read_the_record_and_nothing_else_of_a_launch() -> None:
    """They depend on the format alone (docs/run.schema.json), so that any record can be shown anywhere."""
    allowed = ("reports.", "plan.", "errors", "faststd")
    for name, tree in TREES.items():
        for other, line in ours_imported(tree):
            if name.startswith("reports."):
                assert other.startswith(allowed) or other in ("plan", "reports"), f"{name}:{line} imports {other}"
            elif other.startswith("reports."):
                assert name == "cli.actions.report_command", f"{name}:{line}: only --report needs {other}"


# --- folders


def arrows(folder: str) -> dict[str, set[str]]:
    """Which direct children of a folder import which, subfolders taken as one; "" is the whole package."""
    prefix = f"{folder}." if folder else ""
    found: dict[str, set[str]] = defaultdict(set)
    for name, tree in TREES.items():
        if not name.startswith(prefix) or name in ("__init__", "__main__"):
            continue
        own = name[len(prefix) :].split(".")[0]
        for other, _ in ours_imported(tree):
            target = other[len(prefix) :].split(".")[0] if other.startswith(prefix) else ""
            if target and target != own:
                found[own].add(target)
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(set(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return [group for group in found if len(group) > 1]


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_no_circle_among_the_children_of_a_folder(folder: str) -> None:
    assert circles(arrows(folder)) == CIRCLES.get(folder, []), "move what both need into a module below them"


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_4_to_16_modules(folder: str) -> None:
    count = sum(name.rpartition(".")[0] == folder for name in MODULES)
    subfolders = sum(name.rpartition(".")[0] == folder for name in FOLDERS)
    assert count <= 16, "make a folder of those that belong together"
    if folder in SMALL_FOLDERS:
        assert count < 4, "an exception is left over"
    elif folder in KINDS:
        assert count < 4, "it is like any other folder now"
    else:
        assert count >= 4 or (subfolders and not count)


@pytest.mark.parametrize("folder", [*FOLDERS])
def test_packages_are_empty(folder: str) -> None:
    assert SOURCES[folder].read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_a_folder_says_what_belongs_in_it(folder: str) -> None:
    """The list of modules is made by scripts/make-docs; what stands before it is written by hand."""
    lines = (PACKAGE.joinpath(*folder.split(".")) / "README.md").read_text(encoding="utf-8").splitlines()
    by_hand = lines[2 : lines.index("<!-- modules: scripts/make-docs -->")]
    assert len(lines) <= 28
    assert " ".join(by_hand).count("What does not:") == 1, "say what belongs here, and what does not"


def test_no_two_modules_have_one_base_name() -> None:
    where = defaultdict(list)
    for name in MODULES:
        where[name.rpartition(".")[2]].append(name)
    assert {base for base, names in where.items() if len(names) > 1} == SAME_NAMES, "rename the new module"


def test_no_two_classes_have_one_name() -> None:
    where = defaultdict(list)
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where[node.name.lstrip("_")].append(name)
    assert {name: modules for name, modules in where.items() if len(modules) > 1} == {}, "rename the new class"


def test_frameworks_do_not_know_each_other() -> None:
    for name, tree in TREES.items():
        if name.startswith("frameworks.") and name not in ("frameworks.table", "frameworks.on_request"):
            known = {other for other, _ in ours_imported(tree) if other.startswith("frameworks.")}
            assert known <= {"frameworks.contract"}, name


CLASSES = {
    node.name: (name, node) for name, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
}


def methods_of(name: str) -> set[str]:
    """Names of the methods and properties of a class, those of bases in this package included."""
    node = CLASSES[name][1]
    own = {item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    bases = {base.id for base in node.bases if isinstance(base, ast.Name)} & set(CLASSES) - {name}
    return own.union(*map(methods_of, bases))


def test_large_classes_are_few_and_have_a_reason() -> None:
    found = {f"{module}.{name}": len(methods_of(name)) for name, (module, _) in CLASSES.items()}
    large = {name: count for name, count in found.items() if count > 20}
    assert set(large) - set(LARGE_CLASSES) == set(), "split it into objects that are composed"
    assert set(LARGE_CLASSES) - set(large) == set(), "an exception is left over"
    assert {name: count for name, count in large.items() if count > LARGE_CLASSES[name]} == {}, "it has grown"
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert [name for name in large if f"| `{name}` |" not in page and "MpiExitRules" not in name] == []


def test_only_one_loader_imports_by_a_name() -> None:
    loaders, finders = set(), set()
    for name, tree in TREES.items():
        by_name = any(isinstance(node, ast.Name) and node.id == "__import__" for node in ast.walk(tree))
        imported = {found.name for found in imports(tree) if found.name.split(".")[0] == "importlib"}
        if by_name or any(not found.startswith(HARMLESS) for found in imported):
            loaders.add(name)
        elif imported:
            finders.add(name)
    assert (loaders, finders) == (set(LOADERS), set(FINDERS))


def test_a_backend_inherits_nothing_from_the_launcher() -> None:
    for name, tree in TREES.items():
        if name.startswith("backends."):
            own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
            bases = {
                ast.unparse(base) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases
            }
            assert bases - own <= {"NamedTuple", "Protocol"}, name


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
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    generic = [ast.unparse(func) for func in calls if isinstance(func, ast.Subscript) and _is_built_in(func.value)]
    assert not generic, "classes take no [types] in 3.8"


def _is_built_in(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and isinstance(getattr(builtins, value.id, None), type)


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

#: modules and packages of ours that `mslaunch -n 1 true` loads: numbers that may only fall.  The rows of the table of
#: frameworks are not counted: each is a file, and every rank gets what all of them ask for
STARTUP = {"launcher": (57, 16), "agent": (21, 4)}
ROWS = {f"mslaunch.frameworks.{row}" for row in ("horovod", "jax", "mindspore", "openmpi", "torch")}
#: Runs the command; each process that ends writes its role and the modules that it has loaded itself.  A forked agent
#: and its guard count as one: the guard imports what both need, before it forks the agent.
COUNTING = """
import os, sys
out, sys.argv = sys.argv[1], ["mslaunch", "-n", "1", "true"]
inherited = []
def ours():
    return {name for name in sys.modules if name.startswith("mslaunch.")}
def forked():
    if not inherited:
        inherited.append(ours())
os.register_at_fork(after_in_child=forked)
def end(status, _exit=os._exit):
    names = ours().difference(*inherited)
    packages = sorted(name for name in names if hasattr(sys.modules[name], "__path__"))
    with open(f"{out}/{os.getpid()}", "w") as file:
        print("agent" if inherited else "launcher", *packages, file=file)
        print(*sorted(names.difference(packages)), file=file)
    _exit(status)
os._exit = end
from mslaunch.__main__ import main
main()
"""


def test_a_plain_launch_loads_no_more_modules_than_before(tmp_path: Path) -> None:
    environ = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-S", "-c", COUNTING, str(tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    modules: dict[str, set[str]] = {role: set() for role in STARTUP}
    packages: dict[str, set[str]] = {role: set() for role in STARTUP}
    for process in tmp_path.iterdir():
        first, second = process.read_text(encoding="utf-8").splitlines()
        role, *names = first.split()
        packages[role].update(names)
        modules[role].update(set(second.split()) - ROWS)
    assert "mslaunch.agent.node_job" in modules["agent"], "the hook has seen the agent"
    for role, (most_modules, most_packages) in STARTUP.items():
        todo = f"a plain launch loads more of ours than before ({role}): import it in the function that needs it"
        assert len(modules[role]) <= most_modules, f"{todo}, or name a framework in ROWS; {sorted(modules[role])}"
        assert len(packages[role]) <= most_packages, f"{todo}; {sorted(packages[role])}"


def test_the_way_to_the_first_rank_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "import mslaunch.cli.main, mslaunch.launcher.launch, mslaunch.transport.fork\n"
        "import mslaunch.agent.main, mslaunch.agent.agent\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(ROOT)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "mslaunch.agent.agent" in loaded
    assert loaded & HEAVY == set(), "import it where it is needed, or use mslaunch.faststd"


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_heavy_at_the_top_of_a_module(name: str) -> None:
    allowed = HEAVY - {"paramiko"} if name.startswith("transport.ssh.") else set()
    if name in (
        "agent.mpi.pmix.libpmix",
        "agent.mpi.pmix.libpmix_callbacks",
        "agent.mpi.pmix.pmix_job_info",
        "agent.mpi.pmix.pmix_values",
    ):  # a part: who asks for it needs that
        allowed = {"ctypes"}
    if name == "launcher.agents.leases":  # loaded at the first heartbeat, seconds after the ranks have started
        allowed = {"threading"}
    if name == "faststd":  # it replaces these, and imports them for interpreters without the C core
        allowed = {"signal", "socket", "functools"}
    at_top = {found.name.split(".")[0] for found in imports(TREES[name]) if not (found.lazy or found.checking)}
    assert at_top & HEAVY <= allowed, "import it where it is needed, or use mslaunch.faststd"


def test_paramiko_is_for_ssh_alone() -> None:
    users = {
        name: found
        for name, tree in TREES.items()
        for found in imports(tree)
        if found.name.split(".")[0] == "paramiko" and not found.checking
    }
    assert users and all(name.startswith("transport.ssh.") for name in users)
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
    readers = {name for name, tree in TREES.items() if names_of(tree, is_environ)}
    assert readers == READERS_OF_ENVIRON, "pass the environment on as a value"
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
    assert found == {name for name in STARTERS if name in SOURCES}  # a backend may be taken away


def test_no_shell_in_between() -> None:
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                pytest.fail(f"{name}:{node.value.lineno} says shell=")


# --- how it is written


@pytest.mark.parametrize("name", MODULES)
def test_a_module_opens_with_what_it_does_and_is_short(name: str) -> None:
    text = SOURCES[name].read_text(encoding="utf-8")
    assert ast.get_docstring(TREES[name]), "a paragraph at its top: what it does, what it does not know"
    assert len(text.splitlines()) <= 400, "split it by what its parts are about"
    for node in ast.walk(TREES[name]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 45, f"{node.name} is too long to be read at once"


@pytest.mark.parametrize("name", [name for name, tree in TREES.items() if len(tree.body) > 1])
def test_annotations_are_lazy(name: str) -> None:
    lazy = any(found.name == "__future__.annotations" for found in imports(TREES[name]))
    assert lazy, "begin it with: from __future__ import annotations"


#: docstrings that follow a formula instead of saying what the code is: none
FORMULAS = (r"surprising", r"knows no", r"^See `[^`]*`\.?$")


@pytest.mark.parametrize("formula", FORMULAS)
def test_docstrings_follow_no_formula(formula: str) -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [
        (name, " ".join((ast.get_docstring(node) or "").split()))
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    ]
    found = [(name, text) for name, text in texts if re.search(formula, text, re.IGNORECASE)]
    assert found == []


#: names in backticks that look like modules of ours and are something else
NOT_MODULES = {"launcher.log": "a file of a detached job"}
TEXTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *PACKAGE.rglob("*.md"),
    *PACKAGE.rglob("*.py"),
    *ROOT.glob("tests/**/*.py"),
    *(path for path in ROOT.glob("scripts/*") if path.is_file()),
    *ROOT.glob("scripts/*/*.py"),
]
PAGES = [path for path in TEXTS if path.name in ("CONTRIBUTING.md", "README.md") or path.name.startswith("design")]


def names_in(tree: ast.AST) -> set[str]:
    """The classes, functions, variables, attributes and imports of a module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


def exists(words: str) -> bool:
    """Whether cli.main, cli/main.py, cli/ or cli.main.main is there; true for what is not below mslaunch/."""
    steps = re.split("[./]", re.sub(r"(/__init__)?\.py$|/$", "", re.sub(r"^mslaunch[./]", "", words)))
    if steps[0] not in LAYER:
        return True
    module = max(
        (".".join(steps[:end]) for end in range(len(steps) + 1)), key=lambda name: (name in SOURCES, len(name))
    )
    return module in SOURCES and set(steps[module.count(".") + 1 :]) <= names_in(TREES[module])


@pytest.mark.parametrize(
    ("words", "there"),
    [
        ("cli/main.py", True),
        ("mslaunch/cli/", True),
        ("cli.main.main", True),
        ("launcher/job/job_state.JobState", True),
        ("os.environ", True),
        ("cli.main.nothing", False),
        ("launcher/jobs.py", False),
        ("launcher.job.jobs", False),
    ],
)
def test_a_name_of_no_module_is_seen(words: str, there: bool) -> None:
    assert exists(words) == there


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_are_named_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    ours = re.findall(r"`([a-z_]\w*(?:[./]\w+)*[./]\w*)`", text)
    ours += re.findall(r"\bmslaunch/[a-z_]\w*(?:[./]\w+)*", text)
    gone = [name for name in ours if not exists(name) and name not in NOT_MODULES and "NAME" not in name]
    assert gone == [], "name the module as it is called now, or write it without backticks"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_classes_and_files_that_pages_name_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    classes = set(re.findall(r"`([A-Z][a-z]+[A-Za-z]*)[`.(]", text))
    assert classes - set(CLASSES) == set()
    files = set(re.findall(r"(?<![\w./])(?:tests|scripts|docs|examples|mslaunch)/[\w./-]*\w", text))
    assert {name for name in files if not (ROOT / name).exists() and "NAME" not in name} == set()
    modules = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.py)`", text)}
    assert modules - {"NAME.py"} - {file.name for file in TEXTS} == set()


#: where a test may sleep, and why
SLEEPERS = {
    "mpi/programs/sleeper.py": "a rank that sleeps is what the stacks of its job are to show",
    "schedulers/batch_systems.py": "what jobs of a batch system do on other hosts has no event",
    "compat/stage.py": "does what recorded cases say, which pauses are a part of; looks for files and orphans, bounded",
    "compat/torchrun_two_hosts.py": "looks again and again, with a bound, whether a torchrun listens, or ended",
    "hosts/test_hosts_much.py": "looks whether a rank with a slow reader writes nothing more: silence takes time",
    "hosts/clusters.py": "looks again and again, with a bound, at the process tables of other hosts",
    "launch/launching.py": "wait_until: what a process of another session does has no event for us; bounded",
    "launch/test_launch_output.py": "looks whether a blocked program writes nothing: silence takes time",
    "launch/test_signals.py": "kills the launcher at different moments of its beginning",
    "agent/agents.py": "looks again and again, with a bound, for processes that are not our children",
    "agent/test_agent.py": "looks again and again, with a bound, at another process's signal mask",
    "frameworks/horovod_client.py": "asks again as Horovod's client does, with its pauses",
    "hostile/hostile_host.py": "a host that reads nothing, or slowly, is what others are to put up with",
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
