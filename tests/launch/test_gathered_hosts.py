"""torchrun's line on each host, without numbers: the commands meet, start their parts, and end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from gathered import Hosts
from launching import Job, environment

NAME = "127.1"  # the C library takes it for 127.0.0.1, as it would a name of this host
SHOW = ["sh", "-c", "echo $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $GROUP_WORLD_SIZE $LOCAL_WORLD_SIZE"]


def test_hosts_get_numbers_and_may_differ_in_their_ranks(hosts: Hosts) -> None:
    for each in (2, 1, 3):
        hosts.start(f"--nproc-per-node={each}", "--no-python", *SHOW, nnodes="3")
    ends = hosts.ends()
    assert [end.code for end in ends] == [0, 0, 0], [end.err for end in ends]
    rows = sorted([*map(int, line.split())] for end in ends for line in end.lines)
    assert [row[0] for row in rows] == list(range(6))
    assert {row[3] for row in rows} == {6} and {row[4] for row in rows} == {3}
    by_node = {node: [row[1] for row in rows if row[2] == node] for node in range(3)}
    assert sorted(map(len, by_node.values())) == [1, 2, 3]
    assert all(local == list(range(len(local))) for local in by_node.values())
    assert all(row[5] == len(by_node[row[2]]) for row in rows)


def test_ranks_of_all_hosts_meet_at_one_place(hosts: Hosts) -> None:
    for _ in range(2):
        hosts.start("--no-python", "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID", "--rdzv-id=x")
    lines = [line for end in hosts.ends() for line in end.lines]
    assert len(lines) == 2 and len(set(lines)) == 1 and lines[0].startswith("127.0.0.1:")


def test_an_endpoint_with_a_name_is_reached_at_every_address(hosts: Hosts, tmp_path: Path) -> None:
    """As 127.0.1.1 may be that of a host's name on the host itself."""
    words = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={NAME}:{hosts.port}", "--no-python", *SHOW]
    env = environment(HOME=str(tmp_path), XDG_CONFIG_HOME="", OMP_NUM_THREADS="1")
    for host in ("is_host=1", "is_host=0"):
        hosts.jobs.append(Job(["--dialect", "torchrun", f"--rdzv-conf=join_timeout=30,{host}", *words], env))
        if host == "is_host=1":
            hosts.wait_listening()
            socket.create_connection(("127.0.0.3", hosts.port), 30).close()
    assert sorted(line for end in hosts.ends() for line in end.lines) == ["0 0 0 2 2 1", "1 0 1 2 2 1"]


@pytest.mark.parametrize("name", ["127.0.0.1", "LOCALHOST"])
def test_the_endpoint_is_typed_alike_but_for_case(hosts: Hosts, tmp_path: Path, name: str) -> None:
    """An address beside a name is another endpoint, since a proof for one must be worthless at all others."""
    words = ["--nnodes=2", "--rdzv-backend=c10d", "--no-python", *SHOW]
    env = environment(HOME=str(tmp_path), XDG_CONFIG_HOME="", OMP_NUM_THREADS="1")
    for typed, host in (("localhost", "is_host=1"), (name, "is_host=0")):
        meet = [f"--rdzv-endpoint={typed}:{hosts.port}", f"--rdzv-conf=join_timeout=5,{host}"]
        hosts.jobs.append(Job(["--dialect", "torchrun", *meet, *words], env))
    first, second = hosts.ends()
    if name == "LOCALHOST":
        assert sorted(first.lines + second.lines) == ["0 0 0 2 2 1", "1 0 1 2 2 1"]
    else:
        assert (first.code, second.code, first.out + second.out) == (1, 1, b"")
        assert "another job meets there" in second.err and "type --rdzv-endpoint" in second.err
        assert "names another endpoint or --rdzv-id" in first.err


def test_a_failure_on_one_host_ends_all_and_is_told_on_each(hosts: Hosts) -> None:
    for _ in range(3):
        hosts.start("--no-python", "sh", "-c", "test $RANK = 2 && exit 7; exec sleep 60", nnodes="3")
    ends = hosts.ends()
    assert [end.code for end in ends] == [1, 1, 1]
    own = [end.err for end in ends if "mslaunch: rank 2 ended with exit code 7" in end.err]
    others = [end.err for end in ends if ": rank 2 ended with exit code 7, after" in end.err]
    assert len(own) == 1 and len(others) == 2, [end.err for end in ends]
    assert all(text.startswith("mslaunch: the job has failed on ") for text in others)


def test_a_command_that_is_killed_is_missed(hosts: Hosts, tmp_path: Path) -> None:
    """The ranks of the others end; so do those of the command that died, by its own agent."""
    for _ in range(2):
        hosts.start("--no-python", "sh", "-c", f"echo $RANK >{tmp_path}/up.$RANK; echo up; exec sleep 60")
    for job in hosts.jobs:
        job.expect(b"up")
    os.kill(hosts.jobs[1].process.pid, signal.SIGKILL)
    end = hosts.jobs[0].end()
    assert end.code == 1 and "its command has ended without a word" in end.err, end.err
    for job in hosts.jobs:
        job.wait_gone()


def test_ctrl_c_on_one_host_ends_all(hosts: Hosts) -> None:
    for _ in range(2):
        hosts.start("--no-python", "sh", "-c", "echo up; exec sleep 60")
    for job in hosts.jobs:
        job.expect(b"up")
    hosts.jobs[1].process.send_signal(signal.SIGINT)
    ends = hosts.ends()
    assert [end.code for end in ends] == [1, 1] and "ended by SIGINT" in ends[0].err


def test_the_host_stays_when_its_ranks_have_ended_and_passes_on_that_another_fails(
    hosts: Hosts, tmp_path: Path
) -> None:
    script = f"""case $GROUP_RANK in
      0) exit 0 ;;
      1) until test -e {tmp_path}/go; do sleep 0.05; done; exit 7 ;;
      2) exec sleep 60 ;;
    esac"""
    host = hosts.start("--no-python", "sh", "-c", f"echo up; {script}", nnodes="3")
    hosts.wait_listening()
    others = [hosts.start("--no-python", "sh", "-c", f"echo up; {script}", nnodes="3") for _ in range(2)]
    for job in hosts.jobs:
        job.expect(b"up")
    host.expect_error(b"waiting for those of the other hosts")
    (tmp_path / "go").touch()
    ends = [job.end() for job in others] + [host.end()]
    assert [end.code for end in ends] == [1, 1, 1], ends
    told = [end.err for end in ends if "mslaunch: the job has failed on " in end.err]
    assert len(told) == 2 and all(": rank 1 ended with exit code 7" in text for text in told), ends


def test_ctrl_c_at_the_host_whose_ranks_have_ended_ends_the_others(hosts: Hosts) -> None:
    host = hosts.start("--no-python", "sh", "-c", "echo up; test $RANK = 0 || exec sleep 60")
    hosts.wait_listening()
    hosts.start("--no-python", "sh", "-c", "echo up; test $RANK = 0 || exec sleep 60")
    for job in hosts.jobs:
        job.expect(b"up")
    host.expect_error(b"waiting for those of the other hosts")
    host.send(signal.SIGINT)
    ends = hosts.ends()
    assert [end.code for end in ends] == [1, 1] and all("ended by SIGINT" in end.err for end in ends), ends


def test_a_program_that_is_missing_on_one_host_ends_all(hosts: Hosts) -> None:
    hosts.start("--no-python", "sleep", "60")
    hosts.start("--no-python", "/nowhere/program")
    ends = hosts.ends()
    assert [end.code for end in ends] == [1, 1]
    assert all("'/nowhere/program' does not exist" in end.err for end in ends)


def test_fewer_hosts_start_after_the_last_call(hosts: Hosts) -> None:
    for _ in range(2):
        hosts.start("--no-python", *SHOW, nnodes="2:4", conf="last_call_timeout=1")
    ends = hosts.ends()
    assert sorted(line for end in ends for line in end.lines) == ["0 0 0 2 2 1", "1 0 1 2 2 1"], ends


def test_hosts_that_do_not_come_are_counted(hosts: Hosts) -> None:
    guest = hosts.start("--no-python", "echo", "started", nnodes="3", conf="join_timeout=40,is_host=0")
    guest.expect_error(b"waiting for the command at")  # and comes at once, when there is one
    hosts.start("--no-python", "echo", "started", nnodes="3", conf="join_timeout=5,is_host=1")
    ends = hosts.ends()
    assert [(end.code, end.out) for end in ends] == [(1, b"")] * 2
    what = "1 more host of --nnodes 3"
    assert all(what in end.err and "did not come within 5 s" in end.err for end in ends), ends


@pytest.mark.parametrize(
    ("words", "nnodes", "why", "there"),
    [
        (["--rdzv-id=k"], "2", "another job meets there", "names another endpoint or --rdzv-id"),
        ([], "3", "--nnodes is", "--nnodes is"),
    ],
    ids=["id", "nnodes"],
)
def test_a_line_that_differs_is_told_and_the_others_wait_on(
    hosts: Hosts, words: list[str], nnodes: str, why: str, there: str
) -> None:
    hosts.start("--no-python", *SHOW)
    hosts.wait_listening()
    odd = hosts.start(*words, "--no-python", *SHOW, nnodes=nnodes).end()
    assert odd.code == 1 and why in odd.err and len(odd.err.splitlines()) <= 2 and not odd.out
    hosts.start("--no-python", *SHOW)
    ends = [hosts.jobs[0].end(), hosts.jobs[2].end()]
    assert [end.code for end in ends] == [0, 0] and there in ends[0].err


@pytest.mark.parametrize(
    ("words", "why"),
    [(["--env-for", "tf"], "--env-for tf"), (["--horovod", "gloo"], "--horovod gloo"), (["--warn", "5"], "--warn")],
    ids=["env-for", "horovod", "warn"],
)
def test_a_line_that_no_host_could_start_is_refused_before_the_others_come(
    hosts: Hosts, words: list[str], why: str
) -> None:
    end = hosts.start(*words, "--no-python", *SHOW).end(bound=20)
    assert end.code == 1 and end.err.startswith(f"mslaunch: {why}: "), end.err


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n"], ids=["closes", "answers"])
def test_a_port_of_this_host_that_another_process_has_is_told_with_its_name(hosts: Hosts, answer: bytes) -> None:
    script = f"""
import socket
server = socket.create_server(("127.0.0.1", {hosts.port}))
while True:
    caller, _ = server.accept()
    caller.recv(100)
    caller.sendall({answer!r})
    caller.close()
"""
    with subprocess.Popen([sys.executable, "-c", script]) as stranger:
        try:
            hosts.wait_listening()
            end = hosts.start("--no-python", *SHOW, conf="join_timeout=2").end()
        finally:
            stranger.kill()
    assert end.code == 1 and not end.out
    assert f"the port is taken by process {stranger.pid} (" in end.err.splitlines()[-2], end.err
    assert "choose another port" in end.err.splitlines()[-1], end.err


def test_a_host_without_the_secret_is_told_what_to_copy(hosts: Hosts) -> None:
    hosts.start("--no-python", *SHOW)
    hosts.wait_listening()
    odd = hosts.start("--no-python", *SHOW, home="elsewhere").end()
    assert odd.code == 1 and "does not know our secret" in odd.err and "copy " in odd.err
    hosts.start("--no-python", *SHOW)
    ends = [hosts.jobs[0].end(), hosts.jobs[2].end()]
    assert [end.code for end in ends] == [0, 0] and "does not know the secret" in ends[0].err
