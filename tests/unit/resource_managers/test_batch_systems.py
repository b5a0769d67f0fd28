"""PBS, LSF, Grid Engine, Flux, and systems that are only recognized: from variables and files to hosts."""

from __future__ import annotations

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
}
COMMANDS = {
    "flux getattr hostlist": "n[1-3]\n",
    "flux resource list -s all -n -o {nodelist} {ncores}": "n[1,3] 8\nn2 2\n",
}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


def found(environ: dict[str, str], wanted: str = "") -> Grant | None:
    rows = {word: row for word, (variable, row) in MANAGERS.items() if variable in environ}
    host = HostAccess(environ, read, lambda argv: COMMANDS[" ".join(argv)], lambda name: name == "n1")
    return detect(rows, host, wanted)


PBS = {"PBS_JOBID": "7.head", "PBS_ENVIRONMENT": "PBS_BATCH"}
LSF = {"LSB_JOBID": "7"}
SGE = {"JOB_ID": "7"}


@pytest.mark.parametrize(
    ("environ", "title", "slots"),
    [
        ({**PBS, "PBS_NODEFILE": "/pbs"}, "PBS's job 7.head", {"n1": 3, "n2.site": 2}),
        ({"COBALT_JOBID": "7", "COBALT_NODEFILE": "/pbs"}, "Cobalt's job 7", {"n1": 3, "n2.site": 2}),
        ({**LSF, "LSB_MCPU_HOSTS": "n1 4 n2 2 n1 1"}, "LSF's job 7", {"n1": 5, "n2": 2}),
        ({**LSF, "LSB_DJOB_HOSTFILE": "/one"}, "LSF's job 7", {"n1": 2}),
        ({**LSF, "LSB_HOSTS": "n1 n2 n1"}, "LSF's job 7", {"n1": 2, "n2": 1}),
        ({**SGE, "PE_HOSTFILE": "/pe"}, "Grid Engine's job 7", {"n1": 5, "n2": 2}),
        ({"FLUX_URI": "local:///x"}, "the Flux instance", {"n1": 4, "n2": 2, "n3": 4}),
        ({"FLUX_URI": "local:///x", **PBS, "PBS_NODEFILE": "/pbs"}, "the Flux instance", {"n1": 4, "n2": 2, "n3": 4}),
    ],
)
def test_hosts_and_slots(environ: dict[str, str], title: str, slots: dict[str, int]) -> None:
    grant = found(environ)
    assert grant and (grant.title, grant.transport) == (title, "ssh")
    assert {node.name: node.slots for node in grant.allocation.nodes} == slots
    assert [node.name for node in grant.allocation.nodes if node.local] == ["n1"]


@pytest.mark.parametrize(
    "environ",
    [
        {"PBS_JOBID": "7"},  # left over; a job has PBS_ENVIRONMENT
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


@given(st.text(max_size=60))
def test_no_text_of_a_system_is_a_traceback(text: str) -> None:
    for environ in ({**LSF, "LSB_MCPU_HOSTS": text}, {**PBS, "PBS_NODEFILE": "/t"}, {**SGE, "PE_HOSTFILE": "/t"}):
        rows = {word: row for word, (variable, row) in MANAGERS.items() if variable in environ}
        try:
            grant = detect(rows, HostAccess(environ, lambda path: text, "".join, lambda name: False))
        except LaunchError:
            continue
        assert grant is None or all(node.name and node.slots for node in grant.allocation.nodes)
