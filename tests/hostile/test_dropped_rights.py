"""A rank that has dropped our rights chooses names: what agent and guard run and remove for it, with their own rights.

Root starts ranks that become another user, as setpriv, gosu and su do.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launching import COMMAND, environment
from other_user import BOUND, UID, as_user, interpreter

from mslaunch.agent.mpi import shm_cleanup
from mslaunch.agent.ranks import session_dir
from mslaunch.agent.ranks.trusted_path import is_trusted
from mslaunch.agent.services import mindspore_scheduler
from mslaunch.agent.services.mindspore_scheduler import SchedulerCommands, find_interpreter
from mslaunch.agent.services.service_kind import ServiceCommand
from mslaunch.errors import LaunchError
from mslaunch.host import processes
from mslaunch.host.processes import is_ours

pytestmark = pytest.mark.usefixtures("second_user")
DROP = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--"]
SLEEPS = "import time; time.sleep(1000)"
WAITS = "print('ready', flush=True); import sys; sys.stdin.read()"


@pytest.fixture
def theirs(commons: Path) -> Path:
    """A folder of the other user's, with an interpreter and a py-spy, which says whose rights it has."""
    folder = commons / "theirs" / "bin"
    folder.mkdir(parents=True)
    shutil.copy(os.path.realpath(interpreter()), folder / "python3")
    (folder / "py-spy").write_text(f"#!/bin/sh\nid -u >> {commons}/ran\necho 'Thread 1 (idle)'\n")
    (folder / "py-spy").chmod(0o755)
    for path in (folder.parent, folder, *folder.iterdir()):
        os.chown(path, UID, UID)
    return folder


def stacks(*argv: str) -> str:
    """What a launch prints of the stacks of its one rank when its time is over; no tool is in its PATH."""
    line = [*COMMAND, "--timeout", "1", "--get-stack-traces", "-n", "1", *argv]
    env = environment(PATH="/usr/sbin:/usr/bin:/sbin:/bin")
    done = subprocess.run(line, cwd="/", env=env, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 110, done
    return done.stdout + done.stderr


def test_no_tool_is_run_for_a_process_of_another_user(theirs: Path, commons: Path) -> None:
    found = stacks(*DROP, str(theirs / "python3"), "-Suc", SLEEPS)
    assert "it runs as another user, so no debugger was asked" in found, found
    assert not (commons / "ran").exists()


def test_a_tool_that_lies_in_a_folder_of_another_user_is_not_run(theirs: Path, commons: Path) -> None:
    stacks(str(theirs / "python3"), "-Suc", SLEEPS)
    assert not (commons / "ran").exists()
    for path in (theirs.parent, theirs, *theirs.iterdir()):
        os.chown(path, 0, 0)
    stacks(str(theirs / "python3"), "-Suc", SLEEPS)
    assert (commons / "ran").read_text() == "0\n"  # the same where it is ours


#: what is done to /COMMONS/a/b/tool, all of which is ours -> whether it may be run
CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "nothing": (lambda a: None, True),
    "file of another user": (lambda a: os.chown(a / "b/tool", UID, UID), False),
    "file for all to write": (lambda a: (a / "b/tool").chmod(0o757), False),
    "file for a group to write": (lambda a: (os.chown(a / "b/tool", 0, UID), (a / "b/tool").chmod(0o775)), False),
    "folder of another user": (lambda a: os.chown(a / "b", UID, UID), False),
    "folder for a group to write": (lambda a: (os.chown(a / "b", 0, UID), (a / "b").chmod(0o775)), False),
    "folder for all to write": (lambda a: (a / "b").chmod(0o777), False),
    "folder for all, sticky": (lambda a: (a / "b").chmod(0o1777), False),
    "folder of another user's, sticky": (lambda a: ((a / "b").chmod(0o1777), os.chown(a / "b", UID, UID)), False),
    "folder above of another user": (lambda a: os.chown(a, UID, UID), False),
    "folder above for all": (lambda a: a.chmod(0o777), False),
    "folder above for all, sticky": (lambda a: a.chmod(0o1777), True),
    "a link of ours": (lambda a: ((a / "b").rename(a / "c"), (a / "b").symlink_to("c")), True),
    "a link of another user": (
        lambda a: ((a / "b").rename(a / "c"), (a / "b").symlink_to("../a/c"), os.lchown(a / "b", UID, UID)),
        False,
    ),
    "a link to a folder of another user": (
        lambda a: ((a / "b").rename(a / "c"), (a / "b").symlink_to(a / "c"), os.chown(a / "c", UID, UID)),
        False,
    ),
    "a link to itself": (lambda a: ((a / "b").rename(a / "c"), (a / "b").symlink_to("b")), False),
    "gone": (lambda a: (a / "b/tool").unlink(), False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_leads_to_a_tool_is_ours(commons: Path, change: str) -> None:
    (commons / "a" / "b").mkdir(parents=True)
    (commons / "a" / "b" / "tool").write_text("")
    (commons / "a" / "b" / "tool").chmod(0o755)
    act, trusted = CHANGES[change]
    act(commons / "a")
    assert is_trusted(f"{commons}/a/b/tool") == trusted
    assert is_trusted(f"{commons}/a/../a/./b//tool") == trusted


@pytest.mark.parametrize("ids", [(UID, UID, UID), (0, UID, 0), (UID, 0, 0), (0, 0, UID)])
def test_a_process_is_ours_only_with_all_of_its_ids(ids: tuple[int, ...]) -> None:
    code = f"import os\nos.setresuid{ids}\n{WAITS}"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        assert not is_ours(process.pid)
        process.communicate()
    assert is_ours(os.getpid()) and not is_ours(process.pid)


# --- shared memory

MAPS = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
held = mmap.mmap(file, 0, prot=mmap.PROT_READ)
if len(sys.argv) > 2 and os.fork():  # the rank ends, and leaves an orphan
    os._exit(0)
print("ready", flush=True)
import time
time.sleep(1000)
"""


@pytest.fixture
def shm(commons: Path) -> Iterator[Path]:
    """A name in /dev/shm for this test; it and what begins like it is removed."""
    name = Path(f"/dev/shm/mpich_shm_{commons.name}")
    yield name
    for path in Path("/dev/shm").glob(f"*{commons.name}*"):
        path.unlink()


@contextlib.contextmanager
def mapped(path: Path, uid: int) -> Iterator[int]:
    """A process of this user that has mapped a file."""
    process = as_user(uid, [interpreter(), "-I", "-S", "-c", MAPS, str(path)])
    assert process.stdout and process.stdout.readline() == b"ready\n", process.stderr and process.stderr.read()
    yield process.pid
    process.kill()
    process.communicate()


def left(path: Path, uid: int) -> bool:
    """Whether a file is there after the end of a process that had it mapped."""
    with mapped(path, uid) as pid:
        found = shm_cleanup.held([pid])
    shm_cleanup.remove(found)
    return path.exists()


def test_shared_memory_of_our_own_is_removed(shm: Path) -> None:
    shm.write_bytes(b"x" * mmap.PAGESIZE)
    assert not left(shm, 0)


def test_shared_memory_of_ours_that_another_user_has_mapped_stays(shm: Path) -> None:
    shm.write_bytes(b"x" * mmap.PAGESIZE)
    assert left(shm, UID)


def test_shared_memory_of_another_user_stays(shm: Path) -> None:
    shm.write_bytes(b"x" * mmap.PAGESIZE)
    os.chown(shm, UID, UID)
    assert left(shm, 0) and left(shm, UID)


def test_a_file_of_the_same_name_stays(shm: Path) -> None:
    shm.write_bytes(b"x" * mmap.PAGESIZE)
    with mapped(shm, 0) as pid:
        found = shm_cleanup.held([pid])
        shm.rename(f"{shm}_old")
        shm.write_bytes(b"another")
    shm_cleanup.remove(found)
    assert shm.read_bytes() == b"another"


def misleading(shm: Path, commons: Path) -> tuple[Path, Path]:
    """A file whose path has that of `shm` within, and the file of ours to which `shm` as a link leads."""
    private = commons / "private"
    private.mkdir(0o755)
    (private / "target").write_text("precious")
    shm.symlink_to(private)
    file = commons / f"d {shm}" / "target"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * mmap.PAGESIZE)
    return file, private / "target"


def test_what_is_no_file_in_shared_memory_stays(shm: Path, commons: Path) -> None:
    """The folder of a mapped file ends in a blank, and then the line of /proc/PID/maps has " /dev/shm/" within."""
    file, target = misleading(shm, commons)
    for uid in (0, UID):
        with mapped(file, uid) as pid:
            shm_cleanup.remove(shm_cleanup.held([pid]))
    assert target.read_text() == "precious"


def test_the_guard_removes_nothing_that_a_rank_without_our_rights_names(shm: Path, commons: Path) -> None:
    """The same in a whole launch: the guard finds the orphan of a rank."""
    file, target = misleading(shm, commons)
    line = [*COMMAND, "-n", "1", *DROP, interpreter(), "-I", "-S", "-c", MAPS, str(file), "orphan"]
    done = subprocess.run(line, env=environment(), cwd="/", capture_output=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done
    assert target.read_text() == "precious"


# --- session directories

#: exchanges each folder of a place with a link, again and again (renameat2(2), RENAME_EXCHANGE)
EXCHANGES = """
import ctypes, os, sys
call = ctypes.CDLL(None).renameat2
os.chdir(sys.argv[1])
pairs = [(f"d{at}".encode(), f"l{at}".encode()) for at in range(int(sys.argv[2]))]
print("ready", flush=True)
while not os.path.exists(sys.argv[3]):
    for pair in pairs:
        call(-100, pair[0], -100, pair[1], 2)
"""


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(commons: Path) -> None:
    """A rank has given its directory to another user, who is there still."""
    private = commons / "private"
    (private / "inner").mkdir(parents=True)
    (private / "target").write_text("precious")
    private.chmod(0o755)
    for turn in range(8):
        given = commons / "session" / "rank.0"
        given.mkdir(parents=True)
        for at in range(50):
            (given / f"d{at}").mkdir()
            (given / f"l{at}").symlink_to(private)
        for path in (given, *given.iterdir()):
            os.lchown(path, UID, UID)
        words = [str(given), "50", str(commons / f"over{turn}")]
        with as_user(UID, [interpreter(), "-I", "-S", "-c", EXCHANGES, *words]) as process:
            assert process.stdout and process.stdout.readline() == b"ready\n"
            session_dir.remove(str(commons / "session"))
            (commons / f"over{turn}").touch()
            process.communicate()
        session_dir.remove(str(commons / "session"))
        assert private.stat().st_mode & 0o777 == 0o755
        assert (private / "target").read_text() == "precious" and (private / "inner").is_dir()
        assert not (commons / "session").exists()


def test_a_tree_deeper_than_a_path_can_be_is_removed(tmp_path: Path) -> None:
    deep = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n"
    (tmp_path / "session").mkdir()
    subprocess.run([sys.executable, "-I", "-S", "-c", deep], cwd=tmp_path / "session", check=True)
    try:
        session_dir.remove(str(tmp_path / "session"))
        assert not (tmp_path / "session").exists()
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "session"], check=False)  # pytest itself could not


def test_what_another_user_cannot_remove_stays(commons: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A folder of that user is moved into one that a rank has given away; a folder of ours is in it."""
    box = commons / "session" / "rank.0" / "box"
    (box / "vault").mkdir(0o700, parents=True)
    (box / "vault" / "file").write_text("precious")
    (box / "own" / "deep").mkdir(parents=True)
    (box / "own" / "deep" / "file").touch()
    for path in (box.parent, box, box / "own", box / "own" / "deep"):
        os.chown(path, UID, UID)
    (box / "own" / "deep").chmod(0)
    session_dir.remove(str(commons / "session"))
    assert (box / "vault" / "file").read_text() == "precious"
    assert not (box / "own").exists()
    assert f"mslaunch: {commons}/session stays" in capfd.readouterr().err


ENTRY = """
cd "$OMPI_FILE_LOCATION" && chown UID:UID . && pwd > COMMONS/path || exit 9
exec setpriv --reuid=UID --regid=UID --clear-groups -- mv COMMONS/box .
"""


def test_a_launch_does_not_remove_what_another_user_has_moved_into_its_session_directory(commons: Path) -> None:
    (commons / "box" / "vault").mkdir(parents=True)
    (commons / "box" / "vault" / "file").write_text("precious")
    (commons / "box" / "vault").chmod(0o700)
    os.chown(commons / "box", UID, UID)
    commons.chmod(0o777)
    (commons / "sent").touch()
    entry = ENTRY.replace("UID", str(UID)).replace("COMMONS", str(commons))
    line = [*COMMAND, "--preload-files", str(commons / "sent"), "-n", "1", "sh", "-c", entry]
    env = environment(TMPDIR=str(commons))
    done = subprocess.run(line, env=env, cwd="/", capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done
    rank = Path((commons / "path").read_text().strip())
    assert (rank / "box" / "vault" / "file").read_text() == "precious"


def test_a_directory_of_another_user_stays(commons: Path) -> None:
    (commons / "session").mkdir()
    (commons / "session" / "file").touch()
    os.chown(commons / "session", UID, UID)
    session_dir.remove(str(commons / "session"))
    assert (commons / "session" / "file").exists()


# --- MindSpore's scheduler

LOADS = """\
import mmap, sys
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("runs", ["light", "ranks"])
def test_the_interpreter_of_a_rank_without_our_rights_is_not_run(theirs: Path, commons: Path, runs: str) -> None:
    library = commons / "site/mindspore/_c_expression.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0" * 4096)
    line = [str(theirs / "python3"), "-I", "-S", "-c", LOADS, str(library)]
    service, program = SimpleNamespace(program=runs, env=()), ServiceCommand("/program", ["program"], {}, "/")
    own = SimpleNamespace(service=service, wdir=lambda: "/", env=lambda wdir: {}, command=lambda env, wdir: program)
    with as_user(UID, line, stdin=subprocess.PIPE) as rank:
        assert rank.stdout and rank.stdout.readline() == b"ready\n"
        if runs == "light":
            with pytest.raises(LaunchError, match=f"a rank that loads MindSpore runs as user {UID}"):
                SchedulerCommands(own).on_connection([rank.pid])  # type: ignore[arg-type]
        else:  # what the command line of the job names
            assert SchedulerCommands(own).on_connection([rank.pid]) is program  # type: ignore[arg-type]
        rank.communicate()


@pytest.mark.parametrize("ids", [(UID, 0, 0), (UID, UID, UID)])
def test_no_interpreter_is_run_where_one_process_of_the_rank_is_not_ours(commons: Path, ids: tuple[int, ...]) -> None:
    """One of ours loads MindSpore, and has a child that is not."""
    library = commons / "site/mindspore/_c_expression.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0" * 4096)
    code = f"import os, time\nif not os.fork():\n    os.setresuid{ids}\n    print(flush=True)\n    time.sleep(1000)\n"
    line = [interpreter(), "-I", "-S", "-c", code + LOADS, str(library)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as rank:
        assert rank.stdout and sorted((rank.stdout.readline(), rank.stdout.readline())) == [b"\n", b"ready\n"]
        with pytest.raises(LaunchError, match=f"runs as user {UID}"):
            find_interpreter([rank.pid])
        os.killpg(rank.pid, signal.SIGKILL)
        rank.communicate()


@pytest.mark.parametrize("change", ["becomes", "number"])
def test_a_process_that_is_not_ours_all_the_time_is_not_looked_at(
    commons: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Meanwhile it drops our rights, or its number is given to another process: what was read may be of either."""
    library = commons / "site/mindspore/_c_expression.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0" * 4096)
    drops = f"import os, signal\nos.setresuid{(UID,) * 3}\nprint('dropped', flush=True)\nsignal.pause()\n"
    line = [interpreter(), "-I", "-S", "-c", LOADS + drops, str(library)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as rank:
        assert rank.stdout and rank.stdin and rank.stdout.readline() == b"ready\n"
        pid, real = rank.pid, mindspore_scheduler._program

        def program(*words: Any) -> str | None:
            if change == "becomes":
                assert rank.stdin and rank.stdout
                rank.stdin.close()
                assert rank.stdout.readline() == b"dropped\n"
            else:
                fields = processes.stat_fields(pid)
                fields[19] += b"0"
                monkeypatch.setattr(processes, "stat_fields", lambda _: fields)
            return real(*words)

        monkeypatch.setattr(mindspore_scheduler, "_program", program)
        assert mindspore_scheduler._look(pid, time.monotonic() + BOUND) is None
        rank.kill()
        monkeypatch.undo()


def test_a_slow_path_does_not_hold_up_the_agent(commons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [f"{commons}/{at}" for at in range(1000)]
    for folder in (folders[-1], folders[9]):
        os.mkdir(folder)
    (Path(folders[-1]) / "python3").symlink_to(os.path.realpath(interpreter()))
    line = ["python3", "-I", "-S", "-c", LOADS, "/proc/self/exe"]
    env = {"PATH": ":".join(folders)}
    with subprocess.Popen(
        line, executable=interpreter(), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as rank:
        assert rank.stdout and rank.stdout.readline() == b"ready\n"
        look, soon = mindspore_scheduler._program, time.monotonic() + BOUND
        real = os.path.realpath(interpreter())
        assert look(rank.pid, "/", env, soon) == real  # the end of the PATH is not looked at
        (Path(folders[9]) / "python3").symlink_to(real)
        assert look(rank.pid, "/", env, soon) == f"{folders[9]}/python3"
        assert look(rank.pid, "/", env, 0.0) is None
        rank.communicate()


# --- MPI_Comm_spawn

SPAWNS = """
import os, signal, sys, time
os.write(3, b"cmd=init pmi_version=1 pmi_subversion=1\\n")
os.read(3, 4096)
if not os.fork():
    for number in sys.argv[2:]:
        os.setresuid(*[int(number)] * 3)
    words = ["nprocs=1", "execname=/usr/bin/touch", "totspawns=1", "spawnssofar=1", "argcnt=1", "arg1=" + sys.argv[1]]
    os.write(3, "".join(word + "\\n" for word in ["mcmd=spawn", *words, "endcmd"]).encode())
    os.read(3, 4096)
    while not sys.argv[2:] and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


@pytest.mark.parametrize("users", [[], [str(UID)]])
def test_a_process_that_has_dropped_the_rights_of_its_rank_starts_nothing_with_them(
    commons: Path, users: list[str]
) -> None:
    file = commons / "spawned"
    program = [interpreter(), "-I", "-S", "-c", SPAWNS, str(file), *users]
    line = [*COMMAND, "--oversubscribe", "--mpi", "pmi1", "--spawn", "yes", "-n", "1", *program]
    done = subprocess.run(line, env=environment(), cwd="/", capture_output=True, text=True, timeout=BOUND, check=False)
    said = f"rank 0 asked for MPI_Comm_spawn as user {UID}, and its agent can start programs only as user 0"
    assert (said in " ".join(done.stderr.split())) == bool(users), done
    assert file.exists() != bool(users), done


#: for Open MPI: a rank drops its rights after MPI_Init; the word "child" lets only a child of it do so
DROPS = r"""
#define _GNU_SOURCE
#include <grp.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    MPI_Comm other;
    int user = atoi(words[2]), code;
    char *args[] = {words[1], NULL};
    MPI_Init(&count, &words);
    if (user && (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user)))
        return 9;
    MPI_Comm_spawn("/usr/bin/touch", args, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other, &code);
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("mpicc.openmpi") is None, reason="Open MPI is not installed")
@pytest.mark.parametrize("user", [0, UID])
def test_a_rank_of_open_mpi_that_has_dropped_its_rights_spawns_nothing(commons: Path, user: int) -> None:
    source, program, file = commons / "drops.c", commons / "drops", commons / "spawned"
    source.write_text(DROPS)
    subprocess.run(["mpicc.openmpi", "-o", program, source], check=True)
    line = [*COMMAND, "--oversubscribe", "--spawn", "yes", "--timeout", "20", "-n", "1", str(program), str(file)]
    done = subprocess.run(
        [*line, str(user)], env=environment(), cwd="/", capture_output=True, text=True, timeout=BOUND, check=False
    )
    said = f"rank 0 asked for MPI_Comm_spawn as user {UID}, and its agent can start programs only as user 0"
    assert (said in " ".join(done.stderr.split())) == bool(user), done
    assert file.exists() != bool(user), done


#: has another user's child with the socket ask for nothing; the rank asks
HAS_ANOTHER = """
import os, signal, sys, time
os.write(3, b"cmd=init pmi_version=1 pmi_subversion=1\\n")
os.read(3, 4096)
ready, told = os.pipe()
if not os.fork():
    if sys.argv[3] == "orphan" and os.fork():
        os._exit(0)
    os.setsid()
    os.setresuid(*[int(sys.argv[2])] * 3)
    os.write(told, b"!")
    signal.pause()
os.read(ready, 1)
words = ["nprocs=1", "execname=/usr/bin/touch", "totspawns=1", "spawnssofar=1", "argcnt=1", "arg1=" + sys.argv[1]]
os.write(3, "".join(word + "\\n" for word in ["mcmd=spawn", *words, "endcmd"]).encode())
os.read(3, 4096)
"""


@pytest.mark.parametrize("how", ["child", "orphan"])
def test_a_rank_with_a_process_of_another_user_spawns_nothing(commons: Path, how: str) -> None:
    """Whoever writes: a setuid program may have been made to write what it was told."""
    file = commons / "spawned"
    program = [interpreter(), "-I", "-S", "-c", HAS_ANOTHER, str(file), str(UID), how]
    line = [*COMMAND, "--oversubscribe", "--mpi", "pmi1", "--spawn", "yes", "-n", "1", *program]
    done = subprocess.run(line, env=environment(), cwd="/", capture_output=True, text=True, timeout=BOUND, check=False)
    assert f"rank 0 asked for MPI_Comm_spawn as user {UID}, and" in " ".join(done.stderr.split()), done
    assert not file.exists()


# --- descriptors

SENDS = """
import array, os, socket, sys
with socket.socket(fileno=3) as agent:
    agent.sendall(b"cmd=init pmi_version=1 pmi_subversion=1\\n")
    agent.recv(4096)
    before = len(os.listdir(f"/proc/{os.getppid()}/fd"))
    rights = array.array("i", [0] * int(sys.argv[1]))
    agent.sendmsg([b"cmd=get_maxes\\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    agent.recv(4096)
    print("more", len(os.listdir(f"/proc/{os.getppid()}/fd")) - before, flush=True)
import signal
signal.pause()
"""


@pytest.mark.parametrize("count", [1, 4, 200])
def test_descriptors_that_a_rank_sends_are_not_kept(count: int) -> None:
    line = [*COMMAND, "--mpi", "pmi1", "-n", "1", interpreter(), "-I", "-S", "-c", SENDS, str(count)]
    done = subprocess.run(line, env=environment(), cwd="/", capture_output=True, text=True, timeout=BOUND, check=False)
    assert "rank 0 sent descriptors where PMI is spoken" in " ".join(done.stderr.split()), done
    assert done.returncode != 0
    assert done.stdout in ("", "more 0\n", "more -1\n"), done
