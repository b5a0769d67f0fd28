"""`scripts/cluster`: are these hosts real, do they go away, and do the network's faults look like faults?

Real namespaces and real sshds, as root.  Nothing here waits for a time to pass but where silence is what is tested.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster"
PYTHON = (sys.executable, "-I", "-S", "-c")  # what starts fastest
KINDS = ("pid", "net", "uts", "ipc", "mnt")

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), reason="needs sshd"),
]


class Cluster:
    def __init__(self, directory):
        self.directory = Path(directory)

    def command(self, verb, *arguments):
        return [sys.executable, "-S", str(SCRIPT), verb, "--dir", str(self.directory), *map(str, arguments)]

    def __call__(self, verb, *arguments, **kwargs):
        return subprocess.run(
            self.command(verb, *arguments), capture_output=True, text=True, timeout=30, check=False, **kwargs
        )

    def ok(self, verb, *arguments, **kwargs):
        done = self(verb, *arguments, **kwargs)
        assert done.returncode == 0, done.stderr
        return done.stdout.rstrip("\n")

    def connect(self, host, timeout=5, source="head"):
        """How a TCP connection to sshd fares: "open", "refused", "silent" or "unreachable"; and seconds."""
        program = (
            "import socket, time; began = time.monotonic()\n"
            f"try: socket.create_connection(({host!r}, 22), {timeout}); word = 'open'\n"
            "except ConnectionRefusedError: word = 'refused'\n"
            "except socket.timeout: word = 'silent'\n"
            "except OSError: word = 'unreachable'\n"
            "print(word, time.monotonic() - began)"
        )
        word, seconds = self.ok("exec", source, *PYTHON, program).split()
        return word, float(seconds)

    def state(self):
        return json.loads((self.directory / "state.json").read_text())

    def pids(self):
        """Of the anchor and of each place's pid 1."""
        state = self.state()
        return [state["anchor"][0], *(place[2][0] for place in state["places"])]


def namespaces(pid):
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS}


def inhabitants(spaces):
    """The living processes of the machine that are in one of these namespaces."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and namespaces(pid) & spaces:
                found.append(int(pid))
        except OSError:  # it has just ended, or is the kernel's
            continue
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("plain"))
    cluster.ok("up", 2)
    yield cluster
    cluster.ok("down")


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("slow"))
    done = cluster("up", 2, "--delay", 20)
    if "modprobe tun" in done.stderr:
        pytest.skip("neither netem nor tun in this kernel")
    assert done.returncode == 0, done.stderr
    yield cluster
    cluster.ok("down")


@pytest.fixture
def fresh(tmp_path):
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    if cluster.directory.exists():
        cluster.ok("down")


# -- hosts ------------------------------------------------------------------------------------------------------


def test_ssh_by_name_reaches_hosts_that_share_no_namespace(plain):
    words = "hostname; echo $HOME; readlink " + " ".join(f"/proc/self/ns/{kind}" for kind in KINDS)
    here = [os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS]
    seen = [here, plain.ok("exec", "head", "sh", "-c", words).splitlines()[2:]]
    for name in ("n01", "n02"):
        hostname, home, *spaces = plain.ok("exec", "head", "ssh", name, words).splitlines()
        assert (hostname, home) == (name, str(plain.directory / "home" / name))
        seen.append(spaces)
    for kind in zip(*seen):
        assert len(set(kind)) == len(seen), kind


def test_sshd_is_pid_1_of_a_host_that_sees_only_itself(plain):
    assert plain.ok("exec", "n01", "cat", "/proc/1/comm") == "sshd"
    assert plain.ok("exec", "head", "ssh", "n01", "cat /proc/1/comm") == "sshd"
    listed = plain.ok("exec", "n01", "ls", "/proc").split()
    assert sum(name.isdigit() for name in listed) <= 3  # sshd, ls, perhaps a session that is just ending
    assert plain.ok("exec", "n01", "ls", "/sys/class/net").split() == ["eth0", "lo"]


def test_hosts_reach_each_other_and_login_has_a_plain_environment(plain):
    line = plain.ok("exec", "head", "ssh", "n01", "ssh n02 'hostname; echo $PATH; which python3'")
    hostname, path, python = line.splitlines()
    assert hostname == "n02"
    assert path.split(":")[-2:] == ["/sbin", "/bin"]
    assert python.startswith("/usr/")


def test_paramiko_in_the_head_needs_no_option(plain):
    pytest.importorskip("paramiko")
    program = (
        "import paramiko; client = paramiko.SSHClient(); client.load_system_host_keys(); client.connect('n02')\n"
        "print(client.exec_command('hostname')[1].read().decode(), end=''); client.close()"
    )
    assert plain.ok("exec", "head", sys.executable, "-c", program) == "n02"


def test_many_connections_at_once(plain):
    loop = "for i in $(seq 20); do ssh -o KexAlgorithms=curve25519-sha256 n01 hostname & done; wait"
    assert plain.ok("exec", "head", "sh", "-c", loop).split() == ["n01"] * 20


def test_status_and_hostfile(plain):
    assert plain.ok("hostfile") == "n01\nn02"
    assert plain.ok("hostfile", "--slots", 3) == "n01 slots=3\nn02 slots=3"
    rows = [line.split()[:3] for line in plain.ok("status").splitlines()[2:]]
    assert rows == [["head", "10.77.0.1", "up"], ["n01", "10.77.1.1", "up"], ["n02", "10.77.1.2", "up"]]


# -- exec -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["head", "n01"])
def test_exec_is_the_command(plain, where):
    assert plain("exec", where, "sh", "-c", "exit 7").returncode == 7
    assert plain("exec", where, "no-such-program").returncode == 127
    assert plain("exec", where, "/etc/passwd").returncode == 126
    done = plain("exec", where, "sh", "-c", "cat; echo $HOME $HOSTNAME; pwd; echo bad >&2", input="in\n", cwd="/usr")
    assert done.stdout == f"in\n{plain.directory}/home/{where} {where}\n/usr\n"
    assert done.stderr == "bad\n"


def test_exec_passes_signals_on_and_dies_of_what_the_command_died_of(plain):
    program = 'trap "echo got; exit 3" TERM; echo ready; while :; do sleep 0.02; done'
    with subprocess.Popen(plain.command("exec", "n01", "sh", "-c", program), stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "ready\n"
        run.terminate()
        assert run.communicate(timeout=10)[0] == "got\n"
    assert run.returncode == 3
    assert plain("exec", "head", "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL


def test_exec_killed_takes_its_command_with_it(plain):
    command = plain.command("exec", "n01", "sh", "-c", "echo ready; exec sleep 1000")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "ready\n"
        run.kill()
        assert run.stdout.read() == ""  # the end comes when nobody holds the pipe: the sleep has ended


def test_exec_in_no_such_place_says_which_there_are(plain):
    done = plain("exec", "n09", "true")
    assert done.returncode == 125
    assert "n01 to n02" in done.stderr


# -- faults -----------------------------------------------------------------------------------------------------


def test_cut_is_silent_and_heal_undoes_it(plain):
    assert plain.connect("n01")[0] == "open"
    plain.ok("cut", "n01")
    assert plain.connect("n01", timeout=0.3)[0] == "silent"
    assert plain.connect("n02")[0] == "open"
    assert plain.ok("exec", "n01", "cat", "/sys/class/net/eth0/carrier") == "1"  # the host has noticed nothing
    assert "cut" in plain.ok("status")
    plain.ok("heal", "n01")
    assert plain.connect("n01")[0] == "open"


@pytest.mark.parametrize("network", [(), ("--delay", 0)])
def test_kill_is_a_power_failure(fresh, network):
    fresh.ok("up", 2, *network)
    program = "import socket, sys; s = socket.create_connection(('n01', 22)); s.recv(99)\n" + (
        "print('ready', flush=True); s.settimeout(0.3)\n"
        "sys.stdin.readline()\n"
        "try: print(repr(s.recv(99)))\n"
        "except socket.timeout: print('silent')"
    )
    command = fresh.command("exec", "head", *PYTHON, program)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout.readline() == "ready\n"
        fresh.ok("kill", "n01")
        assert peer.communicate("look\n", timeout=10)[0] == "silent\n"  # no FIN, no RST
    assert fresh.connect("n01", timeout=0.3)[0] in ("silent", "unreachable")
    assert fresh.connect("n02")[0] == "open"
    assert fresh("exec", "n01", "true").returncode == 125
    assert fresh("heal", "n01").returncode == 1
    assert "killed" in fresh.ok("status")
    fresh.ok("kill", "n01")  # dead already: fine


def test_delay_makes_a_round_trip_take_twice_as_long(slow):
    slow.connect("n01")  # the first also asks for the Ethernet address
    word, seconds = slow.connect("n01")
    assert word == "open"
    assert 0.040 <= seconds < 1.0
    slow.ok("set", "delay", 0)
    assert any(slow.connect("n01")[1] < 0.040 for _ in range(20))  # a busy machine may be slow
    slow.ok("set", "delay", 20)


def test_loss_loses(slow):
    slow.connect("n02")
    slow.ok("set", "loss", 100)
    assert slow.connect("n02", timeout=0.3)[0] == "silent"
    slow.ok("set", "loss", 0)
    assert slow.connect("n02")[0] == "open"


def test_cut_of_a_delayed_link(slow):
    slow.ok("cut", "n02")
    assert slow.connect("n02", timeout=0.3)[0] == "silent"
    assert slow.connect("n01")[0] == "open"
    slow.ok("heal", "n02")
    assert slow.connect("n02")[0] == "open"


# -- the end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [(), ("--delay", 1)])
def test_down_leaves_nothing_and_may_be_repeated(fresh, network):
    mounts = Path("/proc/mounts").read_text()
    own = namespaces("self")
    fresh.ok("up", 2, *network)
    assert Path("/proc/mounts").read_text() == mounts
    pids = fresh.pids()
    spaces = set().union(*map(namespaces, pids)) - own
    with subprocess.Popen(fresh.command("exec", "n01", "sleep", "1000")) as run:
        assert len(inhabitants(spaces)) >= 4  # anchor, head, n01, n02
        fresh.ok("down")
        assert run.wait(timeout=10) != 0
    assert inhabitants(spaces) == []
    assert Path("/proc/mounts").read_text() == mounts
    assert not fresh.directory.exists()
    assert "no cluster" in fresh.ok("down")
    assert fresh("status").returncode == 1


@pytest.mark.parametrize("complete", [False, True], ids=["at its beginning", "at its end"])
def test_down_after_an_up_that_was_killed(fresh, complete):
    own = namespaces("self")
    with subprocess.Popen(fresh.command("up", 6), stdout=subprocess.DEVNULL) as run:
        deadline = time.monotonic() + 60
        while not (fresh.directory / "state.json").exists() or (complete and not fresh.state()["complete"]):
            assert time.monotonic() < deadline
        spaces = namespaces(fresh.state()["anchor"][0]) - own
        run.kill()
    fresh.ok("down")
    assert inhabitants(spaces) == []
    assert not fresh.directory.exists()


def test_a_failed_up_says_why_and_leaves_nothing(fresh):
    done = fresh("up", 2, "--sshd-option", "NoSuchOption yes")
    assert done.returncode == 1
    assert "NoSuchOption" in done.stderr
    assert not fresh.directory.exists()


# -- several ----------------------------------------------------------------------------------------------------


def test_two_clusters_do_not_meet(plain, fresh):
    fresh.ok("up", 1, "--shell", "/bin/sh", "--private-tmp", "--sshd-option", "Banner /etc/hostname")
    banner = fresh("exec", "head", "ssh", "n01", "echo $SHELL; ls -A /tmp")
    assert banner.stderr == "n01\n"
    shell, *in_tmp = banner.stdout.split()
    assert shell == "/bin/sh"
    assert len(in_tmp) <= 2  # the way to the cluster's directory and to the interpreter, at most
    fresh.ok("cut", "n01")
    assert plain.connect("n01")[0] == "open"
    assert set(plain.pids()).isdisjoint(fresh.pids())
    fresh.ok("down")
    assert plain.ok("exec", "head", "ssh", "n01", "hostname") == "n01"


def test_refusals(plain, fresh, tmp_path):
    again = plain("up", 1)
    assert (again.returncode, "already up" in again.stderr) == (1, True)
    bridge = plain("set", "delay", 5)
    assert (bridge.returncode, "--delay 0" in bridge.stderr) == (1, True)
    (tmp_path / "mine").touch()
    strange = Cluster(tmp_path)
    assert "in use" in strange("up", 1).stderr
    assert strange.ok("down").startswith("no cluster")
    assert (tmp_path / "mine").exists()
    assert fresh("up", 1, "--loss", 101).returncode == 1
    assert fresh("up", 1, "--delay", "nan").returncode == 1


def test_a_directory_of_another_user_is_not_believed(plain, tmp_path):
    foreign = tmp_path / "foreign"
    shutil.copytree(plain.directory, foreign, ignore=lambda *_: ["home", "etc", "keys", "log"])
    os.chown(foreign, 65534, 65534)
    link = tmp_path / "link"
    link.symlink_to(plain.directory)
    for directory, *verb in ((foreign, "exec", "head", "true"), (foreign, "down"), (foreign, "up", 1), (link, "down")):
        done = Cluster(directory)(*verb)
        assert "not a directory of this user" in done.stderr
        assert done.returncode == (125 if verb[0] == "exec" else 1)
    assert plain.ok("status")
