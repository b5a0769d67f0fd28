"""One host of four is bad: the launch ends in time, names it and says what to do; nothing was started on the others."""

from __future__ import annotations

import re

import pytest
from clusters import MARKS, cluster_of, edited, names_of, wait_until

pytestmark = MARKS
TIMEOUT = 6  #: --connect-timeout
SPARE = 5.0  #: seconds that giving up may take on top of it; without the option 15 s pass
NOTHING = re.compile(r"nothing was started", re.I)


@pytest.fixture(scope="module")
def usual(four, tmp_path_factory):
    """Seconds that a launch on three good hosts takes here today, interpreter and all."""
    job = four.start("-H", "n01,n03,n04", "true", cwd=tmp_path_factory.mktemp("usual"))
    ended = job.end()
    assert ended.code == 0
    return ended.seconds


@pytest.fixture
def refused(run, tmp_path, usual):
    """Launch on `hosts`, expect an error, and return it. Each rank would make a file first."""

    def expect(hosts="n01,n02,n03,n04", *options):
        words = ("--connect-timeout", TIMEOUT, *options, "-H", hosts, "sh", "-c", "touch started.$(hostname)")
        ended = run(*words)
        assert (ended.code, ended.out) == (255, b""), ended
        assert ended.seconds < TIMEOUT + SPARE + usual
        assert [path.name for path in tmp_path.glob("started.*")] == []
        assert len(NOTHING.findall(ended.err)) == 1, ended.err
        assert len(re.findall("^mslaunch: ", ended.err, re.M)) == 1, ended.err
        return ended.err

    return expect


def says(text, *words):
    for word in words:
        assert word in text, text


def test_the_marker_would_be_made(run, tmp_path):
    assert run("-H", "n01,n02,n03,n04", "sh", "-c", "touch started.$(hostname)").code == 0
    assert sorted(path.name for path in tmp_path.glob("started.*")) == [f"started.{name}" for name in names_of(4)]


# --- not to be reached


def test_a_name_without_an_address(refused):
    says(refused("n01,n99,n03,n04"), "mslaunch: n99 ", "no address", "spelling", "/etc/hosts")


def test_a_port_without_a_listener(refused, four):
    config = four.home("head") / ".ssh" / "config"
    with edited(config, "Host n02\n    Port 2\n" + config.read_text()):
        says(refused(), "mslaunch: n02 (user root, port 2): ", "refused", "sshd")


def test_a_host_where_no_sshd_runs(refused, four):
    config = four.home("head") / ".ssh" / "config"
    with edited(config, "Host n02\n    HostName 10.77.0.1\n" + config.read_text()):
        says(refused(), "mslaunch: n02 ", "10.77.0.1", "refused")


def test_a_host_that_drops_packets(refused, four):
    four("cut", "n02")
    try:
        text = refused()
    finally:
        four("heal", "n02")
    says(text, "mslaunch: n02 ", f"within {TIMEOUT} s", "10.77.1.2", "firewall")


def test_an_address_where_no_host_is(refused):
    """The kernel says so after three seconds, if the network has a way to find out."""
    text = refused("n01,10.77.1.99,n03,n04")
    says(text, "mslaunch: 10.77.1.99 ")
    assert "Is the host up" in text or "No route to host" in text, text


# --- host keys


def lines_without(four, host):
    known = four.home("head") / ".ssh" / "known_hosts"
    return known, "".join(line for line in known.read_text().splitlines(True) if not line.startswith(host + ","))


def public_key(four, host):
    return " ".join((four.directory / "keys" / f"{host}.pub").read_text().split()[:2])


def test_a_changed_host_key(refused, four):
    known, others = lines_without(four, "n02")
    with edited(known, f"n02,10.77.1.2 {public_key(four, 'n03')}\n{others}"):
        text = refused()
        again = refused("n01,n02,n03,n04", "--ssh-accept-new")  # accepts what is new, not what has changed
    for words in (text, again):
        says(words, "mslaunch: n02 ", "CHANGED", "SHA256:", f"{known}:1", f"ssh-keygen -f {known} -R 'n02'")


def test_an_unknown_host_key_and_how_to_accept_it(refused, run, four):
    known, others = lines_without(four, "n02")
    with edited(known, others):
        says(refused(), "mslaunch: n02 ", "not known", "SHA256:", "--ssh-accept-new", "ssh-keyscan")
        assert known.read_text() == others
        ended = run("--ssh-accept-new", "-H", "n01,n02,n03,n04", "hostname")
        assert (ended.code, ended.lines) == (0, names_of(4))
        says(ended.err, "n02", f"added to {known}")
        found = four.on("head", f"ssh-keygen -F n02 -f {known}")  # the system's ssh_config may want names hashed
        assert public_key(four, "n02") in found
        assert known.read_text().startswith(others)
        ended = run("-H", "n02", "hostname")
        assert (ended.code, ended.lines, ended.err) == (0, ["n02"], "")


# --- hosts that let nobody in, or have no Python

MATCHES = {  # by the address at which sshd was reached: what is wrong with it
    2: "PubkeyAuthentication no\nPasswordAuthentication yes",
    3: "SetEnv PATH=/nonexistent",
    4: "DenyUsers root",
    5: "ForceCommand echo Maintenance until noon; exit 3",
    6: "MaxSessions 0",
    7: "ForceCommand /usr/sbin/nologin",
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """n01 and n08 are well; n02 to n07 are not."""
    folder = tmp_path_factory.mktemp("faulty")
    rules = "".join(f"Match LocalAddress 10.77.1.{number}\n{rule}\n" for number, rule in MATCHES.items())
    (folder / "rules").write_text(rules)
    with cluster_of(8, folder / "c", "--sshd-option", f"Include {folder}/rules") as cluster:
        yield cluster


@pytest.fixture
def refused_by(faulty, tmp_path, usual):
    def expect(*hosts):
        names = ",".join(["n01", *hosts, "n08"])
        words = ("--connect-timeout", TIMEOUT, "-H", names, "sh", "-c", "touch started.$(hostname)")
        job = faulty.start(*words, cwd=tmp_path)
        try:
            ended = job.end()
        finally:
            job.destroy()
        assert (ended.code, ended.out) == (255, b""), ended
        assert ended.seconds < TIMEOUT + SPARE + usual
        assert list(tmp_path.glob("started.*")) == []
        assert len(NOTHING.findall(ended.err)) == 1, ended.err
        faulty.wait_quiet(8)
        return ended.err

    return expect


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("n02", ("password", "mslaunch uses keys", "ssh-copy-id")),
        ("n03", ("no Python", "install python3", "--agent-python")),
        ("n04", ("authentication", "root@n04")),
        ("n05", ("Maintenance until noon",)),
        ("n06", ("MaxSessions",)),
        ("n07", ("allows no commands", "user@host")),
    ],
)
def test_a_host_that_is_up_and_of_no_use(refused_by, host, words):
    text = refused_by(host)
    says(text, f"mslaunch: {host}", *words)
    assert not re.search(r"\bn0[18]\b", text)


def test_several_bad_hosts_are_named_in_one_block(refused_by):
    text = refused_by("n02", "n03", "n99", "n05")
    says(text, "mslaunch: 4 of 6 hosts could not be used; nothing was started\n")
    assert len(re.findall("^mslaunch: ", text, re.M)) == 1
    for host in ("n02", "n03", "n99", "n05"):
        assert len(re.findall(rf"^  {host}\b.*: ", text, re.M)) == 1, text
    says(text, "password", "no Python", "no address", "Maintenance")


def test_the_same_error_of_many_hosts_is_reported_once(refused, four):
    config = four.home("head") / ".ssh" / "config"
    with edited(config, "Host n0[2-4] n02 n03 n04\n    Port 2\n" + config.read_text()):
        text = refused()
    says(text, "mslaunch: 3 of 4 hosts could not be used", "n[02-04]")
    assert text.count("refused") == 1, text


def test_errors_of_the_ssh_program_name_the_host(refused_by, faulty, tmp_path):
    """--rsh-agent ssh: its own words are passed on, and the host is named all the same."""
    job = faulty.start("--rsh-agent", "ssh -o BatchMode=yes", "-H", "n01,n02,n99", "hostname", cwd=tmp_path)
    try:
        ended = job.end()
    finally:
        job.destroy()
    assert (ended.code, ended.out) == (255, b"")
    says(ended.err, "2 of 3 hosts", "n02", "Permission denied", "n99", "Could not resolve")
    faulty.wait_quiet(8)


def test_giving_up_early(start, four):
    """Ctrl-C while a host does not answer: nothing more is waited for."""
    four("cut", "n02")
    try:
        job = start("--connect-timeout", 1000, "-H", "n01,n02", "hostname")
        wait_until(lambda: any("python3 -I" in words for words in four.processes("n01").values()))
        job.process.terminate()
        ended = job.end()
    finally:
        four("heal", "n02")
    assert (ended.code, ended.out) == (1, b"")  # as for a job that was ended by a signal
    assert "SIGTERM" in ended.err
