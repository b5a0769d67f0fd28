"""Another user puts modules into the working directory: no interpreter that we start for our own purposes takes them.

The directory is like /tmp, and a job may be started there.  It has a file for each name of the standard library, and a
MindSpore; each says so in a file if it is run.  What the job itself imports from there is its own affair, and --check
must find what the job would find.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from launching import environment, through_rsh
from other_user import BOUND, UID, python_as

from mslaunch.agent.services.mindspore_scheduler import SchedulerCommands, searching_command
from mslaunch.agent.services.service_kind import ServiceCommand

pytestmark = pytest.mark.usefixtures("second_user")
PACKAGE = Path(__file__).parents[2] / "mslaunch"
MSLAUNCH = str(Path(sys.executable).with_name("mslaunch"))  # `python -m` has the working directory until our first line

#: module: function or variable that has an interpreter's command line -> what holds there, or which test runs it
STARTS = {
    "agent.checks.program_facts: _question": "test_a_check_runs_nothing_of_the_working_directory",
    "agent.ranks.session_dir: _empty_as": "-I -S",
    "agent.services.mindspore_scheduler: scheduler_command": "test_the_scheduler_of_a_rank",
    "agent.services.mindspore_scheduler: searching_command": "test_a_scheduler_that_looks_for_mindspore",
    "agent.services.mindspore_scheduler: STUB": "test_the_scheduler_of_a_rank",  # it runs another one
    "cli.shims: _script": "test_a_shim_takes_no_module_that_lies_beside_it",
    "launcher.monitoring.event_file: _start_keeper": "-I -S",
    "transport.batch_tasks: argv": "-I -S",
    "transport.bootstrap.command_lines: boot_argv": "-I -S",
    "transport.bootstrap.command_lines: boot_line": "-I -S",
    "transport.bootstrap.command_lines: calling_argv": "-I -S",
    "transport.bootstrap.command_lines: calling_line": "-I -S",
    "transport.bootstrap.command_lines: file_argv": "-I -S",
    "transport.fork: open_local": "it calls boot_argv",
    "under_mpirun: _wait_for_scheduler": "-I -S, and then scheduler_command",
    "under_mpirun: main": "test_under_mpirun",
    "under_mpirun: _run": "test_under_mpirun",
    # no interpreter of ours
    "transport.bootstrap.agent_listing: lines_on_hosts": "prints the lines that boot_line and others make",
    "transport.bootstrap.agent_listing: main": "prints them",
    "transport.ssh.config.ssh_config: _gives_order": "a sign in front of a list",
    "agent.mpi.library_of_program: _shell": "reads a command line of a shell",
    "agent.mpi.openmpi_hint: may_be_program": "reads a command line",
    "agent.on_demand: _find": "the name of our interpreter in a message",
    "agent.stack_traces: TOOLS": "eu-stack",
    "backends.openmpi.rank_wrapper: wrap": "sh",
    "cli.bug_report: _python": "the name of our interpreter in a report",
    "cli.completion: _DASHES": "words of other commands",
    "cli.msrun.options: _whole": "no command line",
    "cli.shims: _command": "looks for our command beside our interpreter",
    "cli.torchrun.options: INSTEAD": "a text for the user",
    "cli.torchrun.parse: _python": "the job itself",
    "cli.torchrun.parse: program": "the job itself",
    "plan.binding: _texts": "reads a command line",
    "transport.agent_command: _FORMS": "sh",
    "transport.agent_command: _IN_CONTAINER": "sh",
    "transport.agent_command: _KUBEXEC_END": "sh",
    "transport.ssh.config.algorithms: assembled": "no command line",
    "transport.ssh.config.ssh_program: succeeds": "the user's shell",
    "transport.ssh.tcp_and_proxy: proxy_stream": "the user's shell",
    "under_mpirun: _USAGE": "a text for the user",
}


def places(tree: ast.Module) -> Iterator[str]:
    """Functions and variables with words such as -c in a list, with `sys.executable`, or with such words in a text."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def outer(node: ast.AST) -> str:
        while node in parents:
            node = parents[node]
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                return node.name
            if isinstance(node, ast.Assign) and isinstance(parents[node], ast.Module):
                return ast.unparse(node.targets[0])
        return ""

    for node in ast.walk(tree):
        words = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
        listed = any(isinstance(word, ast.Constant) and word.value in ("-c", "-m", "-") for word in words)
        named = isinstance(node, ast.Attribute) and node.attr == "executable"
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        spoken = re.search(r"-I -S|python3? -[cm] |sys\.executable", text) and not isinstance(parents[node], ast.Expr)
        if listed or named or spoken:
            yield outer(node)


def test_all_interpreters_that_are_started_are_known() -> None:
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for place in places(ast.parse(text)):
            found.setdefault(f"{name}: {place}", set()).add(text)
    assert set(found) - set(STARTS) == set(), "say in STARTS what keeps it from modules of the working directory"
    assert set(STARTS) - set(found) == set(), "a row is left over"
    for place, why in STARTS.items():
        if why.startswith("test_"):
            assert why in globals(), place
        elif why.startswith("-I -S"):
            (text,) = found[place]
            function = re.search(rf"def {place.rpartition(' ')[2]}\(.*?(?=\ndef |\Z)", text, re.DOTALL)
            assert function and re.search(r'"-I", "-S"|-I -S', function[0]), place


# --- the attack

PLANT = """
import os, sys
base, names = sys.argv[1], sys.argv[2:]
os.umask(0)
open(base + "/ran", "w").close()
text = "import posix\\nfd = posix.open(%r, posix.O_WRONLY | posix.O_APPEND)\\n"
text += "posix.write(fd, (__name__ + ' ').encode())\\n"
for name in names:
    with open(f"{base}/{name}.py", "w") as file:
        file.write(text % (base + "/ran"))
for name in ("mindspore", "mpi4py", "numpy"):
    os.mkdir(f"{base}/{name}")
    for part in ("__init__", "_c_expression", "communication", "MPI"):
        with open(f"{base}/{name}/{part}.py", "w") as file:
            file.write(text % (base + "/ran"))
"""


@pytest.fixture
def shared(commons: Path) -> Path:
    """A directory as /tmp, with the other user's modules in it."""
    names = sorted(name for name in sys.stdlib_module_names if name not in sys.builtin_module_names)
    done = python_as(UID, PLANT, str(commons), *names)
    assert done.returncode == 0, done.stderr
    return commons


@pytest.fixture
def ran(shared: Path) -> Callable[[], str]:
    """Which of these modules were run."""
    return (shared / "ran").read_text


def test_the_modules_would_be_run(shared: Path, ran: Callable[[], str]) -> None:
    subprocess.run([sys.executable, "-Sc", "import csv"], cwd=shared, env=environment(), timeout=BOUND, check=False)
    assert "csv" in ran().split()


def pythons() -> list[str]:
    """Interpreters of several versions, as far as there are any: what they import before our first line differs."""
    versions = Path.home() / ".pyenv" / "versions"
    found = [
        str(path) for path in sorted(versions.glob("3.[89]*/bin/python")) + sorted(versions.glob("3.1*/bin/python"))
    ]
    return [sys.executable, *found]


def check(shared: Path, *words: str) -> dict[str, str]:
    """The versions of the modules of a program that --check tells; "-" of one that would not be found."""
    line = [MSLAUNCH, "--check", "--json", *words]
    done = subprocess.run(line, cwd=shared, env=environment(), capture_output=True, timeout=BOUND, check=False)
    assert done.returncode in (0, 3), done
    (host,) = json.loads(done.stdout)["hosts"]
    (program,) = host["programs"]
    return dict(zip(program["modules"], program["versions"]))


@pytest.mark.parametrize("python", pythons())
def test_a_check_runs_nothing_of_the_working_directory(
    shared: Path, ran: Callable[[], str], tmp_path: Path, python: str
) -> None:
    (tmp_path / "train.py").write_text("import mine, mindspore, nowhere_at_all\n")
    (tmp_path / "mine.py").write_text(f"open({str(shared / 'ran')!r}, 'a').write('mine')\n")
    found = check(shared, "-n", "1", python, str(tmp_path / "train.py"))
    assert ran() == ""
    assert found == {"mine": "", "mindspore": "-", "nowhere_at_all": "-"}


#: PYTHONPATH -> whether a script elsewhere would import from the working directory with it
PATHS = {"": False, ":": True, ":/nowhere": True, ".": True, "/nowhere:": True, "/nowhere": False, "WDIR": True}


@pytest.mark.parametrize("given", PATHS)
def test_a_check_of_a_script_that_would_import_from_there(
    shared: Path, ran: Callable[[], str], tmp_path: Path, given: str
) -> None:
    (tmp_path / "train.py").write_text("import only_there\n")
    (shared / "only_there.py").write_text("")
    path = given.replace("WDIR", str(shared))
    found = check(shared, "-x", f"PYTHONPATH={path}", "-n", "1", sys.executable, str(tmp_path / "train.py"))
    assert ran() == ""
    assert found == {"only_there": "" if PATHS[given] else "-"}


def test_a_check_of_a_module_and_of_a_script_that_lie_there(shared: Path, ran: Callable[[], str]) -> None:
    for name in ("train", "beside"):
        (shared / f"{name}.py").write_text("import beside, nowhere_at_all\n")
    for words in (["train.py"], ["-m", "train"], ["-c", "import beside, nowhere_at_all"]):
        found = check(shared, "-n", "1", sys.executable, *words)
        assert found == ({"train": ""} if words[0] == "-m" else {"beside": "", "nowhere_at_all": "-"})
        assert ran() == ""


# --- MindSpore's scheduler

LOADS = """\
import mmap, sys
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A MindSpore whose extension lacks what the short way needs, so that its scheduler takes the long way."""
    folder = tmp_path / "site" / "mindspore"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "_c_expression.py").write_text("import textwrap, pdb\n")
    (folder / "_c_expression.cpython-3x.so").write_bytes(b"\0" * 4096)
    (folder / "communication.py").write_text(
        "import csv, email, sys\ndef init():\n    print('long way', sys.path[:1])\n"
    )
    return folder


def run(command: ServiceCommand) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command.argv, executable=command.path, env=command.env, cwd=command.wdir, capture_output=True, text=True,
        timeout=BOUND, check=False,
    )  # fmt: skip


def commands(shared: Path, **env: str) -> SchedulerCommands:
    own = SimpleNamespace(
        service=SimpleNamespace(program="light", env=()),
        wdir=lambda: str(shared),
        env=lambda wdir: env,
        command=lambda env, wdir: ServiceCommand(sys.executable, [sys.executable, "train.py"], env, wdir),
    )
    return SchedulerCommands(own)  # type: ignore[arg-type]


def test_the_scheduler_of_a_rank(shared: Path, ran: Callable[[], str], package: Path) -> None:
    line = [sys.executable, "-I", "-S", "-c", LOADS, str(next(package.glob("*.so")))]
    with subprocess.Popen(line, cwd=shared, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as rank:
        assert rank.stdout and rank.stdout.readline() == b"ready\n"
        command = commands(shared).on_connection([rank.pid])
        assert rank.stdin
        rank.stdin.close()
    assert command and command.wdir == str(shared)
    done = run(command)
    assert done.stdout.startswith("long way") and ran() == "", done


@pytest.mark.parametrize("python", pythons())
def test_a_scheduler_that_looks_for_mindspore(shared: Path, ran: Callable[[], str], package: Path, python: str) -> None:
    command = commands(shared, PYTHONPATH=str(package.parent)).early(False)
    assert command and command.argv[1:] == searching_command("", 93)[1:]
    done = run(command._replace(path=python, argv=[python, *command.argv[1:]]))
    assert done.stdout.startswith("long way") and ran() == "", done
    none = commands(shared).early(False)
    assert none and run(none._replace(path=python, argv=[python, *none.argv[1:]])).returncode == 93
    assert ran() == ""


# --- whole launches


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "2", "true"],
        [*through_rsh("alpha:1", "beta:1"), "-n", "2", "true"],
        ["--events", "events", "--timeout", "60", "-n", "1", "true"],
        ["--detach", "-n", "1", "true"],
        ["--check", *through_rsh("alpha:1"), "-n", "1", "true"],
    ],
)
def test_a_launch_from_there(shared: Path, ran: Callable[[], str], words: list[str]) -> None:
    done = subprocess.run(
        [MSLAUNCH, *words], cwd=shared, env=environment(), capture_output=True, timeout=BOUND, check=False
    )
    assert done.returncode == 0 and ran() == "", done


FAKE_MPI = """\
class _World:
    def Get_rank(self): return 0
    def Get_size(self): return 1
    def Split_type(self, kind): return self
    def Split_type(self, kind, key=0): return self
    def bcast(self, value): return value
    def allgather(self, value): return [value]
    def Free(self): pass
    def Ibarrier(self): return self
    def Test(self): return True
COMM_WORLD, COMM_TYPE_SHARED = _World(), 1
"""


def test_under_mpirun(shared: Path, ran: Callable[[], str], package: Path, tmp_path: Path) -> None:
    (package.parent / "mpi4py").mkdir()
    (package.parent / "mpi4py" / "__init__.py").write_text("")
    (package.parent / "mpi4py" / "MPI.py").write_text(FAKE_MPI)
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "net.py").write_text("import beside, csv, json, mindspore.communication\nprint('RAN')\n")
    path = f"{package.parent}:{PACKAGE.parent}"
    line = [sys.executable, str(PACKAGE / "under_mpirun.py"), str(tmp_path / "net.py")]
    env = {**environment(), "PYTHONPATH": path}
    done = subprocess.run(line, cwd=shared, env=env, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.stdout.splitlines()[-1:] == ["RAN"] and ran() == "", (done, ran())


def test_a_shim_takes_no_module_that_lies_beside_it(shared: Path, ran: Callable[[], str]) -> None:
    folder = shared / "bin"
    folder.mkdir()
    install = "from mslaunch.cli import shims\nshims._command = str\nprint(shims.install(%r))" % [str(folder), "mpirun"]
    env = environment()
    subprocess.run([sys.executable, "-c", install], cwd="/", env=env, check=True, capture_output=True)
    for name in ("json.py", "re.py", "socket.py", "shlex.py", "textwrap.py"):
        shutil.copy(shared / name, folder / name)
    done = subprocess.run(
        [folder / "mpirun", "--version"], cwd=shared, env=env, capture_output=True, timeout=BOUND, check=False
    )
    assert done.returncode == 0 and ran() == "", done
    assert os.access(folder / "mpirun", os.X_OK)
