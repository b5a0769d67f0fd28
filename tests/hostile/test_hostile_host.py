"""A compromised compute host can lie about its own ranks, and that is all: a real launch with one such host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "launch"), str(ROOT / "tests" / "unit")]

import elf_files  # noqa: E402
from launching import Job, Result, environment, memory_of, program, wait_until  # noqa: E402

from mslaunch.host.dynamic_linker import Loader  # noqa: E402

HOSTILE = ROOT / "tests" / "hostile" / "hostile_host.py"
#: one rank here, which stays until the file `go` exists, and one on the hostile host
PAIR = ["localhost:1", "evil:1"]
NORMAL_SIZE = 20  #: MiB that a launch takes which is not attacked; `test_an_honest_end` sees to it
FEW = 4  #: MiB above that which what is dropped may cost
NORMAL = 64  #: MiB above that which attacks may cost


class Attack(NamedTuple):
    """What came of an attack."""

    ended: Result
    heard: list[dict[str, Any]]
    memory: int  # the most that the launcher had, in MiB

    def all(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.heard if line["what"] == what]


@pytest.fixture
def launch(tmp_path: Path) -> Any:
    """`launch(attack, word, words, hosts=...)`: the command to its end, with a host that attacks."""
    jobs: list[Job] = []

    def run(attack: str, word: str, words: list[str], hosts: list[str] = PAIR, **how: Any) -> Attack:
        job = begin(attack, word, words, hosts, **how)
        memory = watch(job)
        ended = job.end()
        job.wait_gone()
        return Attack(ended, heard(), memory)

    def begin(attack: str, word: str, words: list[str], hosts: list[str] = PAIR, **how: Any) -> Job:
        env = environment(
            HOSTILE_ATTACK=attack, HOSTILE_WORD=word, HOSTILE_LOG=str(tmp_path / "heard"), **how.pop("env", {})
        )
        agent = ["--rsh-agent", f"{sys.executable} {HOSTILE}", "--agent-python", sys.executable, "-H", ",".join(hosts)]
        jobs.append(Job([*agent, *words], env, **{"cwd": tmp_path, **how}))
        return jobs[-1]

    def heard() -> list[dict[str, Any]]:
        log = tmp_path / "heard"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    run.begin, run.heard = begin, heard  # type: ignore[attr-defined]
    yield run
    for job in jobs:
        job.destroy()


Launch = Callable[..., Attack]


def watch(job: Job, until: Callable[[], bool] = lambda: False) -> int:
    """The most memory that the launcher had until its end, or `until`."""
    seen = [0]

    def over() -> bool:
        seen.append(memory_of(job.pid))
        return job.process.poll() is not None or until()

    wait_until(over)
    return max(seen)


def waits(tmp_path: Path) -> list[str]:
    """Two ranks: that of the honest host waits for a file that the test makes, or for its end."""
    return ["--map-by", "node", "-n", "2", *program("wait", tmp_path / "go")]


def test_an_honest_end(launch: Launch) -> None:
    """What the others are compared with."""
    found = launch("well", "", ["--map-by", "node", "-n", "2", "true"])
    assert found.ended.code == 0, found.ended.err
    assert 10 < found.memory <= NORMAL_SIZE


# --- what it says about others


@pytest.mark.parametrize(
    "frame",
    ["STDOUT 0 loss=0.0001", "EXIT 0 code|1|0|signal|1||error|1||todo|1||asked|1|", "JOINED 0 PMI-1"],
    ids=lambda frame: frame.split()[0],
)
def test_it_cannot_speak_for_a_rank_of_another_host(launch: Launch, tmp_path: Path, frame: str) -> None:
    """tests/unit/launcher/job/test_frame_subjects.py has all kinds of frames."""
    found = launch("forge", frame, ["--output-filename", "logs", *waits(tmp_path)])
    assert found.ended.code == 205, found.ended.err
    assert "the host was lost while ranks ran there on evil" in found.ended.err
    assert "about a process (0) that it does not run" in found.ended.err
    assert "ended by mslaunch: rank 0" in found.ended.err, "it did run until then"
    assert b"loss" not in (tmp_path / "logs/1/rank.0/stdout").read_bytes()


# --- commands on other hosts


def owned(tmp_path: Path, steps: str) -> str:
    return f"{steps} touch {tmp_path / 'owned'}"


@pytest.mark.parametrize("steps", ["nothing", "joined"])
def test_it_cannot_run_a_command_in_a_job_that_is_not_mpi(launch: Launch, tmp_path: Path, steps: str) -> None:
    """The job is `wait`; rank 0 has a free slot beside it."""
    (tmp_path / "go").touch()
    found = launch("spawn", owned(tmp_path, steps), waits(tmp_path), ["localhost:3", "evil:1"])
    ended = found.ended
    assert [answer["error"] for answer in found.all("answer")] == ["start"], ended.err
    why = {
        "nothing": "it is not between MPI_Init and MPI_Finalize",
        "joined": "only its host, evil, says that ",
    }
    assert f"mslaunch: rank 1 could not spawn 1 rank of touch: {why[steps]}" in ended.err
    assert ended.err.count("could not spawn") == 1
    assert not (tmp_path / "owned").exists()


def test_an_mpi4py_that_the_program_does_not_use_does_not_make_the_job_one_of_mpi(
    launch: Launch, tmp_path: Path
) -> None:
    own = Loader({}, "/").read(sys.executable)
    assert own
    library = elf_files.elf(soname="libmpi.so.12", symbols=elf_files.MPICH, machine=own.machine)
    elf_files.write(tmp_path / "libmpi.so.12", library)
    linked = elf_files.elf("libmpi.so.12", runpath=str(tmp_path), machine=own.machine)
    elf_files.write(tmp_path / "installed/mpi4py/MPI.so", linked)
    (tmp_path / "go").touch()
    where = {"PYTHONPATH": str(tmp_path / "installed")}
    found = launch("spawn", owned(tmp_path, "joined"), waits(tmp_path), ["localhost:3", "evil:1"], env=where)
    assert "mslaunch: rank 1 could not spawn 1 rank of touch: only its host, evil, says that " in found.ended.err
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ("joined", "on the launching host"),
        ("joined,finalized", "it is not between MPI_Init and MPI_Finalize"),
        ("joined,other", "a rank that it does not run"),
    ],
)
def test_what_a_job_that_may_spawn_does_not_give_it(launch: Launch, tmp_path: Path, steps: str, why: str) -> None:
    """Even then nothing is started on the launching host, where no rank has called MPI_Init."""
    (tmp_path / "go").touch()
    words = ["--spawn", "yes", *waits(tmp_path)]
    found = launch("spawn", owned(tmp_path, steps), words, ["localhost:3", "evil:1"])
    assert why in found.ended.err
    assert not (tmp_path / "owned").exists()


def test_spawn_no_holds_for_every_job(launch: Launch, tmp_path: Path) -> None:
    words = ["--spawn", "no", "--mpi", "pmi1", "--map-by", "node", "-n", "2", *program("pmi", "init,finalize")]
    found = launch("spawn", owned(tmp_path, "joined,"), words, ["localhost:3", "evil:1"])
    assert "could not spawn 1 rank of touch: --spawn no was given" in found.ended.err
    assert not (tmp_path / "owned").exists()


def test_a_spawn_gives_it_no_variable_of_the_launcher(launch: Launch, tmp_path: Path) -> None:
    for words in ("MY_SECRET", "*", "MY_*"):
        found = launch(
            "info", f"env={words}", ["--spawn", "yes", "-n", "1", "true"], ["evil:2"], env={"MY_SECRET": "hunter2"}
        )
        assert f"MPI_Info env: the job does not export the variable {words} (give -x {words} when" in found.ended.err
        assert "hunter2" not in str(found.heard) and len(found.all("launch")) == 1
        (tmp_path / "heard").unlink()
    exported = ["-x", "MY_SECRET", "--spawn", "yes", "-n", "1", "true"]
    found = launch("info", "env=MY_SECRET", exported, ["evil:2"], env={"MY_SECRET": "told"})
    assert ["MY_SECRET=told" in str(plan["env"]) for plan in found.all("launch")] == [True, True]


@pytest.mark.parametrize("key", ["hostfile", "add-hostfile"])
def test_a_spawn_gives_it_no_line_of_a_file(launch: Launch, tmp_path: Path, key: str) -> None:
    """A FIFO would have stopped the launcher for good."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "secret").write_text("password=correct-horse\n")
    for name in ("secret", "fifo"):
        found = launch("info", f"{key}={tmp_path / name}", ["--spawn", "yes", "-n", "1", "true"], ["evil:2"])
        assert "no hostfile is read for spawned ranks" in found.ended.err
        assert [answer["error"] for answer in found.all("answer")] == ["start"]
        assert "correct-horse" not in found.ended.err + str(found.heard)
        (tmp_path / "heard").unlink()


# --- memory


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("gathers", "it sent a frame of kind 82 with 41943"),
        ("small_gathers", "its collectives that are not complete are more than"),
        ("many_gathers", "its collectives that are not complete are more than"),
        ("nuls", "it sent a frame of kind 71 with 41943040 bytes; 65536 are the most"),
        ("words", "a control frame has more than 262144 words"),
        ("parts", "it asked for a part that it has"),
        ("traces", "it sent a frame of kind 74 about a process (1)"),
        ("code", "it sent a frame of kind 71 about a process (1)"),
        ("stdin", "it sent a frame of kind 72 about a process (1)"),
        ("greeting", "it sent a frame of kind 65 with 104857600 bytes"),
        ("cores", "it claims what no host has"),
    ],
)
def test_its_link_ends_before_it_fills_the_launcher(launch: Launch, tmp_path: Path, attack: str, why: str) -> None:
    zeros = os.open("/dev/zero", os.O_RDONLY)
    try:
        found = launch(attack, "", ["--stdin", "1", *waits(tmp_path)], stdin=zeros)
    finally:
        os.close(zeros)
    assert found.ended.code in (205, 255) and "evil" in found.ended.err, found.ended.err
    assert why in found.ended.err
    assert "Traceback" not in found.ended.err
    assert found.memory < NORMAL_SIZE + NORMAL


UNREAD = "it has read nothing for "
#: signs of life come all the while, so the lease alone would not end it
QUICK = ["--lease", "2", "--heartbeat", "0.5"]
HOROVOD = ["--horovod", "gloo"]


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ("unread", []),
        ("unread_gathers", []),
        ("unread_questions", []),
        ("unread_lookups", []),
        ("unread_writes", HOROVOD),
    ],
)
def test_a_host_that_asks_and_reads_nothing(launch: Launch, tmp_path: Path, attack: str, words: list[str]) -> None:
    """It is not read any more once enough waits for it, and given up after a lease."""
    found = launch(attack, "", [*QUICK, *words, *waits(tmp_path)])
    assert found.ended.code == 205, found.ended.err
    assert UNREAD in found.ended.err and "MiB that wait for it" in found.ended.err
    assert found.memory < NORMAL_SIZE + NORMAL


def test_two_hosts_one_of_which_makes_the_launcher_keep_what_the_other_does_not_read(
    launch: Launch, tmp_path: Path
) -> None:
    words = [*QUICK, "-n", "2", *program("wait", tmp_path / "go")]
    found = launch("pair", "", words, ["evil1:1", "evil2:1"])
    assert found.ended.code == 205, found.ended.err
    assert UNREAD in found.ended.err and "evil1" in found.ended.err
    assert "evil2" not in found.ended.err, "the one that waits for it is not to blame"
    assert found.memory < NORMAL_SIZE + 2 * NORMAL


def test_ranks_that_a_host_spawns_without_reading_of_them(launch: Launch, tmp_path: Path) -> None:
    words = ["--spawn", "yes", "-n", "1", "true"]
    job = launch.begin("unread_spawns", "", words, ["evil:1000"])  # type: ignore[attr-defined]
    sleeps = {"what": "sleeps"}
    memory = watch(job, lambda: sleeps in launch.heard())  # type: ignore[attr-defined]
    job.send(signal.SIGKILL)
    job.end()
    assert 10 < memory < NORMAL_SIZE + NORMAL


def test_a_host_that_takes_much_slowly_is_kept(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    found = launch("slow", "", [*QUICK, *waits(tmp_path)])
    assert found.ended.code == 0, found.ended.err
    assert [len(said["kinds"]) for said in found.all("took")] == [8]


def test_a_suspended_host_is_kept_without_a_lease(launch: Launch, tmp_path: Path) -> None:
    """The other host's input and output go on meanwhile."""
    words = ["--lease", "0", "--map-by", "node", "-n", "2", "cat"]
    how = {"stdin": subprocess.PIPE}
    job = launch.begin("asleep", str(tmp_path / "awake"), words, **how)  # type: ignore[attr-defined]
    sleeps = {"what": "sleeps"}
    wait_until(lambda: sleeps in launch.heard())  # type: ignore[attr-defined]
    assert job.process.stdin
    for count in range(1, 20):
        os.write(job.process.stdin.fileno(), b"ping\n")
        job.expect(b"ping", count)
    assert memory_of(job.pid) < NORMAL_SIZE + NORMAL
    (tmp_path / "awake").touch()
    job.process.stdin.close()
    job.process.stdin = None
    ended = job.end()
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("attack", "lines"), [("notices", 16), ("refusals", 16), ("lookups", 0), ("published", 0), ("noise", 0)]
)
def test_what_it_asks_for_without_end_is_not_kept(launch: Launch, tmp_path: Path, attack: str, lines: int) -> None:
    """Nor said without end: the job goes on."""
    job = launch.begin(attack, "", waits(tmp_path))  # type: ignore[attr-defined]
    done = {"what": "done"}
    memory = watch(job, lambda: done in launch.heard())  # type: ignore[attr-defined]
    (tmp_path / "go").touch()
    memory = max(memory, memory_of(job.pid))
    job.send(signal.SIGTERM)
    ended = job.end()
    assert 10 < memory < NORMAL_SIZE + NORMAL
    assert ended.err.count("has loaded") + ended.err.count("could not spawn") == lines


def test_output_without_end_is_not_kept(launch: Launch, tmp_path: Path) -> None:
    """Nobody reads the terminal, and it does not obey PAUSE."""
    reader, writer = os.pipe()
    try:
        job = launch.begin("deaf", "", waits(tmp_path), stdout=writer)  # type: ignore[attr-defined]
        gone = {"what": "gone"}
        memory = watch(job, lambda: gone in launch.heard())  # type: ignore[attr-defined]
    finally:
        os.close(reader)
        os.close(writer)
    ended = job.end()
    assert ended.code == 205 and "it goes on sending output though it was told to pause" in ended.err
    assert 10 < memory < NORMAL_SIZE + NORMAL


def test_what_the_program_that_carries_it_says_without_end_is_not_kept(launch: Launch, tmp_path: Path) -> None:
    """Neither in memory nor in a file that has no name."""
    job = launch.begin("chatter", "", waits(tmp_path))  # type: ignore[attr-defined]
    done = {"what": "done"}
    memory = watch(job, lambda: done in launch.heard())  # type: ignore[attr-defined]
    opened = [os.readlink(path) for path in Path(f"/proc/{job.pid}/fd").iterdir()]
    assert not [name for name in opened if "(deleted)" in name or "memfd" in name], opened
    job.send(signal.SIGTERM)
    job.end()
    assert 10 < memory < NORMAL_SIZE + FEW


@pytest.mark.parametrize("frame", ["alive", "output", "lookup"])
def test_a_flood_of_legal_frames_does_not_hold_the_others_up(launch: Launch, frame: str) -> None:
    """The other host's input and output go on, and so do its signs of life: the lease ends before the flood does."""
    words = ["--lease", "2", "--heartbeat", "0.5", "--map-by", "node", "-n", "2", "cat"]
    how = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    job = launch.begin("flood", frame, words, **how)  # type: ignore[attr-defined]
    floods = {"what": "floods"}
    wait_until(lambda: floods in launch.heard())  # type: ignore[attr-defined]
    assert job.process.stdin
    slowest, count, begun = 0.0, 0, time.monotonic()
    while time.monotonic() - begun < 2.5:
        at, count = time.monotonic(), count + 1
        os.write(job.process.stdin.fileno(), b"ping\n")
        job.expect(b"ping", count)
        slowest = max(slowest, time.monotonic() - at)
    assert slowest < 2.0
    job.send(signal.SIGTERM)
    assert job.end().code == 1  # not 205: no host was given up


# --- what it says in the launcher's voice


@pytest.mark.parametrize(
    "how", ["fault", "crash", "exit", "abort", "broken", "user", "alone", "notice", "last words", "spawn", "hello"]
)
def test_no_line_of_it_is_one_of_the_launcher(launch: Launch, how: str) -> None:
    """Its errors are a sentence with its name, and lines behind `  | `; few of them, and nothing that acts."""
    more = {"spawn": ["--spawn", "yes"], "hello": ["-v"]}.get(how, [])
    err = launch("voice", how, ["--map-by", "node", "-n", "2", *more, "sleep", "1"]).ended.err
    err = err[err.index("mslaunch: rank 1") :] if how == "last words" else err  # what a rank prints passes unchanged
    lines = err.splitlines()
    assert ("all is well" in err or how == "user") and len(lines) < 90 and len(err) < 30_000, err[:3000]
    for line in lines:
        assert line.isprintable()
        if "curl" in line or "all is well" in line:
            assert line.startswith("  | ") or (line.startswith("mslaunch: ") and "all is well" not in line[:30]), line


@pytest.mark.parametrize("how", ["exit", "crash", "notice"])
def test_no_byte_of_it_acts_in_a_file(launch: Launch, tmp_path: Path, how: str) -> None:
    """--events, the record and the input of --on-event are JSON that a terminal may show."""
    seen = tmp_path / "seen"
    words = ["--events", "events", "--record", "rec", "--on-event", f"sh -c 'cat >> {seen}'", "sleep", "1"]
    launch("voice", how, ["--map-by", "node", "-n", "2", *words])
    for path in (tmp_path / "events", tmp_path / "rec" / "run.json", seen):
        text = path.read_text(encoding="utf-8")
        assert all(char.isprintable() or char == "\n" for char in text), path
        for each in [text] if path.suffix else text.splitlines():
            json.loads(each)
