"""PBS, LSF, Grid Engine, Flux, and systems that are only recognized: from variables and files to hosts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch import launch
from mslaunch.errors import LaunchError
from mslaunch.launcher.launch import MANAGERS
from mslaunch.resource_managers.managers import Grant, HostAccess, detect

FILES = {
    "/pbs": "n1\nn2.site\nn1\n\nn2.site\nn1\n",
    "/empty": "\n",
    "/odd": "n1\nn2 -oProxyCommand=x\n",
    "/pe": "n1 4 all.q@n1 UNDEFINED\nn2 2 all.q@n2 <NULL>\nn1 1 fast.q@n1 UNDEFINED\n",
    "/pe0": "n1 0 all.q@n1 UNDEFINED\n",
    "/peodd": "n1 four all.q@n1\n",
    "/one": "n1\nn1\n",
    "/var/spool/pbs/aux/11.head": "n1\nn2\n",
    "/var/spool/torque/aux/12.head": "n1\nn1\nn2\n",
}
COMMANDS = {
    "flux getattr hostlist": "n[1-4]\n",
    "flux resource list -s up -n -o {rlist}": "rank[0,2]/core[0-3],gpu[0-1] rank1/core[0-1]\nrank0/core[4]\n",
    "qstat -f 8": "Job Id: 8\n    Job_Name = x\n    exec_host = n1/0*2+n2/0*\n\t2+n2/1\n    exec_vnode = (n1)+(n9)\n",
    "qstat -f 9": "Job Id: 9\n    exec_host = n1/0+n1/1\n    exec_vnode = (n1)\n",
    "qstat -f 10": "Job Id: 10\n    exec_host = n8/0+n9/1\n",
}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


def run(argv: Sequence[str]) -> str:
    if " ".join(argv) not in COMMANDS:
        raise LaunchError("it failed")
    return COMMANDS[" ".join(argv)]


def found(environ: dict[str, str], wanted: str = "") -> Grant | None:
    rows = {word: row for word, (variable, row) in MANAGERS.items() if variable in environ}
    host = HostAccess(environ, read, run, lambda name: name == "n1")
    return detect(rows, host, wanted)


PBS = {"PBS_JOBID": "7.head", "PBS_ENVIRONMENT": "PBS_BATCH"}
LSF = {"LSB_JOBID": "7"}
SGE = {"JOB_ID": "7"}
FLUX = {"FLUX_URI": "local:///x"}
TRANSPORTS = {"PBS's": "tm", "LSF's": "blaunch", "the": "flux", "Grid": "qrsh"}


@pytest.mark.parametrize(
    ("environ", "title", "slots"),
    [
        ({**PBS, "PBS_NODEFILE": "/pbs"}, "PBS's job 7.head", {"n1": 3, "n2.site": 2}),
        ({"COBALT_JOBID": "7", "COBALT_NODEFILE": "/pbs"}, "Cobalt's job 7", {"n1": 3, "n2.site": 2}),
        ({**LSF, "LSB_MCPU_HOSTS": "n1 4 n2 2 n1 1"}, "LSF's job 7", {"n1": 5, "n2": 2}),
        ({**LSF, "LSB_DJOB_HOSTFILE": "/one"}, "LSF's job 7", {"n1": 2}),
        ({**LSF, "LSB_HOSTS": "n1 n2 n1"}, "LSF's job 7", {"n1": 2, "n2": 1}),
        ({**SGE, "PE_HOSTFILE": "/pe"}, "Grid Engine's job 7", {"n1": 5, "n2": 2}),
        (FLUX, "the Flux instance", {"n1": 5, "n2": 2, "n3": 4}),  # n4 is down
        ({**FLUX, **PBS, "PBS_NODEFILE": "/pbs"}, "the Flux instance", {"n1": 5, "n2": 2, "n3": 4}),
        ({"PBS_JOBID": "11.head"}, "PBS's job 11.head", {"n1": 1, "n2": 1}),  # a cleaned environment
        ({"PBS_JOBID": "12.head"}, "PBS's job 12.head", {"n1": 2, "n2": 1}),
    ],
)
def test_hosts_and_slots(environ: dict[str, str], title: str, slots: dict[str, int]) -> None:
    grant = found(environ)
    assert grant and (grant.title, grant.transport) == (title, TRANSPORTS.get(title.partition(" ")[0], "ssh"))
    assert {node.name: node.slots for node in grant.allocation.nodes} == slots
    assert [node.name for node in grant.allocation.nodes if node.local] == ["n1"]


@pytest.mark.parametrize(
    "environ",
    [
        {"PBS_JOBID": "7"},  # left over; qstat knows no such job
        {"PBS_JOBID": "9"},  # one host
        {"PBS_JOBID": "10"},  # the job of other hosts
        {"PBS_JOBID": "../7"},
        {**FLUX, "FLUX_JOB_ID": "f1", "FLUX_JOB_SIZE": "1"},  # a task of flux run: the instance is not the job's
        {"JOB_ID": "7"},
        {"PE_HOSTFILE": "/pe"},
        {"LOADL_HOSTFILE": "/one"},
        {"OAR_NODEFILE": "/one"},
        {"_CONDOR_NPROCS": "1"},
        {"PALS_RANKID": "0", "PMI_SIZE": "1"},
        {"FLUX_URI": ""},
    ],
)
def test_one_host_or_none_is_no_grant(environ: dict[str, str]) -> None:
    assert found(environ) is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (PBS, "the hosts of PBS's job 7.head are not known: PBS_NODEFILE is not set"),
        (
            {**PBS, "PBS_NODEFILE": "/gone"},
            "PBS_NODEFILE=/gone, the hosts of PBS's job 7.head, cannot be read: No such",
        ),
        ({**PBS, "PBS_NODEFILE": "/empty"}, "PBS's job 7.head has no slots: PBS_NODEFILE names no host"),
        ({**PBS, "PBS_NODEFILE": "/odd"}, "PBS_NODEFILE: 'n2 -oProxyCommand=x' is not the name of a host"),
        ({"PBS_JOBID": "8"}, "PBS's job 8 has 2 hosts, and PBS_NODEFILE is not set"),
        (
            {**FLUX, "FLUX_JOB_ID": "f1", "FLUX_JOB_SIZE": "8"},
            "flux has started mslaunch 8 times, as the tasks of its job f1",
        ),
        (LSF, "the hosts of LSF's job 7 are not known"),
        ({**LSF, "CSM_ALLOCATION_ID": "1"}, "LSF's job 7 is one of jsrun"),
        ({**LSF, "LSB_MCPU_HOSTS": "n1 4 n2"}, "is not a list of hosts and numbers"),
        ({**LSF, "LSB_MCPU_HOSTS": "n1 0"}, "LSF's job 7 has no slots"),
        ({**SGE, "PE_HOSTFILE": "/gone"}, "PE_HOSTFILE=/gone"),
        ({**SGE, "PE_HOSTFILE": "/pe0"}, "Grid Engine's job 7 has no slots"),
        ({**SGE, "PE_HOSTFILE": "/peodd"}, "'n1 four all.q@n1' is not HOST SLOTS QUEUE"),
        ({"LOADL_HOSTFILE": "/pbs", "LOADL_STEP_ID": "a.7.0"}, "LoadLeveler's job a.7.0 has 2 hosts"),
        ({"OAR_NODEFILE": "/pbs", "OAR_JOB_ID": "7"}, "OAR's job 7 has 2 hosts"),
        ({"_CONDOR_NPROCS": "4"}, "HTCondor has started this script on 4 hosts"),
        ({"PALS_RANKID": "1", "PMI_SIZE": "8"}, "PALS has started mslaunch 8 times"),
        ({**PBS, "PBS_NODEFILE": "/pbs", **SGE, "PE_HOSTFILE": "/pe"}, "2 systems have granted hosts"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_would_do(environ: dict[str, str], message: str) -> None:
    """Never silently local."""
    with pytest.raises(LaunchError) as refused:
        found(environ)
    assert message in str(refused.value)
    assert "--resource-manager" in refused.value.todo or "jsrun" in refused.value.todo


def test_a_launch_in_a_job_whose_hosts_cannot_be_used_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_CONDOR_NPROCS", "4")
    with pytest.raises(LaunchError, match="HTCondor has started this script on 4 hosts"):
        launch(["true"], options=["--quiet", "-n", "2"])
    assert len(launch(["true"], options=["--quiet", "-n", "2", "--resource-manager", "none"]).ranks) == 2


@pytest.mark.parametrize("said", ["n1 8", "rank9/core0", "rank[0-", "node0/core0", "rank0", "rank0/gpu0", ""])
def test_what_flux_says_and_we_cannot_read_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "flux resource list -s up -n -o {rlist}", said + "\n")
    with pytest.raises(LaunchError):
        found(FLUX)


@given(st.text(max_size=60))
def test_no_text_of_a_system_is_a_traceback(text: str) -> None:
    for environ in ({**LSF, "LSB_MCPU_HOSTS": text}, {**PBS, "PBS_NODEFILE": "/t"}, {**SGE, "PE_HOSTFILE": "/t"}):
        rows = {word: row for word, (variable, row) in MANAGERS.items() if variable in environ}
        try:
            grant = detect(rows, HostAccess(environ, lambda path: text, "".join, lambda name: False))
        except LaunchError:
            continue
        assert grant is None or all(node.name and node.slots for node in grant.allocation.nodes)


def test_ranks_of_grid_engine_get_what_means_the_same_on_all_hosts() -> None:
    """The directory of this host's part of the job is first in PATH; elsewhere it may be another user's."""
    host = {"HOME": "/home/u", "TMPDIR": "/tmp/7.1.all.q", "QUEUE": "all.q", "PATH": "/tmp/7.1.all.q:/opt/bin:/bin"}
    grant = found({**SGE, "PE_HOSTFILE": "/pe", "NSLOTS": "7", "SGE_TASK_ID": "undefined", **host})
    assert grant and grant.shared == ("JOB_ID", "NSLOTS", "SGE_TASK_ID", "PATH=/opt/bin:/bin")
    assert grant.title == "Grid Engine's job 7"
    grant = found({**SGE, "PE_HOSTFILE": "/pe", "SGE_TASK_ID": "3"})
    assert grant and grant.title == "Grid Engine's job 7.3"


@given(st.text("rank[]0-9/core,gpu ()+*\t\n=execho_s", max_size=60))
def test_no_answer_of_a_command_is_a_traceback(text: str) -> None:
    """Of flux, and of qstat where only PBS_JOBID is left."""

    def answer(argv: Sequence[str]) -> str:
        return "n[0-9]" if "hostlist" in argv else f"exec_host = {text}" if argv[0] == "qstat" else text

    for environ in (FLUX, {"PBS_JOBID": "7"}):
        rows = {word: row for word, (variable, row) in MANAGERS.items() if variable in environ}
        try:
            grant = detect(rows, HostAccess(environ, read, answer, lambda name: name == "n1"))
        except LaunchError:
            continue
        assert grant is None or all(node.name and node.slots for node in grant.allocation.nodes)
