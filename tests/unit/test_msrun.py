"""The msrun dialect: each option, where workers run and print, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.agent.cpus import cores_here
from mslaunch.cli import msrun
from mslaunch.cli.options import REFUSED, Show, by_name
from mslaunch.errors import LaunchError, UsageError
from mslaunch.model import AppContext, OutputPolicy, Policy, Request

STAYS = ("msrun would return at once; mslaunch stays until the job has ended",)


def job(np=8, argv=("python", "net.py"), notes=STAYS, outfile="worker_%r.log", join=False, policy=None, **fields):
    return Request(
        (AppContext(argv, np, **fields),),
        Policy(bind_to="none", **(policy or {})),
        OutputPolicy(merge=True, outfile=outfile, tee=join),
        notes=notes,
    )


def bound(ranks):
    return {"map_by": "slot", "pe": max(1, cores_here() // ranks), "hwthread_cpus": True, "overload": True}


DONE = [
    (["worker_num", "4"], job(4)),
    (["local_worker_num", "8"], job(8)),
    (["cluster_time_out", "-1"], job(env=(("MS_TOPO_TIMEOUT", "-1"),))),
    (["rank_table_file", "t.json"], job(env=(("RANK_TABLE_FILE", "t.json"),))),
    (["rank_table_file", ""], job()),
    (["master_addr", "10.0.0.1"], job()),
    (["master_port", "8118"], job()),
    (["node_rank", "0"], job()),
    (["node_rank", "-1"], job()),
    (["log_dir", "a/b%"], job(outfile="a/b%%/worker_%r.log")),
    (["log_dir", ""], job()),
    (["worker_log_name", "w_{hostname}"], job(outfile="w_%h_%r.log")),
    (["tail_worker_log", "-1"], job()),
    (["join", "True"], job(join=True, notes=())),
    (["join", "False"], job()),
    (["bind_core", "True"], job()._replace(policy=Policy(bind_to="hwthread", **bound(8)))),
    (["bind_core", "False"], job()),
    (["bind_numa", "False"], job()),
]


@pytest.mark.parametrize(("words", "request_"), DONE, ids=lambda case: " ".join(case) if isinstance(case, list) else "")
def test_each_option(words, request_):
    name, value = words
    assert msrun.parse([f"--{name}", value, "net.py"], {}) == request_
    assert msrun.parse([f"--{name}={value}", "net.py"], {}) == request_


def test_each_option_is_tried_above():
    done = {name for row in msrun.TABLE if row.status != REFUSED for name in row.names}
    assert {case[0][0] for case in DONE} | {"h", "help", "version"} == done


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["net.py", "--lr", "1", "--join=False"], ("python", "net.py", "--lr", "1", "--join=False")),
        (["python3", "net.py"], ("python3", "net.py")),
        (["pytest", "-q"], ("pytest", "-q")),
        (["/bin/echo", "x"], ("python", "/bin/echo", "x")),
        (["a", ":", "b"], ("python", "a", ":", "b")),
    ],
)
def test_a_script_is_run_by_python(words, argv):
    assert msrun.parse(["--worker_num=1", *words], {}).apps[0].argv == argv


def test_the_line_of_the_tutorials():
    line = (
        "--worker_num=8 --local_worker_num=8 --master_port=8118 --log_dir=msrun_log --join=True --cluster_time_out=300 "
        "./net.py"
    )
    expected = job(
        argv=("python", "./net.py"),
        notes=(),
        outfile="msrun_log/worker_%r.log",
        join=True,
        env=(("MS_TOPO_TIMEOUT", "300"),),
    )
    assert msrun.parse(line.split(), {}) == expected


def test_one_command_starts_several_hosts():
    request = msrun.parse(["--worker_num=8", "--local_worker_num=4", "-H", "a,b", "--join=True", "net.py"], {})
    assert request.apps[0].hosts == ("a,b",)
    assert (request.policy.map_by, request.policy.ppr) == ("ppr", ((4, "node"),))
    assert request.policy.oversubscribe, "a host takes so many, whatever its slots"


@pytest.mark.parametrize(
    ("words", "where", "phrase"),
    [
        (["--worker_num=8", "--local_worker_num=4", "--node_rank=1", "--master_addr=a"], "--node_rank", "--hostfile"),
        (["--worker_num=8", "--local_worker_num=4"], "--local_worker_num", "-H node1,node2"),
        (["--worker_num=2", "--local_worker_num=4"], "--local_worker_num", "more than 2 in all"),
        (["--worker_num=x"], "--worker_num", "whole number"),
        (["--master_port=70000"], "--master_port", "65535"),
        (["--master_addr="], "--master_addr", "not empty"),
        (["--node_rank=a"], "--node_rank", "whole number"),
        (["--join=maybe"], "--join", "True or False"),
        (["--worker_log_name=w_{ip}"], "--worker_log_name", "{hostname}"),
        (["--tail_worker_log=0,1"], "--tail_worker_log", "tail -f"),
        (["--bind_core", '{"device0":["0"]}'], "--bind_core", "rankfile"),
        (["--bind_numa=True"], "--bind_numa", "--bind-to numa"),
        (["--sim_level", "1"], "--sim_level", "MS_SIMULATION_LEVEL"),
        (["--sim_rank_id=5"], "--sim_rank_id", "RANK_ID"),
        (["--worker_nmu=8"], "--worker_nmu", "--worker_num"),
    ],
)
def test_refusals_name_the_option_and_what_to_do(words, where, phrase):
    with pytest.raises(UsageError) as caught:
        msrun.parse([*words, "net.py"], {})
    assert caught.value.where == where
    assert phrase in str(caught.value)


def test_no_script():
    with pytest.raises(UsageError, match="no script"):
        msrun.parse(["--worker_num=2"], {})


def test_help():
    with pytest.raises(Show) as caught:
        msrun.parse(["--help"], {})
    assert "--worker_num" in caught.value.text


WORDS = st.one_of(
    st.sampled_from([f"--{name}" for name in by_name(msrun.TABLE)]),
    st.sampled_from(["=", "--", "-", "", "1", "0", "True", "net.py", "-H", "a:2", "--join=True"]),
    st.text(max_size=6),
    st.text(max_size=6).map("--".__add__),
)


@given(st.lists(WORDS, max_size=8))
def test_any_words_give_a_request_a_refusal_or_something_to_show(words):
    try:
        request = msrun.parse(words, {})
    except (LaunchError, Show) as end:
        assert str(end)
        return
    assert request.apps[0].argv and request.output.outfile
