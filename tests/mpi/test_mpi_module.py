"""python -m mslaunch.under_mpirun under the launchers of others, of each MPI library; one node and two hosts."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stages import ROOT, Library, Stage, libraries

pytestmark = pytest.mark.slow
MIND = os.environ.get("MSLAUNCH_TEST_MINDSPORE_PYTHON", "")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "RANK_ID", "RANK_SIZE", "DEVICE_ID",
         "LOCAL_RANK_SIZE", "MASTER_ADDR")  # fmt: skip
SHOW = f"""\
import os, sys
values = [os.environ.get(name) for name in {NAMES!r}]
os.write(1, (repr([sys.argv[1:], __name__, values, os.environ["MASTER_PORT"]]) + "\\n").encode())
"""


def run(library: Library, stage: Stage, *words: object, n: int = 2) -> subprocess.CompletedProcess[str]:
    """Ranks of the module under the library's own launcher."""
    program = [library.python, "-m", "mslaunch.under_mpirun", *map(str, words)]
    argv = libraries.native(library, stage.place, n, program, {"PYTHONPATH": str(ROOT)})
    return subprocess.run(
        argv, env=libraries.environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL, cwd=stage.directory,
    )  # fmt: skip


def shown(done: subprocess.CompletedProcess[str]) -> list[list[object]]:
    assert done.returncode == 0, done.stderr
    return sorted((ast.literal_eval(line) for line in done.stdout.splitlines()), key=lambda row: row[2])


def script(stage: Stage, text: str = SHOW) -> Path:
    path = stage.directory / "show_it.py"
    path.write_text(text)
    return path


def test_variables_of_all_ranks(library: Library, stage: Stage) -> None:
    rows = shown(run(library, stage, script(stage), "a b", "-m"))
    assert [row[:2] for row in rows] == [[["a b", "-m"], "__main__"]] * 2
    assert len({row[3] for row in rows}) == 1
    for rank, (_, _, values, _) in enumerate(rows):
        hosts = stage.place.hosts
        local, local_size, node = (str(rank), "2", "0") if hosts == 1 else ("0", "1", str(rank))
        assert values[:-1] == [str(rank), "2", local, local_size, node, str(rank), "2", local, local_size]
        assert (values[-1] == "127.0.0.1") == (hosts == 1) and values[-1] == rows[0][2][-1]


@pytest.mark.parametrize("how", [("-m", "show_it"), ("-c", SHOW)])
def test_modules_and_code(library: Library, here: Stage, how: tuple[str, str]) -> None:
    script(here)
    rows = shown(run(library, here, *how, "x", "y"))
    assert [row[:2] for row in rows] == [[["x", "y"], "__main__"]] * 2


@pytest.mark.parametrize(("text", "code"), [("sys.exit(7)", 7), ("sys.exit('no')", 1), ("1 / 0", 1)])
def test_a_rank_that_fails_ends_the_others(library: Library, here: Stage, text: str, code: int) -> None:
    program = (
        f"import os, sys\nif os.environ['RANK'] == '1':\n    {text}\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
    )
    done = run(library, here, script(here, program))
    assert done.returncode == code, done.stderr


def test_from_within_a_program(library: Library, here: Stage) -> None:
    text = "import mslaunch.under_mpirun, os\nfound = mslaunch.under_mpirun.export_comm_world()\n"
    text += "assert found['RANK'] == os.environ['RANK']\n"
    program = [library.python, str(script(here, text + SHOW))]
    argv = libraries.native(library, here.place, 2, program)
    env = libraries.environment(PYTHONPATH=str(ROOT))
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False, cwd=here.directory)
    assert [row[2][0] for row in shown(done)] == ["0", "1"]


def python(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", program]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False, cwd=directory)


def test_without_mpi4py(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['mpi4py'] = None\nfrom mslaunch.under_mpirun import main\nmain(['-c', 'print(1)'])"
    )
    done = python(program, tmp_path)
    assert (done.returncode, done.stdout) == (1, "") and "mpi4py cannot be imported" in done.stderr
    assert "pip install" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["gone.py"], 1, "mslaunch.under_mpirun: there is no file gone.py\n"),
        ([], 1, "usage: mpiexec -n 4 python -m mslaunch.under_mpirun SCRIPT"),
        (["-m"], 1, "usage: "),
        (["--help"], 0, ""),
    ],
    ids=str,
)
def test_malformed_arguments_are_refused(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    """They are refused before MPI_Init, for which mpi4py would be needed."""
    done = python(f"from mslaunch.under_mpirun import main\nmain({words})", tmp_path)
    assert (done.returncode, done.stderr[: len(said)]) == (code, said) and "Traceback" not in done.stderr
    assert done.stdout.startswith("usage: ") == (code == 0)


def test_a_launch_does_not_import_it(tmp_path: Path) -> None:
    program = (
        "import sys, mslaunch.cli.main, mslaunch.launcher.launch; print([m for m in sys.modules if 'mslaunch' in m])"
    )
    done = python(program, tmp_path)
    assert (
        "mslaunch.launcher.launch" in done.stdout
        and "mslaunch.under_mpirun'" not in done.stdout
        and "backends" not in done.stdout
    )


@pytest.mark.parametrize("order", ["import mindspore after", "import mindspore before"])
def test_the_scheduler_begins_when_mindspore_is_imported(library: Library, here: Stage, order: str) -> None:
    """Not at the first connection: workers that come before the scheduler try again for up to 80 s.

    A package plays MindSpore; its scheduler says its role to rank 0, which waits for that and connects to nothing.
    """
    package = here.directory / "mindspore"
    package.mkdir()
    (package / "__init__.py").write_text("from mindspore import _c_expression\n")
    (package / "_c_expression.py").write_text("")
    (package / "communication.py").write_text(
        "import os\ndef init():\n    with open('begun', 'w') as fifo:\n        fifo.write(os.environ['MS_ROLE'])\n"
    )
    os.mkfifo(here.directory / "begun")
    export = "from mslaunch.under_mpirun import export_comm_world\nexport_comm_world()\n"
    load = "import mindspore\n"
    wait = """\
import os, select
if os.environ["RANK"] == "0":
    fifo = os.open("begun", os.O_RDONLY | os.O_NONBLOCK)
    select.select([fifo], [], [], 30)
    print(os.read(fifo, 100).decode())
"""
    text = (export + load if order.endswith("after") else load + export) + wait
    program = [library.python, str(script(here, text))]
    argv = libraries.native(library, here.place, 2, program)
    env = libraries.environment(PYTHONPATH=f"{ROOT}:{here.directory}")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False, cwd=here.directory)
    assert (done.returncode, done.stdout.split()) == (0, ["MS_SCHED"]), done.stderr


def test_a_look_for_mindspore_begins_nothing(tmp_path: Path) -> None:
    """As `importlib.util.find_spec` looks; an import of the package looks for its modules as well."""
    program = """\
import subprocess, sys
from mslaunch.under_mpirun import _BeginWithMindSpore
waiter = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
finder = _BeginWithMindSpore(waiter)
print([finder.find_spec("mindspore"), finder.find_spec("mindspore_lite.x")], waiter.stdin.closed)
print([finder.find_spec("mindspore.common"), finder.find_spec("mindspore.nn")], waiter.stdin.closed)
print(waiter.stdout.read(), waiter.wait())
"""
    done = python(program, tmp_path)
    assert done.stdout == "[None, None] False\n[None, None] True\nb'\\n' 0\n", done.stderr


@pytest.mark.mindspore
@pytest.mark.limit(300)
@pytest.mark.skipif(not MIND, reason="NOT TESTED, not installed: MindSpore (MSLAUNCH_TEST_MINDSPORE_PYTHON)")
def test_mindspore_trains_under_mpirun(here: Stage) -> None:
    """The system's Open MPI; the venv of MindSpore must have mpi4py as well."""
    have = subprocess.run([MIND, "-c", "import mpi4py"], capture_output=True, check=False)
    library = libraries.find_all().get("openmpi4")
    if have.returncode or library is None:
        pytest.skip("NOT TESTED, not installed: mpi4py beside MindSpore, or mpirun.openmpi")
    net = ROOT / "examples" / "mindspore" / "net.py"
    argv = libraries.native(library, here.place, 2, [MIND, "-m", "mslaunch.under_mpirun", str(net)])
    env = libraries.environment(PYTHONPATH=str(ROOT))
    for _ in range(2):
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False, errors="replace")
        good = done.stdout.count("parameters equal on all 2 ranks") == 2
        if not (good and done.returncode == 128 + signal.SIGSEGV):  # else at exit, which is MindSpore's: `Launch.train`
            break
    assert (done.returncode, good) == (0, True), done.stderr[-2000:]
