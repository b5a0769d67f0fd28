"""--max-restarts where each host has a command: after a failure all meet again, and others replace the lost ones."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from gathered import Hosts
from launching import Job, wait_until

AGAIN = ("--max-restarts=2", "--no-python", "sh", "-c")
COUNT = "$TORCHELASTIC_RESTART_COUNT"


def script(fails: str) -> str:
    """A rank says where it is, and fails where the shell finds `fails` true; the others of that attempt would stay."""
    return f"{SAYS}; if {fails}; then exit 7; fi"


SAYS = f"echo r$RANK/$WORLD_SIZE n$GROUP_RANK/$GROUP_WORLD_SIZE c{COUNT} p$MASTER_PORT"


def twice(rank: int, folder: Path) -> str:
    """`rank` fails in the first two attempts, when all others of the attempt have said where they are."""
    said = f"until test $(ls {folder}/*.{COUNT} | wc -l) = $WORLD_SIZE; do sleep 0.05; done"
    bad = f"if test $RANK = {rank}; then {said}; exit 7; else exec sleep 60; fi"
    return f"{SAYS}; touch {folder}/$RANK.{COUNT}; if test {COUNT} -lt 2; then {bad}; fi"


def rows(job: Job) -> list[list[str]]:
    """What its ranks have said: rank, node, count, port."""
    return [line.split() for line in job.end().lines]


@pytest.mark.parametrize("fails", [1, 2], ids=["on the host of the meeting", "on another"])
def test_a_failure_on_one_host_starts_all_ranks_again(hosts: Hosts, tmp_path: Path, fails: int) -> None:
    (tmp_path / "said").mkdir()
    for _ in range(2):
        hosts.start("--nproc-per-node=2", *AGAIN, twice(fails, tmp_path / "said"))
    ends = hosts.ends()
    assert [end.code for end in ends] == [0, 0], [end.err for end in ends]
    said = [line.split() for end in ends for line in end.lines]
    assert sorted(row[0] + row[2] for row in said) == sorted(f"r{r}/4c{c}" for r in range(4) for c in range(3))
    ports = {row[2]: {other[3] for other in said if other[2] == row[2]} for row in said}
    assert [len(ports[f"c{count}"]) for count in range(3)] == [1, 1, 1] and len(set.union(*ports.values())) == 3
    both = [f"rank {fails} ended with exit code 7" in end.err for end in ends]
    assert both == [True, True] and all("all ranks succeeded, in attempt 3" in end.err for end in ends)


def test_restarts_are_counted_for_all(hosts: Hosts) -> None:
    for _ in range(2):
        hosts.start(*AGAIN, "test $RANK = 1 && exit 7; exec sleep 60")
    ends = hosts.ends()
    assert [end.code for end in ends] == [1, 1]
    assert all("not started again: this was attempt 3 of 3 (--max-restarts)" in end.err for end in ends), ends


def test_the_others_hear_of_a_failure_before_the_ranks_beside_it_have_ended(hosts: Hosts, tmp_path: Path) -> None:
    """The first rank ignores SIGTERM until the other host's has been ended, which follows from the failure."""
    gone = tmp_path / "gone"
    beside = f"trap '' TERM; while ! test -e {gone}; do read -t 0.1 x <> {tmp_path}/fifo; done"
    other = f"trap 'touch {gone}; exit 1' TERM; echo up; while :; do read -t 0.1 x <> {tmp_path}/fifo; done"
    os.mkfifo(tmp_path / "fifo")
    fail = f"while ! test -e {tmp_path}/all; do read -t 0.1 x <> {tmp_path}/fifo; done; exit 7"
    text = f"case $RANK in 0) {beside};; 1) {fail};; *) {other};; esac"
    for each in (2, 1):
        hosts.start(f"--nproc-per-node={each}", "--no-python", "bash", "-c", text)
        if each == 2:
            hosts.wait_listening()
    hosts.jobs[1].expect(b"up")
    (tmp_path / "all").touch()
    ends = hosts.ends()
    assert gone.exists() and [end.code for end in ends] == [1, 1]
    assert "rank 1 ended with exit code 7" in ends[1].err, ends


#: ranks of the first attempt stay, those of others end well
STAY = script(f"test {COUNT} = 0 && echo up && exec sleep 60")


def run_and_stay(hosts: Hosts, commands: int = 2, **how: str) -> None:
    """Start so many commands, the first of them at the endpoint, until their ranks run."""
    for _ in range(commands):
        hosts.start(*AGAIN, STAY, **how)
        hosts.wait_listening()
    for job in hosts.jobs:
        job.expect(b"up")


def test_a_command_that_is_killed_is_replaced_by_one_that_comes(hosts: Hosts) -> None:
    run_and_stay(hosts)
    os.kill(hosts.jobs[1].process.pid, signal.SIGKILL)
    new = hosts.start(*AGAIN, STAY)
    assert [row[:3] for row in rows(new)] == [["r1/2", "n1/2", "c1"]]
    end = hosts.jobs[0].end()
    assert end.code == 0 and "r0/2 n0/2 c1" in end.out.decode(), end
    assert "attempt 1 of 3" in end.err and "its command has ended without a word" in end.err


def test_with_fewer_hosts_the_job_goes_on_after_the_last_call(hosts: Hosts) -> None:
    run_and_stay(hosts, nnodes="1:2", conf="last_call_timeout=6,join_timeout=40")
    os.kill(hosts.jobs[1].process.pid, signal.SIGKILL)
    end = hosts.jobs[0].end()
    assert end.code == 0 and "r0/1 n0/1 c1" in end.out.decode(), end
    assert "1 host instead of 2" in end.err


def test_a_lost_host_that_nobody_replaces_ends_the_job(hosts: Hosts) -> None:
    guests = [hosts.start(*AGAIN, STAY, nnodes="3", conf="join_timeout=40,is_host=0") for _ in range(2)]
    for job in guests:
        job.expect_error(b"waiting for the command at")  # and come at once, when there is one
    hosts.start(*AGAIN, STAY, nnodes="3", conf="join_timeout=6,is_host=1")
    for job in hosts.jobs:
        job.expect(b"up")
    os.kill(guests[0].process.pid, signal.SIGKILL)
    for job in hosts.jobs[1:]:
        end = job.end()
        assert end.code and "1 more host of --nnodes 3" in end.err and "did not come within 6 s" in end.err, end
        assert "Traceback" not in end.err


def test_sigterm_of_one_command_is_the_loss_of_its_host(hosts: Hosts) -> None:
    """A supervisor, such as Kubernetes, ends it so; the others go on."""
    run_and_stay(hosts, nnodes="1:2", conf="last_call_timeout=6,join_timeout=40")
    hosts.jobs[1].process.send_signal(signal.SIGTERM)
    ends = hosts.ends()
    assert [end.code for end in ends] == [0, 1] and "ended by SIGTERM" in ends[0].err, ends
    assert "r0/1 n0/1 c1" in ends[0].out.decode()


def test_sigterm_while_the_others_are_waited_for_is_the_loss_of_a_host_as_well(hosts: Hosts) -> None:
    run_and_stay(hosts, 3, nnodes="3")
    os.kill(hosts.jobs[2].process.pid, signal.SIGKILL)
    hosts.jobs[0].expect_error(b"for 1 more host of --nnodes 3")
    hosts.jobs[1].process.send_signal(signal.SIGTERM)
    assert hosts.jobs[1].end().code == 1
    for _ in range(2):
        hosts.start(*AGAIN, STAY, nnodes="3")
    ends = [job.end() for job in (hosts.jobs[0], *hosts.jobs[3:])]
    assert [end.code for end in ends] == [0, 0, 0] and "r0/3 n0/3 c1" in ends[0].out.decode(), ends


@pytest.mark.parametrize("who", [0, 1])
def test_ctrl_c_ends_all(hosts: Hosts, who: int) -> None:
    run_and_stay(hosts)
    hosts.jobs[who].process.send_signal(signal.SIGINT)
    ends = hosts.ends()
    assert [end.code for end in ends] == [1, 1] and all("ended by SIGINT" in end.err for end in ends), ends
    assert not any("started again" in end.err for end in ends)


@pytest.mark.parametrize("done", [0, 1])
def test_a_command_whose_ranks_have_ended_well_starts_again_with_the_others(
    hosts: Hosts, tmp_path: Path, done: int
) -> None:
    """The rank that fails does so when the command of the other has said that it waits."""
    os.mkfifo(tmp_path / "fifo")
    for _ in range(2):
        fails = f"test {COUNT} = 0 && test $RANK != {done} && read x < {tmp_path}/fifo"
        hosts.start(*AGAIN, script(fails))
        hosts.wait_listening()
    waits = hosts.jobs[done]
    waits.expect_error(b"waiting for those of the other hosts")
    (tmp_path / "fifo").write_text("go\n")
    ends = hosts.ends()
    assert [end.code for end in ends] == [0, 0], ends
    assert all(f"r{rank}/2 n{rank}/2 c1" in end.out.decode() for rank, end in enumerate(ends))


def test_ctrl_c_while_a_command_waits_for_the_others(hosts: Hosts) -> None:
    for _ in range(2):
        hosts.start(*AGAIN, "test $RANK = 1 || exec sleep 60")
        hosts.wait_listening()
    hosts.jobs[1].expect_error(b"waiting for those of the other hosts")
    hosts.jobs[1].process.send_signal(signal.SIGINT)
    ends = hosts.ends()
    assert [end.code for end in ends] == [1, 1] and all("ended by SIGINT" in end.err for end in ends), ends


def test_one_more_command_waits_until_there_is_a_place(hosts: Hosts) -> None:
    run_and_stay(hosts)
    spare = hosts.start(*AGAIN, STAY)
    spare.expect_error(b"the job runs on 2 hosts")
    os.kill(hosts.jobs[1].process.pid, signal.SIGKILL)
    assert [row[:3] for row in rows(spare)] == [["r1/2", "n1/2", "c1"]]
    assert hosts.jobs[0].end().code == 0


def test_a_command_that_waits_in_vain_is_told_that_the_job_is_over(hosts: Hosts, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for _ in range(2):
        hosts.start(*AGAIN, f"echo up; read x < {tmp_path}/fifo")
        hosts.wait_listening()
    for job in hosts.jobs:
        job.expect(b"up")
    spare = hosts.start(*AGAIN, "echo up")
    spare.expect_error(b"the job runs on 2 hosts")
    with (tmp_path / "fifo").open("r+b", 0) as fifo:  # who opens it later finds its line as well
        fifo.write(b"1\n2\n")
        end = spare.end()
        assert end.code == 1 and "the job is over" in end.err and not end.out
        assert [job.end().code for job in hosts.jobs[:2]] == [0, 0]


def test_the_command_where_all_meet_is_not_replaced(hosts: Hosts) -> None:
    run_and_stay(hosts)
    os.kill(hosts.jobs[0].process.pid, signal.SIGKILL)
    end = hosts.jobs[1].end()
    assert end.code and "its command has ended without a word" in end.err and "started again" not in end.err, end
    for job in hosts.jobs:
        job.wait_gone()


def test_lines_with_another_number_of_restarts_do_not_meet(hosts: Hosts) -> None:
    hosts.start(*AGAIN, script("false"))
    hosts.wait_listening()
    odd = hosts.start("--max-restarts=3", "--no-python", "sh", "-c", script("false")).end()
    assert odd.code == 1 and "--max-restarts is 2 on" in odd.err
    hosts.start(*AGAIN, script("false"))
    assert [job.end().code for job in (hosts.jobs[0], hosts.jobs[2])] == [0, 0]


# --- hosts with numbers


def test_hosts_with_numbers_keep_them_and_the_port(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "said").mkdir()
    for number in (2, 0, 1):
        hosts.start(*AGAIN, twice(2, tmp_path / "said"), nnodes="3", number=number)
    ends = hosts.ends()
    assert [end.code for end in ends] == [0, 0, 0], [end.err for end in ends]
    said = [[line.split() for line in end.lines] for end in ends]
    expected = [[[f"r{n}/3", f"n{n}/3", f"c{count}", f"p{hosts.port}"] for count in range(3)] for n in (2, 0, 1)]
    assert said == expected


def test_a_number_that_two_commands_have_is_told(hosts: Hosts) -> None:
    hosts.start(*AGAIN, script("false"), nnodes="3", number=0)
    hosts.wait_listening()
    two = [hosts.start(*AGAIN, script("false"), nnodes="3", number=1) for _ in range(2)]
    wait_until(lambda: any(job.process.poll() is not None for job in two))
    (odd,) = (job for job in two if job.process.poll() is not None)
    end = odd.end()
    assert end.code == 1 and "--node-rank is 1 on" in end.err and not end.out
    hosts.start(*AGAIN, script("false"), nnodes="3", number=2)
    assert [job.end().code for job in hosts.jobs if job is not odd] == [0, 0, 0]


def test_a_taken_port_is_told_before_anything_is_started(hosts: Hosts) -> None:
    with socket.create_server(("127.0.0.1", hosts.port)):
        end = hosts.start(*AGAIN, "echo up", number=0).end()
    assert end.code == 1 and "Address already in use" in end.err and not end.out, end
