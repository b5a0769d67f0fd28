"""--backend openmpi as far as it is pure: words, wrapper, tags, endings; and the option itself."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.backends.openmpi import find_mpirun, rank_wrapper, translate_options
from mslaunch.backends.openmpi.demux import TagParser
from mslaunch.backends.openmpi.find_mpirun import OpenMpiInstallation
from mslaunch.backends.openmpi.mpirun_job import make_job
from mslaunch.backends.openmpi.mpirun_outcome import failure_of_mpirun, first_failed_rank
from mslaunch.cli.main import parse
from mslaunch.datamodel.jobmap import Endpoint
from mslaunch.datamodel.outcome import Failure
from mslaunch.errors import EXIT_LOST, EXIT_UNREACHED, LaunchError, UsageError
from mslaunch.host.usable_cpus import cores_here
from mslaunch.plan.mapping.pipeline import allocate

OLD = OpenMpiInstallation("/usr/bin/mpirun", (4, 1, 4))
NEW = OpenMpiInstallation("/opt/bin/mpirun", (5, 0, 11))
HERE = "here"


def job_of(text, mpirun=OLD, files=None, environ=None):
    """The job for Open MPI of a command line, with hosts in `files`."""
    environ = environ or {"HOME": "/home/u", "PATH": "/bin"}
    request = parse(["--backend", "openmpi", *text.split()], environ, read(files or {}))
    translate_options.refuse(request)
    allocation = allocate(request, read(files or {}), lambda name: name == HERE, HERE, 2)
    return make_job(request, allocation, mpirun, environ, "/work", "abc")


def read(files):
    def text(path):
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return files[path]

    return text


def arguments_of(text, mpirun=OLD, **more):
    """mpirun's arguments for the job and its programs; a comma begins each program."""
    made = job_of(text, mpirun, **more).options
    always = ["--allow-run-as-root"] * (not os.geteuid())
    always += ["--prtemca", "pmix_tool_support", "0"] * (mpirun.style == "5.0")
    assert list(made.job[: len(always)]) == always
    return " ".join(made.job[len(always) :]), [" ".join(program) for program in made.programs]


# --- the options


@pytest.mark.parametrize("word", ["openmpi", "openmpi:/opt/ompi", "OpenMPI"])
def test_the_backend_is_read(word):
    assert parse(["--backend", word, "x"], {}, read({})).backend.startswith("openmpi")


@pytest.mark.parametrize("word", ["mpich", "", "openmpi:", "openmpi5"])
def test_an_unknown_backend_is_refused(word):
    with pytest.raises(UsageError) as refused:
        parse(["--backend", word, "x"], {}, read({}))
    assert "openmpi or openmpi:PLACE" in refused.value.what


@pytest.mark.parametrize("word", ["auto", "pmi1", "pmi2", "pmix", "none", "pmix:/opt/libpmix.so.2", "PMIX"])
def test_the_mpi_option_is_read_for_each_program(word):
    first, second = parse(["--mpi", word, "x", ":", "y"], {}, read({})).apps
    assert first.mpi == (word.lower() if ":" not in word else word) and second.mpi == "auto"


@pytest.mark.parametrize("word", ["pmi", "pmix:", "openmpi", "", "pmi1:/x"])
def test_the_value_of_mpi_is_checked(word):
    with pytest.raises(UsageError):
        parse(["--mpi", word, "x"], {}, read({}))


# --- the arguments of mpirun


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("-n 2 x", "--stdin none", "--stdin none"),
        ("-n 2 -H a,b --stdin 1 x", "--stdin 1", "--stdin 1"),
        ("-n 2 --map-by node x", "--map-by node --stdin none", "--map-by node --stdin none"),
        ("-n 2 --map-by slot:PE=2 x", "--map-by slot:PE=2 --stdin none", "--map-by slot:PE=2 --stdin none"),
        ("-N 2 x", "--map-by ppr:2:node --stdin none", "--map-by ppr:2:node --stdin none"),
        ("-n 9 --oversubscribe x", "--oversubscribe --stdin none", "--map-by :OVERSUBSCRIBE --stdin none"),
        ("-n 9 x", "--oversubscribe --stdin none", "--map-by :OVERSUBSCRIBE --stdin none"),
        ("-n 2 --bind-to core:overload-allowed x", "--bind-to core:overload-allowed --stdin none", None),
        ("-n 2 --bind-to socket x", "--bind-to socket --stdin none", "--bind-to package --stdin none"),
        ("-n 2 --cpu-set 0,1 x", "--cpu-set 0,1 --stdin none", "--map-by :PE-LIST=0,1 --stdin none"),
        ("-n 2 --use-hwthread-cpus x", "--use-hwthread-cpus --stdin none", "--map-by :HWTCPUS --stdin none"),
        ("-n 2 --rank-by node x", "--rank-by node --stdin none", "--rank-by node --stdin none"),
        (
            "-n 2 --map-by core --rank-by fill x",
            "--map-by core --rank-by core:fill --stdin none",
            "--map-by core --rank-by fill --stdin none",
        ),
        ("-n 2 --mca btl tcp,self x", "--stdin none --mca btl tcp,self", "--stdin none --mca btl tcp,self"),
        ("-n 2 --display-map x", "--display-map --stdin none", "--display map --stdin none"),
        ("-n 2 --report-bindings x", "--report-bindings --stdin none", "--display bind --stdin none"),
        ("-n 2 --rsh-agent rsh x", "--mca plm_rsh_agent rsh --stdin none", "--prtemca plm_ssh_agent rsh --stdin none"),
        (
            "-n 2 --grace 5 x",
            "--stdin none --mca odls_base_sigkill_timeout 5",
            "--stdin none --prtemca odls_base_sigkill_timeout 5",
        ),
    ],
)
def test_options_of_the_job_are_translated(text, old, new):
    assert arguments_of(text)[0] == old
    assert new is None or arguments_of(text, NEW)[0] == new


def test_options_for_debuggers_are_passed_on():
    made = job_of("-n 1 --mca pmix_tool_support 1 x", NEW).options
    assert "--prtemca" not in made.job and made.job[-3:] == ("--mca", "pmix_tool_support", "1")


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("-n 3 -H a:2,b:2 x", ["-H a:2,b:2 -n 3"]),
        ("-H a:2,b:2 x", ["-H a:2,b:2 -n 4"]),
        ("-H b,here x", ["-H here:1,b:1 -n 2"]),
        ("-n 1 -H a x : -n 2 -H b:2 y", ["-H a:1 -n 1", "-H b:2 -n 2"]),
        ("--hostfile f x", ["-H n01:2,n02:2 -n 4"]),
        ("--hostfile users x", ["--hostfile HOSTFILE -n 2"]),
        ("--hostfile cores -n 3 x", ["--hostfile HOSTFILE -n 3"]),
        ("-n 1 -x A=1 -x PATH x", ["-n 1 -x A -x PATH"]),
        ("-n 1 -x A=1 -x A=2 -x NO x", ["-n 1 -x A"]),
        ("-n 1 -x NC* x", ["-n 1 -x NCCL_A -x NCCL_B"]),
        ("-n 1 --prefix /opt x", ["-n 1 --prefix /opt"]),
        ("--map-by seq --hostfile f x", ["-H n01,n02 -n 2"]),
    ],
)
def test_hosts_and_programs_are_translated(text, programs):
    files = {"f": "n[01-02] slots=2\n", "users": "joe@a slots=1\nb slots=1\n", "cores": "a\nb slots=2\n"}
    environ = {"PATH": "/bin", "NCCL_A": "1", "NCCL_B": "2", "HOME": "/h"}
    assert arguments_of(text, files=files, environ=environ)[1] == programs


@pytest.mark.parametrize(
    ("text", "programs", "env"),
    [
        ("-x A=1 -x B -n 1 x", "-x A -x B", ("A=1",)),
        ("-x A=1 -n 1 x : -x A=1 -n 1 y", "-x A, -x A", ("A=1",)),
        ("-x A=1 -n 1 x : -x A=2 -n 1 y", "-x A=1, -x A=2", ()),  # one environment cannot have both
        ("-x A=1 -n 1 x : -n 1 y", "-x A=1, ", ()),  # the ranks of y would inherit it
        # with these in its environment mpirun takes itself for a part of a batch job, and looks for its hosts there
        ("-x SLURM_JOBID=5 -x PE_HOSTFILE=/h -n 1 x", "-x SLURM_JOBID=5 -x PE_HOSTFILE=/h", ()),
        ("-x PATH=/p -x LD_PRELOAD=l -x OMPI_MCA_x=1 -n 1 x", "-x PATH=/p -x LD_PRELOAD=l -x OMPI_MCA_x=1", ()),
        ("--tune f -n 1 x", "-x T -x B", ("T=tune-secret", "B=2")),
        ("-mca mca_base_env_list A=1;B=2 -n 1 x", "-x A -x B", ("A=1", "B=2")),
    ],
)
def test_values_of_variables_are_in_the_environment_of_mpirun(text, programs, env):
    environ = {"B": "2", "HOME": "/h"}
    options = job_of(text, files={"f": "-x T=tune-secret -x B=2\n"}, environ=environ).options
    assert ", ".join(" ".join(words[2:]) for words in options.programs) == programs
    assert options.env == env


def test_hosts_go_into_a_file_if_options_cannot_express_them():
    files = {"f": "joe@a slots=1\nb\nhere slots=2\n"}
    assert job_of("--hostfile f -n 2 x", files=files).options.hostfile == "here slots=2\njoe@a slots=1\nb\n"


def test_a_port_common_to_all_hosts_goes_to_ssh():
    job, _ = arguments_of("--hostfile f x", files={"f": "a port=22 slots=1\n"})
    assert job == "--mca plm_rsh_args -p 22 --stdin 0"
    with pytest.raises(UsageError, match="one ssh command for all hosts"):
        job_of("--hostfile f x", files={"f": "a port=22 slots=1\nb slots=1\n"})


def test_the_prefix_of_open_mpi_goes_to_other_hosts():
    there = OLD._replace(prefix="/opt/ompi")
    assert arguments_of("-H a x", there)[0] == "--prefix /opt/ompi --stdin 0"
    assert arguments_of("-n 1 x", there)[0] == "--stdin none"


@pytest.mark.parametrize(
    "text",
    [
        "--enable-recovery -n 1 x", "--max-restarts 2 -n 1 x", "--get-stack-traces -n 1 x", "--xterm 0 -n 1 x",
        "--report-state-on-timeout -n 1 x", "--index-argv-by-rank -n 1 x", "--preload-binary -n 1 x",
        "--preload-files f -n 1 x", "--stdin all -n 1 x", "--output tag-detailed -n 1 x", "--display-table -n 1 x",
        "--mca orte_abort_on_non_zero_status 0 -n 1 x", "--set-cwd-to-session-dir -n 1 x", "--mpi pmi2 -n 1 x",
        "--mpi none -n 1 x", "-n 1 x : --mpi pmix -n 1 y", "--spawn no -n 1 x",
        "--agent-python /opt/bin/python3 -n 1 x",
        "--progress yes -n 1 x", "--progress plain -n 1 x",
        "--fold -n 1 x", "--show-ranks 0 -n 1 x", "--heartbeat 1 -n 1 x", "--lease 0 -n 1 x", "--lease 60 -n 1 x",
    ],
)  # fmt: skip
def test_options_that_mpirun_cannot_do_are_refused(text):
    with pytest.raises(UsageError) as refused:
        job_of(text)
    assert refused.value.what.startswith("not with --backend openmpi: ") and refused.value.todo


def test_the_defaults_of_our_own_agents_are_no_options():
    assert job_of("--mpi auto --agent-python python3 -n 1 x").options == job_of("-n 1 x").options


@pytest.mark.parametrize(
    "text", ["--rank-by core -n 1 x", "--map-by board -n 1 x", "--bind-to cpu-list --cpu-set 0 -n 1 x"]
)
def test_options_that_open_mpi_5_cannot_do_are_refused(text):
    job_of(text)
    with pytest.raises(UsageError, match="not with --backend openmpi"):
        job_of(text, NEW)


def test_ranking_by_what_ranks_are_mapped_by_needs_it_for_open_mpi_4():
    with pytest.raises(UsageError, match="--rank-by fill: not with --backend openmpi"):
        job_of("--rank-by fill -n 1 x")


def test_the_number_of_ranks_is_given_where_it_is_known():
    assert job_of("x").size == 2
    assert job_of("-n 3 -H a:2,b:2 --map-by node x").size == 3
    with pytest.raises(UsageError, match="depends on the cores of other hosts"):
        job_of("--hostfile f x", files={"f": "a\n"})
    with pytest.raises(LaunchError, match="slots"):
        job_of("-n 5 -H a:2,b:2 x")


@pytest.mark.parametrize(
    ("text", "address", "scheduler"),
    [
        ("-n 2 x", "10.0.0.1", True),
        ("-H here,b x", "10.0.0.1", True),
        ("-H a,b x", "a", False),
        ("-H here,b --nolocal x", "b", False),
    ],
)
def test_the_rendezvous_address_of_ranks(text, address, scheduler):
    endpoint = job_of(text).endpoint("10.0.0.1", (5000, 5001))
    far = any(not node.local for node in job_of(text).allocation.nodes)
    assert endpoint == Endpoint(address, 5000, 5001 if scheduler else 0, "10.0.0.1", ("*",) if far else ())


# --- the wrapper


NOWHERE = rank_wrapper.LocalPaths()


def run_wrapper(argv, streams=NOWHERE, wdir="/", path="", merge=False, shift=0, taken=(), *, text=True, size=8, **env):
    variables = rank_wrapper.framework_variables(Endpoint("10.0.0.1", 5000, 5001, "10.0.0.2"), "ff", taken)
    line = rank_wrapper.wrap(size, argv, wdir, path, streams, merge, shift, variables)
    rank = dict(zip(("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"), ("5", "8", "1", "4")))
    of_mpi = {f"OMPI_COMM_WORLD_{name}": value for name, value in rank.items()}
    of_mpi["PMIX_SERVER_URI2"] = "prterun-a.b-1@0.1;tcp4://127.0.0.1:1"
    env = {"PATH": "/usr/bin:/bin", **of_mpi, **env}
    return subprocess.run(line, env=env, capture_output=True, text=text, check=False, timeout=20)


@pytest.mark.parametrize(("prrte", "slept"), [(False, ""), (True, "0.1")])
def test_a_rank_of_prrte_waits_until_its_pid_is_noted(tmp_path, prrte, slept):
    """A rank that ends before that makes Open MPI 5 hang: openpmix/prrte#2713."""
    (tmp_path / "sleep").write_text('#!/bin/sh\nprintf %s "$1"\n')
    (tmp_path / "sleep").chmod(0o755)
    line = rank_wrapper.wrap(1, ["true"], "/", "", NOWHERE, False, 0, [".", "."], prrte=prrte)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "OMPI_COMM_WORLD_RANK": "0"}
    ended = subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=20)
    assert (ended.returncode, ended.stdout) == (0, slept), ended.stderr


def variables_of(**how):
    out = run_wrapper(["env"], **how).stdout
    return dict(line.partition("=")[::2] for line in out.splitlines())


def test_the_wrapper_sets_the_variables_of_a_rank():
    env = variables_of()
    expected = {
        "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "1", "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "5000", "RANK_ID": "5", "RANK_SIZE": "8", "DEVICE_ID": "1",
        "LOCAL_RANK_SIZE": "4", "MS_ROLE": "MS_WORKER", "MS_NODE_ID": "5", "MS_WORKER_NUM": "8",
        "MS_SCHED_HOST": "10.0.0.2", "MS_SCHED_PORT": "5001", "MSLAUNCH_JOBID": "ff", "PYTHONUNBUFFERED": "1",
        "MS_TOPO_TIMEOUT": "600", "OMPI_COMMAND": "env", "PWD": "/",
    }  # fmt: skip
    assert {name: env.get(name) for name in expected} == expected
    assert "OMPI_ARGV" not in env


def test_variables_of_the_user_win():
    env = variables_of(taken=["RANK_ID", "MASTER_ADDR"], RANK_ID="x", MASTER_ADDR="y", PYTHONUNBUFFERED="")
    assert (env["RANK_ID"], env["MASTER_ADDR"], env["PYTHONUNBUFFERED"], env["RANK"]) == ("x", "y", "", "5")


@pytest.mark.parametrize(
    ("how", "lower", "upper"),
    [
        ({}, "1", "1"),
        ({"size": 256}, "1", "1"),
        ({"size": 257}, None, None),
        ({"MS_RETRY_INTERVAL_LOWER": "2"}, "2", None),
        ({"MS_RETRY_INTERVAL_UPPER": ""}, None, ""),
    ],
)
def test_workers_poll_their_scheduler_often_unless_the_user_sets_the_interval(how, lower, upper):
    env = variables_of(**how)
    assert (env.get("MS_RETRY_INTERVAL_LOWER"), env.get("MS_RETRY_INTERVAL_UPPER")) == (lower, upper)


def test_the_node_number_of_a_rank():
    assert variables_of(shift=1)["NODE_RANK"] == "0"
    assert "NODE_RANK" not in variables_of(PMIX_SERVER_URI2="", NODE_RANK="7")
    assert variables_of(PMIX_SERVER_URI2="x", OMPI_COMM_WORLD_LOCAL_SIZE="8")["NODE_RANK"] == "0"


def test_no_variables_of_a_scheduler_without_one():
    found = rank_wrapper.framework_variables(Endpoint("a", 1, 0), "ff", ())
    assert not [word for word in found if word.startswith("MS_")] and "RANK_ID=rank" in found


WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=40, deadline=None)
@given(words_=st.lists(WORD, max_size=5), value=WORD)
def test_no_argument_of_the_user_is_read_by_the_shell(words_, value):
    give = "os.write(1, b'|'.join(map(os.fsencode, [*sys.argv[1:], os.environ['GIVEN']])))"
    program = f"import os, sys; {give}"
    done = run_wrapper(["python3", "-S", "-c", program, *words_], text=False, GIVEN=value, PYTHONUTF8="1")
    assert done.stdout == "|".join([*words_, value]).encode() and done.returncode == 0, done.stderr


def test_the_wrapper_finds_a_program_as_the_agent_does(tmp_path):
    script = tmp_path / "prog"
    script.write_text("#!/bin/sh\necho $0\n")
    assert run_wrapper(["prog"], wdir=str(tmp_path)).returncode == 126  # it is there, and may not be executed
    script.chmod(0o755)
    assert run_wrapper(["prog"], wdir=str(tmp_path)).stdout == "./prog\n"
    assert run_wrapper(["./prog"], wdir=str(tmp_path)).stdout == "./prog\n"
    assert run_wrapper(["prog"], path=str(tmp_path)).stdout == f"{script}\n"
    missing = run_wrapper(["nosuch"])
    assert (missing.returncode, missing.stdout) == (127, "") and "the program nosuch was not found" in missing.stderr
    assert run_wrapper(["./nosuch"]).returncode == 127
    lost = run_wrapper(["true"], wdir="/nonexistent")
    assert lost.returncode == 126 and "the working directory /nonexistent cannot be entered" in lost.stderr


def test_the_wrapper_reports_rank_host_and_pid():
    done = run_wrapper(["sh", "-c", "echo out; echo err >&2"], rank_wrapper.LocalPaths("hello-1"))
    hello, err = done.stderr.splitlines()
    assert hello.split()[:2] == ["hello-1", "5"] and hello.split()[3] == os.uname().nodename
    assert (err, done.stdout) == ("err", "out\n")
    merged = run_wrapper(["sh", "-c", "echo out; echo err >&2"], rank_wrapper.LocalPaths("hello-1"), merge=True)
    assert merged.stdout == "out\nerr\n" and len(merged.stderr.splitlines()) == 1


# --- the tags


def tagged(pieces, blank):
    """As mpirun writes them: 4.1 a tag for each piece and each line in it."""
    out = b""
    for rank, data in pieces:
        tag = b"[1,%d]<stdout>:" % rank + (b" " if blank else b"")
        out += b"".join(tag + line for line in data.splitlines(keepends=True))
    return out


PIECES = st.lists(st.tuples(st.integers(0, 12), st.binary(min_size=1, max_size=40).filter(lambda d: b"<std" not in d)))


def whole_lines(pieces):
    return [(rank, data.rstrip(b"\n") + b"\n") for rank, data in pieces]


@given(pieces=PIECES, cuts=st.lists(st.integers(1, 50)), blank=st.booleans())
def test_tags_come_off_however_the_stream_is_cut(pieces, cuts, blank):
    """bytes.splitlines also cuts at a carriage return, mpirun does not."""
    other_ends = bytes.maketrans(b"\r", b".")
    pieces = whole_lines([(rank, data.translate(other_ends)) for rank, data in pieces])
    stream, untag, found = tagged(pieces, blank), TagParser(blank), {}
    for cut in [*cuts, len(stream)]:
        for rank, data in untag.feed(stream[:cut]):
            found[rank] = found.get(rank, b"") + data
        stream = stream[cut:]
    for rank, data in untag.feed(b""):
        found[rank] = found.get(rank, b"") + data
    expected = {}
    for rank, data in pieces:
        expected[rank] = expected.get(rank, b"") + data
    assert found == expected


@given(st.binary())
def test_any_bytes_are_parsed(data):
    untag = TagParser(False)
    assert sum(len(piece) for _, piece in [*untag.feed(data), *untag.feed(b"")]) <= len(data)


def untagged(data, blank=False):
    untag = TagParser(blank)
    return [*untag.feed(data), *untag.feed(b"")]


def test_a_line_in_pieces_is_joined():
    assert untagged(b"[1,0]<stdout>:par[1,0]<stdout>:tial\nown\n") == [(0, b"par"), (0, b"tial\n"), (None, b"own\n")]


def test_a_second_tag_in_a_line_is_text():
    assert untagged(b"[1,0]<stdout>: [1,0]<stdout>: x\n", True) == [(0, b"[1,0]<stdout>: x\n")]


def test_output_of_a_spawned_job_belongs_to_no_rank():
    assert untagged(b"[2,0]<stdout>:x\n") == [(None, b"x\n")]


def test_messages_of_mpirun_after_an_unfinished_line():
    frame = b"-" * 74 + b"\n"
    assert untagged(b"[1,1]<stderr>:end" + frame + b"text\n" + frame) == [
        (1, b"end"), (None, frame), (None, b"text\n"), (None, frame),
    ]  # fmt: skip
    assert untagged(b"[1,1]<stderr>:" + frame) == [(1, frame)]


# --- what is installed, and how it ends


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to …\n", (4, 1, 4)),
        ("mpirun (Open MPI) 5.0.0rc2\n", (5, 0, 0)),
        ("warning: x\nprterun (PRRTE) 3.0.14\n", (3, 0, 14)),
    ],
)
def test_the_version_of_mpirun_is_read(answer, version):
    found = find_mpirun.parse_version("/x", answer)
    assert isinstance(found, OpenMpiInstallation) and found.version == version


@pytest.mark.parametrize("answer", ["HYDRA build details:\n    Version: 4.0.2\n", "", "Intel(R) MPI Library 2021"])
def test_other_mpiruns_are_refused(answer):
    assert "not Open MPI's" in find_mpirun.parse_version("/x/mpirun", answer)


def false_mpirun(folder, answer, name="mpirun"):
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\nprintf '{answer}\\n'\n")
    file.chmod(0o755)
    return str(file)


def test_open_mpi_is_found_after_others_in_the_path(tmp_path):
    false_mpirun(tmp_path / "a", "HYDRA build details:")
    right = false_mpirun(tmp_path / "b", "mpirun (Open MPI) 4.1.6")
    assert find_mpirun.find("", f"{tmp_path}/a:{tmp_path}/b").path == right
    with pytest.raises(LaunchError, match="MPICH's"):
        find_mpirun.find("", f"{tmp_path}/a")
    with pytest.raises(LaunchError, match="no mpirun is on PATH"):
        find_mpirun.find("", f"{tmp_path}/c")


@pytest.mark.parametrize("place", ["", "bin", "bin/mpirun"])
def test_the_mpirun_that_the_user_names_is_used(tmp_path, place):
    right = false_mpirun(tmp_path / "bin", "mpirun (Open MPI) 5.0.1")
    assert find_mpirun.find(str(tmp_path / place), "") == OpenMpiInstallation(right, (5, 0, 1), False, str(tmp_path))


def test_an_old_open_mpi_is_refused(tmp_path):
    false_mpirun(tmp_path, "mpirun (Open MPI) 3.1.6")
    with pytest.raises(LaunchError, match="too old"):
        find_mpirun.find(str(tmp_path), "")


@pytest.mark.parametrize(
    ("words_", "rank"),
    [
        ("  Process name: [[33112,1],1]\n  Exit code:    3\n", 1),
        ("   Process name: [prterun-vm-27206@1,12]\n", 12),
        ("mpirun noticed that process rank 3 with PID 0 on node a exited on signal 9", 3),
        ("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD", 2),
        ("Primary job  terminated normally, but 1 process returned", None),
    ],
)
def test_the_failed_rank_is_read_from_mpiruns_message(words_, rank):
    assert first_failed_rank(words_) == rank


def test_exit_codes_of_mpirun_are_explained():
    mpirun, hosts = Failure("rank 0 …", "here", 0, 3), {0: "a", 1: "b"}
    of_rank = failure_of_mpirun(mpirun, None, "process rank 1 with PID 0", 2, hosts)
    assert (of_rank.what, of_rank.host, of_rank.rank, of_rank.code) == ("rank 1 ended with exit code 3", "b", 1, 3)
    assert "did not say which" in failure_of_mpirun(mpirun, None, "", 2, hosts).what
    for lost in ("ORTE has lost communication with a remote daemon.", "A daemon failed to start or was ended"):
        assert failure_of_mpirun(mpirun, None, lost, 2, hosts).code == EXIT_LOST
    assert failure_of_mpirun(mpirun, None, "A daemon failed to start", 2, {}).code == EXIT_UNREACHED
    assert failure_of_mpirun(mpirun, None, "could not start one or more daemons", 2, {}).code == EXIT_UNREACHED
    assert "started no rank" in failure_of_mpirun(mpirun, None, "", 2, {}).what
    killed = failure_of_mpirun(mpirun._replace(code=137), 9, "", 2, hosts)
    assert "mpirun was ended by SIGKILL" in killed.what and killed.rank is None


def test_more_ranks_than_cores_are_allowed_without_named_hosts():
    assert cores_here() < 4096
    assert job_of("-n 3 x").size == 3
