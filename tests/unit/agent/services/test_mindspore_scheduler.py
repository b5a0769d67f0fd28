"""The command of MindSpore's scheduler, found by means of real processes that only look like MindSpore."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from mslaunch.agent.services.mindspore_scheduler import (
    PATIENCE,
    STUB,
    TITLE,
    Interpreter,
    ReconnectWatchdog,
    find_interpreter,
    scheduler_command,
    scheduler_env,
    searching_command,
)
from mslaunch.runtime.loop import Timer

LOADS = """\
import mmap, sys
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("ready", flush=True)
sys.stdin.read()
"""

STARTS_ONE = """\
import subprocess, sys
sys.exit(subprocess.call(sys.argv[1:]))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A directory that looks like an installed MindSpore."""
    directory = tmp_path / "site packages" / "mindspore"
    directory.mkdir(parents=True)
    (directory / "__init__.py").write_text("")
    (directory / "_c_expression.cpython-3x.so").write_bytes(b"\0" * 4096)
    return directory


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A venv as the kernel sees it: a link named python."""
    link = tmp_path / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(os.path.realpath(sys.executable))
    return link


class Program:
    """A process that says "ready" and ends with its standard input."""

    def __init__(self, argv: list[str], **options: object) -> None:
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, **options
        )  # type: ignore[call-overload]
        self.pid: int = self._process.pid

    def __enter__(self) -> Program:
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.stdin.close()
        self._process.wait(10)
        assert self._process.stdout.read() == b""  # whoever else held it is gone, too
        self._process.stdout.close()


def loads(package: Path, python: object = sys.executable) -> list[str]:
    return [str(python), "-c", LOADS, str(next(package.glob("*.so")))]


def test_a_rank_that_has_loaded_mindspore(package: Path, tmp_path: Path) -> None:
    with Program(loads(package), cwd=tmp_path, env={"A": "1=2", "EMPTY": ""}) as rank:
        found = find_interpreter([rank.pid])
    assert found is not None
    assert found.path == sys.executable
    assert found.package == str(package)
    assert found.cwd == str(tmp_path)
    assert (found.env["A"], found.env["EMPTY"]) == ("1=2", "")


def test_a_rank_that_has_not_loaded_mindspore(tmp_path: Path) -> None:
    other = tmp_path / "_c_expression.so"
    other.write_bytes(b"\0" * 4096)
    with Program([sys.executable, "-c", LOADS, str(other)]) as rank:
        assert find_interpreter([rank.pid]) is None


def test_the_interpreter_of_a_venv_is_kept(package: Path, venv: Path) -> None:
    with Program(loads(package, venv)) as rank:
        assert find_interpreter([rank.pid]).path == str(venv)


def test_a_bare_name_is_looked_up_in_the_path_of_the_rank(package: Path, venv: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong" / "python"
    wrong.parent.mkdir()
    wrong.write_text("#!/bin/sh\n")
    wrong.chmod(0o755)
    argv = ["python", *loads(package)[1:]]
    with Program(argv, executable=venv, env={"PATH": f"/nowhere:{wrong.parent}:{venv.parent}"}) as rank:
        assert find_interpreter([rank.pid]).path == str(venv)


def test_a_relative_name_counts_from_the_directory_of_the_rank(package: Path, venv: Path, tmp_path: Path) -> None:
    with Program(loads(package, "venv/bin/python"), cwd=tmp_path) as rank:
        assert find_interpreter([rank.pid]).path == str(tmp_path / "venv/bin/python")


@pytest.mark.parametrize("active", [True, False])
def test_a_rank_that_changed_its_title(package: Path, venv: Path, active: bool) -> None:
    """The interpreter of VIRTUAL_ENV is run; without one, the executable of the rank, with the path of MindSpore."""
    env = {"VIRTUAL_ENV": str(venv.parent.parent)} if active else {}
    with Program(["net.py: epoch 1", *loads(package)[1:]], executable=venv, env=env) as rank:
        assert find_interpreter([rank.pid]).path == (str(venv) if active else os.path.realpath(venv))


def test_a_program_that_embeds_python_is_not_run(package: Path, tmp_path: Path) -> None:
    """Such a program need not understand `-c`."""
    library = Path(os.path.realpath(sys.executable)).parent.parent
    program = tmp_path / "simulator"
    shutil.copy(os.path.realpath(sys.executable), program)
    with Program(loads(package, program), env={"PYTHONHOME": str(library)}) as rank:
        assert find_interpreter([rank.pid]) is None


def test_a_python_below_a_shell_is_found(package: Path) -> None:
    with Program([sys.executable, "-c", STARTS_ONE, *loads(package)]) as rank:
        assert find_interpreter([rank.pid]).package == str(package)


def test_an_orphan_of_the_rank_is_found(package: Path) -> None:
    """A rank is a session of its own, so its orphans can be distinguished from those of other ranks."""
    with Program(["sh", "-c", 'exec 3<&0; ("$@" <&3 &); exec cat >/dev/null', "sh", *loads(package)]) as rank:
        assert find_interpreter([rank.pid]).package == str(package)


def test_processes_of_others_are_never_used(package: Path) -> None:
    with Program(loads(package)), Program([sys.executable, "-c", "print('ready'); input()"]) as rank:
        assert find_interpreter([rank.pid]) is None


def test_the_second_rank_has_loaded_mindspore(package: Path) -> None:
    with (
        Program([sys.executable, "-c", "print('ready', flush=True); open(0).read()"]) as one,
        Program(loads(package)) as two,
    ):
        assert find_interpreter([one.pid, two.pid]).package == str(package)


def test_a_rank_that_has_vanished(package: Path) -> None:
    with Program(loads(package)) as rank:
        pass
    assert find_interpreter([rank.pid, 2**22 + 1]) is None
    assert find_interpreter([]) is None


def test_undecodable_bytes_are_kept(package: Path, tmp_path: Path) -> None:
    with Program(loads(package), env={b"RAW": b"\xff=\xfe"}) as rank:
        env = scheduler_env(find_interpreter([rank.pid]).env, [])
    assert os.fsencode(env["RAW"]) == b"\xff=\xfe"


@pytest.mark.skipif(os.getuid() != 0, reason="gives up root's rights in a child")
def test_a_process_that_may_not_be_inspected(package: Path) -> None:
    asks = (
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.path.append(sys.argv[1])\n"
        "from mslaunch.agent.services.mindspore_scheduler import find_interpreter\n"
        "print(find_interpreter([int(sys.argv[2])]))"
    )
    with Program(loads(package)) as rank:
        source = str(Path(__file__).parents[4])
        # modules are loaded before privileges are dropped: the source may be in a directory of root's
        argv = [
            sys.executable,
            "-c",
            "import mslaunch.agent.services.mindspore_scheduler;" + asks,
            source,
            str(rank.pid),
        ]
        answer = subprocess.run(argv, cwd=source, capture_output=True, text=True, timeout=20, check=False)
    assert answer.stdout == "None\n", answer.stderr


# --- the scheduler


def test_the_environment_of_the_scheduler() -> None:
    rank = {
        "PATH": "/bin",
        "MS_ROLE": "MS_WORKER",
        "MS_NODE_ID": "3",
        "MS_WORKER_NUM": "9",
        "DEVICE_ID": "1",
        "RANK_ID": "3",
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMMAND": "net.py",
        "PMIX_RANK": "3",
        "PMI_FD": "7",
    }
    extra = ["MS_SCHED_HOST=10.0.0.1", "MS_SCHED_PORT=4000", "MS_WORKER_NUM=4", "OPTION=a=b"]
    assert scheduler_env(rank, extra) == {
        "PATH": "/bin",
        "MS_ROLE": "MS_SCHED",
        "MS_SCHED_HOST": "10.0.0.1",
        "MS_SCHED_PORT": "4000",
        "MS_WORKER_NUM": "4",
        "OPTION": "a=b",
    }


SHORT = """\
import os
class MSContext:
    get_instance = classmethod(lambda cls: cls())
    def set_device_target_inner(self, name): print("target", name)
def init_cluster(): print("scheduling as", os.environ["MS_ROLE"], flush=True); {end}
"""


def schedule(package: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = scheduler_command(Interpreter(sys.executable, str(package), str(cwd), {}))
    assert command[-2] == TITLE
    env = scheduler_env({n: v for n, v in os.environ.items() if not n.startswith("PYTHON")}, [])
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=20, check=False)


def test_the_extension_alone_is_loaded(package: Path, tmp_path: Path) -> None:
    (package / "__init__.py").write_text("raise SystemExit('imported the package')")
    (package / "_c_expression.py").write_text(SHORT.format(end="raise SystemExit(0)"))
    (tmp_path / "types.py").write_text("raise SystemExit('imported from the working directory')")
    done = schedule(package, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "target CPU\nscheduling as MS_SCHED\n", "")


def test_the_scheduler_has_a_name_that_ps_shows(package: Path, tmp_path: Path) -> None:
    (package / "__init__.py").write_text("")
    (package / "_c_expression.py").write_text(SHORT.format(end="print(open('/proc/self/comm').read())"))
    assert "mslaunch-sched\n" in schedule(package, tmp_path).stdout


def search(cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    plain = {n: v for n, v in os.environ.items() if not n.startswith("PYTHON")}
    command = searching_command(sys.executable, 93)
    given = scheduler_env({**plain, **env}, [])
    return subprocess.run(command, cwd=cwd, env=given, capture_output=True, text=True, timeout=20, check=False)


def test_the_package_is_found_without_importing_it(package: Path, tmp_path: Path) -> None:
    (package / "__init__.py").write_text("raise SystemExit('imported the package')")
    (package / "_c_expression.py").write_text(SHORT.format(end="raise SystemExit(0)"))
    done = search(tmp_path, PYTHONPATH=str(package.parent))
    assert (done.returncode, done.stdout, done.stderr) == (0, "target CPU\nscheduling as MS_SCHED\n", "")


def test_what_is_not_the_package_is_not_taken(package: Path, tmp_path: Path) -> None:
    """No such name; a module; a folder in the working directory; and a folder that is not MindSpore."""
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "mindspore.py").write_text("raise SystemExit('imported it')")
    (tmp_path / "folder" / "mindspore").mkdir(parents=True)
    for cwd, path in (tmp_path, ""), (tmp_path, "module"), (package.parent, ""), (tmp_path, "folder"):
        done = search(cwd, PYTHONPATH=path and str(tmp_path / path))
        assert (done.returncode, done.stdout, done.stderr) == (93, "", ""), path


def test_a_failure_is_reported_in_one_line(package: Path, tmp_path: Path) -> None:
    (package / "_c_expression.py").write_text(SHORT.format(end="raise RuntimeError('port taken')"))
    done = schedule(package, tmp_path)
    assert done.returncode == 1
    assert done.stderr == "mslaunch: MindSpore's scheduler failed, its lines above say why (RuntimeError)\n"


@pytest.mark.parametrize("extension", ["", "raise ImportError('libgomp')", "raise OSError('odd')"])
def test_the_whole_package_is_imported_if_necessary(package: Path, tmp_path: Path, extension: str) -> None:
    """In other versions of MindSpore the extension alone is not enough."""
    (package / "_c_expression.py").write_text(extension)
    (package / "communication.py").write_text("def init(): print('the long way')")
    done = schedule(package, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the long way\n", "")


def test_the_stub_names_mslaunch_and_compiles() -> None:
    assert STUB.startswith("# mslaunch: the scheduler")
    compile(STUB, "stub", "exec")


# --- workers that disconnect too early


class Clock:
    """The clock of a loop that the test drives."""

    def __init__(self) -> None:
        self.time = 0.0
        self._timers: list[Timer] = []

    def now(self) -> float:
        return self.time

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self._timers.append(Timer(self.time + seconds, callback))
        return self._timers[-1]

    def run_until(self, when: float) -> None:
        self.time = when
        for timer in [timer for timer in self._timers if timer.when <= when and timer.callback]:
            callback, timer.callback = timer.callback, None
            callback()


REFUSED = b"x] ProcessUnregister] Unable to process unreg message from node 0 because the state of the topology is 0\n"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(
    ("times", "given_up"),
    [
        ([], []),
        ([1], []),  # and was let go then
        ([1, 2, 3, 14], [21]),
        ([1, 2, 3, 10], []),
        ([1, 2, 90, 91, 105], [110]),  # the next program of the script
        (range(1, 60), [21, 41, 61]),
    ],
)
def test_a_worker_that_is_refused_for_too_long_is_given_up(clock: Clock, times: Iterable[int], given_up: list[int]):
    found = []
    reunion = ReconnectWatchdog(clock, lambda error: found.append((clock.time, str(error))), {})
    for now in range(120):
        clock.run_until(now)
        reunion.read(REFUSED if now in times else b"epoch 3\n")
    assert [when for when, _ in found] == given_up
    assert all("had done their work" in why for _, why in found)


def test_a_worker_that_has_ended_is_not_given_up(clock: Clock):
    found: list[object] = []
    reunion = ReconnectWatchdog(clock, found.append, {})
    reunion.read(REFUSED)
    clock.run_until(PATIENCE / 2)
    reunion.read(REFUSED)
    reunion.cancel()
    clock.run_until(PATIENCE)
    assert not found


@pytest.mark.parametrize(("said", "patience"), [("1", 20), ("30", 120), ("", 20), ("soon", 20), ("9" * 50, 20)])
def test_fewer_heartbeats_give_more_time(clock: Clock, said: str, patience: float):
    assert ReconnectWatchdog(clock, print, {"MS_RETRY_INTERVAL_UPPER": said}).patience == patience
