"""The PMI engine and PMI-2: requests of ranks and the replies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pmi_nodes import Job

from mslaunch.agent.mpi.pmi.pmi_wire import Reader, framed
from mslaunch.protocol.mpi import Abort, Answer

CONVERSATION = [
    (
        "cmd=fullinit;pmijobid=x;pmirank=0;threaded=FALSE;",
        "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;debugged=FALSE;pmiverbose=FALSE;",
    ),
    ("cmd=fullinit;pmirank=3;", "cmd=fullinit-response;rc=1;errmsg=invalid_rank;"),
    ("cmd=job-getid;", "cmd=job-getid-response;rc=0;jobid=77;"),
    ("cmd=job-getid;thrid=0x7f;", "cmd=job-getid-response;thrid=0x7f;rc=0;jobid=77;"),
    (
        "cmd=info-getjobattr;key=PMI_process_mapping;",
        "cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,1));",
    ),
    ("cmd=info-getjobattr;key=universeSize;", "cmd=info-getjobattr-response;rc=0;found=TRUE;value=8;"),
    ("cmd=info-getjobattr;key=other;", "cmd=info-getjobattr-response;rc=0;found=FALSE;"),
    ("cmd=kvs-put;key=a;value=b;;c=d;", "cmd=kvs-put-response;rc=0;"),
    ("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;"),
    ("cmd=kvs-get;jobid=77;srcid=-1;key=a;", "cmd=kvs-get-response;rc=0;found=TRUE;value=b;;c=d;"),
    ("cmd=kvs-get;jobid=;srcid=-1;key=none;", "cmd=kvs-get-response;rc=0;found=FALSE;"),
    ("cmd=kvs-get;jobid=78;srcid=-1;key=a;", "cmd=kvs-get-response;rc=1;errmsg=unknown_jobid;"),
    ("cmd=kvs-put;thrid=9;value=b;", "cmd=kvs-put-response;thrid=9;rc=1;errmsg=no_key;"),
    ("cmd=info-getnodeattr;key=n;wait=FALSE;", "cmd=info-getnodeattr-response;rc=0;found=FALSE;"),
    ("cmd=info-putnodeattr;key=n;value=v;", "cmd=info-putnodeattr-response;rc=0;"),
    ("cmd=info-getnodeattr;key=n;wait=TRUE;", "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=v;"),
    ("cmd=dance;", "cmd=dance-response;rc=1;errmsg=unknown_command;"),
    ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
]


def test_fullinit_get_and_finalize() -> None:
    job = Job([0])
    job.begin2()
    for said, heard in CONVERSATION:
        assert job.say2(0, said) == heard, said
    assert (job.said, job.aborts) == (["0 joined pmi2", "0 left"], [])


def test_after_finalize_a_rank_may_begin_again() -> None:
    job = Job([0])
    for _ in range(2):
        job.begin2()
        assert job.say2(0, "cmd=finalize;") == "cmd=finalize-response;rc=0;"
    job.begin()
    assert job.say(0, "cmd=get_appnum") == "cmd=appnum rc=0 appnum=0"
    assert job.said == ["0 joined pmi2", "0 left"] * 2 + ["0 joined pmi1"]


def test_a_spawned_rank_learns_its_parent() -> None:
    job = Job([0], parent="70.2", preput=("PARENT", "a;b"))
    job.begin2()
    assert ";spawner-jobid=70;" in job.say2(0, "cmd=fullinit;pmirank=0;")
    assert job.say2(0, "cmd=info-getjobattr;key=PARENT;").endswith("found=TRUE;value=a;;b;")


def test_puts_travel_with_the_fence() -> None:
    job = Job([0, 1], [2])
    job.begin2()
    job.say2(0, "cmd=kvs-put;key=a;value=1;")
    assert job.say2(2, "cmd=kvs-get;key=a;") == "cmd=kvs-get-response;rc=0;found=FALSE;"
    assert [job.say2(rank, f"cmd=kvs-fence;thrid={rank};") for rank in (0, 2)] == ["", ""]
    assert job.say2(1, "cmd=kvs-fence;") == "cmd=kvs-fence-response;rc=0;"
    assert job.last(2).endswith("cmd=kvs-fence-response;thrid=2;rc=0;")
    assert job.say2(2, "cmd=kvs-get;key=a;").endswith("found=TRUE;value=1;")


def test_a_rank_waits_for_a_node_attribute() -> None:
    job = Job([0, 1], [2])
    job.begin2()
    assert job.say2(1, "cmd=info-getnodeattr;key=n;wait=TRUE;thrid=4;") == ""
    job.say2(0, "cmd=info-putnodeattr;key=other;value=x;")
    job.say2(2, "cmd=info-putnodeattr;key=n;value=elsewhere;")
    job.say2(0, "cmd=info-putnodeattr;key=n;value=v;")
    assert job.last(1).endswith("cmd=info-getnodeattr-response;thrid=4;rc=0;found=TRUE;value=v;")


def test_no_rank_waits_for_an_attribute_that_no_rank_can_put() -> None:
    job = Job([0, 1, 2])
    job.begin2()
    job.say2(0, "cmd=info-getnodeattr;key=n;wait=TRUE;")
    job.end(1)
    assert job.aborts == []
    job.end(2)
    ((rank, abort),) = job.aborts
    assert (rank, abort.broken) == (0, True)
    assert abort.text == "rank 0 waits for an attribute of its node, and no rank is left there to put it"


def test_names_are_published_looked_up_and_removed() -> None:
    job = Job([0])
    job.begin2()
    job.say2(0, "cmd=name-publish;name=s;port=p;;q;infokeycount=0;")
    assert job.asked[-1] == ("publish", {"family": ["pmi"], "from": ["77.0"], "names": ["s"]}, (b"p;q",))
    job.open.pop()(Answer(0, "exists:s is published by rank 1"))
    assert job.last(0).endswith("cmd=name-publish-response;rc=1;errmsg=exists;")
    job.say2(0, "cmd=name-lookup;name=s;")
    job.open.pop()(Answer(0, "", {}, (b"p;q",)))
    assert job.last(0).endswith("cmd=name-lookup-response;rc=0;value=p;;q;port=p;;q;")
    job.say2(0, "cmd=name-unpublish;name=s;thrid=1;")
    job.open.pop()(Answer(0))
    assert job.last(0).endswith("cmd=name-unpublish-response;thrid=1;rc=0;")


SPAWN = (
    "cmd=spawn;thrid=3;ncmds=2;preputcount=1;ppkey0=P;ppval0=a;;b;"
    "subcmd=/bin/a;maxprocs=1;argc=2;argv0=x=y;argv1=z;infokeycount=1;infokey0=wdir;infoval0=/tmp;"
    "subcmd=b;maxprocs=2;argc=0;infokeycount=0;"
)


def test_spawn_requests_are_passed_on() -> None:
    job = Job([0])
    job.begin2()
    assert job.say2(0, SPAWN) == ""
    ((what, fields, blobs),) = job.asked
    assert (what, blobs) == ("spawn", ())
    assert fields == {
        "family": ["pmi"], "from": ["77.0"], "count": ["2"], "preput": ["P", "a;b"],
        "argv.0": ["/bin/a", "x=y", "z"], "app.0": ["1", "/tmp"], "info.0": ["wdir", "/tmp"],
        "argv.1": ["b"], "app.1": ["2", ""], "info.1": [],
    }  # fmt: skip
    job.open.pop()(Answer(0, "", {"world": ["78"]}))
    assert job.last(0).endswith("cmd=spawn-response;thrid=3;rc=0;jobid=78;errcodes=0,0,0;")
    job.say2(0, SPAWN)
    job.open.pop()(Answer(0, "start:there is no /bin/a"))
    assert job.last(0).endswith("cmd=spawn-response;thrid=3;rc=1;errmsg=start;errcodes=1,1,1;")


@pytest.mark.parametrize(
    ("text", "code"),
    [("application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1", 7), ("out of fuel", 1), ("MPI_Abort(7, x)", 1)],
)
def test_the_code_of_an_abort_is_read_from_its_text(text: str, code: int) -> None:
    job = Job([0])
    job.begin2()
    assert job.say2(0, f"cmd=abort;isworld=TRUE;msg={text};") == ""
    assert job.aborts == [(0, Abort(code, text))]


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (b"length", "a message whose length is no number: 'length'"),
        (b"  -12 cmd=", "a message whose length is no number: '  -12 '"),
        (b"      cmd=", "a message whose length is no number: '      '"),
        (b"     0", "no PMI: ''"),
        (b"     7no=good", "no PMI: 'no=good'"),
        (b"    13cmd=kvs\0fence", "no PMI: 'cmd=kvs\\x00fence'"),
        (b"    14cmd=kvs-fence;" * 2, "'kvs-fence WORLD', though it is in that barrier already"),
    ],
)
def test_bytes_that_are_not_pmi_end_the_job(sent: bytes, named: str) -> None:
    job = Job([0, 1])
    job.begin2()
    job.send(1, sent)
    ((rank, abort),) = job.aborts
    assert (rank, abort.broken) == (1, True)
    assert named in abort.text and abort.text.startswith("rank 1 sent what is no PMI: ")


@given(st.lists(st.tuples(st.sampled_from(["key", "value", "thrid"]), st.text(st.sampled_from("a;=b \\"), max_size=9))))
def test_messages_survive_a_round_trip(pairs: list[tuple[str, str]]) -> None:
    reader = Reader()
    reader.framed = True
    (message,) = reader.feed(framed("kvs-put", pairs))
    assert list(message.pairs) == pairs
