"""The PMI engine and PMI-1: requests of ranks and the replies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pmi_nodes import Job

from mslaunch.agent.mpi.pmi.key_value_store import HELD, VALUE, process_mapping
from mslaunch.agent.mpi.pmi.pmi_wire import LINE, SPAWN
from mslaunch.agent.mpi.protocols import pmi_variables
from mslaunch.datamodel.node_plan import World
from mslaunch.protocol.mpi import Abort, Answer

# --- one rank


CONVERSATION = [
    ("cmd=get_maxes", "cmd=not_yet"),
    ("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2"),
    ("cmd=get_maxes ", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
    ("cmd=get_appnum", "cmd=appnum rc=0 appnum=0"),
    ("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=77"),
    ("cmd=get_universe_size", "cmd=universe_size rc=0 size=8"),
    ("cmd=get kvsname=77 key=PMI_process_mapping", "cmd=get_result rc=0 value=(vector,(0,1,1))"),
    ("cmd=get kvsname=77 key=PMI_hwloc_xmlfile", "cmd=get_result rc=1 msg=key_not_found"),
    ("cmd=put kvsname=77 key=a value=b=c", "cmd=put_result rc=0"),
    ("cmd=get kvsname=77 key=a", "cmd=get_result rc=0 value=b=c"),
    ("cmd=put kvsname=78 key=a value=b", "cmd=put_result rc=1 msg=unknown_kvsname"),
    ("cmd=get key=a", "cmd=get_result rc=1 msg=no_kvsname"),
    ("cmd=put kvsname=77 value=b", "cmd=put_result rc=1 msg=no_key"),
    (f"cmd=put kvsname=77 key={'k' * 65} value=b", "cmd=put_result rc=1 msg=key_too_long"),
    (f"cmd=put kvsname=77 key=k value={'v' * 1025}", "cmd=put_result rc=1 msg=value_too_long"),
    ("cmd=getbyidx kvsname=77 idx=0", "cmd=getbyidx_result rc=1 msg=unknown_command"),
    ("cmd=barrier_in", "cmd=barrier_out rc=0 tag=0"),
    ("cmd=barrier_in group=WORLD:2147483647", "cmd=barrier_out rc=0 tag=2147483647"),
    ("cmd=barrier_in group=NODE:5", "cmd=barrier_out rc=0 tag=5"),
    ("cmd=barrier_in group=0:6", "cmd=barrier_out rc=0 tag=6"),
    ("cmd=barrier_in group=0,0:6", "cmd=barrier_out rc=1 msg=invalid_group"),
    ("cmd=barrier_in group=0,1", "cmd=barrier_out rc=1 msg=invalid_group"),
    ("cmd=barrier_in group=:1", "cmd=barrier_out rc=1 msg=not_a_number"),
    ("cmd=barrier_in group=WORLD:x", "cmd=barrier_out rc=1 msg=not_a_number"),
    ("cmd=finalize", "cmd=finalize_ack rc=0"),
    ("cmd=put kvsname=77 key=a value=b", "cmd=put_result rc=1 msg=not_initialized"),
]


def test_init_get_and_finalize() -> None:
    job = Job([0])
    for said, heard in CONVERSATION[1:]:
        assert job.say(0, said) == heard, said
    assert (job.said, job.aborts) == (["0 joined pmi1", "0 left"], [])


def test_ranks_without_init_are_reported() -> None:
    assert Job([0]).say(0, "cmd=put kvsname=77 key=a value=b") == "cmd=put_result rc=1 msg=not_initialized"


def test_variables_of_a_pmi_rank() -> None:
    world = World("77", 10, ("a", "b"), ((0, 2), (1, 3)), 1)
    assert pmi_variables(world, 3) == {
        "PMI_FD": "3", "PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2",
    }  # fmt: skip
    assert pmi_variables(world._replace(parent="3.1"), 3)["PMI_SPAWNED"] == "1"


def test_programs_are_numbered() -> None:
    job = Job([0, 1, 2], sizes=(1, 2))
    job.begin()
    assert [job.say(rank, "cmd=get_appnum")[-1] for rank in range(3)] == ["0", "1", "1"]


def test_without_an_allocation_the_universe_size_is_unknown() -> None:
    job = Job([0], slots=0)
    job.begin()
    assert job.say(0, "cmd=get_universe_size") == "cmd=universe_size rc=0 size=-1"


# --- puts and barriers


def put(key: str, value: str) -> str:
    return f"cmd=put kvsname=77 key={key} value={value}"


def got(job: Job, rank: int, key: str) -> str:
    return job.say(rank, f"cmd=get kvsname=77 key={key}").partition("value=")[2]


def test_a_world_that_comes_again_keeps_what_its_ranks_have_put() -> None:
    """With --ready it comes with each program's ranks."""
    job = Job([0, 1])
    job.begin(0)
    job.say(0, put("a", "b"))
    job.nodes[0].add(job.world._replace(here=0))
    assert got(job, 0, "a") == "b"


def test_puts_travel_with_the_fence() -> None:
    job = Job([0, 1], [2])
    job.begin()
    job.say(0, put("a", "1"))
    job.say(2, put("b", "2"))
    assert [got(job, rank, "a") for rank in range(3)] == ["1", "1", ""]
    assert [job.say(rank, "cmd=barrier_in") for rank in (1, 2, 0)] == ["", "", "cmd=barrier_out rc=0 tag=0"]
    assert {job.last(rank) for rank in range(3)} == {"cmd=barrier_out rc=0 tag=0"}
    assert [got(job, rank, key) for rank in range(3) for key in "ab"] == ["1", "2"] * 3
    assert [ear.gathered for ear in job.ears] == [1, 1]


def test_a_world_on_one_node_sends_nothing_to_other_nodes() -> None:
    job = Job([0, 1])
    job.begin()
    assert job.say(0, "cmd=barrier_in") == ""
    assert job.say(1, "cmd=barrier_in") == job.last(0) == "cmd=barrier_out rc=0 tag=0"
    assert job.ears[0].gathered == 0


def test_groups_of_threads_do_not_wait_for_each_other() -> None:
    job = Job([0, 1], [2, 3])
    job.begin()
    job.say(0, put("a", "1"))
    assert job.say(0, "cmd=barrier_in group=2,0:8") == ""
    assert job.say(0, "cmd=barrier_in group=NODE:9") == ""
    assert job.say(0, "cmd=barrier_in group=0,2:9") == ""
    assert job.say(0, put("later", "2")) == "cmd=put_result rc=0"
    assert job.say(1, "cmd=barrier_in group=NODE:9") == job.last(0) == "cmd=barrier_out rc=0 tag=9"
    assert job.say(2, "cmd=barrier_in group=0,2:8") == job.last(0) == "cmd=barrier_out rc=0 tag=8"
    assert (got(job, 2, "a"), got(job, 3, "a")) == ("1", "1")
    for rank in range(4):
        job.say(rank, "cmd=barrier_in")
    assert got(job, 3, "later") == "2"


def test_a_put_during_a_fence_overrides_the_values_of_the_fence() -> None:
    job = Job([0], [1])
    job.begin()
    job.say(0, put("a", "old"))
    job.say(0, "cmd=barrier_in")
    job.say(0, put("a", "new"))
    job.say(1, "cmd=barrier_in")
    assert (got(job, 0, "a"), got(job, 1, "a")) == ("new", "old")


def test_one_rank_may_run_several_programs_in_turn() -> None:
    job = Job([0, 1], [2])
    job.begin()
    job.say(0, put("a", "first"))
    for rank in range(3):
        job.say(rank, "cmd=barrier_in")
    job.say(0, "cmd=finalize")
    job.begin(0)
    assert got(job, 0, "a") == ""
    job.say(0, put("a", "second"))
    assert job.say(0, "cmd=barrier_in") == ""
    assert got(job, 1, "a") == "first", "the neighbour is still in the first program"
    for rank in (1, 2):
        assert job.say(rank, "cmd=barrier_in") == "", "the fence of another program"
    assert job.aborts == []


def test_programs_run_in_turn_share_fences() -> None:
    job = Job([0, 1], [2])
    for turn in range(3):
        job.begin()
        job.say(2, put("turn", str(turn)))
        for rank in range(3):
            job.say(rank, "cmd=barrier_in")
        assert [got(job, rank, "turn") for rank in range(3)] == [str(turn)] * 3
        for rank in range(3):
            assert job.say(rank, "cmd=finalize") == "cmd=finalize_ack rc=0"
    assert job.said.count("1 left") == 3


def test_puts_are_bounded_in_memory() -> None:
    job = Job([0])
    job.begin()
    value = "v" * VALUE
    answers = [job.say(0, put(f"k{index}", value)) for index in range(HELD // VALUE)]
    assert answers[0] == "cmd=put_result rc=0"
    assert answers[-1] == "cmd=put_result rc=1 msg=no_room"
    assert job.say(0, put("k0", value)) == "cmd=put_result rc=0", "what is there already takes no room"


# --- names and spawn


def test_names_are_published_looked_up_and_removed() -> None:
    job = Job([0])
    job.begin()
    assert job.say(0, "cmd=publish_name service=my name port=tag#0$x y$ ") == ""
    assert job.asked[-1] == ("publish", {"family": ["pmi"], "from": ["77.0"], "names": ["my name"]}, (b"tag#0$x y$",))
    job.open.pop()(Answer(0))
    assert job.last(0) == "cmd=publish_result rc=0"
    job.say(0, "cmd=lookup_name service=my name")
    assert job.asked[-1] == ("lookup", {"family": ["pmi"], "from": ["77.0"], "names": ["my name"], "wait": []}, ())
    job.open.pop()(Answer(0, "", {"names": ["my name"]}, (b"tag#0$x\ny$",)))
    assert job.last(0) == "cmd=lookup_result rc=0 port=tag#0$x y$"
    job.say(0, "cmd=lookup_name service=none")
    job.open.pop()(Answer(0, "missing:nobody has published none"))
    assert job.last(0) == "cmd=lookup_result rc=1 msg=missing"
    job.say(0, "cmd=unpublish_name service=my name")
    job.open.pop()(Answer(0))
    assert job.last(0) == "cmd=unpublish_result rc=0"
    assert job.say(0, f"cmd=publish_name service=a port={'p' * 9000}") == "cmd=publish_result rc=1 msg=name_too_long"


SPAWN_OF_TWO = """\
mcmd=spawn
nprocs=1
execname=/bin/a
totspawns=2
spawnssofar=1
argcnt=2
arg1=x=y z
arg2=
preput_num=1
preput_key_0=PARENT
preput_val_0=tag#0$a b$
info_num=2
info_key_0=host
info_val_0=n1
info_key_1=wdir
info_val_1=/tmp/a dir
endcmd
mcmd=spawn
nprocs=2
execname=b
totspawns=2
spawnssofar=2
argcnt=0
preput_num=1
preput_key_0=PARENT
preput_val_0=tag#0$a b$
info_num=0
endcmd
"""


def test_spawn_requests_are_passed_on() -> None:
    job = Job([0])
    job.begin()
    assert job.send(0, SPAWN_OF_TWO.encode()) == b""
    assert job.asked == [
        (
            "spawn",
            {
                "family": ["pmi"],
                "from": ["77.0"],
                "count": ["2"],
                "preput": ["PARENT", "tag#0$a b$"],
                "argv.0": ["/bin/a", "x=y z", ""],
                "app.0": ["1", "/tmp/a dir"],
                "info.0": ["host", "n1", "wdir", "/tmp/a dir"],
                "argv.1": ["b"],
                "app.1": ["2", ""],
                "info.1": [],
            },
            (),
        )
    ]
    job.open.pop()(Answer(0, "", {"world": ["78"]}))
    assert job.last(0) == "cmd=spawn_result rc=0 jobid=78 errcodes=0,0,0"


def test_a_refused_spawn_is_answered_with_an_error() -> None:
    job = Job([0])
    job.begin()
    job.send(0, SPAWN_OF_TWO.encode())
    job.open.pop()(Answer(0, "slots:there are not enough slots"))
    assert job.last(0) == "cmd=spawn_result rc=1 msg=slots errcodes=1,1,1"


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("nprocs=1\n", "nprocs=0\n", "nothing_to_spawn"),
        ("nprocs=1\n", "nprocs=x\n", "not_a_number"),
        ("nprocs=1\n", "nprocs=999999\n", "too_many_processes"),
        ("execname=b\n", "", "nothing_to_spawn"),
        ("argcnt=2\n", "argcnt=99999999\n", "not_a_number"),
        ("info_num=2\n", "info_num=-1\n", "not_a_number"),
    ],
)
def test_a_malformed_spawn_ends_the_job(old: str, new: str, word: str) -> None:
    job = Job([0])
    job.begin()
    assert job.send(0, SPAWN_OF_TWO.replace(old, new).encode()).decode() == f"cmd=spawn_result rc=1 msg={word}\n"
    assert job.asked == []


def test_values_of_the_parent_can_be_read() -> None:
    job = Job([0], preput=("PARENT", "tag"), parent="70.2")
    job.begin()
    assert got(job, 0, "PARENT") == "tag"


# --- how it ends


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        ("cmd=abort exitcode=7", 7, ""),
        ("cmd=abort exitcode=256 message=no more fuel", 256, "no more fuel"),
        ("cmd=abort exitcode=-3", -3, ""),
        ("cmd=abort exitcode=much", 1, ""),
        ("cmd=abort", 1, ""),
    ],
)
def test_an_abort_is_reported_with_its_code(said: str, code: int, text: str) -> None:
    job = Job([0])
    assert job.say(0, said) == ""
    ((rank, abort),) = job.aborts
    assert (rank, abort) == (0, Abort(code, text))
    job.say(0, said)
    assert len(job.aborts) == 1, "nobody listens any more"


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (b"GET / HTTP/1.1\r\n", "rank 5 sent what is no PMI: 'GET / HTTP/1.1\\r'"),
        (b"\n", "rank 5 sent what is no PMI: ''"),
        (b"cmd=\n", "no PMI: 'cmd='"),
        (b"cmd=put\0 x=y\n", "no PMI: 'cmd=put\\x00 x=y'"),
        (b"cmd=\xff\xfe key=a\n", "no PMI: 'cmd=\\xff\\xfe key=a'"),
        (b"cmd=" + b"x" * 65 + b"\n", "no PMI: 'cmd=xxx"),
        (b"y" * (LINE + 1), f"a line of more than {LINE} bytes, which begins with 'yyyy"),
        (b"mcmd=spawn\n" + b"y" * SPAWN, f"a spawn of more than {SPAWN} bytes, which begins with 'mcmd=spawn\\nyyy"),
        (b"mcmd=spawn\nendcmd\n", "a spawn that does not say which of how many it is: 'mcmd=spawn'"),
        (SPAWN_OF_TWO.partition("endcmd\n")[0].encode() + b"endcmd\ncmd=get_maxes\n", "'cmd=get_maxes'"),
        (b"cmd=init pmi_version=1\n" * 2, "init, though the MPI program before has not finalized"),
        (b"cmd=init pmi_version=1\n" + b"cmd=barrier_in\n" * 2, "'barrier_in WORLD', though it is in that barrier"),
        (
            b"cmd=init pmi_version=1\n" + b"cmd=lookup_name service=x\n" * 257,
            "lookup_name, while 256 commands before it wait for their answers",
        ),
    ],
)
def test_bytes_that_are_not_pmi_end_the_job(sent: bytes, named: str) -> None:
    job = Job([0, 1], first=5)
    job.send(5, sent)
    ((rank, abort),) = job.aborts
    assert (rank, abort.code, abort.broken) == (5, 1, True)
    assert named in abort.text
    assert abort.text.isprintable() and len(abort.text) < 250
    assert job.send(5, b"cmd=get_maxes\n") == b""


def test_a_fence_does_not_wait_for_a_rank_that_ends() -> None:
    job = Job([0, 1, 2], first=4)
    job.begin()
    job.say(4, "cmd=barrier_in")
    job.say(5, "cmd=finalize")
    job.end(5)
    assert job.aborts == [(5, Abort(1, "rank 5 has ended, and rank 4 waits for it in a barrier of PMI", True))]
    job.end(6)
    assert len(job.aborts) == 1, "said once"


def test_a_fence_with_a_rank_that_ended_earlier_fails() -> None:
    job = Job([0, 1], [2])
    job.begin()
    job.end(1)
    assert job.aborts == []
    job.say(0, "cmd=barrier_in group=NODE")
    assert [(rank, abort.broken) for rank, abort in job.aborts] == [(1, True)]


def test_a_restarted_rank_begins_anew() -> None:
    job = Job([0, 1])
    job.begin()
    job.send(1, b"cmd=ge")
    job.end(1)
    job.nodes[0].begin(1)
    job.say(0, "cmd=barrier_in")
    job.begin(1)
    assert job.say(1, "cmd=barrier_in") == job.last(0) == "cmd=barrier_out rc=0 tag=0"
    assert job.aborts == []


def test_an_unknown_rank_is_ignored() -> None:
    job = Job([0])
    job.nodes[0].feed(9, b"cmd=init pmi_version=1\n")
    job.nodes[0].feed(9, b"")
    job.nodes[0].ended(9)
    job.nodes[0].close()
    job.nodes[0].feed(0, b"cmd=init pmi_version=1\n")
    assert (job.replies, job.aborts, job.said) == ({}, [], [])


# --- for all


def expanded(text: str, size: int) -> list[int]:
    """The node of each rank, from The node of each rank, from PMI_process_mapping as MPICH reads it."""
    blocks = [tuple(map(int, block.split(","))) for block in text[len("(vector,(") : -len("))")].split("),(")]
    nodes: list[int] = []
    while len(nodes) < size:
        for first, count, each in blocks:
            nodes += [first + index for index in range(count) for _ in range(each)]
    return nodes[:size]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_the_process_mapping_gives_the_node_of_each_rank(nodes: list[int]) -> None:
    ranks = [tuple(rank for rank, at in enumerate(nodes) if at == node) for node in range(6)]
    assert expanded(process_mapping(ranks), len(nodes)) == nodes


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([range(4)], "(vector,(0,1,4))"),
        ([range(4), range(4, 8)], "(vector,(0,2,4))"),
        ([range(4), range(4, 6)], "(vector,(0,1,4),(1,1,2))"),
        ([(0, 2), (1, 3)], "(vector,(0,2,1),(0,2,1))"),
        ([(2, 3), (0, 1)], "(vector,(1,1,2),(0,1,2))"),
    ],
)
def test_regular_layouts_have_short_mappings(ranks: list[range], text: str) -> None:
    assert process_mapping(ranks) == text


def test_a_mapping_that_is_too_long_is_left_out() -> None:
    job = Job(range(0, 600, 2), range(1, 600, 2))
    job.begin(0)
    assert job.say(0, "cmd=get kvsname=77 key=PMI_process_mapping") == "cmd=get_result rc=1 msg=key_not_found"


STREAM = (
    b"".join(said.encode() + b"\n" for said, _ in CONVERSATION) + SPAWN_OF_TWO.encode() + b"cmd=init pmi_version=2\n"
)
STREAM += (
    b"    26cmd=kvs-put;key=a;value=b;14    cmd=kvs-fence;    13cmd=finalize;cmd=init pmi_version=1\ncmd=finalize\nno\n"
)


def replies_to(pieces: list[bytes]) -> tuple[bytes, list[str], list[object], list[object]]:
    job = Job([0])
    for piece in pieces:
        job.send(0, piece)
    return b"".join(job.replies[0]), job.said, [*job.aborts], [*job.asked]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=30).map(sorted))
def test_any_division_of_the_bytes_gives_the_same_replies(cuts: list[int]) -> None:
    pieces = [STREAM[start:end] for start, end in zip([0, *cuts], [*cuts, len(STREAM)]) if start < end]
    assert replies_to(pieces) == replies_to([STREAM])


def test_single_bytes_give_the_same_replies() -> None:
    for stream in (STREAM, b"cmd=init pmi_version=1\n" + SPAWN_OF_TWO.encode()):
        whole = replies_to([stream])
        assert replies_to([stream[at : at + 1] for at in range(len(stream))]) == whole
    assert len(whole[-1]) == 1


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40)), max_size=12), st.sampled_from([b"", b"1", b"2"]))
def test_arbitrary_bytes_raise_nothing(sends: list[tuple[int, bytes]], version: bytes) -> None:
    job = Job([0, 1], [2])
    for rank in range(3) if version else ():
        job.send(rank, b"cmd=init pmi_version=" + version + b"\n")
    for rank, data in sends:
        job.send(rank, data)
    assert all(abort.text.isprintable() and abort.text.startswith(f"rank {rank} ") for rank, abort in job.aborts)


WORDS = st.sampled_from(
    ["77", "78", "a", "b", "PMI_process_mapping", "WORLD", "NODE:3", "0,1:2", "0,2", "1", "2", "é", ""]
)
KEYS = st.sampled_from(
    ["kvsname", "key", "value", "group", "service", "port", "pmi_version", "exitcode", "cmd", "wait"]
)
COMMAND = st.sampled_from([
    "init", "get_maxes", "put", "get", "barrier_in", "publish_name", "lookup_name", "finalize", "spawn", "kvs-put",
    "kvs-get", "kvs-fence", "info-getnodeattr", "info-putnodeattr", "name-lookup", "fullinit", "what",
])  # fmt: skip
LIKELY = st.sampled_from([
    "cmd=init pmi_version=1", "cmd=put kvsname=77 key=a value=b", "cmd=barrier_in", "cmd=barrier_in group=0,1:2",
    "cmd=barrier_in group=NODE:3", "cmd=get kvsname=77 key=a", "cmd=finalize", "cmd=lookup_name service=a",
])  # fmt: skip


def near(command: str, pairs: list[tuple[str, str]]) -> str:
    return " ".join([f"cmd={command}", *(f"{key}={value}" for key, value in pairs)])


SAID = st.one_of(LIKELY, st.builds(near, COMMAND, st.lists(st.tuples(KEYS, WORDS), max_size=4)))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), SAID, st.booleans()), max_size=40),
    st.sampled_from(["1", "2"]),
    st.permutations(range(4)),
)
def test_no_fence_waits_for_ranks_that_have_ended(
    said: list[tuple[int, str, bool]], version: str, order: list[int]
) -> None:
    job = Job([0, 1], [2, 3])
    asked = dict.fromkeys(range(4), 0)
    for rank in range(4):
        job.send(rank, f"cmd=init pmi_version={version}\n".encode())
    for rank, text, answered in said:
        framed = job.nodes[job.node_of[rank]]._clients[rank].reader.framed
        body = text.replace(" ", ";").encode() + b";"
        job.send(rank, b"%6d" % len(body) + body if framed else text.encode() + b"\n")
        asked[rank] += 1
        if answered and job.open:
            job.open.pop()(Answer(0, "", {"world": ["9"]}, (b"port",)))
    for rank, count in asked.items():
        assert len(job.replies[rank]) <= count + 1
        assert all(b"rc=" in data and len(data) < 2000 for data in job.replies[rank])
    waiting = [barrier for server in job.nodes for barrier in server._waits._barriers.values()]
    for rank in order:
        job.end(rank)
    for done in job.open:
        done(Answer(0, "missing:it"))
    for barrier in waiting:  # what is complete here is the launcher's to judge
        assert job.aborts or set(barrier.calls) == barrier.here
    for engine in job.nodes:
        engine.close()


def test_a_version_without_a_row_is_refused() -> None:
    """Rows of `PROTOCOLS` decide which versions there are."""
    job = Job([0])
    job.nodes[0]._commands = {"pmi1": job.nodes[0]._commands["pmi1"]}
    assert job.say(0, "cmd=init pmi_version=2 pmi_subversion=0") == "cmd=response_to_init rc=1 msg=unknown_version"
    job.begin(0)
