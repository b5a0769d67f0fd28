"""Jobs on four real hosts: placement, rendezvous, logs and input, and files that are left behind."""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest
from clusters import CORES, MARKS, RING, cluster_of, names_of

pytestmark = MARKS
WHERE = ("sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname)")
MEET = ("sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname) $MASTER_ADDR")


def hostfile(tmp_path, text):
    path = tmp_path / "hosts"
    path.write_text(text)
    return path


def ring(ended, ranks):
    """Every rank's token came round; the hosts by rank."""
    assert (ended.code, ended.err) == (0, "")
    found = re.findall(rf"^rank (\d+)/{ranks} .* on (\S+): token passed {ranks} hands.* ok$", ended.out.decode(), re.M)
    hosts = {int(rank): host for rank, host in found}
    assert sorted(hosts) == list(range(ranks)), ended.out
    return [hosts[rank] for rank in range(ranks)]


# --- placement


def test_sixteen_ranks_on_four_hosts(run, tmp_path):
    hosts = hostfile(tmp_path, "".join(f"{name} slots=4\n" for name in names_of(4)))
    assert ring(run("-n", 16, "--hostfile", hosts, "python3", RING), 16) == [n for n in names_of(4) for _ in range(4)]


def test_hosts_on_the_command_line_in_their_order(run):
    assert ring(run("-H", "n02:2,n01:2", "python3", RING), 4) == ["n02", "n02", "n01", "n01"]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("n[01-04] slots=1\n", (), "n01 n02 n03 n04"),
        ("n[03-04] slots=2 # the new ones\nn01\n", ("-n", 5), "n03 n03 n04 n04 n01"),
        ("root@n02 slots=2\nn01 slots=1\n", (), "n02 n02 n01"),
        ("n02 port=2222 slots=1\n", (), "n02"),
        ("n[01-03] slots=2\n", ("--map-by", "node"), "n01 n02 n03 n01 n02 n03"),
        ("n[01-03] slots=2\n", ("-N", 1), "n01 n02 n03"),
        ("n[01-03] slots=2\n", ("-n", 3), "n01 n01 n02"),
    ],
)
def test_hostfiles(run, tmp_path, text, options, expected):
    ended = run("--hostfile", hostfile(tmp_path, text), *options, *WHERE)
    assert (ended.code, ended.err) == (0, "")
    assert ended.lines == [f"{rank} {host}" for rank, host in enumerate(expected.split())]


def test_hosts_without_slots_are_asked_for_their_cores(run, tmp_path):
    ended = run("--hostfile", hostfile(tmp_path, "n[01-03]\n"), "hostname")
    assert (ended.code, Counter(ended.lines)) == (0, dict.fromkeys(names_of(3), CORES))


# --- rendezvous


@pytest.mark.parametrize(
    ("hosts", "order", "address"),
    [
        ("n03,n01", "n03 n01", "10.77.1.3"),
        ("head,n01", "head n01", "10.77.0.1"),
        ("n02,head", "head n02", "10.77.0.1"),  # the launcher's host is always the first node, as with mpirun
        ("n01,n02,head,n03", "head n01 n02 n03", "10.77.0.1"),
    ],
)
def test_ranks_use_an_address_that_all_hosts_can_reach(run, hosts, order, address):
    ended = run("-H", hosts, *MEET)
    assert (ended.code, ended.err) == (0, "")
    assert ended.lines == [f"{rank} {host} {address}" for rank, host in enumerate(order.split())]


def test_the_head_takes_part(run):
    assert ring(run("-H", "head:2,n01:1,n04:1", "python3", RING), 4) == ["head", "head", "n01", "n04"]
    assert ring(run("-H", "n01:1,head:2", "python3", RING), 3) == ["head", "head", "n01"]


def test_the_address_of_the_head_is_the_head(run):
    ended = run("-H", "10.77.0.1,n01", "hostname")
    assert (ended.code, ended.lines) == (0, ["head", "n01"])


# --- logs and input


def test_logs_are_on_the_launchers_side(run, tmp_path):
    script = "echo out $OMPI_COMM_WORLD_RANK $(hostname); echo err $(hostname) >&2"
    ended = run("-H", "n01:6,n02:6", "--output-filename", tmp_path / "log_output:nocopy", "sh", "-c", script)
    assert (ended.code, ended.out, ended.err) == (0, b"", "")
    files = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert files.pop("log_output/run.json")
    expected = {}
    for rank in range(12):
        host = "n01" if rank < 6 else "n02"
        expected[f"log_output/1/rank.{rank:02d}/stdout"] = f"out {rank} {host}\n"
        expected[f"log_output/1/rank.{rank:02d}/stderr"] = f"err {host}\n"
    assert files == expected


def test_standard_input_reaches_a_remote_rank(start, tmp_path):
    source = tmp_path / "input"
    source.write_bytes(os.urandom(300_000))
    with source.open("rb") as file:
        ended = start("-H", "n02,n03", "--stdin", 1, "cat", stdin=file).end()
    assert (ended.code, ended.out) == (0, source.read_bytes())


# --- what is left behind


def empty_tmp(cluster, host):
    """A /tmp of its own that holds nothing but the way to the cluster's directory, should that be in there."""
    script = (
        "set -e; mkdir /run/keep; mount --bind {0} /run/keep; mount -t tmpfs none /tmp; "
        "mkdir -p {0}; mount --bind /run/keep {0}"
    )
    cluster.on(host, script.format(cluster.directory))


def files_on(cluster, host):
    """Every file in the places where programs leave some."""
    return set(cluster.on(host, "find $HOME /tmp /dev/shm /run -xdev -printf '%p %s %y\\n'").splitlines())


def test_no_file_is_made_on_a_host_not_even_for_a_while(tmp_path):
    with cluster_of(2, tmp_path / "c") as cluster:
        for name in names_of(2):
            empty_tmp(cluster, name)
        before = {name: files_on(cluster, name) for name in names_of(2)}
        assert all("/tmp" in line and "known_hosts" in line for line in map(str, before.values()))
        job = cluster.start("-H", "n01,n02", "--wdir", "/", "sh", "-c", "echo ready; exec sleep 1000", cwd=tmp_path)
        try:
            job.expect(b"ready", 2)
            assert {name: files_on(cluster, name) for name in names_of(2)} == before
            job.process.terminate()
            assert job.end().code == 1
        finally:
            job.destroy()
        cluster.wait_quiet(2)
        assert {name: files_on(cluster, name) for name in names_of(2)} == before


def test_nothing_secret_is_on_a_command_line_of_ours(start, four):
    words = ("sh", "-c", "echo ready; exec sleep 1000", "argument-of-the-rank")
    job = start("-x", "TOKEN", "-H", "n01,n02", *words, env={"TOKEN": "value-of-a-variable"})
    job.expect(b"ready", 2)
    for host in ("n01", "n02"):
        listed = four.on(host, "cat /proc/*/cmdline | tr '\\0' ' '")
        assert "sleep 1000" in listed and "python3 -I -S -c" in listed  # rank and agent: we do look at them
        assert "value-of-a-variable" not in listed
        assert "argument-of-the-rank" not in listed  # sleep took the place of the shell that had it
    job.process.terminate()
    job.end()


@pytest.mark.parametrize("way", [(), ("--rsh-agent", "ssh")], ids=["built in", "ssh"])
def test_ps_shows_what_the_processes_of_a_job_are(start, four, way):
    job = start(*way, "-H", "n01", "sh", "-c", "echo ready; exec sleep 1000")
    job.expect(b"ready")
    listed = four.on("n01", "ps -A -o comm=").split()
    assert {"mslaunch-guard", "mslaunch-agent", "sleep"} <= set(listed)
    assert not [name for name in listed if name.startswith("python")]
    job.process.terminate()
    job.end()


def test_the_variable_itself_arrives(run):
    script = 'test "$TOKEN" = "two words" && hostname'
    ended = run("-x", "TOKEN", "-H", "n01,n02", "sh", "-c", script, env={"TOKEN": "two words"})
    assert (ended.code, ended.lines) == (0, ["n01", "n02"])


# --- a program or directory that only one host has


@pytest.mark.parametrize(
    ("make", "words", "code", "says"),
    [
        ("echo '#!/bin/sh' > {0}; chmod 755 {0}", ("{0}",), 127, "the program '{0}' does not exist"),
        ("echo 'print(1)' > {0}", ("python3", "-u", "{0}"), 127, "there is no file {0} for python3"),
        ("mkdir {0}", ("--wdir", "{0}", "true"), 126, "the working directory {0} does not exist"),
    ],
)
def test_a_program_that_only_one_of_two_hosts_has(run, four, make, words, code, says):
    name = "/dev/shm/only"  # each host has its own
    four.on("n01", make.format(name))
    try:
        ended = run("-H", "n01:2,n02:3", *[word.format(name) for word in words])
    finally:
        four.on("n01", f"rm -rf {name}")
    assert ended.code == code
    assert ended.err.count(says.format(name)) == 1, ended.err
    assert f"{says.format(name)} on n02" in ended.err
    assert len(re.findall("^mslaunch: ", ended.err, re.M)) == 1


def test_a_program_that_no_host_has_is_reported_once(run):
    ended = run("-H", "n01:2,n02:2,n03:2", "no-such-program")
    assert ended.code == 127
    assert ended.err.count("was not found") == 1
    assert re.search(r"was not found on n\[0[1-3]", ended.err)
