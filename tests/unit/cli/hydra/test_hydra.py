"""The hydra dialect: each option in each spelling, hosts and placement, files, refusals; no argument is lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mslaunch.cli.hydra import machinefile
from mslaunch.cli.hydra import parse as hydra
from mslaunch.cli.hydra.options import EXTRAS, OTHERS, TABLE, VARIABLES
from mslaunch.cli.main import parse as dispatch
from mslaunch.cli.parser.options import REFUSED, Index, Show, by_name
from mslaunch.datamodel.request import AppContext, LinkPolicy, OutputPolicy, Policy, Request
from mslaunch.errors import HostfileError, LaunchError, UsageError
from mslaunch.plan.hosts.hostfile import parse_hosts

IDLE_MAP = "-map-by has no effect without -bind-to, as with hydra; -ppn says how many ranks a host takes"
FREE = Policy(map_by="slot", bind_to="none")
DEALT = Policy(map_by="seq", bind_to="none", oversubscribe=True)
PROG = AppContext(("prog",), 1, forward=("*",))


def parse(*words, environ=None, **files):
    def read_text(path):
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return files[path]

    return dispatch(["--dialect", "hydra", *words], environ or {}, read_text)


def app(**fields):
    return Request((PROG._replace(**fields),), FREE)


def job(**fields):
    return Request((PROG,), FREE)._replace(**fields)


def policy(**fields):
    return job(policy=FREE._replace(**fields))


def output(**fields):
    return job(output=OutputPolicy(**fields))


def bound(level, **fields):
    return policy(bind_to=level, overload=True, **fields)


def dealt(hosts, **fields):
    np = hosts.count(",") + 1
    return job(apps=(PROG._replace(np=np, sequence=parse_hosts(hosts)),), policy=DEALT, **fields)


def env(name, value):
    return app(env=((name, value),))


DONE = [
    (["n", "4"], app(np=4)),
    (["np", "4"], app(np=4)),
    (["c", "4"], app(np=4)),
    (["wdir", "/d"], app(wdir="/d")),
    (["dir", "/d"], app(wdir="/d")),
    (["gwdir", "/d"], app(wdir="/d")),
    (["path", "/a:/b"], app(path="/a:/b")),
    (["gpath", "/a"], app(path="/a")),
    (["genv", "A", "b"], env("A", "b")),
    (["env", "A", ""], env("A", "")),
    (["genvall"], app()),
    (["genvnone"], app(forward=())),
    (["genvlist", "A,B"], app(forward=("A", "B"))),
    (["genvexcl", "A"], app(forward=("B",))),
    (["envall"], app()),
    (["envnone"], app(forward=())),
    (["envlist", "A,B"], app(forward=("A", "B"))),
    (["hosts", "h1:2,h2"], dealt("h1,h1,h2")),
    (["host", "h1"], dealt("h1")),
    (["hostlist", "joe@h1,[fd00::1]:2"], dealt("joe@h1,[fd00::1],[fd00::1]")),
    (["f", "file"], dealt("h1,h1,joe@h2")),
    (["hostfile", "file"], dealt("h1,h1,joe@h2")),
    (["machinefile", "file"], dealt("h1,h1,joe@h2")),
    (["machine", "file"], dealt("h1,h1,joe@h2")),
    (["machines", "file"], dealt("h1,h1,joe@h2")),
    (["machinelist", "file"], dealt("h1,h1,joe@h2")),
    (["localhost", "x"], job()),
    (["disable-hostname-propagation"], job()),
    (["enable-hostname-propagation"], job()),
    (["rmk", "user"], job(resource_manager="none")),
    (["hosts-group", "h[1-2]"], dealt("h1,h2")),
    (["bootstrap-exec-args", "-p 22"], job(link=LinkPolicy(agent_args=("-p", "22")))),
    (["print-rank-map"], job(display_map="ranks")),
    (["ppn", "3"], app(np=3)),
    (["perhost", "3"], app(np=3)),
    (["grr", "3"], app(np=3)),
    (["rr"], app()),
    (["bind-to", "none"], job()),
    (["bind-to", "machine"], job()),
    (["bind-to", "core"], bound("core")),
    (["binding", "hwthread:1"], bound("hwthread")),
    (["bind-to", "core:2"], bound("core", pe=2)),
    (["bind-to", "hwthread:2"], bound("hwthread", pe=2, hwthread_cpus=True)),
    (["bind-to", "l2ucache"], bound("l2cache")),
    (["bind-to", "numa"], bound("numa")),
    (["map-by", "socket"], job(notes=(IDLE_MAP,))),
    (["topolib", "hwloc"], job()),
    (["l"], output(tag="rank")),
    (["prepend-rank"], output(tag="rank")),
    (["prepend-pattern", "%r %h"], output(prepend="%r %h")),
    (["outfile-pattern", "o.%r"], output(outfile="o.%r")),
    (["outfile", "o.%r"], output(outfile="o.%r")),
    (["errfile-pattern", "e.%r"], output(errfile="e.%r")),
    (["errfile", "e.%r"], output(errfile="e.%r")),
    (["s", "all"], job(stdin="all")),
    (["stdin", "1"], job(stdin="1")),
    (["demux", "poll"], job()),
    (["disable-auto-cleanup"], job(recovery=True)),
    (["enable-auto-cleanup"], job()),
    (["launcher", "ssh"], job(link=LinkPolicy(asked="ssh"))),
    (["bootstrap", "rsh"], job(link=LinkPolicy(agent=("rsh",)))),
    (["launcher-exec", "/my ssh"], job(link=LinkPolicy(agent=("/my ssh",)))),
    (["bootstrap-exec", "x"], job(link=LinkPolicy(agent=("x",)))),
    (["disable-x"], job()),
    (["line-buffer"], job()),
    (["no-vni"], job()),
    (["no-transfer"], job()),
    (["iface", "ib0"], env("MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE", "ib0")),
    (["v"], job(verbose=True)),
    (["verbose"], job(verbose=True)),
    (["debug"], job(verbose=True)),
]
FILE = "# hosts\n\nh1:2 # two\n  joe@h2\n"
ELSEWHERE = {"configfile", "skip-launch-node", "nolocal", "order-nodes", "rankmap", "info", "version", "h", "help"}


@pytest.mark.parametrize("spell", ["-{}", "--{}", "-{}="], ids=["one", "two", "equals"])
@pytest.mark.parametrize(("words", "request_"), DONE, ids=lambda case: " ".join(case) if isinstance(case, list) else "")
def test_each_option_sets_its_field(words, request_, spell):
    name, *values = words
    for case in (name, name.upper()):
        if not spell.endswith("="):
            given_ = [spell.format(case), *values]
        elif values:
            given_ = [spell.format(case) + values[0], *values[1:]]
        else:
            return
        assert parse(*given_, "prog", environ={"A": "1", "B": "2"}, file=FILE) == request_


def test_each_option_has_a_case_or_a_test():
    done = {name for row in TABLE if row.status != REFUSED for name in row.names}
    assert {case[0][0] for case in DONE} | ELSEWHERE == done


@pytest.mark.parametrize("option", [row for row in TABLE if row.status == REFUSED], ids=lambda row: row.names[0])
def test_refused_options_say_why_and_what_to_use_instead(option):
    for name in option.names:
        with pytest.raises(UsageError) as caught:
            parse(f"-{name}", "x", "prog")
        assert caught.value.where == f"-{name}"
        assert caught.value.todo, "what to use instead"


def test_options_of_mslaunch_are_accepted():
    request = parse("-pty", "no", "--do-not-launch", "-display-map", "-n", "2", "prog")
    assert (request.output.pty, request.do_not_launch, request.display_map) == ("no", True, "table")
    assert {row.names[0] for row in hydra.extras()} == {name for name in EXTRAS if name in by_name(hydra.extras())} - {
        "quiet"
    }


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["-version"], ["-info"], ["-H"]])
def test_help_and_version_are_shown(words):
    with pytest.raises(Show) as caught:
        parse(*words)
    assert "mslaunch" in caught.value.text


# --- environment


def test_env_pairs_may_be_one_word_and_local_ones_win():
    request = parse("-genv", "A=b=c", "-n", "1", "--env=A=x", "one", ":", "-genv=B", "2", "-n", "1", "two")
    assert [one.env for one in request.apps] == [
        (("A", "b=c"), ("B", "2"), ("A", "x")),
        (("A", "b=c"), ("B", "2")),
    ]


def test_arguments_of_the_program_are_left_alone():
    assert parse("-n", "1", "prog", "-genv", "A=b", "-NP", "3").apps[0].argv == ("prog", "-genv", "A=b", "-NP", "3")
    assert parse("-n", "1", "--", "-genv", "A=b").apps[0].argv == ("-genv", "A=b")


def test_environment_options_of_a_program_win():
    request = parse("-genvnone", "-envall", "one", ":", "-envlist", "A", "two", ":", "three")
    assert [one.forward for one in request.apps] == [("*",), ("A",), ()]


@pytest.mark.parametrize(
    ("name", "value", "request_"),
    [
        ("HYDRA_HOST_FILE", "file", dealt("h1,h1,joe@h2")),
        ("HYDRA_LAUNCHER", "rsh", job(link=LinkPolicy(agent=("rsh",)))),
        ("HYDRA_BOOTSTRAP", "ssh", job(link=LinkPolicy(asked="ssh"))),
        ("I_MPI_HYDRA_HOST_FILE", "file", dealt("h1,h1,joe@h2")),
        ("I_MPI_PERHOST", "3", app(np=3)),
        ("HYDRA_PPN", "3", app(np=3)),
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh", job(link=LinkPolicy(asked="ssh"))),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/x", job(link=LinkPolicy(agent=("/x",)))),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "-p 22", job(link=LinkPolicy(agent_args=("-p", "22")))),
        ("I_MPI_HYDRA_RMK", "user", job(resource_manager="none")),
        ("I_MPI_HYDRA_IFACE", "ib0", env("MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE", "ib0")),
        ("I_MPI_HYDRA_DEBUG", "1", job(verbose=True)),
        ("I_MPI_JOB_TIMEOUT", "3", job(timeout=3.0, timeout_from="I_MPI_JOB_TIMEOUT")),
        ("HYDRA_LAUNCHER_EXEC", "/x", job(link=LinkPolicy(agent=("/x",)))),
        ("HYDRA_BOOTSTRAP_EXEC", "/x", job(link=LinkPolicy(agent=("/x",)))),
        ("HYDRA_LAUNCHER_EXTRA_ARGS", "-p 22", job(link=LinkPolicy(agent_args=("-p", "22")))),
        ("HYDRA_RMK", "user", job(resource_manager="none")),
        ("HYDRA_BINDING", "core", bound("core")),
        ("HYDRA_MAPPING", "core", job(notes=(IDLE_MAP,))),
        ("HYDRA_ENV", "all", job()),
        ("HYDRA_ENV", "none", app(forward=())),
        ("HYDRA_IFACE", "ib0", env("MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE", "ib0")),
        ("HYDRA_DEMUX", "select", job()),
        ("HYDRA_DEBUG", "1", job(verbose=True)),
        ("MPIEXEC_TIMEOUT", "3", job(timeout=3.0, timeout_from="MPIEXEC_TIMEOUT")),
        ("MPIEXEC_TIMEOUT", "-1", job()),
        ("MSLAUNCH_GRACE", "30", job(grace=30.0)),
        ("HYDRA_CONFIG_FILE", "conf", job(verbose=True)),
        ("HYDRA_CONFIG_FILE", "missing", job()),
    ],
)
def test_each_variable_sets_its_field(name, value, request_):
    assert parse("prog", environ={name: value}, file=FILE, conf="-verbose\n") == request_
    assert parse("prog", environ={name: ""}, file=FILE) == job()


def test_each_variable_has_a_case_or_is_listed_as_not_read():
    tried = {case[0] for case in test_each_variable_sets_its_field.pytestmark[0].args[1]}
    assert {row.name for row in VARIABLES} | {"HYDRA_CONFIG_FILE"} == tried
    assert all(meaning for _, meaning in OTHERS)


def test_options_win_over_files_and_files_over_variables():
    environ = {"HYDRA_HOST_FILE": "nofile", "HYDRA_CONFIG_FILE": "conf", "HYDRA_LAUNCHER": "rsh"}
    request = parse("-hosts", "h3", "prog", environ=environ, conf="-hosts h1,h2 -launcher ssh")
    by_ssh = LinkPolicy(asked="ssh")
    assert request == dealt("h3", link=by_ssh)
    assert parse("prog", environ=environ, conf="-hosts h1,h2 -launcher ssh") == dealt("h1,h2", link=by_ssh)


# --- hosts


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (["-hosts", "a,b", "-n", "5"], "a,b,a,b,a"),
        (["-hosts", "a:2,b,c", "-n", "7"], "a,a,b,c,a,a,b"),
        (["-hosts", "a:2,b,c", "-ppn", "2", "-n", "7"], "a,a,b,b,c,c,a"),
        (["-hosts", "a:3,b", "-ppn", "2"], "a,a,b,b"),
        (["-hosts", "a,a,b", "-ppn", "1", "-n", "4"], "a,b,a,b"),
        (["-hosts", "a,b,a", "-n", "5"], "a,b,a,a,b"),
        (["-hosts", "a,b,a", "-ppn", "2"], "a,a,b,b,a,a"),
        (["-hosts", "a,,b", "-n", "3"], "a,b,a"),
        (["-hosts", "a,b:3,c:2", "-order-nodes", "descending", "-n", "6"], "b,b,b,c,c,a"),
        (["-hosts", "c:2,a,b:3,d:2", "-order-nodes", "ASCENDING", "-n", "6"], "a,c,c,d,d,b"),
        (["-hosts", "a:2,b", "-order-nodes", "ascending", "-ppn", "1"], "a,b"),
        (["-hosts", "a,b", "-rankmap", "0,0,1,1", "-n", "4"], "a,a,b,b"),
        (["-hosts", "a,b", "-rankmap", "(0,2,2)", "-n", "4"], "a,a,b,b"),
        (["-hosts", "a,b", "-rankmap", "(vector,(0,2,1),1)", "-n", "3"], "a,b,b"),
        (["-hosts", "a,b", "-rankmap", "1,0,(0,1,2)", "-n", "4"], "b,a,a,a"),
        (["-hosts", "a,localhost,b", "-skip-launch-node", "-n", "3"], "a,b,a"),
        (["-hosts", "n[01-03]", "-n", "3"], "n01,n02,n03"),
    ],
)
def test_hosts_take_ranks_in_turn(words, hosts):  # as mpiexec.hydra 5.0.2 does, but for the range
    assert parse(*words, "prog") == dealt(hosts)


@pytest.mark.parametrize(
    ("words", "hosts"),  # as Intel's mpiexec.hydra 2021.18 deals them, but for the last
    [
        ("-host a -n 1 x : -host b -n 2 x", "a bb"),
        ("-hosts a -n 1 x : -hosts b -n 2 x", "a bb"),
        ("-host a,b -n 3 x : -host c x", "aba c"),
        ("-host a -n 1 x : -host b:2 x : -n 4 x", "a bb abba"),
    ],
)
def test_programs_may_have_hosts_of_their_own(words, hosts):
    request = parse(*words.split())
    assert [one.np for one in request.apps] == [len(group) for group in hosts.split()]
    assert " ".join("".join(host.name for host in one.sequence) for one in request.apps) == hosts
    assert request.policy == DEALT


@pytest.mark.parametrize(
    ("words", "manager", "link"),  # MPICH's bsci_init.c
    [
        ("-rmk slurm", "slurm", LinkPolicy()),
        ("-rmk SGE", "gridengine", LinkPolicy()),
        ("-rmk ll", "loadleveler", LinkPolicy()),
        ("-rmk cobalt -bootstrap ssh", "cobalt", LinkPolicy(asked="ssh")),
        ("-bootstrap slurm", "slurm", LinkPolicy()),
        ("-bootstrap blaunch", "lsf", LinkPolicy()),
        ("-bootstrap slurm -hosts a", "slurm", LinkPolicy()),
        ("-bootstrap slurm -bootstrap-exec /usr/bin/srun", "slurm", LinkPolicy()),
        ("-rmk pbs -bootstrap rsh", "pbs", LinkPolicy(agent=("rsh",))),
        ("-rmk user -bootstrap slurm", "slurm", LinkPolicy()),
        ("-rmk pbs -hosts a", "", LinkPolicy()),  # named hosts come first
        ("-rmk user -hosts a", "none", LinkPolicy()),
        ("--resource-manager pbs", "pbs", LinkPolicy()),
    ],
)
def test_a_batch_system_is_named(words, manager, link):
    request = parse(*words.split(), "prog")
    assert (request.resource_manager, request.link) == (manager, link)


@pytest.mark.parametrize(
    ("words", "variables", "app_", "ppn"),
    [
        ("-rmk slurm", {}, None, 0),
        ("-n 5", {"SLURM_JOB_ID": "1"}, 5, 0),
        ("-ppn 2", {"SLURM_JOB_ID": "1"}, None, 2),
    ],
)
def test_the_hosts_of_a_job_take_ranks_in_rounds(words, variables, app_, ppn):
    request = parse(*words.split(), "prog", environ=variables)
    assert request.policy == Policy(map_by="rounds", ppn=ppn, oversubscribe=True, bind_to="none")
    assert request.apps[0].np == app_
    outside = parse(*words.split(), "-rmk", "user", "prog", environ=variables)
    assert outside.apps[0].np == (app_ or ppn or 1)


def test_a_program_continues_on_the_next_host():
    request = parse("-hosts", "a,b", "-n", "1", "one", ":", "-n", "3", "two", ":", "three")
    assert ["".join(host.name for host in one.sequence) for one in request.apps] == ["a", "bab", "ab"]


def test_the_fork_launcher_runs_all_ranks_locally():
    assert parse("-launcher", "fork", "-hosts", "a:2,b", "prog") == app(np=3)._replace(resource_manager="none")


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 5)), min_size=1, max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=3),
    st.none() | st.integers(1, 4),
)
def test_any_list_of_hosts_takes_every_rank_once(hosts, ranks, each):
    words = ["-hosts", ",".join(f"{name}:{count}" for name, count in hosts)]
    words += ["-ppn", str(each)] if each else []
    for np in ranks:
        words += ["-n", str(np), "prog", ":"]
    request = parse(*words)
    dealt_ = [host.name for one in request.apps for host in one.sequence]
    groups = [
        (name, sum(count for _, count in group)) for name, group in itertools.groupby(hosts, key=lambda one: one[0])
    ]
    turn = [name for name, count in groups for _ in range(each or count)]
    assert dealt_ == [turn[rank % len(turn)] for rank in range(sum(ranks))]


@pytest.mark.parametrize(
    ("text", "where", "phrase"),
    [
        ("h1\nh2 slots=2\n", "file:2", "mpirun's --hostfile"),
        ("h1 binding=core", "file:1", "-bind-to"),
        ("h1 user=a user=b", "file:1", "user= is given twice"),
        ("h1 h2", "file:1", "HOST[:N]"),
        ("h1,h2", "file:1", "one host a line"),
        ("h1:0", "file:1", "h1 gets no ranks"),
        ("h1:x", "file:1", "whole number"),
        ("h1 user=", "file:1", "HOST[:N]"),
        ("# none\n", "file", "names no host"),
    ],
)
def test_a_bad_hostfile_is_refused_with_its_line(text, where, phrase):
    with pytest.raises(HostfileError) as caught:
        parse("-f", "file", "prog", file=text)
    assert caught.value.where == where
    assert phrase in str(caught.value)


@given(st.text(max_size=40))
@example("h1\x0bh2")
def test_any_hostfile_is_read_or_refused(text):
    try:
        entries = machinefile.from_file(text, "file")
    except LaunchError as error:
        assert error.where.startswith("file")
        return
    assert all(entry.name and entry.slots for entry in entries)


# --- files of programs


def test_a_file_of_programs():
    text = '# first\n-n 1 a "b c" # d\n\n  # second\n-n 2 \\\n b : -n 3 c\r\n'
    request = parse("-genv", "A", "1", "-configfile", "file", file=text)
    assert [(one.argv, one.np) for one in request.apps] == [
        (("a", '"b', 'c"', "#", "d"), 1),
        (("b",), 2),
        (("c",), 3),
    ]
    assert all(one.env == (("A", "1"),) for one in request.apps)


def test_a_file_of_programs_after_a_colon():
    request = parse("-n", "1", "a", ":", "--configfile=file", file="-n 2 b")
    assert [one.argv for one in request.apps] == [("a",), ("b",)]


@pytest.mark.parametrize("words", [["-n", "1", "sh", "-configfile", "x"], ["echo", "-configfile"]])
def test_a_program_may_have_an_argument_named_configfile(words):
    assert parse(*words).apps[0].argv[-1] == words[-1]


# --- refusals


@pytest.mark.parametrize(
    ("words", "where", "phrase"),
    [
        (["-foo", "prog"], "-foo", "no such option"),
        (["-pp", "1", "prog"], "-pp", "--ppn"),
        (["-x", "A", "prog"], "-x", "-genv VAR VALUE"),
        (["--mca", "btl", "tcp", "prog"], "--mca", "-genv OMPI_MCA_KEY VALUE"),
        (["--oversubscribe", "prog"], "--oversubscribe", "leave it out"),
        (["--allow-run-as-root", "prog"], "--allow-run-as-root", "leave it out"),
        (["--tag-output", "prog"], "--tag-output", "use -l"),
        (["--report-bindings", "prog"], "--report-bindings", "--dialect mpirun"),
        (["-n"], "-n", "missing"),
        (["-n", "0", "prog"], "-n", "1 or more"),
        (["-n", "2x", "prog"], "-n", "whole number"),
        (["-n", "1", "-np", "2", "prog"], "-np", "twice"),
        (["-ppn", "0", "prog"], "-ppn", "whole number"),
        (["-ppn", "1", "a", ":", "-ppn", "1", "b"], "-ppn", "given twice"),
        (["-hosts", "a", "-f", "b", "prog"], "-f", "-hosts was given too"),
        (["-hosts", "a:0", "prog"], "-hosts", "a gets no ranks"),
        (["-hosts", "a:x", "prog"], "-hosts", "slots"),
        (["-hosts", "a,+n1", "prog"], "-hosts", "hydra"),
        (["-hosts", ",", "prog"], "-hosts", "no host"),
        (["-f", "none", "prog"], "-f", "none"),
        (["-rankmap", "0", "prog"], "-rankmap", "no hosts are named"),
        (["-rankmap", "0,5", "-hosts", "a,b", "-n", "2", "prog"], "-rankmap", "no host 5"),
        (["-rankmap", "0", "-hosts", "a,b", "-n", "2", "prog"], "-rankmap", "1 rank, 2 start"),
        (["-rankmap", "x", "-hosts", "a", "prog"], "-rankmap", "(0,2,2)"),
        (["-rankmap", "-1", "-hosts", "a", "prog"], "-rankmap", "(0,2,2)"),
        (["-skip-launch-node", "prog"], "-skip-launch-node", "no hosts"),
        (["-skip-launch-node", "-hosts", "localhost", "prog"], "-skip-launch-node", "this one"),
        (["-order-nodes", "up", "prog"], "-order-nodes", "ascending"),
        (["-hosts", "a", "-n", "99999", "prog"], "-n", "65536"),
        (["-bind-to", "rr", "prog"], "-bind-to", "use core"),
        (["-bind-to", "user:0,1", "prog"], "-bind-to", "rankfile"),
        (["-bind-to", "gpu0", "prog"], "-bind-to", "numa"),
        (["-bind-to", "numa:2", "prog"], "-bind-to", "without a number"),
        (["-bind-to", "sokcet", "prog"], "-bind-to", "did you mean socket?"),
        (["-bind-to", "core", "-map-by", "socket", "prog"], "-map-by", "leave it out"),
        (["-launcher", "manual", "prog"], "-launcher", "-launcher-exec"),
        (["-launcher", "persist", "prog"], "-launcher", "write ssh"),
        (["-bootstrap", "pdsh", "prog"], "-bootstrap", "write ssh"),
        (["-bootstrap", "slrum", "prog"], "-bootstrap", "did you mean slurm?"),
        (["-rmk", "foo", "prog"], "-rmk", "user"),
        (["-rmk", "pbs", "-launcher", "slurm", "prog"], "-launcher", "for the same system"),
        (["-launcher", "slurm", "-launcher-exec", "/opt/ssh", "prog"], "-launcher-exec", "not how slurm"),
        (["-rmk", "slurm", "-rankmap", "0,1", "prog"], "-rankmap", "of the job"),
        (["-host", "a", "-rankmap", "0", "x", ":", "-host", "b", "x"], "-rankmap", "hosts of its own"),
        (["-demux", "epoll", "prog"], "-demux", "poll"),
        (["-env", "=x", "prog"], "-env", "NAME"),
        (["-genv", "A"], "-genv", "missing"),
        (["-configfile", "none"], "-configfile", "none"),
        (["-configfile="], "-configfile", "missing"),
        (["-configfile", "nested", "prog"], "-configfile", "write it last"),
        (["-n", "1"], "", "no program"),
        ([], "", "no program"),
        (["-configfile", "empty"], "", "no program"),
        (["-configfile", "nested"], "-configfile", "another"),
    ],
)
def test_refusals_name_the_option_and_what_is_expected(words, where, phrase):
    with pytest.raises(LaunchError) as caught:
        parse(*words, empty="\n#\n", nested="-configfile x")
    assert caught.value.where == where
    assert phrase in str(caught.value)


def test_a_configfile_needs_a_program():
    with pytest.raises(UsageError, match="'prog' is no option"):
        parse("x", environ={"HYDRA_CONFIG_FILE": "conf"}, conf="-n 2 prog")


WORDS = st.one_of(
    st.sampled_from([f"{dash}{name}" for name in by_name(TABLE) for dash in ("-", "--")]),
    st.sampled_from([":", "--", "-", "", "1", "0", "a", "a:2,b", "A=b", "core", "(0,1,1)", "-NP", "--env=A", "file"]),
    st.text(max_size=6),
    st.text(max_size=6).map("--".__add__),
)
ENVIRON = st.dictionaries(
    st.sampled_from([row.name for row in VARIABLES] + ["HYDRA_CONFIG_FILE"]),
    st.sampled_from(["", "0", "1", "x", "'", "file", "core"]) | st.text(max_size=4),
    max_size=3,
)


@given(st.lists(WORDS, max_size=10), ENVIRON)
@example(["-env"], {})
@example(["-genv=", "--"], {})
def test_any_arguments_give_a_request_a_refusal_or_a_text(words, environ):
    try:
        request = parse(*words, environ=environ, file=FILE)
    except (LaunchError, Show) as end:
        assert str(end)
        return
    assert all(one.argv and one.np for one in request.apps)
    assert all(len(one.sequence) in (0, one.np) for one in request.apps)


def test_options_of_mslaunch_are_looked_up_last():
    index = Index(TABLE, hydra.extras)
    assert index.get("pty") is not None and index.get("h").group == "Information"
