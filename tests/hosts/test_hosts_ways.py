"""Connections to real hosts: login shells, accounts, ~/.ssh/config, jump hosts, and the ssh program."""

from __future__ import annotations

import shutil

import pytest
from clusters import MARKS, RING, cluster_of, edited, names_of

pytestmark = MARKS
FROM = ("sh", "-c", "echo $(hostname) ${SSH_CONNECTION%% *}")  # where sshd was asked from
SHELLS = ("bash", "dash", "zsh", "csh", "tcsh", "fish")


# --- accounts


@pytest.fixture(scope="module")
def shells(tmp_path_factory):
    """A host for each login shell that is installed: its start-up file greets, and sets a variable; sshd greets too."""
    found = [name for name in SHELLS if shutil.which(name)]
    folder = tmp_path_factory.mktemp("shells")
    (folder / "banner").write_text("Authorised use only.\n" * 5)
    with cluster_of(len(found), folder / "c", "--sshd-option", f"Banner {folder}/banner") as cluster:
        for host, name in zip(names_of(len(found)), found):
            _dress(cluster, host, name)
        yield dict(zip(names_of(len(found)), found)), cluster


def _dress(cluster, host, shell):
    passwd = cluster.directory / "etc" / f"passwd.{host}"
    first, rest = passwd.read_text().split("\n", 1)
    passwd.write_text(first.rpartition(":")[0] + f":{shutil.which(shell)}\n" + rest)
    home = cluster.home(host)
    (home / ".config" / "fish").mkdir(parents=True)
    for name in (".bashrc", ".zshenv", ".cshrc", ".config/fish/config.fish"):
        (home / name).write_text(f"echo 'Welcome to {host}; today: soup'\necho 'mail: none'\n")


def test_agents_start_in_every_login_shell(shells, tmp_path):
    hosts, cluster = shells
    assert len(hosts) >= 2
    job = cluster.start("-H", ",".join(f"{host}:2" for host in hosts), "python3", RING, cwd=tmp_path)
    try:
        ended = job.end()
    finally:
        job.destroy()
    assert (ended.code, ended.err) == (0, "")
    assert b"soup" not in ended.out
    assert ended.out.count(b", ok\n") == 2 * len(hosts)
    cluster.wait_quiet(len(hosts))


@pytest.mark.parametrize("way", [(), ("--rsh-agent", "ssh -q")], ids=["built in", "ssh"])
def test_each_login_shell_alone_is_really_that_shell(shells, tmp_path, way):
    hosts, cluster = shells
    words = ("-H", ",".join(hosts), "sh", "-c", "echo $(hostname) ${SHELL##*/} $OMPI_COMM_WORLD_RANK")
    job = cluster.start(*way, *words, cwd=tmp_path)
    try:
        ended = job.end()
    finally:
        job.destroy()
    assert ended.code == 0, ended.err
    assert ended.lines == [f"{host} {name} {rank}" for rank, (host, name) in enumerate(hosts.items())]
    cluster.wait_quiet(len(hosts))


def test_a_home_that_cannot_be_written(tmp_path):
    with cluster_of(1, tmp_path / "c") as cluster:
        cluster.on("n01", 'mount --bind "$HOME" "$HOME" && mount -o remount,bind,ro "$HOME"')
        assert "read-only" in cluster.on("n01", 'touch "$HOME/x" 2>&1 | tr A-Z a-z || true')
        job = cluster.start("-H", "n01:2", "hostname", cwd=tmp_path)
        try:
            ended = job.end()
        finally:
            job.destroy()
        assert (ended.code, ended.lines, ended.err) == (0, ["n01", "n01"], "")


# --- ~/.ssh/config of the head


@pytest.fixture
def config(four):
    """Write lines in front of it: `with config("Host a\\n ..."):`."""
    path = four.home("head") / ".ssh" / "config"
    return lambda text: edited(path, text + path.read_text())


def test_an_alias_with_a_port(run, config):
    with config("Host gpu-a\n    HostName n03\n    Port 2222\n    User root\n"):
        ended = run("-H", "gpu-a,n01", "sh", "-c", "echo $(hostname) ${SSH_CONNECTION##* }")
    assert (ended.code, ended.err) == (0, "")  # n03 is known by that name, though its key stands without the port
    assert ended.lines == ["n01 22", "n03 2222"]


def test_ranks_on_aliases_meet(run, config):
    with config("Host a\n    HostName 10.77.1.3\nHost b\n    HostName 10.77.1.4\n"):
        ended = run("-H", "a:2,b:2", "python3", RING)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count(b"ok\n") == 4


def test_a_jump(run, config):
    """The host behind it sees the one in between."""
    with config("Host inner\n    HostName n02\n    ProxyJump gate\nHost gate\n    HostName n01\n    Port 2222\n"):
        ended = run("-H", "inner,n03", *FROM)
    assert (ended.code, ended.err) == (0, "")
    assert ended.lines == ["n02 10.77.1.1", "n03 10.77.0.1"]


def test_a_job_behind_a_jump_that_the_launcher_cannot_reach_itself(run, four, config):
    """Only n01 knows the way: the others' addresses are dead ends for the head, and ranks meet all the same."""
    four.on("head", "ip route add unreachable 10.77.1.2; ip route add unreachable 10.77.1.3")
    try:
        assert run("-H", "n02", "--connect-timeout", 3, "true").code == 255
        with config("Host n02 n03\n    ProxyJump n01\n"):
            ended = run("-H", "n02:2,n03:2", "python3", RING)
    finally:
        four.on("head", "ip route del unreachable 10.77.1.2; ip route del unreachable 10.77.1.3")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count(b"ok\n") == 4


def test_an_included_file(run, four, config):
    folder = four.home("head") / ".ssh" / "more"
    folder.mkdir(exist_ok=True)
    (folder / "hosts").write_text(
        "Host far-*\n    Port 2222\nHost far-1\n    HostName n01\nHost far-2\n    HostName n02\n"
    )
    with config("Include more/*\n"):
        ended = run("-H", "far-1,far-2", "sh", "-c", "echo $(hostname) ${SSH_CONNECTION##* }")
    assert (ended.code, ended.lines) == (0, ["n01 2222", "n02 2222"])


# --- ssh itself


@pytest.mark.parametrize(
    "options",
    [
        ("--rsh-agent", "ssh"),
        ("--rsh-agent", "ssh -o BatchMode=yes -p 2222"),
        ("-mca", "plm_rsh_agent", "ssh", "-mca", "plm_rsh_args", "-o BatchMode=yes"),
    ],
)
def test_the_ssh_program_can_be_used(run, options):
    ended = run(*options, "-H", "n01:2,n02:2", "python3", RING)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count(b"ok\n") == 4


def test_ssh_program_and_built_in_client_end_alike(run):
    script = "exit $((OMPI_COMM_WORLD_RANK * 5))"
    ways = [run(*way, "-H", "n01,n02", "sh", "-c", script) for way in ((), ("--rsh-agent", "ssh"))]
    assert [ended.code for ended in ways] == [5, 5]
    assert all("rank 1 ended with exit code 5 on n02" in ended.err for ended in ways)
