"""The variables of each rank, as the rank sees them; and which variables go to other hosts."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import sys
from pathlib import Path

import pytest
from launching import COMMAND, program, through_rsh

from mslaunch.frameworks.table import FRAMEWORKS, OUTER_LAUNCHES

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
            "OMPI_UNIVERSE_SIZE": 6, "OMPI_NUM_APP_CTX": 1, "OMPI_APP_CTX_NUM_PROCS": 5, "OMPI_FIRST_RANKS": 0,
            "OMPI_MCA_orte_num_nodes": 2, "OMPI_MCA_orte_ess_num_procs": 5, "OMPI_MCA_ess_base_vpid": rank,
            "OMPI_MCA_orte_ess_node_rank": local_rank, "OMPI_MCA_orte_app_num": 0, "OMPI_MCA_mpi_oversubscribe": 0,
            "OMPI_COMMAND": Path(sys.executable).name, "OMPI_MCA_initial_wdir": env["the directory"],
            "MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank, "MS_WORKER_NUM": 5,
        }  # fmt: skip
        assert {name: env.get(name) for name in expected} == {name: str(value) for name, value in expected.items()}
        assert "PMIX_RANK" not in env, "with OMPI_COMMAND it would take MindSpore to MPI"
    endpoints = {(env["MASTER_ADDR"], env["MASTER_PORT"], env["MS_SCHED_HOST"], env["MS_SCHED_PORT"]) for env in ranks}
    ((address, port, scheduler, scheduler_port),) = endpoints
    assert address == scheduler and port != scheduler_port
    assert address.replace(".", "").isdigit() or ":" in address
    assert len({env["MSLAUNCH_JOBID"] for env in ranks}) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a UTS namespace")
def test_ranks_run_on_the_hosts_of_their_variables(seen):
    assert [env["the host"] for env in seen([*TWO, "-n", "5"])] == ["alpha", "beta", "alpha", "beta", "alpha"]


def test_ranks_of_one_host_use_loopback(seen):
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


LEFT = {**{one.name: one.scrub for one in FRAMEWORKS if one.scrub}, **OUTER_LAUNCHES}


@pytest.mark.parametrize("host", ["this", "another"])
@pytest.mark.parametrize("whose", LEFT)
def test_what_an_outer_launch_has_left_reaches_no_rank(seen, tmp_path, host, whose):
    """Each row of the table in docs/frameworks.md; a pattern by a name that it fits, and nothing else sets.

    The other host has them from its login.
    """
    left = dict.fromkeys([*(name.replace("*", "LEFT") for name in LEFT[whose]), "KEPT"], "left")
    login = tmp_path / "login"
    login.write_text(f'#!/bin/sh\nexport {" ".join(f"{name}=left" for name in left)}\nshift\nexec sh -c "$*"\n')
    login.chmod(0o755)
    here = host == "this"
    where = LOCAL if here else ["--rsh-agent", str(login), "-H", "alpha:8"]
    (env,) = seen([*where, "-n", "1"], env=left if here else {})
    assert [name for name, value in env.items() if value == "left"] == ["KEPT"]


@WHERE
def test_what_an_outer_mslaunch_has_left_reaches_no_rank(seen, where):
    (env,) = seen([*where, "-n", "1"], env={"MSLAUNCH_STALE": "left", "MSLAUNCH_ATTEMPT": "7"})
    assert "MSLAUNCH_STALE" not in env and env["MSLAUNCH_ATTEMPT"] == "1"


#: of a pod of the Ascend operator: the number of the pod, and a list (needs of its API, AscendJob); of a batch script
AROUND = {
    "RANK": "3", "LOCAL_RANK": "{0,1,2,3}", "WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "4", "MASTER_PORT": "2222",
    "NODE_RANK": "3", "SLURM_PROCID": "7", "SLURM_NTASKS": "8", "PMI_RANK": "7", "PMI_SIZE": "8", "PMI_FD": "3",
    "PMIX_RANK": "7", "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "4", "OMPI_COMM_WORLD_RANK": "7",
    "MS_NODE_ID": "7", "MS_SCHED_HOST": "9.9.9.9", "RANK_ID": "7", "JAX_COORDINATOR_ADDRESS": "9.9.9.9:1",
}  # fmt: skip


@WHERE
def test_ranks_have_their_own_numbers_whatever_is_around(seen, where):
    ranks = seen([*where, "-n", "2"], env=AROUND)
    for rank, env in enumerate(ranks):
        names = ("RANK", "LOCAL_RANK", "RANK_ID", "MS_NODE_ID", "OMPI_COMM_WORLD_RANK")
        assert [env[name] for name in names] == [str(rank)] * 5
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["NODE_RANK"]) == ("2", "2", "0")
        assert (env["TORCHELASTIC_RUN_ID"], env["TORCHELASTIC_RESTART_COUNT"]) == (env["MSLAUNCH_JOBID"], "0")
        assert env["MASTER_PORT"] != "2222" and env["MS_SCHED_HOST"] != "9.9.9.9"
        assert not {"SLURM_PROCID", "SLURM_NTASKS", "PMIX_RANK", "JAX_COORDINATOR_ADDRESS"} & set(env)


@WHERE
def test_what_the_user_says_of_such_a_variable_stays(seen, where):
    given = ["-x", "LOCAL_SIZE=2", "-x", "SLURM_PROCID=5", "-x", "CROSS_RANK", "-x", "MV2_COMM_*"]
    (env,) = seen([*where, "-n", "1", *given], env={"CROSS_RANK": "1", "MV2_COMM_WORLD_RANK": "1"})
    assert (env["LOCAL_SIZE"], env["SLURM_PROCID"], env["CROSS_RANK"]) == ("2", "5", "1")
    assert "MV2_COMM_WORLD_RANK" not in env


@WHERE
def test_exported_variables_reach_ranks(seen, where):
    """A value, a name, a pattern, a value with special characters, the last of two; they override mslaunch's own."""
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


def test_exporting_an_unset_variable_is_reported(run):
    ended = run(["-n", "1", "-x", "NOT_THERE", "sh", "-c", "echo ${NOT_THERE-none}"])
    assert (ended.code, ended.out) == (0, b"none\n")
    assert ended.err.count("-x NOT_THERE") == 1


def test_each_program_has_its_own_exports(run):
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
def test_python_is_unbuffered_by_default(seen, where):
    assert seen([*where, "-n", "1"])[0]["PYTHONUNBUFFERED"] == "1"


def test_variables_that_are_set_are_kept(seen):
    assert seen([*LOCAL, "-n", "1"], env={"PYTHONUNBUFFERED": ""})[0]["PYTHONUNBUFFERED"] == ""


def test_variables_that_go_to_other_hosts(seen):
    """A remote rank has the environment of its own host, with OMPI_* and PMIX_* of ours."""
    env = {"PATH": os.environ["PATH"] + ":/only/here", "MINE": "x", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_ess": "stale",
           "PMIX_MCA_gds": "hash", "LD_LIBRARY_PATH": "/only/here"}  # fmt: skip
    (remote,) = seen([*through_rsh("alpha"), "-n", "1", "-mca", "pml", "ob1"], env=env)
    assert "/only/here" not in remote["PATH"]
    assert not {"MINE", "OMPI_MCA_ess", "PYTHONPATH", "LD_LIBRARY_PATH"} & set(remote)
    assert remote["PMIX_MCA_gds"] == "hash"
    assert (remote["OMPI_MCA_btl"], remote["OMPI_MCA_pml"]) == ("tcp,self", "ob1")


def test_a_local_rank_inherits_all_variables(seen):
    env = {"MINE": "x", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_ess": "stale"}
    (local,) = seen([*LOCAL, "-n", "1", "-mca", "pml", "ob1"], env=env)
    assert (local["MINE"], local["OMPI_MCA_btl"], local["OMPI_MCA_pml"]) == ("x", "tcp,self", "ob1")
    assert "OMPI_MCA_ess" not in local


@WHERE
def test_ranks_run_in_the_current_directory(seen, where, tmp_path):
    (tmp_path / "a place").mkdir()
    for words, place in (([], tmp_path), (["--wdir", "a place"], tmp_path / "a place"), (["--wdir", "/"], Path("/"))):
        (env,) = seen([*where, "-n", "1", *words])
        assert (env["the directory"], env["PWD"]) == (str(place), str(place))


def test_a_link_to_the_directory_keeps_its_name(run, tmp_path):
    """Other hosts may know the directory under that name only."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    ended = run([*LOCAL, "-n", "1", "sh", "-c", "echo $PWD"], cwd=tmp_path / "link", env={"PWD": f"{tmp_path}/link"})
    assert ended.lines == [f"{tmp_path}/link"]


def test_a_directory_that_is_missing_on_other_hosts(run, tmp_path):
    """It is reported once, with both hosts; ~ is not expanded."""
    ended = run([*through_rsh("alpha:2", "beta:2"), "--wdir", "~/x", "true"])
    assert ended.code == 126 and ended.out == b""
    assert ended.err.count(f"the working directory {tmp_path}/~/x does not exist") == 1
    assert "alpha" in ended.err and "beta" in ended.err


def test_limits_and_umask_are_the_launchers(run):
    def narrow():
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    ended = run([*LOCAL, "-n", "1", "sh", "-c", "umask; ulimit -c; ulimit -n"], preexec_fn=narrow)
    assert ended.out.split() == [b"0027", b"0", b"200"]


@WHERE
def test_a_rank_is_a_session_of_its_own(run, where):
    says = "f'{os.getpid() == os.getsid(0) == os.getpgrp()} {signal.pthread_sigmask(0, [])}\\n'.encode()"
    script = f"import os, signal; os.write(1, {says})"
    assert run([*where, "-n", "2", sys.executable, "-c", script]).out == b"True set()\n" * 2


# --- finding the program


@pytest.fixture
def folders(tmp_path):
    """The folders `one` and `two`, each with a `prog` that says where it is."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "prog").write_text(f'#!/bin/sh\necho {name} "$0" "$@"\n')
        (tmp_path / name / "prog").chmod(0o755)
    return tmp_path


@WHERE
def test_path(run, folders, where):
    """Before PATH, from the working directory of the ranks; the first program's counts for the second."""
    found = f"{folders}/two/prog"
    assert run([*where, "-n", "1", "--path", f"none:{folders}/two", "prog", "x"]).lines == [f"two {found} x"]
    assert run([*where, "-n", "1", "-path", "two", "prog"]).lines == [f"two {found}"]
    assert run([*where, "-n", "1", "--wdir", "one", "--path", ".:../two", "prog"]).lines == [
        f"one {folders}/one/./prog"
    ]
    mixed = ["-n", "1", "--path", "two", "prog", ":", "-n", "1", "prog", ":", "-n", "1", "--path", "one", "prog"]
    assert run([*where, *mixed]).lines == [f"one {folders}/one/prog", f"two {found}", f"two {found}"]
    assert run([*where, "-n", "1", "--path", "none", "sh", "-c", "echo fell back"]).lines == ["fell back"]


@WHERE
def test_a_script_sees_its_name_as_it_was_typed(run, folders, where):
    assert run([*where, "-n", "1", "one/prog"]).lines == ["one one/prog"]


@WHERE
def test_prefix(run, folders, where):
    (folders / "pre").mkdir()
    (folders / "two").rename(folders / "pre" / "bin")
    paths = 'echo "$PATH $LD_LIBRARY_PATH"'
    words = [*where, "-n", "1", "--prefix", "pre/", "-x", "PATH=/usr/bin:/bin"]
    assert run([*words, "sh", "-c", paths]).lines == [f"{folders}/pre/bin:/usr/bin:/bin {folders}/pre/lib"]
    assert run([*words, "-x", "LD_LIBRARY_PATH=/l", "prog"]).lines == [f"two {folders}/pre/bin/prog"]


@WHERE
def test_the_rank_in_the_programs_name(run, where):
    bash = shutil.which("bash") or pytest.skip("NOT TESTED, not installed: bash")
    ended = run([*where, "-n", "2", "--index-argv-by-rank", bash, "-c", 'echo "$0 $OMPI_COMMAND"'])
    assert ended.lines == [f"{bash}-{rank} bash" for rank in range(2)]


# --- windows


@pytest.fixture
def screen(tmp_path):
    """A PATH with a false xterm, which writes down how it was called and runs the program."""
    (tmp_path / "bin").mkdir()
    xterm = tmp_path / "bin" / "xterm"
    xterm.write_text(
        f'#!/bin/sh\necho "$* $DISPLAY" > {tmp_path}/called.$OMPI_COMM_WORLD_RANK\n'
        'while test "$1" != -e; do shift; done\nshift\nexec "$@"\n'
    )
    xterm.chmod(0o755)
    return f"{tmp_path}/bin:{os.environ['PATH']}"


@WHERE
def test_windows(run, screen, tmp_path, where):
    """The named ranks run in them, found as ever, with our DISPLAY."""
    env = {"DISPLAY": "head:7", "PATH": screen, "RSH_PATH": screen}
    ended = run([*where, "-n", "3", "--xterm", "0,2!", "echo", "a b"], env=env)
    assert (ended.code, ended.lines) == (0, ["a b"] * 3), ended.err
    found = shutil.which("echo", path=screen)
    for rank in (0, 2):
        assert (tmp_path / f"called.{rank}").read_text() == f"-T Rank {rank} -hold -e {found} a b head:7\n"
    assert not (tmp_path / "called.1").exists()


def test_there_is_no_xterm(run, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "true").symlink_to(shutil.which("true"))
    ended = run([*LOCAL, "-n", "2", "--xterm", "1", "true"], env={"PATH": str(tmp_path / "bin")})
    assert ended.code == 127 and "'xterm' was not found" in ended.err and "--xterm" in ended.err


def test_a_window_for_no_rank(run):
    ended = run([*LOCAL, "-n", "2", "--xterm", "2", "true"])
    assert ended.code == 1 and "--xterm: there is no rank 2 among 2" in ended.err


# --- libmpi


@WHERE
def test_libmpi_starts_as_a_singleton(run, where):
    """No variable of mslaunch makes Open MPI's library wait for a daemon that does not run."""
    script = (
        "import ctypes, os\n"
        "mpi = ctypes.CDLL('libmpi.so.40')\n"
        "assert mpi.MPI_Init(None, None) == 0\n"
        "size = ctypes.c_int()\n"
        "mpi.MPI_Comm_size(ctypes.byref(ctypes.c_int.in_dll(mpi, 'ompi_mpi_comm_world')), ctypes.byref(size))\n"
        "assert mpi.MPI_Finalize() == 0\n"
        "os.write(1, b'a world of %d\\n' % size.value)\n"
    )
    try:
        ctypes.CDLL("libmpi.so.40")
    except OSError:
        pytest.skip("NOT TESTED, not installed: libmpi.so.40 of Open MPI 4.1")
    ended = run([*where, "-n", "2", sys.executable, "-c", script])
    assert (ended.code, ended.lines) == (0, ["a world of 1"] * 2), ended.err


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


def test_variables_that_are_not_utf8(run):
    """Bytes that are no UTF-8, in a value and in an argument."""
    odd = b"\xff\xfe".decode("utf-8", "surrogateescape")
    for where in (LOCAL, through_rsh("alpha:8")):
        ended = run([*where, "-n", "1", "-x", f"ODD={odd}", "sh", "-c", 'printf "%s %s" "$ODD" "$1"', "sh", odd])
        assert ended.out == b"\xff\xfe \xff\xfe"


#: Python's own client: whether it would ask the proxy for these hosts
ASKS = """
import os, urllib.request as u
hosts = [os.environ["MASTER_ADDR"], "localhost", "alpha", "beta"]
asks = [bool(u.getproxies()) and not u.proxy_bypass(f"{host}:80") for host in (*hosts, "elsewhere.org")]
os.write(1, (" ".join(map(str, asks)) + "\\n").encode())
"""


@pytest.mark.parametrize("way", ["-x", "login"])
def test_ranks_reach_each_other_without_the_proxy(run, tmp_path, way):
    """That of the launcher's host, and that of a login, which the launcher does not know."""
    login = tmp_path / "login"
    login.write_text('#!/bin/sh\nexport HTTP_PROXY=http://127.0.0.1:9\nshift\nexec sh -c "$*"\n')
    login.chmod(0o755)
    words = ["-x", "http_proxy", *TWO] if way == "-x" else ["--rsh-agent", str(login), "-H", "alpha,beta"]
    ended = run([*words, "-n", "2", sys.executable, "-c", ASKS], env={"http_proxy": "http://127.0.0.1:9"})
    assert (ended.code, ended.lines) == (0, ["False False False False True"] * 2), ended.err
    told = "mslaunch: ranks have http_proxy: the job's own hosts are added to their no_proxy and NO_PROXY\n"
    assert ended.err.count(told) == (way == "-x")


def test_a_proxy_of_the_launcher_that_no_rank_gets_is_not_told(run):
    ended = run([*TWO, "-n", "2", "env"], env={"http_proxy": "http://127.0.0.1:9"})
    assert "no_proxy" not in ended.err and b"http_proxy" not in ended.out
