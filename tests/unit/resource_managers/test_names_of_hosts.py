"""Names of hosts, whoever says them: none reaches ssh, srun or another command as an option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.errors import LaunchError
from mslaunch.launcher.launch import MANAGERS
from mslaunch.plan.hosts import hostfile
from mslaunch.plan.hosts.hostfile import is_host_name
from mslaunch.plan.hosts.rankfile import parse_ranks
from mslaunch.resource_managers.managers import HostAccess, detect

ODD = [
    "-oProxyCommand=touch${IFS}/tmp/x",
    "--help",
    "-",
    "n1;id",
    "n1\nn2",
    "n$(id)",
    "n1/x",
    "a@b",
    "é1",
    "n\u202e1",
    ".n",
]
WELL = ["n1", "n1.site", "gpu-01_b", "10.0.0.1", "fd00::1", "N1"]


def slurm(name: str, **more: str) -> HostAccess:
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": name, "SLURM_TASKS_PER_NODE": "2", **more}
    return access(environ)


def access(environ: dict[str, str], text: str = "", flux: str = "") -> HostAccess:
    def run(argv: Any) -> str:
        return flux if argv[1] == "getattr" else "rank0/core[0-1]\n"

    return HostAccess(environ, lambda path: text, run, lambda name: False)


#: what each system says, of a host
SAYS: dict[str, Callable[[str], HostAccess]] = {
    "slurm": slurm,
    "slurm, a heterogeneous job": lambda name: slurm(
        "", SLURM_HET_SIZE="1", SLURM_JOB_NODELIST_HET_GROUP_0=name, SLURM_TASKS_PER_NODE_HET_GROUP_0="2"
    ),
    "flux": lambda name: access({"FLUX_URI": "local:///x"}, flux=name),
    "pbs": lambda name: access({"PBS_JOBID": "7", "PBS_ENVIRONMENT": "x", "PBS_NODEFILE": "/f"}, f"{name}\n{name}\n"),
    "cobalt": lambda name: access({"COBALT_JOBID": "7", "COBALT_NODEFILE": "/f"}, f"{name}\n"),
    "lsf": lambda name: access({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": f"{name} 2"}),
    "lsf, a file": lambda name: access({"LSB_JOBID": "7", "LSB_DJOB_HOSTFILE": "/f"}, name),
    "lsf, a list": lambda name: access({"LSB_JOBID": "7", "LSB_HOSTS": f"{name} {name}"}),
    "gridengine": lambda name: access({"JOB_ID": "7", "PE_HOSTFILE": "/f"}, f"{name} 2 q x\n"),
}


def names_of(system: str, name: str) -> list[str]:
    """The hosts that a launch would have."""
    word = system.partition(",")[0]
    grant = detect({word: MANAGERS[word][1]}, SAYS[system](name))
    return [node.name for node in grant.allocation.nodes] if grant else []


def test_all_systems_that_grant_hosts_are_here() -> None:
    refusing = {"loadleveler", "oar", "condor", "pals"}
    assert {system.partition(",")[0] for system in SAYS} == set(MANAGERS) - refusing


@pytest.mark.parametrize("system", SAYS)
@pytest.mark.parametrize("name", ODD)
def test_what_is_no_name_is_refused(system: str, name: str) -> None:
    try:
        found = names_of(system, name)
    except LaunchError as error:
        assert "\n" not in error.what
    else:
        assert all(map(is_host_name, found)) and name not in found


@pytest.mark.parametrize("system", SAYS)
def test_an_option_is_called_by_its_name(system: str) -> None:
    with pytest.raises(LaunchError, match="'-oProxyCommand=x' is not the name of a host"):
        names_of(system, "-oProxyCommand=x")


@pytest.mark.parametrize("system", SAYS)
@pytest.mark.parametrize("name", WELL)
def test_a_name_is_taken(system: str, name: str) -> None:
    assert names_of(system, name) == [name]


TEXTS = st.text(st.sampled_from("-.,[]:@/ \n\tn01a_=é;$(%^+") | st.characters(), max_size=24)


@given(st.sampled_from(sorted(SAYS)), TEXTS)
def test_no_text_of_a_system_becomes_an_option(system: str, text: str) -> None:
    try:
        found = names_of(system, text)
    except LaunchError:
        return
    assert all(map(is_host_name, found))


@given(TEXTS, st.sampled_from(["", "-", "[1-2]-", "u@-"]))
def test_no_text_of_a_file_or_of_an_option_becomes_an_option(text: str, before: str) -> None:
    readers: list[Callable[[str], Any]] = [
        hostfile.parse_hosts,
        lambda text: hostfile.parse(text, "hosts"),
        lambda text: [
            one for line in parse_ranks(f"rank 0={text} slot=0", "ranks") for one in hostfile.parse_hosts(line.host)
        ],
    ]
    for read in readers:
        try:
            lines = read(before + text)
        except LaunchError:
            continue
        for line in lines:
            assert is_host_name(line.name.lstrip("+^")) or line.name[:1] in "+^"
            assert not (line.user or "").startswith("-")


@pytest.mark.parametrize("name", WELL)
def test_names(name: str) -> None:
    assert is_host_name(name)


@pytest.mark.parametrize("name", [*ODD, "", "a" * 254, "fd00::1%eth0", "[fd00::1]", "n1:2", ":"])
def test_no_names(name: str) -> None:
    assert not is_host_name(name)
