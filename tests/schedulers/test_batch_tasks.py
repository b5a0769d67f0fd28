"""Launches in jobs of PBS, Torque, LSF and Flux, by stand-ins for their commands, on the hosts of a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from batch_systems import BOUND, ROOT, wait_until
from task_daemons import SCRIPT, JobSystem, job_system

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd"),
]
HOSTS = ("n01", "n02", "n03")
SYSTEMS = ("pbs", "torque", "lsf", "flux")
LAUNCH = f"exec {sys.executable} -m mslaunch --agent-python {sys.executable} --grace 2"
WHERE = "sh -c 'echo $RANK $(hostname)'"
#: says that it runs, and on SIGTERM takes a moment to save something
SAVES = """
import os, signal, time
def end(*_):
    time.sleep(0.3)
    open(f"saved{os.environ['RANK']}", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
open(f"up{os.environ['RANK']}", "w").close()
time.sleep(600)
"""
SUM = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
facts = world.rank, world.size, world.allreduce(world.rank), MPI.Get_processor_name().split(".")[0]
os.write(1, (" ".join(map(str, facts)) + "\\n").encode())
"""
#: stays whatever is sent to it, in a session of its own
STAYS = """
import os, signal, time
if os.fork():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
else:
    os.setsid()
open(f"up{os.environ['RANK']}", "w").close()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster of three hosts."""
    directory = tmp_path_factory.mktemp("tasks") / "c"
    verb = [sys.executable, "-S", str(SCRIPT)]
    subprocess.run([*verb, "up", "--dir", str(directory), "3"], check=True, capture_output=True, timeout=BOUND)
    yield directory
    subprocess.run([*verb, "down", "--dir", str(directory)], check=True, capture_output=True, timeout=BOUND)


@pytest.fixture
def system(three: Path, tmp_path: Path) -> Iterator[Callable[[str], JobSystem]]:
    """`system("pbs")`: its job has the three hosts, with 2, 1 and 1 slots, and a home that all of them see."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(job_system(three, tmp_path, name))


def variables(system: JobSystem, **more: str) -> dict[str, str]:
    """What a batch script has."""
    home = system.work / "home"
    home.mkdir(exist_ok=True)
    (system.work / "nodes").write_text("n01\nn02\nn01\nn03\n")
    pbs = {"PBS_JOBID": "7.head", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": f"{system.work}/nodes"}
    own = {
        "pbs": pbs,
        "torque": {**pbs, "PBS_VERSION": "TORQUE-6.1.2", "PBS_NP": "4"},
        "lsf": {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "n01 2 n02 1 n03 1"},
        "flux": {
            "FLUX_URI": "local:///n01",
            "STAND_IN_HOSTS": ",".join(HOSTS),
            "STAND_IN_RLIST": "rank0/core[0-1] rank[1-2]/core0",
        },
    }[system.system]
    mark = {"MARK_OF_TEST": str(system.work), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "HOME": str(home)}
    return {**mark, **own, **more}


def alive(work: Path) -> list[str]:
    """The command lines of whatever has the directory of the job in its environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes()
            words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:  # it has just ended
            continue
        if words and str(work).encode() in environ:
            found.append(words[:300])
    return found


@pytest.mark.parametrize("name", SYSTEMS)
def test_ranks_run_where_slots_were_granted(name: str, system: Callable[[str], JobSystem]) -> None:
    made = system(name)
    ended = made.run(f"{LAUNCH} {WHERE}", variables(made))
    assert (ended.code, ended.lines) == (0, ["0 n01", "1 n01", "2 n02", "3 n03"]), ended
    assert sorted(task.host for task in made.tasks[1:]) == ["n02", "n03"]
    assert list((made.work / "home").iterdir()) == []
    assert alive(made.work) == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_agents_and_guards_have_names(name: str, system: Callable[[str], JobSystem]) -> None:
    made = system(name)
    script = "cat /proc/$PPID/comm; read a b c parent d < /proc/$PPID/stat; cat /proc/$parent/comm"
    ended = made.run(f"{LAUNCH} sh -c '{script}'", variables(made))
    assert sorted(ended.lines) == ["mslaunch-agent"] * 4 + ["mslaunch-guard"] * 4, ended


def wait_for(made: JobSystem, *names: str) -> None:
    """Until these files are there."""
    wait_until(lambda: all((made.work / name).exists() for name in names), lambda: made.output)


def write(made: JobSystem, text: str) -> Path:
    path = made.work / "program.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", SYSTEMS)
def test_at_the_end_of_a_job_ranks_save_and_nothing_stays(name: str, system: Callable[[str], JobSystem]) -> None:
    """qdel, bkill and the end of an instance: TERM, and KILL later."""
    made = system(name)
    made.submit(f"{LAUNCH} {sys.executable} -S {write(made, SAVES)}", variables(made))
    wait_for(made, "up0", "up1", "up2", "up3")
    made.delete(delay=5.0)
    wait_until(lambda: not alive(made.work), lambda: alive(made.work))
    assert len(list(made.work.glob("saved*"))) == 4, made.output
    assert "ended by SIG" in made.output, made.output


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_job_that_is_killed_at_once_leaves_nothing(name: str, system: Callable[[str], JobSystem]) -> None:
    """No process of ours gets a moment: launcher, guards and whoever is in their sessions are killed together."""
    made = system(name)
    launch = LAUNCH.removeprefix("exec ").replace("--grace 2", "--grace 0.5")
    made.submit(f"trap '' TERM INT; {launch} {sys.executable} -S {write(made, STAYS)}; sleep 600", variables(made))
    wait_for(made, "up0", "up1", "up2", "up3")
    made.delete(delay=0.0)
    wait_until(lambda: not alive(made.work), lambda: alive(made.work))


@pytest.mark.parametrize("name", SYSTEMS)
def test_ranks_see_the_job_and_no_task(name: str, system: Callable[[str], JobSystem]) -> None:
    """Nor what was said to an MPI library, or to jsrun's ranks, around them."""
    made = system(name)
    show = "import json, os; os.write(1, (json.dumps(dict(os.environ)) + chr(10)).encode())"
    misleading = {"PMI_RANK": "5", "PMI_SIZE": "9", "PMIX_RANK": "5", "JSM_NAMESPACE_RANK": "5", "LSF_PM_TASKID": "9"}
    misleading |= {"FLUX_TASK_RANK": "5", "FLUX_PMI_LIBRARY_PATH": "/x", "PBS_TASKNUM": "1", "PBS_NODENUM": "0"}
    ended = made.run(f"{LAUNCH} {sys.executable} -S -c '{show}'", variables(made, **misleading))
    ranks = [json.loads(line) for line in ended.lines]
    assert len(ranks) == 4, ended
    own = {"pbs": ("PMIX", "PBS_TASK", "PBS_NODENUM"), "lsf": ("PMIX", "JSM", "LSF_PM"), "flux": ("PMIX", "FLUX_TASK")}
    for rank in ranks:
        assert [word for word in rank if word.startswith(own.get(name, own["pbs"]))] == []
        assert (rank["PMI_SIZE"], rank["PMI_RANK"]) == ("4", rank["RANK"]), "our own"
    for word in {"lsf": ("LSB_JOBID", "LSB_MCPU_HOSTS"), "flux": ()}.get(name, ("PBS_JOBID", "PBS_NODEFILE")):
        assert {rank[word] for rank in ranks} == {variables(made)[word]}
    if name == "flux":  # each host has a broker of its own
        assert sorted(rank["FLUX_URI"] for rank in ranks) == [f"local:///n0{number}" for number in (1, 1, 2, 3)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_a_script_exports_reaches_all_ranks(name: str, system: Callable[[str], JobSystem]) -> None:
    """`module load` in the script is enough; what is different on each host is not changed."""
    made = system(name)
    tool = made.work / "tools"
    tool.mkdir()
    (tool / "of_module").write_text("#!/bin/sh\necho $LOADED $CUDA_VISIBLE_DEVICES\n")
    (tool / "of_module").chmod(0o755)
    script = f"export PATH={tool}:$PATH LOADED='a  b' CUDA_VISIBLE_DEVICES=first"
    ended = made.run(f"{script}; {LAUNCH} of_module", variables(made))
    others = {"pbs": "device of n02", "torque": "device of n02", "lsf": "", "flux": "first"}[name]
    assert ended.lines.count("a b first") >= 2, ended
    assert f"a b {others}".strip() in ended.lines, ended
    assert len(ended.lines) == 4, ended


@pytest.mark.parametrize("shell", ["", "1"])
def test_blaunch_may_run_words_or_a_shell(shell: str, system: Callable[[str], JobSystem]) -> None:
    made = system("lsf")
    ended = made.run(f"{LAUNCH} {WHERE}", variables(made, **({"STAND_IN_SHELL": shell} if shell else {})))
    assert ended.lines == ["0 n01", "1 n01", "2 n02", "3 n03"], ended


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_python_that_is_not_there_is_named_with_its_host(name: str, system: Callable[[str], JobSystem]) -> None:
    made = system(name)
    ended = made.run(f"{LAUNCH} --agent-python python9 touch {made.work}/ran", variables(made))
    assert ended.code == 127, ended
    assert ("n[02-03]: " in ended.err or "n03: " in ended.err) and "--agent-python" in ended.err, ended
    assert "Traceback" not in ended.err
    assert not (made.work / "ran").exists()


@pytest.mark.parametrize("name", ["pbs", "flux"])
def test_a_host_that_does_not_answer_is_named(name: str, system: Callable[[str], JobSystem]) -> None:
    made = system(name)
    made.lost = {"n03"}
    ended = made.run(f"{LAUNCH} --connect-timeout 2 touch {made.work}/ran", variables(made))
    assert ended.code == 255, ended
    assert "n03: no agent has called back within 2 seconds" in ended.err, ended
    assert list((made.work / "home").iterdir()) == [], "the file with the token is gone"
    assert not (made.work / "ran").exists()
    wait_until(lambda: not alive(made.work), lambda: alive(made.work))


def test_a_home_that_other_hosts_do_not_see_is_no_obstacle(system: Callable[[str], JobSystem], three: Path) -> None:
    """Neither home nor working directory is shared; SSH starts the agents then."""
    made = system("pbs")
    own = "mkdir -p /run/h && cd /run/h && cp -r $KEYS . && export HOME=/run/h"
    ended = made.run(f"{own}; {LAUNCH} --wdir / {WHERE}", variables(made, KEYS=str(three / "home" / "n01" / ".ssh")))
    assert [line for line in ended.lines if line[1] == " "] == ["0 n01", "1 n01", "2 n02", "3 n03"], ended
    assert "n02: the file with the token cannot be read there" in ended.out, ended
    assert [words for words in ended.lines if "started by SSH" in words], ended


@pytest.mark.parametrize("name", SYSTEMS)
def test_without_the_command_of_the_system_ssh_starts_agents(
    name: str, system: Callable[[str], JobSystem], three: Path
) -> None:
    """For Flux no hosts are known without it."""
    made = system(name)
    shutil.copytree(three / "home" / "n01" / ".ssh", made.work / "home" / ".ssh")
    for path in (made.work / "bin").glob("[a-z]*[a-z]"):
        if path.name != "socket":
            path.unlink()
    ended = made.run(f"{LAUNCH} {WHERE}", variables(made))
    if name == "flux":
        assert "flux failed" in ended.err and ended.code == 1, ended
    else:
        *ranks, notice = ended.lines
        assert ranks == ["0 n01", "1 n01", "2 n02", "3 n03"], ended
        command = {"pbs": "pbs_tmrsh", "torque": "pbsdsh", "lsf": "blaunch"}[name]
        assert notice == f"mslaunch: there is no {command} in PATH, so agents are started by SSH"
    assert len(made.tasks) == 1


def test_ssh_can_be_asked_for(system: Callable[[str], JobSystem], three: Path) -> None:
    made = system("pbs")
    shutil.copytree(three / "home" / "n01" / ".ssh", made.work / "home" / ".ssh")
    ended = made.run(f"{LAUNCH} --mca plm rsh {WHERE}", variables(made))
    assert ended.lines == ["0 n01", "1 n01", "2 n02", "3 n03"], ended
    assert len(made.tasks) == 1


@pytest.mark.parametrize("name", ["pbs", "lsf"])
def test_no_token_is_in_the_arguments_or_the_environment_of_a_process(
    name: str, system: Callable[[str], JobSystem]
) -> None:
    made = system(name)
    made.submit(f"{LAUNCH} {sys.executable} -S {write(made, SAVES)}", variables(made))
    wait_for(made, "up3")
    seen = b""
    for process in filter(str.isdigit, os.listdir("/proc")):
        for file in ("cmdline", "environ"):
            try:
                text = Path(f"/proc/{process}/{file}").read_bytes()
            except OSError:
                continue
            seen += text if str(made.work).encode() in text else b""
    made.delete(delay=5.0)
    words = seen.replace(b"=", b" ").replace(b"\0", b" ").split()
    assert [word for word in words if len(word) == 64 and set(word) <= set(b"0123456789abcdef")] == []


@pytest.mark.parametrize(("name", "library"), [("pbs", "OPENMPI4"), ("lsf", "OPENMPI5"), ("flux", "MPICH")])
def test_ranks_of_mpi_are_one_world(name: str, library: str, system: Callable[[str], JobSystem]) -> None:
    """Whatever the system says to MPI libraries."""
    python = os.environ.get(f"MSLAUNCH_TEST_{library}_PYTHON", "")
    if not os.access(python, os.X_OK):
        pytest.skip(f"MSLAUNCH_TEST_{library}_PYTHON is {python!r}: it should name a Python that has mpi4py")
    made = system(name)
    misleading = {"PMI_RANK": "5", "PMI_SIZE": "9", "PMIX_RANK": "5", "FLUX_PMI_LIBRARY_PATH": "/x", "PMI_FD": "77"}
    ended = made.run(f"{LAUNCH} {python} {write(made, SUM)}", variables(made, **misleading))
    assert ended.lines == ["0 4 6 n01", "1 4 6 n01", "2 4 6 n02", "3 4 6 n03"], ended


def test_the_end_of_a_host_is_named(system: Callable[[str], JobSystem], three: Path) -> None:
    """The last test of this module: the host stays off.  pbs_tmrsh does not notice."""
    made = system("pbs")
    task = made.submit(f"{LAUNCH} --lease 2 {sys.executable} -S {write(made, SAVES)}", variables(made))
    wait_for(made, "up0", "up1", "up2", "up3")
    verb = [sys.executable, "-S", str(SCRIPT), "kill", "--dir", str(three), "n03"]
    subprocess.run(verb, check=True, capture_output=True, timeout=BOUND)
    assert task.process.wait(BOUND) == 205, made.output
    assert "n03" in made.output.partition("mslaunch: ")[2], made.output
    wait_until(lambda: not alive(made.work), lambda: alive(made.work))
