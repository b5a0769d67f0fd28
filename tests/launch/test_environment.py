"""The variables of each rank, as the rank sees them; what travels to other hosts and what does not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from launching import COMMAND, program, through_rsh

TWO = [*through_rsh("alpha:3", "beta:3"), "--map-by", "node"]
LOCAL = ["--oversubscribe"]
WHERE = pytest.mark.parametrize("where", [LOCAL, through_rsh("alpha:8")], ids=["local", "remote"])


@pytest.fixture
def seen(run, tmp_path):
    """Run, and return what each rank had in its environment."""
    (tmp_path / "env").mkdir()

    def look(words, **how):
        ended = run([*words, *program("show_env", tmp_path / "env")], **how)
        assert ended.code == 0, ended.err
        return [
            json.loads((tmp_path / "env" / str(rank)).read_text()) for rank in range(len(os.listdir(tmp_path / "env")))
        ]

    return look


def test_numbers_on_two_hosts(seen):
    """Five ranks in turn on two hosts with three slots each."""
    ranks = seen([*TWO, "-n", "5"])
    assert len(ranks) == 5
    for rank, env in enumerate(ranks):
        node, local_rank, local_size = rank % 2, rank // 2, (3, 2)[rank % 2]
        expected = {
            "RANK_ID": rank, "RANK_SIZE": 5, "DEVICE_ID": local_rank,
            "RANK": rank, "WORLD_SIZE": 5, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size,
            "NODE_RANK": node, "GROUP_RANK": node, "LOCAL_RANK_SIZE": local_size,
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 5, "OMPI_COMM_WORLD_LOCAL_RANK": local_rank,
            "OMPI_COMM_WORLD_LOCAL_SIZE": local_size, "OMPI_COMM_WORLD_NODE_RANK": local_rank,
            "OMPI_UNIVERSE_SIZE": 6,
            "MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank, "MS_WORKER_NUM": 5,
        }  # fmt: skip
        assert {name: env.get(name) for name in expected} == {name: str(value) for name, value in expected.items()}
        assert "OMPI_COMMAND" not in env and "PMIX_RANK" not in env
    meeting = {(env["MASTER_ADDR"], env["MASTER_PORT"], env["MS_SCHED_HOST"], env["MS_SCHED_PORT"]) for env in ranks}
    ((address, port, scheduler, scheduler_port),) = meeting
    assert address == scheduler and port != scheduler_port
    assert address.replace(".", "").isdigit() or ":" in address
    assert len({env["MSLAUNCH_JOBID"] for env in ranks}) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a UTS namespace")
def test_ranks_are_where_they_say(seen):
    assert [env["the host"] for env in seen([*TWO, "-n", "5"])] == ["alpha", "beta", "alpha", "beta", "alpha"]


def test_one_host_meets_on_loopback(seen):
    assert {env["MASTER_ADDR"] for env in seen([*LOCAL, "-n", "2"])} == {"127.0.0.1"}


@WHERE
def test_a_launch_within_a_launch_has_its_own_numbers(run, tmp_path, where):
    """The inner job has two ranks, in an outer one of three."""
    inner = tmp_path / "inner"
    inner.mkdir()
    script = 'test $OMPI_COMM_WORLD_RANK = 2 || exit 0; PYTHONPATH=$ROOT exec "$@"'
    words = [*where, "-n", "3", "-x", "ROOT=" + str(Path(__file__).parents[2]), "sh", "-c", script, "sh"]
    ended = run([*words, *COMMAND, "-n", "2", "--oversubscribe", *program("show_env", inner)])
    assert ended.code == 0, ended.err
    for rank in range(2):
        env = json.loads((inner / str(rank)).read_text())
        names = ("RANK", "RANK_ID", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "MS_NODE_ID", "DEVICE_ID")
        assert {env[name] for name in names} == {str(rank)}
        sizes = ("WORLD_SIZE", "RANK_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MS_WORKER_NUM")
        assert {env[name] for name in sizes} == {"2"}


@WHERE
def test_stale_variables_are_scrubbed(seen, where):
    stale = {"PMI_RANK": "7", "PMIX_RANK": "7", "OMPI_COMMAND": "x", "TORCHELASTIC_RUN_ID": "x",
             "RANK": "7", "RANK_TABLE_FILE": "/x", "MS_SCHED_HOST": "9.9.9.9", "MSLAUNCH_STALE": "x",
             "OMPI_COMM_WORLD_RANK": "7"}  # fmt: skip
    (env,) = seen([*where, "-n", "1"], env=stale)
    assert {name: env.get(name) for name in ("RANK", "OMPI_COMM_WORLD_RANK")} == {
        "RANK": "0",
        "OMPI_COMM_WORLD_RANK": "0",
    }
    assert env["MS_SCHED_HOST"] != "9.9.9.9"
    assert not {
        "PMI_RANK",
        "PMIX_RANK",
        "OMPI_COMMAND",
        "TORCHELASTIC_RUN_ID",
        "RANK_TABLE_FILE",
        "MSLAUNCH_STALE",
    } & set(env)


@WHERE
def test_x(seen, where):
    """A value, a name, a pattern, a value with every awkward character, the last of two; and ours give way."""
    awkward = "a b'c\"d$e`f\\g\nh;&|<>*é="
    ranks = seen(
        [*where, "-n", "2", "-x", "GIVEN=1", "-x", "TAKEN", "-x", "NCCL_*", "-x", f"ODD={awkward}", "-x", "TWICE=1",
         "-x", "TWICE=2", "-x", "EMPTY=", "-x", "MASTER_PORT=1234", "-x", "PYTHONUNBUFFERED="],
        env={"TAKEN": "here", "NCCL_A": "1", "NCCL_B": "2"},
    )  # fmt: skip
    for env in ranks:
        expected = {"GIVEN": "1", "TAKEN": "here", "NCCL_A": "1", "NCCL_B": "2", "ODD": awkward, "TWICE": "2",
                    "EMPTY": "", "MASTER_PORT": "1234", "PYTHONUNBUFFERED": ""}  # fmt: skip
        assert {name: env.get(name) for name in expected} == expected


def test_x_of_what_is_not_set(run):
    ended = run(["-n", "1", "-x", "NOT_THERE", "sh", "-c", "echo ${NOT_THERE-none}"])
    assert (ended.code, ended.out) == (0, b"none\n")
    assert ended.err.count("-x NOT_THERE") == 1


def test_x_of_each_program(run):
    words = [
        "-n",
        "1",
        "-x",
        "WHO=first",
        "sh",
        "-c",
        "echo $WHO",
        ":",
        "-n",
        "1",
        "-x",
        "WHO=second",
        "sh",
        "-c",
        "echo $WHO",
    ]
    assert run(["--oversubscribe", *words]).lines == ["first", "second"]


@WHERE
def test_python_is_unbuffered_unless_told_otherwise(seen, where):
    assert seen([*where, "-n", "1"])[0]["PYTHONUNBUFFERED"] == "1"


def test_what_was_set_stays(seen):
    assert seen([*LOCAL, "-n", "1"], env={"PYTHONUNBUFFERED": ""})[0]["PYTHONUNBUFFERED"] == ""


def test_what_travels(seen):
    """A remote rank has the environment of its own host, with OMPI_MCA_* of ours."""
    env = {"PATH": os.environ["PATH"] + ":/only/here", "MINE": "x", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_ess": "stale"}
    (remote,) = seen([*through_rsh("alpha"), "-n", "1", "-mca", "pml", "ob1"], env=env)
    assert "/only/here" not in remote["PATH"]
    assert "MINE" not in remote and "OMPI_MCA_ess" not in remote and "PYTHONPATH" not in remote
    assert (remote["OMPI_MCA_btl"], remote["OMPI_MCA_pml"]) == ("tcp,self", "ob1")


def test_what_a_local_rank_inherits(seen):
    env = {"MINE": "x", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_ess": "stale"}
    (local,) = seen([*LOCAL, "-n", "1", "-mca", "pml", "ob1"], env=env)
    assert (local["MINE"], local["OMPI_MCA_btl"], local["OMPI_MCA_pml"]) == ("x", "tcp,self", "ob1")
    assert "OMPI_MCA_ess" not in local


@WHERE
def test_the_directory(seen, where, tmp_path):
    (tmp_path / "a place").mkdir()
    for words, place in (([], tmp_path), (["--wdir", "a place"], tmp_path / "a place"), (["--wdir", "/"], Path("/"))):
        (env,) = seen([*where, "-n", "1", *words])
        assert (env["the directory"], env["PWD"]) == (str(place), str(place))


@WHERE
def test_values_are_on_no_command_line(start, tmp_path, where):
    """Not even while the job runs, in any process of it."""
    job = start(
        [*where, "-n", "2", "-x", "TOKEN", *program("wait", tmp_path / "go")], env={"TOKEN": "very-secret-4711"}
    )
    job.expect(b"ready", 2)
    lines = job.left()
    (tmp_path / "go").touch()
    assert len(lines) >= 5  # launcher, guard, agent, two ranks
    assert not [line for line in lines.values() if "very-secret" in line]
    assert job.end().code == 0


def test_a_thousand_variables(seen):
    given = [word for number in range(1000) for word in ("-x", f"V{number}={'v' * 100}")]
    for where in (LOCAL, through_rsh("alpha:8")):
        (env,) = seen([*where, "-n", "1", *given])
        assert all(env[f"V{number}"] == "v" * 100 for number in range(1000))


def test_variables_that_are_no_text(run):
    """Bytes that are no UTF-8, in a value and in an argument."""
    odd = b"\xff\xfe".decode("utf-8", "surrogateescape")
    for where in (LOCAL, through_rsh("alpha:8")):
        ended = run([*where, "-n", "1", "-x", f"ODD={odd}", "sh", "-c", 'printf "%s %s" "$ODD" "$1"', "sh", odd])
        assert ended.out == b"\xff\xfe \xff\xfe"
