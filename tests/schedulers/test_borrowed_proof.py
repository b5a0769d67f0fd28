"""Another user of a compute host takes the launcher's place at an address that both hosts have, as of docker0."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from batch_systems import BOUND, ROOT
from task_daemons import SCRIPT, JobSystem, job_system

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd"),
]
UID = 64321  # as in tests/hostile/other_user.py
BRIDGE, LAUNCHER = "172.17.0.1", "10.77.1.1"
PORTS = 40000, 40031  # that a launcher on n01 is given
#: a bridge of containers, and the network on an interface that came later, as on hosts of virtual machines
BRIDGES = f"""
ip link add docker0 type bridge && ip addr add {BRIDGE}/16 dev docker0 && ip link set docker0 up &&
ip link add br-net type bridge && ip link set br-net up && ip link set eth0 master br-net &&
own=$(ip -4 -o addr show dev eth0 | awk '{{print $4}}') && ip addr del $own dev eth0 && ip addr add $own dev br-net
"""
FEW_PORTS = f'sysctl -qw net.ipv4.ip_local_port_range="{PORTS[0]} {PORTS[1]}"'
LAUNCH = f"{sys.executable} -m mslaunch --agent-python {sys.executable} sh -c 'echo $RANK $(hostname)'"
#: names that only a name service has
UNLISTED = "exec unshare -m sh -c 'mount --bind /dev/null /etc/hosts && exec \"$@\"' sh"


@pytest.fixture(scope="module")
def bridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster of two hosts, each with a bridge at the same address."""
    directory = tmp_path_factory.mktemp("bridged") / "c"
    verb = [sys.executable, "-S", str(SCRIPT)]
    subprocess.run([*verb, "up", "--dir", str(directory), "2"], check=True, capture_output=True, timeout=BOUND)
    try:
        for host, script in (("n01", BRIDGES), ("n02", BRIDGES), ("n01", FEW_PORTS)):
            words = [*verb, "exec", "--dir", str(directory), host, "sh", "-c", script]
            subprocess.run(words, check=True, timeout=BOUND)
        yield directory
    finally:
        subprocess.run([*verb, "down", "--dir", str(directory)], check=True, capture_output=True, timeout=BOUND)


@pytest.fixture
def system(bridged: Path, tmp_path: Path) -> Iterator[Callable[[str], JobSystem]]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(job_system(bridged, tmp_path, name))


@pytest.fixture
def borrower(bridged: Path) -> Iterator[subprocess.Popen[str]]:
    """The other user on n02, who listens; the file that its program would write is `owned` of the job's user."""
    program = Path(tempfile.mkdtemp(prefix="mslaunch-borrower-"))
    program.chmod(0o755)
    shutil.copy(Path(__file__).with_name("borrower.py"), program)
    user = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]
    words = ["/usr/bin/python3", "-I", "-S", f"{program}/borrower.py", BRIDGE, *map(str, PORTS), LAUNCHER]
    with subprocess.Popen(
        [sys.executable, "-S", str(SCRIPT), "exec", "--dir", str(bridged), "n02", *user, *words, f"{program}/owned"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == f"listens as {UID}\n"
            yield process
        finally:
            process.terminate()
    assert not (program / "owned").exists(), "code of another user ran as the job's user"
    shutil.rmtree(program)


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "unlisted"])
@pytest.mark.parametrize("name", ["pbs", "lsf", "flux"])
def test_an_agent_obeys_nobody_who_borrows_the_launchers_proof(
    name: str, listed: bool, system: Callable[[str], JobSystem], borrower: subprocess.Popen[str]
) -> None:
    made = system(name)
    home = made.work / "home"
    home.mkdir()
    (made.work / "nodes").write_text("n01\nn02\n")
    own = {
        "pbs": {"PBS_JOBID": "7.head", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": f"{made.work}/nodes"},
        "lsf": {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "n01 1 n02 1"},
        "flux": {
            "FLUX_URI": "local:///n01",
            "STAND_IN_HOSTS": "n01,n02",
            "STAND_IN_RLIST": "rank0/core0 rank1/core0",
        },
    }[name]
    environ = {"PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "HOME": str(home), **own}
    ended = made.run(f"{'exec' if listed else UNLISTED} {LAUNCH}", environ)
    assert (ended.code, ended.lines) == (0, ["0 n01", "1 n02"]), ended
