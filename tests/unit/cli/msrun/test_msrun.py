"""The msrun dialect: each option, which workers a command starts, their scheduler and logs, and refusals."""

from __future__ import annotations

import os
import socket

import pytest
from command_lines import parse_msrun
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.cli import main
from mslaunch.cli.msrun.options import TABLE
from mslaunch.cli.parser.options import Show, by_name
from mslaunch.cli.pods import scheduler_address
from mslaunch.datamodel.request import AppContext, LocalBinding, OutputPolicy, Policy, Request, ServicePolicy, Share
from mslaunch.errors import LaunchError, UsageError
from mslaunch.host.files import read_text
from mslaunch.host.own_addresses import addresses

#: of `msrun --help`, MindSpore 2.10
HELP = """
usage: msrun [-h] [--worker_num WORKER_NUM]
             [--local_worker_num LOCAL_WORKER_NUM] [--master_addr MASTER_ADDR]
             [--master_port MASTER_PORT] [--node_rank NODE_RANK]
             [--log_dir LOG_DIR] [--join {True,False}]
             [--cluster_time_out CLUSTER_TIME_OUT] [--bind_core BIND_CORE]
             [--bind_numa BIND_NUMA] [--sim_level {0,1,2,3}]
             [--sim_rank_id SIM_RANK_ID] [--rank_table_file RANK_TABLE_FILE]
             [--worker_log_name WORKER_LOG_NAME]
             [--tail_worker_log TAIL_WORKER_LOG]
             task_script ...
"""
HOST = os.uname().nodename


@pytest.fixture(autouse=True, scope="module")
def nobody_listens():
    """Port 8118 counts as free, even if other tests have started a scheduler on it."""
    with pytest.MonkeyPatch.context() as patch:
        answers = scheduler_address.answers
        patch.setattr(scheduler_address, "answers", lambda address, port: port != 8118 and answers(address, port))
        yield


def job(np=8, argv=("python", "net.py"), outfile="worker_%r.log", join=True, notes=(), **more):
    """The request of a command line with --join=True; `more` are fields of the records, by name."""
    records = {kind: {} for kind in (AppContext, Policy, OutputPolicy, ServicePolicy, Request)}
    for name, value in more.items():
        records[next(kind for kind in records if name in kind._fields)][name] = value
    return Request(
        (AppContext(argv, np, forward=("*",), **records[AppContext]),),
        Policy(**{"bind_to": "none", **records[Policy]}),
        OutputPolicy(merge=True, outfile=outfile, tee=join, keep=True, **records[OutputPolicy]),
        cluster=ServicePolicy(**{"first": True, "port": 8118, "moves": True, **records[ServicePolicy]}),
        detach=not join,
        notes=notes,
        **{"stdin": "0" if join else "none", **records[Request]},
    )


def patience(word):
    return (("MS_TOPO_TIMEOUT", word), ("MS_CLUSTER_TIMEOUT", word))


def dry(level="1"):
    return {"env": (("MS_SIMULATION_LEVEL", level),), "simulated": True, "port": 0, "moves": False, "first": False}


ONE = [
    (["worker_num", "4"], job(4)),
    (["local_worker_num", "8"], job(8)),
    (["cluster_time_out", "300"], job(env=patience("300"))),
    (["cluster_time_out", "-1"], job(env=patience("-1"))),
    (["rank_table_file", "t.json"], job(env=(("RANK_TABLE_FILE", "t.json"),))),
    (["rank_table_file", ""], job()),
    (["master_addr", "127.0.0.1"], job()),
    (["master_addr", "localhost"], job()),
    (["master_addr", "[::1]"], job(share=Share(8, 0, "::1", 8118, True))),
    (["master_port", "8200"], job(port=8200, moves=False)),
    (["node_rank", "0"], job()),
    (["node_rank", "-1"], job()),
    (["node_rank", "3"], None),
    (["log_dir", "a/b%"], job(outfile="a/b%%/worker_%r.log")),
    (["log_dir", ""], job()),
    (["worker_log_name", "w_{hostname}_{ip}"], job(outfile=f"w_{HOST}_127.0.0.1_%r.log")),
    (["worker_log_name", ""], job()),
    (["tail_worker_log", "-1"], job()),
    (["tail_worker_log", "0, 2"], job(shown=(0, 2))),
    (["join", "False"], job(join=False)),
    (["join", "True"], job()),
    (["bind_core", "True"], job(local=LocalBinding(even_cpus=True))),
    (["bind_core", "False"], job()),
    (["bind_core", '{"scheduler": ["0"], "device1": ["2-3", "5"]}'],
     job(local=LocalBinding(cpus=((), (2, 3, 5))), cpus=(0,))),
    (["bind_numa", "True"], job(local=LocalBinding(even_numa=True, where="--bind_numa"))),
    (["bind_numa", "false"], job()),
    (["bind_numa", '{"device0": ["1"], "scheduler": ["0"]}'],
     job(local=LocalBinding(numa=((1,),), memory=((1,),), scheduler=(0,), where="--bind_numa"))),
    (["sim_level", "1"], job(**dry())),
    (["sim_rank_id", "5"], job()),
]  # fmt: skip


@pytest.mark.parametrize(("words", "request_"), ONE, ids=lambda case: " ".join(case) if isinstance(case, list) else "")
def test_each_option_sets_its_field(words, request_):
    name, value = words
    if request_ is None:  # a number of this host is taken, though without a meaning where all workers are here
        with pytest.raises(UsageError, match="counted from 0"):
            parse_msrun([f"--{name}", value, "--local_worker_num=4", "net.py"], {})
        assert parse_msrun([f"--{name}", value, "--join=True", "net.py"], {}) == job()
        return
    joined = [] if name == "join" else ["--join=True"]
    for line in ([f"--{name}", value], [f"--{name}={value}"]):
        found = parse_msrun([*line, *joined, "net.py"], {})
        notes = tuple(note for note in found.notes if "binds no worker" not in note)  # as many cpus as there are here
        assert found._replace(notes=notes) == request_


def test_each_option_of_msrun_has_a_case():
    options = {word.strip("[]-") for word in HELP.split() if word.startswith("[--")}
    assert {case[0][0] for case in ONE} == options == {row.names[0] for row in TABLE} - {"h", "version"}
    assert len(options) == 15


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
    assert parse_msrun(["--worker_num=1", *words], {}).apps[0].argv == argv


def test_the_command_line_of_the_tutorials():
    line = (
        "--worker_num=8 --local_worker_num=8 --master_port=8118 --log_dir=msrun_log --join=True --cluster_time_out=300 "
        "net.py --epochs 3"
    )
    expected = job(
        argv=("python", "net.py", "--epochs", "3"),
        outfile="msrun_log/worker_%r.log",
        moves=False,
        env=patience("300"),
    )
    assert parse_msrun(line.split(), {}) == expected
    assert main.parse(line.split(), {}, read_text) == expected, "under our own name its first word is enough"
    assert main.parse(line.split(), {}, read_text, "/usr/bin/msrun") == expected


def test_a_first_option_with_an_underscore_need_not_be_msruns():
    assert main.parse(["--server_num=1", "-n", "4", "a"], {}, read_text).cluster.servers == 1
    for word, meant in (("--worker_nmu=8", "--worker_num?"), ("--nod_rank=0", "--node_rank?")):
        with pytest.raises(UsageError, match="no such option") as caught:
            main.parse([word, "--join=True", "net.py"], {}, read_text)
        assert f"did you mean {meant}" in caught.value.todo


# ------------------------------------------------------------------------------------------------------ abbreviations


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--worker_l=a", "--worker_log_name=a"),
        ("--l=2", None),
        ("--local=2", "--local_worker_num=2"),
        ("--n=0", "--node_rank=0"),
        ("--c=5", "--cluster_time_out=5"),
        ("--master_p=9000", "--master_port=9000"),
        ("--worker=3", None),
        ("--sim=1", None),
        ("--bind=True", None),
    ],
)
def test_option_names_may_be_abbreviated(word, meant):
    if meant:
        assert parse_msrun([word, "net.py"], {}) == parse_msrun([meant, "net.py"], {})
        return
    with pytest.raises(UsageError, match="several") as caught:
        parse_msrun([word, "net.py"], {})
    assert " or --" in caught.value.todo


def test_options_of_mpirun_are_no_abbreviations():
    with pytest.raises(UsageError, match="an option of mpirun"):
        parse_msrun(["-n", "4", "net.py"], {})


# ------------------------------------------------------------------------------------- the workers of a command


def share(size, first, address="127.0.0.1", port=8118, master=True):
    return Share(size, first, address, port, master)


SEVERAL = [
    # number of workers in all, here, of the host -> ranks here, the share
    ("--worker_num=8 --local_worker_num=4 --node_rank=0", 4, share(8, 0)),
    ("--worker_num=8 --local_worker_num=4 --node_rank=1 --master_port=9000", 4, share(8, 4, port=9000, master=False)),
    ("--worker_num=8 --local_worker_num=4", 4, share(8, None)),
    ("--worker_num=8 --local_worker_num=4 --node_rank=-5", 4, share(8, None)),
    ("--worker_num=4 --local_worker_num=3 --node_rank=0", 3, share(4, 0)),
    ("--worker_num=4 --local_worker_num=1 --node_rank=3", 1, share(4, 3, master=False)),
    ("--local_worker_num=4 --node_rank=1", 4, share(8, 4, master=False)),
    ("--worker_num=16 --node_rank=1", 8, share(16, 8, master=False)),
    ("--worker_num=16 --master_addr=127.0.0.1 --node_rank=1", 8, share(16, 8, master=False)),
    ("--worker_num=8 --local_worker_num=4 --node_rank=1 --master_addr=192.0.2.7", 4,
     share(8, 4, "192.0.2.7", master=False)),
    ("--worker_num=8 --local_worker_num=4 --node_rank=1 --master_addr=2001:DB8:0::7", 4,
     share(8, 4, "2001:db8::7", master=False)),
    ("--worker_num=8 --local_worker_num=4 --node_rank=1 --master_addr=[::1]", 4, share(8, 4, "::1", master=False)),
    ("--worker_num=4 --master_addr=192.0.2.7", 4, share(4, 0, "192.0.2.7", master=False)),
    # and all of them
    ("--worker_num=16", 16, None),
    ("--worker_num=4 --local_worker_num=4 --node_rank=7", 4, None),
    ("--local_worker_num=4", 4, None),
    ("--local_worker_num=16 --node_rank=0", 16, None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "np", "part"), SEVERAL, ids=[case[0] for case in SEVERAL])
def test_one_command_for_each_host(line, np, part):
    request = parse_msrun([*line.split(), "--join=True", "net.py"], {})
    assert (request.apps[0].np, request.cluster.share) == (np, part)
    if part:
        assert not request.cluster.moves, "others count on the port"
        assert request.stdin == ("0" if part.first in (0, None) else "none")


def test_two_commands_on_one_host_share_a_scheduler():
    """The order of the commands does not matter: with a loopback address the second need not look for a listener."""
    ours = next((address for address in addresses() if not scheduler_address.is_localhost(address)), "")
    with socket.create_server(("", 0)) as server:
        line = f"--worker_num=8 --local_worker_num=4 --master_port={server.getsockname()[1]} net.py"
        second = parse_msrun(["--node_rank=1", *line.split()], {})
        assert not second.cluster.share.master and "--node_rank=0 starts on this host" in second.notes[0]
        if ours and ":" not in ours:
            second = parse_msrun(["--node_rank=1", f"--master_addr={ours}", *line.split()], {})
            assert not second.cluster.share.master and "has a scheduler already" in second.notes[0]
        assert parse_msrun(["--node_rank=0", *line.split()], {}).cluster.share.master, (
            "which then says who has the port"
        )


def test_assumptions_are_reported():
    def notes(line):
        return " ".join(parse_msrun([*line.split(), "net.py"], {}).notes)

    assert "MindSpore numbers the workers" in notes("--worker_num=8 --local_worker_num=4")
    assert "no other host may have these" in notes("--worker_num=4 --local_worker_num=3 --node_rank=0")
    assert "must be started there" in notes("--worker_num=4 --master_addr=192.0.2.7")
    assert "the 4 workers of --local_worker_num" in notes("--local_worker_num=4")
    assert "has no effect" in notes("--worker_num=4 -H a,b --node_rank=1")
    assert "no worker 4, workers are 0 to 3" in notes("--worker_num=4 --join=True --tail_worker_log=3,4")
    assert notes("--worker_num=4 --join=True --tail_worker_log=3,0") == ""
    assert notes("--worker_num=4 --tail_worker_log=4") == ""
    assert "no worker" not in notes("--worker_num=4 --local_worker_num=2 --node_rank=0 --join=True --tail_worker_log=3")
    assert "--node_rank=0 starts on this host" in notes("--worker_num=8 --local_worker_num=4 --node_rank=1")
    assert notes("--worker_num=8 --local_worker_num=4 --node_rank=0") == ""


def test_one_command_starts_workers_on_several_hosts():
    request = parse_msrun(["--worker_num=8", "--local_worker_num=4", "-H", "a,b", "--join=True", "net.py"], {})
    assert request == job(8, hosts=("a,b",), map_by="slot", per_host=4)
    request = parse_msrun(["--hostfile", "h", "--join=True", "--worker_log_name={ip}{hostname}", "net.py"], {})
    assert request == job(None, hostfile="h", map_by="slot", per_host=0, outfile="%a%h_%r.log")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", ""),
        ("::1", ""),
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.8", "192.0.2.8"),
        ("[fd00::1]", "fd00::1"),
        ("nosuch.invalid", "nosuch.invalid"),
    ],
)
def test_the_host_of_the_scheduler(address, host):
    request = parse_msrun(
        ["--worker_num=8", "-H", f"nosuch.invalid,{host or 'a'}", f"--master_addr={address}", "x"], {}
    )
    assert request.cluster.host == host


def test_addresses_and_names_of_hosts_are_distinguished():
    words = ("1.2.3.4", "fd00:0::1", "fe80::1%lo", "node1", "1.2", "\0", "é")
    assert [scheduler_address.numeric(word) for word in words] == ["1.2.3.4", "fd00::1", "fe80::1%lo", "", "", "", ""]
    assert scheduler_address.is_ours("127.0.0.1") and scheduler_address.is_ours("::1")
    assert not scheduler_address.is_ours("127.3.4.5") and not scheduler_address.is_ours("192.0.2.7")
    assert scheduler_address.resolved("localhost", "") in ("127.0.0.1", "::1")


# ----------------------------------------------------------------------------------------------------------- dry runs


@pytest.mark.parametrize(
    ("line", "environ", "np", "part", "level"),
    [
        ("--worker_num=8 --sim_level=0", {}, 8, None, "0"),
        ("--worker_num=8 --sim_level=1 --sim_rank_id=5", {}, 1, share(8, 5, port=0, master=False), "1"),
        ("--worker_num=8 --sim_level=1", {"RANK_ID": "6"}, 1, share(8, 6, port=0, master=False), "1"),
        ("--worker_num=1024 --local_worker_num=1 --sim_level=3", {}, 1, share(1024, None, port=0, master=False), "3"),
        ("--worker_num=1024 --sim_level=3", {}, 1, share(1024, 0, port=0, master=False), "3"),
        ("--worker_num=2", {"MS_SIMULATION_LEVEL": "2", "RANK_SIZE": "64"}, 2, share(64, 0, port=0, master=False), "2"),
        ("--worker_num=2", {"MS_SIMULATION_LEVEL": "2"}, 2, None, "2"),
    ],
)  # fmt: skip
def test_a_dry_run_simulates_the_workers(line, environ, np, part, level):
    request = parse_msrun([*line.split(), "net.py"], environ)
    assert (request.apps[0].np, request.cluster.share) == (np, part)
    assert request.cluster.simulated and not request.cluster.first
    assert request.apps[0].env == (("MS_SIMULATION_LEVEL", level),)
    assert request.output.outfile == (
        "worker_0.log" if part and np == 1 and part.first is not None else "worker_%r.log"
    )


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("words", "where", "phrase"),
    [
        (["--worker_num=2", "--local_worker_num=4"], "--local_worker_num", "more than 2 in all"),
        (["--worker_num=8", "--local_worker_num=4", "--node_rank=2"], "--node_rank", "up to 11, but there are 8"),
        (["--worker_num=x"], "--worker_num", "whole number"),
        (["--worker_num=0"], "--worker_num", "whole number"),
        (["--local_worker_num=0"], "--local_worker_num", "--scheduler HOST"),
        (["--master_port=70000"], "--master_port", "65535"),
        (["--master_addr="], "--master_addr", "not empty"),
        (["--master_addr=nosuch.invalid"], "--master_addr", "cannot be resolved"),
        (["--master_addr=a b"], "--master_addr", "cannot be resolved"),
        (["--master_addr=0.0.0.0"], "--master_addr", "at which the hosts reach"),
        (["--master_addr=::", "-H", "a,b"], "--master_addr", "stands for all addresses"),
        (["--node_rank=a"], "--node_rank", "whole number"),
        (["--join=maybe"], "--join", "True or False"),
        (["--tail_worker_log=a"], "--tail_worker_log", "0,1"),
        (["--sim_level", "4"], "--sim_level", "0, 1, 2 or 3"),
        (["--sim_rank_id=-2"], "--sim_rank_id", "-1 for all"),
        (["--sim_level=1", "--worker_num=2", "--local_worker_num=3"], "--local_worker_num", "more than 2"),
        (["--cluster_time_out=1.5"], "--cluster_time_out", "whole number"),
        (["--restart=group", "--worker_num=2", "--local_worker_num=1"], "--restart group", "-H or --hostfile"),
        (["--worker_nmu=8"], "--worker_nmu", "--worker_num"),
    ],
)  # fmt: skip
def test_refusals_name_the_option_and_what_to_do(words, where, phrase):
    with pytest.raises(UsageError) as caught:
        parse_msrun([*words, "net.py"], {})
    assert caught.value.where == where
    assert phrase in str(caught.value)


def test_a_missing_script_is_refused():
    with pytest.raises(UsageError, match="no script"):
        parse_msrun(["--worker_num=2"], {})


def test_help_prints_the_options():
    with pytest.raises(Show) as caught:
        parse_msrun(["--help"], {})
    assert "--worker_num" in caught.value.text and "--restart " in caught.value.text


VALUES = [
    "=",
    "--",
    "-",
    "",
    "1",
    "0",
    "8",
    "-1",
    "True",
    "net.py",
    "-H",
    "a:2",
    "a,b",
    "--join=True",
    "{}",
    "[",
    "::1",
]
NAMES = sorted(by_name(TABLE))
WORDS = st.one_of(
    st.sampled_from([f"--{name}" for name in NAMES]),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)).map(lambda pair: f"--{pair[0]}={pair[1]}"),
    st.sampled_from(VALUES),
    st.text(max_size=6),
    st.text(max_size=6).map("--".__add__),
)


@settings(deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_any_arguments_give_a_request_a_refusal_or_a_text(words):
    for line in (words, [*words, "net.py"]):
        try:
            request = parse_msrun(line, {})
        except (LaunchError, Show) as end:
            assert str(end)
            continue
        assert request.apps[0].argv and request.output.outfile


@pytest.mark.parametrize(
    ("words", "reader"),
    [
        ("--worker_num=8 --join=True --tail_worker_log=7", "7"),
        ("--worker_num=8 --join=True --tail_worker_log=6,7", "0"),
        ("--worker_num=8 --join=True", "0"),
        ("--worker_num=8 --tail_worker_log=7", "none"),  # nobody is shown, and nobody types
        ("--worker_num=8 --local_worker_num=4 --node_rank=1 --join=True --tail_worker_log=5", "5"),
        ("--worker_num=8 --local_worker_num=4 --node_rank=1 --join=True --tail_worker_log=1", "none"),
    ],
)
def test_the_one_worker_that_is_shown_reads_standard_input(words, reader):
    assert parse_msrun([*words.split(), "net.py"], {}).stdin == reader
