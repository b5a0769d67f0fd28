"""--restart group: a failure ends all ranks, and all are started again on the hosts that are left."""

from __future__ import annotations

import os
import re
import signal
import xml.etree.ElementTree
from pathlib import Path

import pytest
from launching import parent_of, program, through_rsh, wait_until

from mslaunch.errors import counted
from mslaunch.host.usable_cpus import cores_here

GROUP = ["--restart", "group"]
TWO = through_rsh("alpha:1", "beta:1")
WHERE = pytest.mark.parametrize("where", [["--oversubscribe"], TWO], ids=["local", "two hosts"])


def ready(out: bytes, attempt: int) -> dict[int, tuple[int, str]]:
    """Rank -> process and host, in one attempt."""
    found = re.findall(rb"rank (\d+) of \d+ attempt (\d+) ready (\d+) on (\S+)", out)
    return {int(rank): (int(pid), host.decode()) for rank, number, pid, host in found if int(number) == attempt}


def hosts_of(out: bytes, attempt: int) -> list[str]:
    """The host of each rank, in one attempt."""
    return [host for _, (_, host) in sorted(ready(out, attempt).items())]


def notices(err: str) -> list[str]:
    """The messages about attempts, without the name of this host."""
    said = [line for line in err.splitlines() if line.startswith("mslaunch: attempt ")]
    return [line[10:].replace(f" on {os.uname().nodename}", "") for line in said]


@pytest.fixture
def hosts(tmp_path):
    """Fake hosts of a hostfile: `hosts(text)` gives the options; `hosts.take(name)` takes one away."""

    class Hosts:
        def __init__(self) -> None:
            self.env = {"RSH_LOG": str(tmp_path / "calls")}
            self.env.update((f"RSH_{name.upper()}", str(tmp_path / name)) for name in ("gone", "break"))

        def __call__(self, text: str) -> list[str]:
            for name in ("gone", "break"):
                (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / "hosts").write_text(text)
            return [*through_rsh(), "--hostfile", "hosts"]

        def take(self, *names: str) -> None:
            for name in names:
                (tmp_path / "gone" / name).touch()

        def bring(self, name: str) -> None:
            (tmp_path / "gone" / name).unlink()

        @property
        def called(self) -> list[str]:
            return [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()]

    return Hosts()


def kill_agent(job, rank: int, attempt: int = 1) -> None:
    """SIGKILL for the agent above a rank."""
    os.kill(parent_of(ready(job.out, attempt)[rank][0]), signal.SIGKILL)


# --- ranks that fail


@WHERE
@pytest.mark.parametrize(
    ("how", "words"), [("3", "ended with exit code 3"), ("SIGKILL", "was ended by SIGKILL (killed)")]
)
def test_all_ranks_are_started_again(run, tmp_path, where, how, words):
    ended = run(
        [*where, *GROUP, "--max-restarts", "2", "--output-filename", "logs", "-n", "2", *program("again", how, 2)]
    )
    assert ended.code == 0
    assert [line for line in ended.lines if "done" in line] == ["done 0", "done 1"]
    host = " on alpha" if where is TWO else ""
    failed = f"rank 0 {words}{host}; all ranks are started again"
    assert notices(ended.err) == [f"attempt 1 of 3: {failed}", f"attempt 2 of 3: {failed}"]
    tail = ended.err[ended.err.index("mslaunch: all ranks succeeded, in attempt 3") :]
    assert len(re.findall(rf"^  attempt [12]: rank 0 {re.escape(words)}", tail, re.M)) == 2
    for attempt, end in ((1, ""), (2, ".attempt-2"), (3, ".attempt-3")):
        assert f" attempt {attempt} " in (tmp_path / f"logs/1/rank.0/stdout{end}").read_text()
    assert (tmp_path / "logs/1/rank.0/stderr.attempt-2").read_text() == "last words in attempt 2\n"


@WHERE
def test_the_limit_of_attempts_ends_the_job(run, where):
    ended = run([*where, *GROUP, "--max-restarts", "1", "-n", "2", *program("again", 7, 9, 1)])
    assert ended.code == 7
    assert len(notices(ended.err)) == 1
    tail = ended.err[ended.err.rindex("\nmslaunch:") :]
    assert re.search(r"mslaunch: rank 1 ended with exit code 7 on \S+, in attempt 2, after", tail)
    assert "\n  not started again: this was attempt 2 of 2 (--max-restarts)\n" in tail
    assert "last words in attempt 2" in tail and "attempt 1: rank 1 ended with exit code 7" in tail
    assert "ended by mslaunch: rank 0" in tail


def test_the_default_limit_is_three_restarts(run):
    ended = run([*GROUP, "-n", "1", *program("again", 3, 9)])
    assert ended.code == 3
    assert [line[:14] for line in notices(ended.err)] == [f"attempt {n} of 4" for n in (1, 2, 3)]


def test_a_rank_that_is_killed_from_outside(start):
    job = start([*GROUP, "-n", "2", "--oversubscribe", *program("again", "wait", 1)])
    job.expect(b"ready", 2)
    os.kill(ready(job.out, 1)[1][0], signal.SIGKILL)
    ended = job.end()
    assert ended.code == 0
    assert notices(ended.err) == ["attempt 1 of 4: rank 1 was ended by SIGKILL (killed); all ranks are started again"]


@pytest.mark.parametrize(("program_", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_start_is_not_restarted(run, program_, code):
    ended = run([*GROUP, "-n", "2", "--oversubscribe", program_])
    assert ended.code == code
    assert notices(ended.err) == []


@pytest.mark.parametrize("words", [["-n", "2"], []], ids=["as many", "as slots"])
def test_min_ranks_above_the_number_of_ranks_is_refused(run, words):
    ended = run([*GROUP, *TWO, *words, "--min-ranks", "3", "true"])
    assert ended.code == 1
    assert "--min-ranks 3: there are only 2 ranks\n" in ended.err


def test_errors_before_the_first_attempt_are_reported_as_usual(run):
    ended = run([*GROUP, *through_rsh("alpha", "beta"), "-n", "2", "true"], env={"RSH_DOWN": "beta"})
    assert ended.code == 255
    assert "nothing was started" in ended.err


def test_restart_none_and_rank(run):
    """Nothing is started again, or the rank alone."""
    words = ["-n", "2", "--oversubscribe", *program("again", 3, 1)]
    assert run(["--restart", "none", *words]).code == 3
    lives = ["-n", "2", "--oversubscribe", *program("lives", 3, 1, 0)]
    ended = run(["--restart", "rank", "--max-restarts", "1", *lives])
    assert ended.code == 0
    assert "; started again, 1 of 1" in ended.err


# --- what ranks find


def test_ranks_know_their_attempt(run):
    """The job's number stays, and the attempt is counted."""
    script = 'echo "job $MSLAUNCH_JOBID attempt $MSLAUNCH_ATTEMPT"; [ $MSLAUNCH_ATTEMPT = 2 ]'
    ended = run([*GROUP, "-n", "1", "sh", "-c", script])
    found = re.findall(rb"job (\w+) attempt (\d)\n", ended.out)
    assert [attempt for _, attempt in found] == [b"1", b"2"]
    assert found[0][0] == found[1][0]


def test_standard_input_goes_to_the_first_attempt(start):
    job = start([*GROUP, "-n", "1", "sh", "-c", "cat; echo end; [ $MSLAUNCH_ATTEMPT = 2 ]"], stdin=-1)
    job.process.stdin.write(b"words\n")
    job.process.stdin.close()
    job.process.stdin = None
    ended = job.end()
    assert (ended.code, ended.out) == (0, b"words\nend\nend\n")


@WHERE
def test_files_are_sent_again(run, tmp_path, where):
    (tmp_path / "data").write_text("from the launcher\n")
    script = "cat data && [ $MSLAUNCH_ATTEMPT = 2 ]"
    options = ["--preload-files", "data", "--set-cwd-to-session-dir", "-n", "2"]
    ended = run([*where, *GROUP, *options, "sh", "-c", script])
    assert ended.code == 0
    assert ended.out.count(b"from the launcher") >= 3


def test_tables_are_shown_once(run):
    words = ["--display-map", "--report-uri", "-", "--report-pid", "-", "-n", "2", "--oversubscribe"]
    ended = run([*GROUP, *words, *program("again", 3, 1)])
    assert ended.code == 0
    assert ended.out.count(b"JOB MAP") == 1
    assert ended.out.count(b"mslaunch://") == 1


@pytest.mark.parametrize("attempts", [1, 9])
def test_all_attempts_are_in_one_xml_document(run, attempts):
    ended = run([*GROUP, "--xml", "--max-restarts", "2", "-n", "2", "--oversubscribe", *program("again", 3, attempts)])
    found = xml.etree.ElementTree.fromstring(ended.out)
    said = [
        re.search(r"attempt (\d) ready", line.text or "") for line in found.iter("stdout") if line.get("rank") == "0"
    ]
    assert [one[1] for one in said if one] == ["1", "2", "3"][: attempts + 1]


def test_mpi_ranks_get_a_new_world(run):
    """They connect to each other again, in another world."""
    words = program("pmi", "init,world,fence,first=3,fence,finalize", "init,world,fence,fence,finalize")
    ended = run([*GROUP, "-n", "2", "--oversubscribe", *words])
    assert ended.code == 0, ended.err
    names = re.findall(rb"kvsname=(\S+) attempt (\d)", ended.out)
    assert {attempt for _, attempt in names} == {b"1", b"2"}
    assert len({name for name, _ in names}) == 2


# --- agents and hosts


def test_the_local_agent_is_killed(start):
    job = start([*GROUP, "-n", "2", "--oversubscribe", *program("again", "wait", 1)])
    job.expect(b"ready", 2)
    kill_agent(job, 0)
    ended = job.end()
    assert ended.code == 0
    assert notices(ended.err) == [
        "attempt 1 of 4: the host was lost while ranks ran there; all ranks are started again"
    ]


def test_an_agent_is_killed_and_its_host_is_still_there(start, hosts):
    job = start(
        [*hosts("alpha slots=1\nbeta slots=1\ngamma spare\n"), *GROUP, "-n", "2", *program("again", "wait", 1)],
        env=hosts.env,
    )
    job.expect(b"ready", 2)
    kill_agent(job, 1)
    ended = job.end()
    assert ended.code == 0
    assert hosts_of(ended.out, 2) == ["alpha", "beta"]
    assert sorted(hosts.called) == ["alpha", "alpha", "beta", "beta", "beta"], "once to clean up; nobody the spare"
    assert len(notices(ended.err)) == 1


@pytest.mark.parametrize("options", [["--bind-to", "core"], []], ids=["bound", "by default"])
def test_ranks_are_bound_again_on_a_host_that_is_still_there(start, hosts, options):
    """The host is contacted before ranks are mapped, and must have reported its cpus by then."""
    script = """taskset -cp $$ | sed 's/.*: /cpus /'
        echo ready $$ attempt $MSLAUNCH_ATTEMPT; [ $MSLAUNCH_ATTEMPT = 2 ] || sleep 99"""
    words = [*hosts("alpha slots=1\nbeta slots=1\n"), *GROUP, *options, "-n", "2", "sh", "-c", script]
    job = start(words, env=hosts.env)
    job.expect(b"attempt 1", 2)
    os.kill(parent_of(int(re.findall(rb"ready (\d+)", job.out)[0])), signal.SIGKILL)
    ended = job.end()
    assert ended.code == 0, ended.err
    cpus = re.findall(rb"cpus (\S+)", ended.out)
    assert len(cpus) == 4 and len(set(cpus)) == 1, "two ranks in two attempts"


SPARES = "alpha slots=1\nbeta slots=1\ngamma slots=4 spare\ndelta spare\n"


@pytest.mark.parametrize(("gone", "instead"), [(["alpha"], "gamma"), (["alpha", "gamma"], "delta")])
def test_a_spare_takes_the_place_of_a_host(start, hosts, gone, instead):
    """Also the second one, if the first cannot be reached either."""
    job = start([*hosts(SPARES), *GROUP, "-n", "2", *program("again", "wait", 1)], env=hosts.env)
    job.expect(b"ready", 2)
    assert "gamma" not in hosts.called
    hosts.take(*gone)
    kill_agent(job, 0)
    ended = job.end()
    assert ended.code == 0
    assert hosts_of(ended.out, 2) == [instead, "beta"]
    assert notices(ended.err)[1:] == [f"attempt 2 of 4: {instead} takes the place of alpha"]
    assert f"; then {instead} takes the place of alpha" in ended.err


@pytest.mark.parametrize(
    ("nodes", "count", "gone", "after", "how"),
    [
        ("2:3", 3, 2, ["alpha", "beta"], "gamma is left out, 2 ranks instead of 3"),
        ("2", 2, 0, ["gamma", "beta"], "gamma takes the place of alpha"),
    ],
)
def test_torchruns_hosts_are_a_range(start, hosts, nodes, count, gone, after, how):
    """Hosts beyond MAX are spares, and with at least MIN of them the job goes on."""
    words = [*hosts("alpha\nbeta\ngamma\n"), f"--nnodes={nodes}", "--max-restarts=1", "--no-python"]
    job = start(["--dialect", "torchrun", *words, *program("again", "wait", 1)], env=hosts.env)
    job.expect(b"ready", count)
    hosts.take(["alpha", "beta", "gamma"][gone])
    kill_agent(job, gone)
    ended = job.end()
    assert ended.code == 0, ended.err
    assert hosts_of(ended.out, len(after)) == after
    assert notices(ended.err)[-1] == f"attempt 2 of 2: {how}"


CORES = counted(cores_here(False), "rank")
FIRST = {
    "the scheduler's, too": (
        SPARES,
        ["-n", "2", "--scheduler", "epsilon"],
        ["alpha", "epsilon"],
        ["gamma", "beta"],
        "gamma takes the place of alpha, the MindSpore scheduler moves to the host of rank 0",
    ),
    "the scheduler's only": (
        SPARES,
        ["-n", "2", "--scheduler", "epsilon"],
        ["epsilon"],
        ["alpha", "beta"],
        "the MindSpore scheduler moves to the host of rank 0",
    ),
    "a spare": (SPARES, ["-n", "2"], ["alpha"], ["gamma", "beta"], "gamma takes the place of alpha"),
    "two of them": (SPARES, ["-n", "2"], ["alpha", "gamma"], ["delta", "beta"], "delta takes the place of alpha"),
    "slots say how many": (SPARES, [], ["beta"], ["alpha", "gamma"], "gamma takes the place of beta"),
    "free slots": ("alpha slots=1\nbeta slots=2\n", ["-n", "2"], ["alpha"], ["beta", "beta"], "alpha is left out"),
    "nobody said how many cores": (
        "alpha\nbeta spare\n",
        ["-n", "1"],
        ["alpha"],
        ["beta"],
        "beta takes the place of alpha",
    ),
    "nobody said how many ranks": (
        "alpha\nbeta\ngamma spare\n",
        ["-npernode", "1"],
        ["alpha"],
        ["beta", "gamma"],
        "gamma takes the place of alpha",
    ),
    "the scheduler's name is longer": (
        "alpha.x.org slots=1\nbeta slots=1\ngamma spare\n",
        ["-n", "2", "--scheduler", "alpha.x.org"],
        ["alpha.x.org"],
        ["beta", "gamma"],
        "gamma takes the place of alpha",
    ),
    "a spare that is too small comes first": (
        "alpha slots=2\nbeta slots=2\ngamma slots=1 spare\ndelta slots=2 spare\n",
        ["-npernode", "2"],
        ["alpha"],
        ["beta", "beta", "delta", "delta"],
        "delta takes the place of alpha",
    ),
    "fewer ranks": (
        "alpha slots=1\nbeta slots=1\n",
        ["--min-ranks", "1"],
        ["alpha"],
        ["beta"],
        "alpha is left out, 1 rank instead of 2",
    ),
}


@pytest.mark.parametrize(("text", "options", "gone", "there", "words"), FIRST.values(), ids=FIRST)
def test_a_host_that_cannot_be_reached_at_the_first_attempt(run, hosts, tmp_path, text, options, gone, there, words):
    """It is replaced like a host that is lost later; standard input still goes to the first attempt."""
    written = hosts(text)
    hosts.take(*gone)
    shown = ["--display-map", "--output-filename", "logs"]
    script = "echo on $(hostname); [ $OMPI_COMM_WORLD_RANK = 0 ] || exit 0; read word; echo it read $word"
    (tmp_path / "input").write_text("words\n")
    with open(tmp_path / "input") as stdin:
        ended = run([*written, *GROUP, *shown, *options, "sh", "-c", script], env=hosts.env, stdin=stdin)
    assert ended.code == 0, ended.err
    assert [line[3:] for line in ended.lines if line.startswith("on ")] == sorted(there)
    assert "it read words" in ended.lines
    short = {host: host.partition(".")[0] for host in gone}  # the name of the node; `gone` are as they are called
    assert [host for host in gone if re.search(rf"^mslaunch: {short[host]}: .", ended.err, re.M)] == gone
    assert f"mslaunch: {words}\n" in ended.err
    assert all(f"Data for node: {host}" in ended.out.decode() for host in there), "the map is that of the ranks"
    assert len(list((tmp_path / "logs").glob("1/rank.*/stdout"))) == len(there)


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("alpha slots=1\nbeta slots=1\n", ["-n", "2"], "and the others have 1 slot for 2 ranks; with --min-ranks 1"),
        ("alpha slots=1\nbeta slots=1\ngamma spare\n", ["-n", "2"], "no spare host is left"),
        ("alpha\nbeta\n", [], "no spare host is left, and without -n only alpha knows how many ranks there are"),
        ("alpha\nbeta\ngamma spare\n", [], "no spare host is left, and without -n only alpha knows"),
        ("alpha\nbeta slots=1\n", ["--min-ranks", "2"], "not started: there is only 1 rank\n"),
    ],
)
def test_no_spare_replaces_a_host_at_the_first_attempt(run, hosts, tmp_path, text, options, why):
    """A refusal, as without --restart: nothing was started, and no file is there."""
    written = hosts(text)
    hosts.take("alpha", "gamma")
    ended = run([*written, *GROUP, "--output-filename", "logs", *options, "true"], env=hosts.env)
    assert ended.code == 255
    assert "alpha" in ended.err and ("gamma: " in ended.err) == ("spare" in text)
    assert ("mslaunch: not started: " in ended.err) == bool(why) and why in ended.err
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("alpha\nbeta spare\n", [], "beta takes the place of alpha"),
        (
            "alpha slots=1000\nbeta\n",
            ["--min-ranks", "1"],
            f"alpha is left out, {CORES} instead of {1000 + cores_here(False)}",
        ),
        ("alpha\nbeta\n", ["-n", "1000", "--min-ranks", "1"], f"alpha is left out, {CORES} instead of 1000"),
        ("alpha\nbeta\n", ["--min-ranks", "1"], "alpha is left out"),
    ],
)
def test_a_spare_gets_as_many_ranks_as_cores(run, hosts, text, options, words):
    """Slots that were not stated are counted from cores on a spare as well."""
    written = hosts(text)
    hosts.take("alpha")
    ended = run([*written, *GROUP, *options, "sh", "-c", "echo on $(hostname)"], env=hosts.env)
    assert ended.code == 0, ended.err
    assert ended.lines == ["on beta"] * cores_here(False)
    assert f"mslaunch: {words}\n" in ended.err


@pytest.mark.parametrize("when", ["the first attempt", "a later one"])
def test_a_host_that_is_lost_while_files_are_sent(start, hosts, tmp_path, when):
    """The other hosts already have the files, and get them again."""
    (tmp_path / "small").write_text("it")
    (tmp_path / "zeros").write_bytes(bytes(3_000_000))
    options = [
        *hosts("alpha slots=1\nbeta slots=1\ngamma spare\n"),
        *GROUP,
        "--preload-files",
        "small,zeros",
        "-n",
        "2",
    ]
    first = when == "the first attempt"
    if first:
        (tmp_path / "break" / "alpha").touch()
    job = start([*options, *GROUP, *program("again", "wait", 0 if first else 1)], env=hosts.env)
    if not first:
        job.expect(b"ready", 2)
        (tmp_path / "break" / "alpha").touch()
        kill_agent(job, 1)
    ended = job.end()
    assert ended.code == 0, ended.err
    assert hosts_of(ended.out, 1 if first else 2) == ["gamma", "beta"]
    assert "gamma takes the place of alpha\n" in ended.err


def test_a_host_that_is_back_is_used_at_the_next_failure(start, hosts):
    written = hosts(SPARES)
    hosts.take("alpha", "gamma", "delta")
    job = start([*written, *GROUP, "--min-ranks", "1", "-n", "2", *program("again", "wait", 1)], env=hosts.env)
    job.expect(b"ready", 1)
    hosts.bring("alpha")
    kill_agent(job, 0)
    ended = job.end()
    assert ended.code == 0, ended.err
    assert hosts_of(ended.out, 1) == ["beta"]
    assert sorted(hosts_of(ended.out, 2)) == ["alpha", "beta"]


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        ("alpha", "gamma takes the place of alpha"),
        ("beta", "gamma takes the place of alpha"),
        ("epsilon", "gamma takes the place of alpha, the MindSpore scheduler moves to the host of rank 0"),
    ],
)
def test_the_scheduler_moves_from_a_lost_host(start, hosts, scheduler, words):
    options = [*hosts(SPARES), *GROUP, "--scheduler", scheduler]
    job = start([*options, "-n", "2", *program("again", "wait", 1)], env=hosts.env)
    job.expect(b"ready", 2)
    hosts.take("alpha", "epsilon")
    kill_agent(job, 0)
    ended = job.end()
    assert ended.code == 0, ended.err
    assert hosts_of(ended.out, 2) == ["gamma", "beta"]
    assert notices(ended.err)[1:] == [f"attempt 2 of 4: {words}"]


def test_a_rankfile_with_fewer_lines(start, hosts, tmp_path):
    """The ranks that are left are numbered anew."""
    (tmp_path / "ranks").write_text("rank 0=alpha slot=0\nrank 1=beta slot=0\n")
    hosts("")
    options = [*through_rsh(), "--rankfile", "ranks", "--min-ranks", "1"]
    job = start([*options, *GROUP, *program("again", "wait", 1)], env=hosts.env)
    job.expect(b"ready", 2)
    hosts.take("alpha")
    kill_agent(job, 0)
    ended = job.end()
    assert ended.code == 0, ended.err
    assert hosts_of(ended.out, 2) == ["beta"]


def test_free_slots_of_other_hosts_are_used(start, hosts):
    options = hosts("alpha slots=1\nbeta slots=1\ngamma slots=1\n")
    job = start([*options, *GROUP, "-n", "2", *program("again", "wait", 1)], env=hosts.env)
    job.expect(b"ready", 2)
    hosts.take("alpha")
    kill_agent(job, 0)
    ended = job.end()
    assert ended.code == 0
    assert hosts_of(ended.out, 2) == ["beta", "gamma"]
    assert notices(ended.err)[1:] == ["attempt 2 of 4: alpha is left out"]


def test_a_job_continues_with_fewer_ranks(start, hosts):
    options = hosts("alpha slots=2\nbeta slots=1\n")
    job = start([*options, *GROUP, "--min-ranks", "2", *program("again", "wait", 1)], env=hosts.env)
    job.expect(b"ready", 3)
    hosts.take("beta")
    kill_agent(job, 2)
    ended = job.end()
    assert ended.code == 0
    assert b"rank 1 of 2 attempt 2" in ended.out
    assert notices(ended.err)[1:] == ["attempt 2 of 4: beta is left out, 2 ranks instead of 3"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([], "2 slots for 3 ranks; with --min-ranks 2 the job would go on with fewer"),
        (["--min-ranks", "3"], "2 slots, fewer than --min-ranks 3"),
    ],
)
def test_a_job_without_replacement_fails(start, hosts, more, why):
    """Cause and exit code are those of the last attempt."""
    options = hosts("alpha slots=2\nbeta slots=1\n")
    job = start([*options, *GROUP, *more, *program("again", "wait", 1)], env=hosts.env)
    job.expect(b"ready", 3)
    hosts.take("beta")
    kill_agent(job, 2)
    ended = job.end()
    assert ended.code == 205
    tail = ended.err[ended.err.rindex("\nmslaunch:") :]
    assert re.search(r"mslaunch: the host was lost while ranks ran there on beta, after", tail)
    assert "  not reached again: beta: " in tail
    assert f"  not started again: no spare host is left, and the others have {why}" in tail


def test_a_group_that_has_shrunk_grows_again(start, hosts):
    """The host that was left out is back at the next failure."""
    options = hosts("alpha slots=1\nbeta slots=1\n")
    job = start([*options, *GROUP, "--min-ranks", "1", *program("again", "wait", 2)], env=hosts.env)
    job.expect(b"ready", 2)
    hosts.take("beta")
    kill_agent(job, 1)
    job.expect(b"of 1 attempt 2 ready")
    job.expect(b" on alpha\n", 2)
    hosts.bring("beta")
    os.kill(ready(job.out, 2)[0][0], signal.SIGKILL)
    ended = job.end()
    assert ended.code == 0
    assert hosts_of(ended.out, 3) == ["alpha", "beta"]
    assert notices(ended.err)[-1] == "attempt 3 of 4: beta comes in, 2 ranks instead of 1"


# --- hosts that fail again and again


def kill_rank(job, rank: int, attempt: int) -> None:
    """SIGKILL for a rank, as for want of memory."""
    os.kill(ready(job.out, attempt)[rank][0], signal.SIGKILL)


LEFT_OUT = "beta has failed twice within 10 minutes, and is left out while another spare is there"


@pytest.mark.parametrize("kill", [kill_rank, kill_agent], ids=["rank", "agent"])
def test_a_host_that_failed_twice_gives_way_to_a_spare(start, hosts, kill):
    text = "alpha slots=1\nbeta slots=1\ngamma spare\n"
    job = start([*hosts(text), *GROUP, "-n", "2", *program("again", "wait", 2)], env=hosts.env)
    for attempt in (1, 2):
        job.expect(b"\n", 2 * attempt)  # a rank that is ended before the end of its line has the next one beside it
        kill(job, 1, attempt=attempt)
    ended = job.end()
    assert ended.code == 0
    assert hosts_of(ended.out, 2) == ["alpha", "beta"]
    assert hosts_of(ended.out, 3) == ["alpha", "gamma"]
    assert notices(ended.err)[-1] == "attempt 3 of 4: gamma takes the place of beta"
    assert ended.err.count(LEFT_OUT) == 1


def test_it_is_the_last_spare(start, hosts):
    """It is taken again rather than that there be no other attempt."""
    text = "alpha slots=1\nbeta slots=1\ngamma spare\ndelta spare\n"
    words = [*GROUP, "--max-restarts", "4", "-n", "2", *program("again", "wait", 4)]
    job = start([*hosts(text), *words], env=hosts.env)
    for attempt in (1, 2, 3, 4):
        job.expect(b"\n", 2 * attempt)  # a rank that is ended before the end of its line has the next one beside it
        if attempt > 2:
            hosts.take(ready(job.out, attempt)[1][1])
            kill_agent(job, 1, attempt=attempt)
        else:
            kill_rank(job, 1, attempt)
    ended = job.end()
    assert ended.code == 0
    assert [hosts_of(ended.out, attempt)[1] for attempt in (2, 3, 4, 5)] == ["beta", "gamma", "delta", "beta"]
    assert ended.err.count(LEFT_OUT) == 1


@pytest.mark.parametrize(("spare", "how"), [("", "SIGKILL"), ("gamma spare\n", "3")])
def test_without_a_spare_or_after_an_exit_code_it_stays(run, hosts, spare, how):
    ended = run(
        [*hosts("alpha slots=1\nbeta slots=1\n" + spare), *GROUP, "-n", "2", *program("again", how, 3, 1)],
        env=hosts.env,
    )
    assert ended.code == 0
    assert "takes the place" not in ended.err and "left out" not in ended.err


# --- orders


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_between_two_attempts(start, name):
    job = start([*GROUP, "--restart-delay", "60", "-n", "2", "--oversubscribe", *program("again", 3, 9)], stderr=-1)
    read_until(job, b"started again in 60 s\n")
    job.send(getattr(signal, name))
    ended = job.end(10)
    assert ended.code == 1
    assert re.search(rf"^mslaunch: ended by {name}, in attempt 2, after", ended.err, re.M), ended.err
    assert "attempt 1: rank 0 ended with exit code 3" in ended.err


def read_until(job, words: bytes) -> None:
    """Read what the launcher says until these words have come."""
    seen = b""
    while words not in seen:
        data = os.read(job.process.stderr.fileno(), 1 << 16)
        assert data, seen
        seen += data


def test_ctrl_c_in_the_second_attempt(start):
    job = start(
        [*GROUP, "-n", "2", "--oversubscribe", "sh", "-c", "[ $MSLAUNCH_ATTEMPT = 1 ] && exit 3; echo up; sleep 99"]
    )
    job.expect(b"up", 2)
    job.send(signal.SIGINT)
    ended = job.end()
    assert ended.code == 1
    assert re.search(r"^mslaunch: ended by SIGINT, in attempt 2, after", ended.err, re.M)
    assert len(notices(ended.err)) == 1


def test_ctrl_c_while_an_attempt_that_failed_is_being_ended(start):
    """Ranks that ignore TERM still run; no further attempt is made."""
    ready = "trap 'echo told' TERM; echo up > up; while :; do sleep 0.05; done"
    script = f"[ $OMPI_COMM_WORLD_RANK = 0 ] && {{ {ready}; }}; while ! [ -e up ]; do sleep 0.01; done; exit 3"
    job = start([*GROUP, "-n", "2", "--oversubscribe", "--grace", "30", "sh", "-c", script])
    job.expect(b"told")
    job.send(signal.SIGINT)
    ended = job.end(20)
    assert ended.code != 0
    assert notices(ended.err) == []


@pytest.mark.parametrize("delay", ["0", "60"], ids=["at once", "with a delay"])
def test_the_time_limit_holds_for_all_attempts_together(run, delay):
    words = ["--max-restarts", "1000000", "--restart-delay", delay, "--timeout", "2"]
    ended = run([*GROUP, *words, "-n", "1", "sh", "-c", "sleep 0.05; exit 3"])
    assert ended.code == 110
    assert "the job was still running after 2 seconds (--timeout), in attempt " in ended.err
    assert "nothing was started" not in ended.err


def test_the_launcher_is_killed_in_the_second_attempt(start):
    job = start([*GROUP, *TWO, "-n", "2", "sh", "-c", "[ $MSLAUNCH_ATTEMPT = 1 ] && exit 3; echo up; sleep 99"])
    job.expect(b"up", 2)
    job.process.kill()
    wait_until(lambda: not job.left(), 10, lambda: f"still there: {job.left()}")


def test_files_that_are_missing_for_the_next_attempt(start, tmp_path):
    """The job fails with its own report, because ranks have run."""
    script = "[ $OMPI_COMM_WORLD_RANK = 0 ] && { rm -r logs; : > logs; exit 3; }; sleep 99"
    words = ["--output-filename", tmp_path / "logs", "-n", "2", "--oversubscribe", "sh", "-c", script]
    ended = start([*GROUP, *map(str, words)]).end()
    assert ended.code == 3
    assert "not started again: " in ended.err and str(Path(tmp_path, "logs")) in ended.err
    assert "rank 0 ended with exit code 3" in ended.err
