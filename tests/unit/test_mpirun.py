"""The mpirun dialect: every option in every spelling, what is refused and how, and the help made of the table."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mslaunch
from mslaunch.cli import mpirun
from mslaunch.cli.help import help_text
from mslaunch.cli.mpirun import PARAMETERS, TABLE, VARIABLES, parse
from mslaunch.cli.options import REFUSED, Show, by_name, spelled
from mslaunch.errors import LaunchError, UsageError
from mslaunch.model import AppContext, LinkPolicy, OutputPolicy, Policy, Request

ROOT = Path(__file__).resolve().parents[2]
PROG = AppContext(("prog",))


def job(**fields: object) -> Request:
    return Request((PROG,), **fields)


def app(**fields: object) -> Request:
    return Request((PROG._replace(**fields),))


def policy(**fields: object) -> Request:
    return job(policy=Policy(**fields))


def output(**fields: object) -> Request:
    return job(output=OutputPolicy(**fields))


def link(**fields: object) -> Request:
    return job(link=LinkPolicy(**fields))


#: words before `prog` -> the request; the first word without dashes is tried in all its spellings
DONE = [
    (["n", "4"], app(np=4)),
    (["np", "4"], app(np=4)),
    (["c", "4"], app(np=4)),
    (["x", "A"], app(env=(("A", None),))),
    (["x", "NCCL_*"], app(env=(("NCCL_*", None),))),
    (["x", "A="], app(env=(("A", ""),))),
    (["x", "A=b=c, 'd'\n*?é"], app(env=(("A", "b=c, 'd'\n*?é"),))),
    (["wdir", "/d"], app(wdir="/d")),
    (["wd", "d"], app(wdir="d")),
    (["mca", "btl", "^openib"], job(mca=(("btl", "^openib"),))),
    (["gmca", "x", ""], job(mca=(("x", ""),))),
    (["mca", "x", "-q"], job(mca=(("x", "-q"),))),
    (["allow-run-as-root"], job()),
    (["noprefix"], job()),
    (["H", "a:2,b"], app(hosts=("a:2,b",))),
    (["host", "a"], app(hosts=("a",))),
    (["hostfile", "f"], app(hostfile="f")),
    (["machinefile", "f"], app(hostfile="f")),
    (["default-hostfile", "f"], job(default_hostfile="f")),
    (["novm"], job()),
    (["map-by", "slot"], policy()),
    (["map-by", "NODE"], policy(map_by="node")),
    (["map-by", "nod"], policy(map_by="node")),
    (["map-by", ":OVERSUBSCRIBE"], policy(oversubscribe=True)),
    (["map-by", "node:oversubscribe"], policy(map_by="node", oversubscribe=True)),
    (["map-by", "ppr:2:node"], policy(per_node=2)),
    (["map-by", "ppr:2:node:OVERSUBSCRIBE"], policy(per_node=2, oversubscribe=True)),
    (["bynode"], policy(map_by="node")),
    (["byslot"], policy()),
    (["N", "2"], policy(per_node=2)),
    (["npernode", "2"], policy(per_node=2)),
    (["pernode"], policy(per_node=1)),
    (["oversubscribe"], policy(oversubscribe=True)),
    (["nooversubscribe"], policy()),
    (["bind-to", "none"], policy()),
    (["bind-to", "Core"], policy(bind_to="core")),
    (["bind-to-core"], policy(bind_to="core")),
    (["output-filename", "o"], output(directory="o")),
    (["output-filename", "o:nocopy"], output(directory="o", copy=False)),
    (["output-filename", "o:NOJOBID,nocopy"], output(directory="o", copy=False, jobid=False)),
    (["output-filename", "o:foo"], output(directory="o")),
    (["merge-stderr-to-stdout"], output(merge=True)),
    (["tag-output"], output(tag=True)),
    (["timestamp-output"], output(timestamp=True)),
    (["stdin", "3"], job(stdin="3")),
    (["stdin", "none"], job(stdin="none")),
    (["stdin", "ALL"], job(stdin="all")),
    (["pty", "no"], output(pty="no")),
    (["timeout", "1.5"], job(timeout=1.5)),
    (["timeout", "-1"], job()),
    (["grace", "0"], job(grace=0.0)),
    (["rsh-agent", "ssh -o 'A B'"], link(agent=("ssh", "-o", "A B"))),
    (["ssh-accept-new"], link(accept_new=True)),
    (["connect-timeout", "3"], link(timeout=3.0)),
    (["agent-python", "/usr/bin/python3.11"], link(python="/usr/bin/python3.11")),
    (["fanout", "8"], link(fanout=8)),
    (["display-map"], job(display_map=True)),
    (["display-allocation"], job(display_allocation=True)),
    (["do-not-launch"], job(do_not_launch=True)),
    (["q"], job(quiet=True)),
    (["quiet"], job(quiet=True)),
    (["v"], job(verbose=True)),
    (["verbose"], job(verbose=True)),
]


@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize(("words", "request_"), DONE, ids=lambda case: " ".join(case) if isinstance(case, list) else "")
def test_each_option(words, request_, dashes):
    name, *values = words
    assert parse([dashes + name, *values, "prog"], {}) == request_
    if len(values) == 1:
        assert parse([f"{dashes}{name}={values[0]}", "prog"], {}) == request_


def test_the_table_of_cases_names_every_option_that_is_done():
    done = {name for option in TABLE if option.status != REFUSED for name in option.names}
    assert {words[0] for words, _ in DONE} == done - {"h", "help", "V", "version"}


@pytest.mark.parametrize("name", [name for option in TABLE if option.status == REFUSED for name in option.names])
def test_each_refused_option_says_so_and_what_to_do(name):
    for dashes in ("-", "--"):
        with pytest.raises(UsageError, match=f"mslaunch does not have {dashes}{name} yet\n  ."):
            parse([dashes + name, "prog"], {})


def test_no_name_stands_twice_and_every_row_is_complete():
    names = [name for option in TABLE for name in option.names]
    assert len(names) == len(set(names))
    for option in TABLE:
        assert option.names
        assert option.help
        assert option.group


#: the long and short names in `mpirun --help unsupported` and in mpirun(1), 4.1.4
MPIRUN_4_1 = """
    allow-run-as-root am app bind-to bind-to-core bind-to-socket bycore bynode byslot c np cf cartofile continuous
    cpu-list cpu-set cpus-per-proc cpus-per-rank d debug-devel debug debug-daemons debug-daemons-file debugger
    default-hostfile disable-recovery display-allocation display-devel-allocation display-devel-map
    display-diffable-map display-map display-topo do-not-launch do-not-resolve dvm enable-instant-on-support
    enable-recovery fwd-mpirun-port get-stack-traces gmca h help H host hnp hostfile index-argv-by-rank launch-agent
    leave-session-attached machinefile map-by max-restarts max-vm-size mca merge-stderr-to-stdout N n nolocal
    nooversubscribe noprefix novm npernode npersocket ompi-server output-filename output-proctable oversubscribe path
    pernode personality ppr prefix preload-files q quiet rank-by report-bindings report-child-jobs-separately
    report-events report-pid report-state-on-timeout report-uri rf rankfile s preload-binary set-cwd-to-session-dir
    show-progress stdin tag-output terminate timeout timestamp-output tune tv use-hwthread-cpus use-regexp v verbose V
    version wd wdir x xml xml-file xterm
"""


def test_every_option_of_mpirun_4_1_is_in_the_table():
    assert set(MPIRUN_4_1.split()) - set(by_name(TABLE)) == set()


@pytest.mark.parametrize(
    ("words", "where", "phrase"),
    [
        (["-n", "x"], "-n", "'x'"),
        (["-n", "0"], "-n", "leave it out"),
        (["-n", "-1"], "-n", "1 or more"),
        (["-np2"], "-np2", "write -np 2"),
        (["-n2"], "-n2", "write -n 2"),
        (["-x", "=1"], "-x", "VAR"),
        (["-x", "A*=1"], "-x", "pattern"),
        (["-H", ""], "-H", "not empty"),
        (["-mapby", "node"], "-mapby", "did you mean --map-by?"),
        (["--map-by", "core"], "--map-by", "use slot"),
        (["--map-by", "node:PE=2"], "--map-by", "OVERSUBSCRIBE"),
        (["--map-by", "ppr:1"], "--map-by", "ppr:N:node"),
        (["--map-by", "ppr:1:core"], "--map-by", "ppr:N:node"),
        (["--map-by", "ppr:0:node"], "--map-by", "1 or more"),
        (["--bind-to", "socket"], "--bind-to", "none or core"),
        (["--stdin", "a rank"], "--stdin", "all or none"),
        (["--stdin", "-1"], "--stdin", "all or none"),
        (["--timeout", "x"], "--timeout", "seconds"),
        (["--connect-timeout", "0"], "--connect-timeout", "more than 0"),
        (["--output-filename", "a:/b"], "--output-filename", "colon"),
        (["--output-filename", ":nocopy"], "--output-filename", "PATH"),
        (["--pty", "maybe"], "--pty", "auto, yes or no"),
        (["--rsh-agent", " "], "--rsh-agent", "command"),
        (["--rsh-agent", "'ssh"], "--rsh-agent", "quot"),
        (["--hostfile", "a", "-machinefile", "b"], "-machinefile", "twice"),
        (["-mca", "a", "1", "--mca", "a", "1"], "-mca", "parameter a was given twice"),
        (["-mca", "a=b", "1"], "-mca", "KEY VALUE"),
        (["-mca", "foo"], "-mca", "is missing"),
        (["-mca", "plm_rsh_agent", ": rsh"], "-mca plm_rsh_agent", "command"),
        (["-mca", "orte_abort_on_non_zero_status", "2"], "-mca orte_abort_on_non_zero_status", "1 or 0"),
        (["-mca", "mca_base_env_list", "A", "-x", "B"], "-mca", "do not mix"),
    ],
)
def test_refusals_name_the_option_and_what_is_expected(words, where, phrase):
    with pytest.raises(UsageError) as caught:
        parse([*words, "prog"] if words != ["-mca", "foo"] else words, {})
    assert caught.value.where == where
    assert phrase in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "request_"),
    [
        ("orte_abort_on_non_zero_status", "0", job(abort_on_failure=False)),
        ("orte_default_hostfile", "/etc/mpi/hostfile", job(default_hostfile="/etc/mpi/hostfile")),
        ("odls_base_sigkill_timeout", "5", job(grace=5.0)),
        ("plm_rsh_agent", "/etc/mpi/kubexec.sh", link(agent=("/etc/mpi/kubexec.sh",))),
        ("plm_rsh_agent", "ssh : rsh", link(agent=("ssh",))),
        ("plm_rsh_agent", "ssh:rsh", link(agent=("ssh",))),
        ("plm_rsh_agent", "ssh -J gate:22 : rsh", link(agent=("ssh", "-J", "gate:22"))),
        ("plm_rsh_args", "-p 2222 -i 'my key'", link(agent_args=("-p", "2222", "-i", "my key"))),
        ("rmaps_base_oversubscribe", "true", policy(oversubscribe=True)),
        ("rmaps_base_mapping_policy", "node:OVERSUBSCRIBE", policy(map_by="node", oversubscribe=True)),
        ("hwloc_base_binding_policy", "core", policy(bind_to="core")),
        ("orte_tag_output", "1", output(tag=True)),
        ("orte_timestamp_output", "1", output(timestamp=True)),
        ("mca_base_env_list", "A;B=2", app(env=(("A", None), ("B", "2")))),
    ],
)
def test_parameters_that_steer_come_from_mca_and_from_the_environment(key, value, request_):
    assert parse(["-mca", key, value, "prog"], {}) == request_
    assert parse(["prog"], {"OMPI_MCA_" + key: value}) == request_


@pytest.mark.parametrize(
    ("environ", "request_"),
    [
        ({"MPIEXEC_TIMEOUT": "3"}, job(timeout=3.0)),
        ({"MPIEXEC_TIMEOUT": "0"}, job()),
        ({"MPIEXEC_TIMEOUT": ""}, job()),
        ({"MSLAUNCH_OVERSUBSCRIBE": "1"}, policy(oversubscribe=True)),
        ({"HYDRA_HOST_FILE": "h"}, job(default_hostfile="h")),
        ({"HYDRA_HOST_FILE": "h", "PRTE_MCA_prte_default_hostfile": "p"}, job(default_hostfile="p")),
        (
            {"PRTE_MCA_prte_default_hostfile": "p", "OMPI_MCA_orte_default_hostfile": "o"},
            job(default_hostfile="o"),
        ),
        ({"OMPI_MCA_btl": "tcp", "NP": "3"}, job()),  # inherited as it is
    ],
)
def test_variables(environ, request_):
    assert parse(["prog"], environ) == request_


def test_a_bad_variable_is_named():
    with pytest.raises(UsageError) as caught:
        parse(["prog"], {"MPIEXEC_TIMEOUT": "soon"})
    assert caught.value.where == "MPIEXEC_TIMEOUT"


def test_options_win_over_parameters_and_these_over_the_environment():
    environ = {"OMPI_MCA_plm_rsh_agent": "e", "MPIEXEC_TIMEOUT": "9", "MSLAUNCH_OVERSUBSCRIBE": "1"}
    words = ["--timeout", "0", "--nooversubscribe", "-mca", "plm_rsh_agent", "m", "prog"]
    assert parse(words, environ) == link(agent=("m",))
    assert parse(["--rsh-agent", "o", *words], environ) == link(agent=("o",))


def test_what_follows_the_program_is_the_program_s():
    words = ["sh", "-c", "x", "-mca", "a", "b", "--", "-n", "2", "--help", ""]
    assert parse(["-n", "1", *words], {}) == Request((AppContext(tuple(words), 1),))


def test_repeated_options():
    words = ["-n", "1", "-np", "2", "-H", "a", "-H", "b,c", "-x", "A=1", "-x", "B", "-x", "A=2", "prog"]
    assert parse(words, {}) == app(np=2, hosts=("a", "b,c"), env=(("A", "1"), ("B", None), ("A", "2")))


def test_several_programs():
    line = "-n 1 -H a -x A=1 -wdir /d a : -np 2 --hostfile f --tag-output -mca x 1 b -q : -mca x 1 c :"
    words = line.split()
    assert parse(words, {}) == Request(
        (
            AppContext(("a",), 1, (("A", "1"),), "/d", ("a",)),
            AppContext(("b", "-q"), 2, hostfile="f"),
            AppContext(("c",)),
        ),
        output=OutputPolicy(tag=True),
        mca=(("x", "1"),),
    )


def test_programs_may_not_disagree_on_a_parameter():
    with pytest.raises(UsageError, match="parameter x was given two values"):
        parse(["-mca", "x", "1", "a", ":", "-mca", "x", "2", "b"], {})


def test_a_program_without_a_name_behind_a_colon_is_told_about_the_colon():
    with pytest.raises(UsageError, match="lone ':'"):
        parse(["-n", "1", "awk", ":", "-q"], {})


@pytest.mark.parametrize("words", [["-V"], ["--version"], ["-n", "1", "--version", "prog"]])
def test_version(words):
    with pytest.raises(Show) as caught:
        parse(words, {})
    assert caught.value.text == f"mslaunch {mslaunch.__version__}"


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["-help"], ["--help", "mapping"], ["-q", "-h", "--foo"]])
def test_help(words):
    with pytest.raises(Show) as caught:
        parse(words, {})
    assert caught.value.text.startswith("usage: mslaunch ")


@pytest.mark.parametrize("width", [0, 60, 80, 100, 400])
def test_help_fits_and_names_everything(width):
    text = help_text(TABLE, width, PARAMETERS, VARIABLES)
    prose = text.partition("Examples:")[0]  # commands are not broken
    assert max(map(len, prose.splitlines())) <= max(60, min(width, 100))
    squeezed = " ".join(text.split())
    for option in TABLE:
        assert all(spelled(name) in text for name in option.names)
        assert f"(default: {option.default})" in squeezed or not option.default
    for row in (*PARAMETERS, *VARIABLES):
        assert row.name in text


def test_the_examples_of_the_help_are_understood():
    from mslaunch.cli.help import EXAMPLES

    for _, command in EXAMPLES:
        launcher, *words = command.split()
        assert launcher == "mslaunch"
        assert parse(words, {}).apps[0].argv == ("python", "train.py")


def test_the_defaults_in_the_help_are_those_of_the_records():
    fresh = job()
    known = {
        "policy": fresh.policy._asdict(),
        "output": fresh.output._asdict(),
        "link": fresh.link._asdict(),
        "": fresh._asdict(),
    }
    for option in TABLE:
        room, _, field = option.field.rpartition(".")
        if option.default and option.field and field in known.get(room, {}) and "-" not in field:
            value = known[room][field]
            if value not in (None, ()):
                assert option.read(option.default) == value, option.names


def test_parsing_imports_nothing_slow():
    code = (
        "import sys; before = set(sys.modules)\n"
        "from mslaunch.cli.mpirun import parse\n"
        "parse(['-n', '2', '-x', 'A=1', '-mca', 'plm_rsh_agent', 'ssh -p 2', 'prog'], {})\n"
        "slow = 're typing enum textwrap difflib argparse shlex shutil socket json inspect collections'.split()\n"
        "print(*[name for name in slow if name in set(sys.modules) - before])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == []


def test_docs_are_fresh():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make-docs"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="=*?-\0"), min_size=1, max_size=8).filter(
    lambda name: name != ":"
)
VALUES = st.text(max_size=12).filter(lambda value: value != ":")
SECONDS = st.floats(min_value=0.001, max_value=1e8)
APPS = st.builds(
    AppContext,
    argv=st.tuples(NAMES, VALUES),
    np=st.none() | st.integers(1, 999_999_999),
    env=st.lists(st.tuples(NAMES, st.none() | VALUES), max_size=3).map(tuple),
    wdir=st.none() | NAMES,
    hosts=st.lists(NAMES, max_size=2).map(tuple),
    hostfile=st.none() | NAMES,
)
REQUESTS = st.builds(
    Request,
    apps=st.lists(APPS, min_size=1, max_size=3).map(tuple),
    policy=st.builds(
        Policy,
        map_by=st.sampled_from(["slot", "node"]),
        per_node=st.none() | st.integers(1, 99),
        oversubscribe=st.booleans(),
        bind_to=st.sampled_from(["none", "core"]),
    ),
    output=st.builds(
        OutputPolicy,
        directory=NAMES.filter(lambda name: ":" not in name),
        copy=st.booleans(),
        jobid=st.booleans(),
        merge=st.booleans(),
        tag=st.booleans(),
        timestamp=st.booleans(),
        pty=st.sampled_from(["auto", "yes", "no"]),
    ),
    link=st.builds(
        LinkPolicy,
        agent=st.just(()) | st.tuples(NAMES, VALUES),
        agent_args=st.lists(VALUES, max_size=2).map(tuple),
        accept_new=st.booleans(),
        timeout=SECONDS,
        python=NAMES,
        fanout=st.integers(1, 999),
    ),
    default_hostfile=st.none() | NAMES,
    stdin=st.sampled_from(["0", "17", "all", "none"]),
    timeout=st.none() | SECONDS,
    grace=SECONDS,
    mca=st.dictionaries(NAMES.filter(lambda name: "_" not in name), VALUES, max_size=2).map(lambda d: tuple(d.items())),
    abort_on_failure=st.booleans(),
    display_map=st.booleans(),
    display_allocation=st.booleans(),
    do_not_launch=st.booleans(),
    quiet=st.booleans(),
    verbose=st.booleans(),
)


def render(request: Request) -> list[str]:
    """The command line of a request, each field by the option that sets it."""
    where, out, link_ = request.policy, request.output, request.link
    modifiers = [word for word, keep in (("nocopy", out.copy), ("nojobid", out.jobid)) if not keep]
    flags = {
        "--oversubscribe": where.oversubscribe,
        "--merge-stderr-to-stdout": out.merge,
        "-tag-output": out.tag,
        "--timestamp-output": out.timestamp,
        "--ssh-accept-new": link_.accept_new,
        "--display-map": request.display_map,
        "-display-allocation": request.display_allocation,
        "--do-not-launch": request.do_not_launch,
        "-q": request.quiet,
        "--verbose": request.verbose,
    }
    words = [flag for flag, given_ in flags.items() if given_]
    words += ["--map-by", where.map_by, "-bind-to", where.bind_to, f"--pty={out.pty}", "--stdin", request.stdin]
    words += ["-N", str(where.per_node)] if where.per_node else []
    words += ["--output-filename", ":".join([out.directory or "", *([",".join(modifiers)] if modifiers else [])])]
    words += ["--connect-timeout", repr(link_.timeout), "--agent-python", link_.python, f"--fanout={link_.fanout}"]
    words += ["--rsh-agent", shlex.join(link_.agent)] if link_.agent else []
    words += ["-mca", "plm_rsh_args", shlex.join(link_.agent_args)]
    words += [f"--default-hostfile={request.default_hostfile}"] if request.default_hostfile else []
    words += ["--timeout", repr(request.timeout or 0), "--grace", repr(request.grace)]
    words += [word for pair in request.mca for word in ("-mca", *pair)]
    words += [] if request.abort_on_failure else ["--mca", "orte_abort_on_non_zero_status", "0"]
    for index, app_ in enumerate(request.apps):
        words += [":"] if index else []
        words += ["-np", str(app_.np)] if app_.np else []
        words += [word for name, value in app_.env for word in ("-x", name if value is None else f"{name}={value}")]
        words += [f"--wdir={app_.wdir}"] if app_.wdir else []
        words += [word for text in app_.hosts for word in ("-H", text)]
        words += ["-hostfile", app_.hostfile] if app_.hostfile else []
        words += ["--", *app_.argv]
    return words


@given(REQUESTS)
def test_a_request_written_as_a_command_line_is_read_back(request_):
    assert parse(render(request_), {}) == request_


WORDS = st.one_of(
    st.sampled_from([f"{dash}{name}" for name in by_name(TABLE) for dash in ("-", "--")]),
    st.sampled_from([row.name for row in PARAMETERS]),
    st.sampled_from([":", "--", "-", "", "1", "0", "a", "slot", "ppr:1:node", "a : b", "'", "-qv", "-n2", "--np="]),
    st.text(max_size=6),
    st.text(max_size=6).map("--".__add__),
)
ENVIRON = st.dictionaries(
    st.sampled_from(["OMPI_MCA_" + row.name for row in PARAMETERS] + [row.name for row in VARIABLES]),
    st.sampled_from(["", "0", "1", "x", "'", ":", "node"]) | st.text(max_size=4),
    max_size=3,
)


@given(st.lists(WORDS, max_size=10), ENVIRON)
def test_any_words_give_a_request_a_refusal_or_something_to_show(words, environ):
    try:
        request = parse(words, environ)
    except (LaunchError, Show) as end:
        assert str(end)
        return
    assert all(app_.argv for app_ in request.apps)


def test_the_dialect_knows_its_groups():
    assert {option.group for option in TABLE if option.status == REFUSED} == {mpirun.LATER}
