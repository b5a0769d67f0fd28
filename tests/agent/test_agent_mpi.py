"""MPI over the agent's link: variables, parts, PMI, and the order of frames about ranks."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from agents import TestedAgent, plan

from mslaunch.datamodel.node_plan import World
from mslaunch.protocol import frames
from mslaunch.protocol.codec import pack
from mslaunch.protocol.control import unpack_record
from mslaunch.protocol.mpi import (
    Abort,
    Answer,
    Gathering,
    Question,
    Released,
    pack_with_blobs,
    unpack_with_blobs,
)
from mslaunch.transport.bootstrap.agent_program import pack_part, part

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit"))

import elf_files

#: speaks PMI-1 on PMI_FD: says each word of its arguments, and prints the answer; "!" ends it there and then
TALK = """
import os, socket, sys
pmi = socket.socket(fileno=int(os.environ["PMI_FD"]))
answers = pmi.makefile("r")
for word in sys.argv[1:]:
    if word[:1] == "!":
        os.kill(os.getpid(), 9) if word == "!kill" else os._exit(int(word[1:]))
    silent = word[:1] == "~"
    pmi.sendall(word.lstrip("~").encode() + b"\\n")
    if not silent:
        print(answers.readline().strip(), flush=True)
"""
INIT = "cmd=init pmi_version=1 pmi_subversion=1"
FENCE, FINALIZE, NAME = "cmd=barrier_in", "cmd=finalize", "cmd=get_my_kvsname"
#: the job's world, all here, and with half of it elsewhere
HERE = World("7", 0, ("a",), ((0, 1),), 0, (2,), 4)
HALF = World("7", 0, ("a", "b"), ((0,), (1,)), 0, (2,), 4)


def talk(*words: str, **more) -> tuple:
    return plan(sys.executable, "-S", "-c", TALK, *words, pty="no", **{"world": HERE, "ranks": 2, **more})


def with_mpi(given, mpi: str):
    return given._replace(apps=tuple(app._replace(mpi=mpi) for app in given.apps))


def await_need(agent: TestedAgent, name: str) -> None:
    """Until the agent asks for a part; if ranks are slow, it looks first whether they are alone."""
    while (asked := agent.expect(frames.NEED).payload.decode()) != name:
        assert asked == "agent.mpi.singleton"
        agent.send(frames.PART, payload=pack_part(part(asked)))


def give(agent: TestedAgent, name: str) -> None:
    """Wait until the agent asks for a part, and send it."""
    await_need(agent, name)
    agent.send(frames.PART, payload=pack_part(part(name)))


def order(agent: TestedAgent, rank: int, *kinds: int) -> list[int]:
    """The frames of these kinds about a rank, in the order of their arrival."""
    return [frame.kind for frame in agent.frames if frame.rank == rank and frame.kind in kinds]


def replies(agent: TestedAgent, rank: int) -> list[str]:
    return agent.output(frames.STDOUT, rank).decode().splitlines()


@pytest.fixture
def agent(boot):
    """One whose ranks inherit nothing that leads to an MPI library."""
    started = boot(HOME="/nonexistent", PATH="/usr/bin:/bin")
    started.begin()
    yield started


def pmi(agent: TestedAgent, given) -> None:
    """LAUNCH with --mpi pmi, and the engine that the agent asks for."""
    agent.launch(with_mpi(given, "pmi"))
    give(agent, "agent.mpi.pmi.pmi_server")


# --- variables of ranks


def variables(agent: TestedAgent, mpi: str, rank: int = 0, world: World = HERE) -> dict[str, str]:
    """The PMI variables of a rank, and whether its descriptor 3 is open."""
    script = "env | grep -E '^(PMI|MPI)'; [ -S /proc/self/fd/3 ] && echo fd=3"
    agent.launch(with_mpi(plan("sh", "-c", script, ranks=2, world=world, pty="no"), mpi))
    return dict(line.split("=", 1) for line in replies(agent, rank))


@pytest.mark.parametrize("mpi", ["auto", "pmi", "pmi1", "pmi2"])
def test_ranks_get_pmi_variables(agent, mpi):
    assert variables(agent, mpi, 1) == {
        "PMI_FD": "3", "PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "fd": "3",
    }  # fmt: skip


def test_a_spawned_rank_has_the_variable_of_spawn(agent):
    world = World("9", 0, ("b", "a"), ((1,), (0, 2)), 1, (3,), parent="7.0")
    agent.launch(with_mpi(plan("sh", "-c", "env", ranks=1, world=world, pty="no"), "pmi"))
    assert {"PMI_SPAWNED=1", "PMI_SIZE=3", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=0"} <= set(replies(agent, 0))


def test_mpi_none_sets_no_variables(agent):
    assert variables(agent, "none") == {}
    agent.exit(0)
    agent.exit(1)
    assert not [frame for frame in agent.frames if frame.kind == frames.NEED]


@pytest.mark.parametrize("argv", [("true",), ("sh", "-c", "echo hi; exit 0"), ("env", "true")])
def test_ranks_without_mpi_need_no_part(agent, argv):
    agent.launch(plan(*argv, world=HERE))
    agent.exit(0)
    assert not [frame for frame in agent.frames if frame.kind == frames.NEED]


def test_the_detection_is_loaded_for_a_program_that_may_use_open_mpi(agent, tmp_path):
    """It finds no Open MPI, so the rank gets PMI. Frames for the rank wait until then."""
    script = f"#!/bin/sh\ntest -x {tmp_path}/p || exit 9\nread word; echo got $word $PMI_SIZE; exec sleep 60\n"
    elf_files.write(tmp_path / "p", elf_files.elf("libpossible.so"))
    agent.launch(plan(str(elf_files.write(tmp_path / "run", script)), ranks=2, world=HERE, stdin=(0,), pty="no"))
    assert agent.expect(frames.NEED).payload == b"agent.mpi.library_of_program"
    agent.send(frames.STDIN, 0, b"one\n")
    agent.send(frames.SIGNAL, 1, str(int(signal.SIGKILL)).encode())
    agent.send(frames.PART, payload=pack_part(part("agent.mpi.library_of_program")))
    assert agent.output(frames.STDOUT, 0, 1) == b"got one 2\n"
    assert agent.exit(1).signal == signal.SIGKILL
    agent.send(frames.END, payload=b"0")


def test_end_arrives_while_a_part_is_awaited(agent, tmp_path):
    program = elf_files.write(tmp_path / "p", elf_files.elf("libpossible.so"))
    agent.launch(plan(str(program), world=HERE))
    assert agent.expect(frames.NEED).payload == b"agent.mpi.library_of_program"
    agent.send(frames.END, payload=b"0")
    agent.send(frames.PART, payload=pack_part(part("agent.mpi.library_of_program")))
    assert "is being ended" in agent.exit(0).error
    agent.hang_up()
    assert agent.wait() == 0


def test_a_missing_part_does_not_delay_the_end(agent, tmp_path):
    agent.launch(plan(str(elf_files.write(tmp_path / "p", elf_files.elf("libpossible.so"))), world=HERE))
    agent.expect(frames.NEED)
    agent.hang_up()
    assert agent.wait() == 0


# --- PMI


def test_a_rank_speaks_pmi(agent):
    pmi(agent, talk(INIT, NAME, FENCE, FINALIZE))
    for rank in (0, 1):
        assert replies(agent, rank) == [
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2", "cmd=my_kvsname rc=0 kvsname=7",
            "cmd=barrier_out rc=0 tag=0", "cmd=finalize_ack rc=0",
        ]  # fmt: skip
        assert agent.exit(rank).code == 0
        assert order(agent, rank, frames.JOINED, frames.LEFT, frames.ABORT) == [frames.JOINED, frames.LEFT]
        assert agent.expect(frames.JOINED, rank).payload == b"PMI-1"


def test_a_fence_of_two_nodes(agent):
    put = "cmd=put kvsname=7 key=mine value=1"
    pmi(agent, talk(INIT, put, FENCE, "cmd=get kvsname=7 key=theirs", FINALIZE, world=HALF, ranks=1))
    ours = unpack_with_blobs(Gathering, agent.expect(frames.GATHER).payload)
    assert (ours.op, ours.members) == ("pmi fence", ("7",))
    strange = Released("pmix fence", ours.members, ())  # another engine's, and one that nobody waits for
    for whole in (
        strange,
        Released("pmi other", ours.members, ()),
        Released(*ours[:2], (ours.blobs[0], pack({"theirs": ["2"]}))),
    ):
        agent.send(frames.RELEASE, payload=pack_with_blobs(whole))
    assert replies(agent, 0)[-2:] == ["cmd=get_result rc=0 value=2", "cmd=finalize_ack rc=0"]


@pytest.mark.parametrize("end", ["!0", "!7", "!kill"])
def test_abort_is_reported_before_the_exit(agent, end):
    pmi(agent, talk(INIT, "~cmd=abort exitcode=7", end, ranks=1))
    seen = agent.expect(frames.EXIT, 0)
    assert seen
    assert order(agent, 0, frames.JOINED, frames.ABORT) == [frames.JOINED, frames.ABORT]
    assert unpack_record(Abort, agent.expect(frames.ABORT).payload)[::2] == (7, False)


@pytest.mark.parametrize("end, code", [("!0", 0), ("!kill", None)])
def test_a_rank_ends_before_the_engine_has_arrived(agent, end, code):
    """Its requests are read before its exit is reported; ranks that wait for it get their answers."""
    agent.launch(with_mpi(talk(f"~{INIT}", "~cmd=abort exitcode=7", end, ranks=1), "pmi"))
    await_need(agent, "agent.mpi.pmi.pmi_server")
    agent.output(frames.STDOUT, 0)
    agent.output(frames.STDERR, 0)
    agent.send(frames.DESCRIBE)  # its answer shows that the agent has had the time to reap
    agent.expect(frames.TOPOLOGY)
    agent.send(frames.PART, payload=pack_part(part("agent.mpi.pmi.pmi_server")))
    assert agent.exit(0).code == code
    assert order(agent, 0, frames.JOINED, frames.ABORT) == [frames.JOINED, frames.ABORT]


def test_a_fence_with_a_rank_that_ended_before_the_engine_arrived(agent):
    script = f'[ "$PMI_RANK" = 0 ] && set -- {INIT.replace(" ", "%")} {FENCE} || set -- ~{INIT.replace(" ", "%")} !0;'
    script += f' exec {sys.executable} -S -c \'import sys; sys.argv = [w.replace("%", " ") for w in sys.argv];'
    script += ' exec(sys.argv.pop(1))\' "$TALK" "$@"'
    agent.launch(with_mpi(plan("sh", "-c", script, ranks=2, world=HERE, env=(f"TALK={TALK}",), pty="no"), "pmi"))
    await_need(agent, "agent.mpi.pmi.pmi_server")
    agent.output(frames.STDOUT, 1)
    agent.output(frames.STDERR, 1)
    agent.send(frames.PART, payload=pack_part(part("agent.mpi.pmi.pmi_server")))
    assert agent.exit(1).code == 0
    abort = unpack_record(Abort, agent.expect(frames.ABORT).payload)
    assert abort.broken and "rank 1 has ended, and rank 0 waits for it" in abort.text
    agent.send(frames.END, payload=b"0")


@pytest.mark.parametrize("end", ["!kill", "!0"])
def test_an_exit_is_reported_before_others_waiting_for_it(agent, end):
    """The cause is what the launcher hears of first."""
    script = TALK.replace(
        "sys.argv[1:]", "sys.argv[1:3] if os.environ['PMI_RANK'] == '0' else sys.argv[1:2] + sys.argv[3:]"
    )
    pmi(agent, plan(sys.executable, "-S", "-c", script, INIT, FENCE, end, ranks=2, world=HERE, pty="no"))
    abort = agent.expect(frames.ABORT)
    assert "rank 1 has ended, and rank 0 waits for it" in unpack_record(Abort, abort.payload).text
    assert order(agent, 1, frames.EXIT) == [frames.EXIT]
    agent.send(frames.END, payload=b"0")


def test_an_orphan_that_holds_the_pmi_socket(agent):
    """A child of a rank holds its socket and floods it: the exit of the rank is reported all the same."""
    flood = "import os\nwhile True: os.write(3, b'cmd=get_maxes\\n' * 500)"
    script = f"{TALK}\nimport subprocess\nsubprocess.Popen([sys.executable, '-S', '-c', {flood!r}], pass_fds=[3], "
    script += "stdin=-3, stdout=-3, stderr=-3)\n"
    given = plan(sys.executable, "-S", "-c", script, INIT, ranks=1, world=HALF, pty="no")
    pmi(agent, given)
    assert agent.exit(0).code == 0
    agent.send(frames.END, payload=b"0")
    agent.hang_up()
    assert agent.wait() == 0


def test_a_restarted_rank_speaks_pmi_again(agent):
    script = f'{TALK}\nos._exit(0 if "OMPI_MCA_orte_num_restarts" in os.environ else 3)'
    given = plan(sys.executable, "-S", "-c", script, INIT, NAME, ranks=1, world=HERE, pty="no")
    pmi(agent, given)
    assert agent.exit(0).code == 3
    agent.send(frames.RESTART, 0, b"1")
    assert agent.exit(0).code == 0
    assert order(agent, 0, frames.JOINED) == [frames.JOINED] * 2


@pytest.mark.parametrize("mpi, version, wrong", [
    ("pmi1", 1, ""), ("pmi2", 2, ""), ("pmi", 1, ""), ("pmi", 2, ""),
    ("pmi1", 2, "it speaks PMI-2; --mpi pmi1 was given"), ("pmi2", 1, "it speaks PMI-1; --mpi pmi2 was given"),
])  # fmt: skip
def test_the_protocol_of_the_mpi_option_is_used(agent, mpi, version, wrong):
    agent.launch(with_mpi(talk(f"cmd=init pmi_version={version} pmi_subversion=0", ranks=1), mpi))
    give(agent, "agent.mpi.pmi.pmi_server")
    agent.exit(0)
    assert agent.expect(frames.JOINED).payload == f"PMI-{version}".encode()
    said = [unpack_record(Abort, frame.payload) for frame in agent.frames if frame.kind == frames.ABORT]
    assert [(abort.text, abort.broken) for abort in said] == [(wrong, True)] * bool(wrong)


def test_a_violation_of_pmi_names_the_rank(agent):
    pmi(agent, talk("GET / HTTP/1.1", ranks=1))
    abort = unpack_record(Abort, agent.expect(frames.ABORT, 0).payload)
    assert abort.broken and abort.text.startswith("rank 0 sent what is no PMI: 'GET")
    agent.send(frames.END, payload=b"0")


def test_lookups_of_names_go_to_the_launcher(agent):
    pmi(agent, talk(INIT, "cmd=lookup_name service=x", ranks=1))
    asked = agent.expect(frames.ASK)
    assert b"lookup" in asked.payload
    agent.send(frames.ANSWER, payload=b"garbage")  # a malformed answer is reported as an error of the launcher
    assert b"mslaunch" in agent.expect(frames.FAULT).payload


def test_a_restarted_rank_completes_a_barrier(agent):
    """It fails before MPI_Init while the other rank is in its first barrier, which the restarted rank completes."""
    fails = "os.environ['PMI_RANK'] == '1' and 'OMPI_MCA_orte_num_restarts' not in os.environ"
    script = TALK.replace("sys.argv[1:]:", f"['!3'] if {fails} else sys.argv[1:]:")
    pmi(agent, plan(sys.executable, "-S", "-c", script, INIT, FENCE, FINALIZE, ranks=2, world=HERE, pty="no"))
    agent.expect(frames.JOINED, 0)
    assert agent.exit(1).code == 3
    agent.send(frames.RESTART, 1, b"1")
    assert [agent.exit(rank).code for rank in (0, 1)] == [0, 0]
    assert not [frame for frame in agent.frames if frame.kind == frames.ABORT]


# --- shared memory

SHARED = Path("/dev/shm")
#: maps a file as MPICH 5 does, and an unrelated one
SHARE = """
import mmap, time
kept = []
for name in ("mpich_shm_", "of-a-test-"):
    path = f"/dev/shm/{name}{sys.argv[-1]}"
    with open(path, "w+b") as file:
        file.truncate(4096)
        kept.append(mmap.mmap(file.fileno(), 4096))
print("shared", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs /dev/shm")
@pytest.mark.parametrize("how", ["the job is ended", "the agent is killed"])
def test_shared_memory_of_ranks_that_are_killed_is_removed(boot, how):
    agent = boot(HOME="/nonexistent", PATH="/usr/bin:/bin")
    hello = agent.begin()
    name = f"{os.getpid()}-{how[4]}"
    script = TALK.replace("sys.argv[1:]", "sys.argv[1:-1]") + SHARE
    pmi(agent, plan(sys.executable, "-S", "-c", script, INIT, name, ranks=1, world=HALF, pty="no"))
    agent.output(frames.STDOUT, 0, len("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\nshared\n"))
    ours, other = SHARED / f"mpich_shm_{name}", SHARED / f"of-a-test-{name}"
    try:
        assert ours.exists() and other.exists()
        if how == "the job is ended":
            agent.send(frames.END, payload=b"0")
            agent.hang_up()
        else:
            os.kill(hello.pid, signal.SIGKILL)
        agent.wait()
        assert not ours.exists() and other.exists()
    finally:
        for path in (ours, other):
            path.unlink(missing_ok=True)


# --- PMIx


def test_a_request_without_a_server(agent):
    agent.send(frames.QUESTION, payload=pack_with_blobs(Question(3, "modex", {"of": ["7.0"], "family": ["pmix"]})))
    answer = unpack_with_blobs(Answer, agent.expect(frames.REPLY).payload)
    assert answer.number == 3 and answer.error.startswith("missing:")


@pytest.mark.parametrize("path, words", [
    ("/nowhere/libpmix.so.2", "libpmix cannot be loaded: /nowhere/libpmix.so.2"),
    ("libm.so.6", "this is no library of PMIx"),
])  # fmt: skip
def test_missing_pmix_is_reported_once_for_all_ranks(agent, path, words):
    agent.launch(with_mpi(plan("true", ranks=2, world=HERE), f"pmix:{path}"))
    give(agent, "agent.mpi.library_of_program")
    give(agent, "agent.mpi.pmix.pmix_server")
    ends = [agent.exit(rank) for rank in (0, 1)]
    assert words in ends[0].error and ends[0].todo
    assert ends[0] == ends[1]
    agent.hang_up()
    assert agent.wait() == 0


def test_a_python_without_ctypes_cannot_serve_pmix(agent):
    """Pythons that are built without libffi's headers have no ctypes."""
    agent.launch(with_mpi(plan("true", ranks=2, world=HERE), "pmix"))
    give(agent, "agent.mpi.library_of_program")
    assert agent.expect(frames.NEED).payload == b"agent.mpi.pmix.pmix_server"
    sources = part("agent.mpi.pmix.pmix_server")
    lacking = {name: source.replace("import ctypes", "import _no_ctypes") for name, source in sources.items()}
    agent.send(frames.PART, payload=pack_part(lacking))
    ends = [agent.exit(rank) for rank in (0, 1)]
    assert "lacks what this job needs: No module named '_no_ctypes'" in ends[0].error
    assert "--agent-python" in ends[0].todo and ends[0] == ends[1]


def test_ranks_without_descriptors_for_pmi_are_reported(boot):
    """64 MPI ranks where 128 files may be open: errors for those that do not fit, and nothing else breaks."""
    agent = boot(limit=128)
    agent.begin()
    world = World("7", 0, ("a",), (tuple(range(64)),), 0, (64,))
    agent.launch(with_mpi(plan("sleep", "60", ranks=64, world=world, pty="no"), "pmi"))
    ends = [agent.exit(rank) for rank in range(63, 40, -1)]
    assert all("open files" in end.error or "ulimit -n" in end.todo for end in ends)
    agent.expect(frames.STARTED, 0)
    agent.send(frames.END, payload=b"0")
    agent.hang_up()
    assert agent.wait() == 0
