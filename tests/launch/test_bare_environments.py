"""A user without a name and a home, in a container without procps, with a read-only root, TERM=dumb and no /dev/pts.

Everything works there, or one message says what is missing; `bare_root` makes the root.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_root import OTHER_USER, PYTHON, ROOT_USER, Bare, BareRoot, Ended

pytestmark = pytest.mark.root

RANKS = ("sh", "-c", "echo rank $RANK")
USERS = pytest.mark.parametrize("user", [ROOT_USER, OTHER_USER], ids=["root", "another user"])
READ_ONLY = "Read-only file system"


@pytest.fixture
def bare(need: object) -> Iterator[BareRoot]:
    """A root in a directory that every user can enter."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED, needs root: a mount namespace")
    for program in ("unshare", "chroot", "setpriv", "prlimit"):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            pytest.skip(f"NOT TESTED, not installed: {program}")
    if not os.path.exists(PYTHON):
        pytest.skip("NOT TESTED, not installed: a Python of the system")
    place = Path(tempfile.mkdtemp(prefix="mslaunch-bare-"))
    place.chmod(0o755)
    made = BareRoot(place)
    try:
        yield made
        made.wait_gone()
    finally:
        made.destroy()
        shutil.rmtree(place)


def refused(ended: Ended, code: int, *words: str) -> None:
    """One message, with these words, and no traceback; nothing was started."""
    assert ended.code == code and ended.out == "", ended
    assert ended.err.count("mslaunch: ") == 1 and "Traceback" not in ended.err and "login" not in ended.err, ended.err
    for word in words:
        assert word in ended.err, ended.err


# --- what works


@USERS
def test_ranks_run_and_their_output_comes(bare: BareRoot, user: Bare) -> None:
    ended = bare.run(user, "-n", 2, *RANKS)
    assert (ended.code, sorted(ended.out.splitlines()), ended.err) == (0, ["rank 0", "rank 1"], "")


@USERS
def test_a_failure_is_told_in_plain_text(bare: BareRoot, user: Bare) -> None:
    ended = bare.run(user, "-n", 2, "sh", "-c", "test $RANK = 1 && sleep 600; echo oops >&2; exit 3")
    assert ended.code == 3 and "rank 0 ended with exit code 3" in ended.err
    assert "oops" in ended.err and "\x1b" not in ended.err + ended.out


@USERS
def test_the_root_is_as_bare_as_the_tests_say(bare: BareRoot, user: Bare) -> None:
    script = (
        "echo x 2>/dev/null >/tmp/x && echo wrote; command -v ps kill ssh >/tools/x 2>/dev/null; echo $HOME.$TERM; "
        "for name in ps pkill ssh hostname; do command -v $name; done; for name in pts ptmx shm tty; do "
        "test -e /dev/$name && echo $name; done; test -e /etc/passwd && echo passwd; test -t 1 && echo tty; true"
    )
    ended = bare.run(user, "-n", 1, "sh", "-c", script)
    assert (ended.code, ended.out) == (0, ".dumb\n")


@USERS
def test_logs_are_written_where_one_can_write(bare: BareRoot, user: Bare) -> None:
    ended = bare.run(user, "-n", 2, "--output-filename", "logs:nocopy,nojobid", *RANKS)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert [(bare.work / "logs" / f"rank.{at}" / "stdout").read_text() for at in (0, 1)] == ["rank 0\n", "rank 1\n"]


@USERS
def test_a_detached_job_is_found_and_stopped(bare: BareRoot, user: Bare) -> None:
    env = bare.jobs(user)
    begun = bare.run(user, "--detach", "-n", 2, "sh", "-c", "echo begun; sleep 600", **env)
    assert begun.code == 0 and begun.out.startswith("mslaunch: job 1 runs, "), begun
    assert bare.left()
    running = bare.run(user, "--status", "1", **env)
    assert running.code == 0 and running.out.startswith("job 1 has been running since ")
    assert "running" in bare.run(user, "--status", **env).out
    log = (bare.work / f"jobs-{user.uid}" / "1" / "launcher.log").read_text()
    assert log.count("begun") == 2
    stopped = bare.run(user, "--stop", "1", **env)
    assert stopped.code == 0 and stopped.out.startswith("job 1 ended at "), stopped
    bare.wait_gone()
    assert "job 1 ended at " in bare.run(user, "--status", "1", **env).out
    refused(bare.run(user, "--stop", "7", **env), 1, "there is no job '7'")


@USERS
def test_a_group_is_restarted(bare: BareRoot, user: Bare) -> None:
    words = ("--restart", "group", "--max-restarts", 1, "sh", "-c", "test $MSLAUNCH_ATTEMPT = 2")
    ended = bare.run(user, "-n", 2, *words)
    assert ended.code == 0 and "all ranks succeeded, in attempt 2" in ended.err


@USERS
def test_a_timeout_shows_states_and_stacks(bare: BareRoot, user: Bare) -> None:
    ended = bare.run(user, "-n", 1, "--timeout", 1, "--report-state-on-timeout", "--get-stack-traces", "sleep", 600)
    assert ended.code == 110 and "running" in ended.err and "process " in ended.err
    assert "the job was still running after 1 second" in ended.err and "Traceback" not in ended.err


@USERS
def test_a_session_directory_needs_a_place(bare: BareRoot, user: Bare) -> None:
    words = ("-n", 1, "--set-cwd-to-session-dir", "sh", "-c", "echo text >file; cat file")
    assert bare.run(user, *words, TMPDIR="/work") == (0, "text\n", "")
    refused(bare.run(user, *words), 126, "no session directory could be made in /tmp", READ_ONLY, "TMPDIR")


@USERS
def test_a_report_for_a_bug_names_what_is_missing(bare: BareRoot, user: Bare) -> None:
    ended = bare.run(user, "--version", "--verbose")
    missing = ended.out.partition("missing:")[2]
    assert ended.code == 0 and "not known" not in ended.out
    for word in ("/dev/pts", "/dev/ptmx", "/dev/shm", "/sys/devices/system/cpu", "HOME is not set", "/tmp cannot be"):
        assert word in missing
    assert "ssh: not on PATH" in ended.out


def test_without_proc_ranks_run(bare: BareRoot) -> None:
    ended = bare.run(Bare(proc=False), "-n", 2, *RANKS)
    assert (ended.code, sorted(ended.out.splitlines())) == (0, ["rank 0", "rank 1"])
    assert bare.run(Bare(proc=False), "--version", "--verbose").code == 0


# --- what is missing is told


@USERS
def test_a_terminal_that_was_asked_for_is_missed_once(bare: BareRoot, user: Bare) -> None:
    ended = bare.run(user, "-n", 3, "--oversubscribe", "--pty", "yes", *RANKS)
    assert (ended.code, len(ended.out.splitlines())) == (0, 3)
    assert ended.err.count("no pseudo-terminal can be opened") == 1 and "/dev/pts" in ended.err
    assert bare.run(user, "-n", 1, "--pty", "auto", "sh", "-c", "true").err == ""


@USERS
@pytest.mark.parametrize("kept", [False, True], ids=["without a registry", "with an old one"])
def test_detaching_on_a_read_only_root_names_the_variable(bare: BareRoot, user: Bare, kept: bool) -> None:
    ended = bare.run(user._replace(registry=kept), "--detach", "-n", 1, "sleep", 600)
    refused(ended, 1, f"/tmp/mslaunch-{user.uid}: ", READ_ONLY, "MSLAUNCH_JOBS")
    assert bare.run(user, "--status").out.startswith("no job runs here, and none that was detached has ended")


@USERS
@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("-n", 1, "--output-filename", "/tmp/logs"), "--output-filename: /tmp/logs: "),
        (("-n", 1, "--report-pid", "/tmp/pid"), "--report-pid: /tmp/pid: "),
        (("-n", 1, "--xml-file", "/tmp/x.xml"), "--xml-file: /tmp/x.xml: "),
        (("--dialect", "torchrun", "--nproc-per-node", 1, "--no-python", "--tee", 3), "/tmp/torchelastic_"),
        (("--worker_num=1", "--join=True", "--log_dir=/tmp/logs"), "/tmp/logs: "),
        (("--install-shims", "/tmp/shims"), "/tmp/shims: "),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    bare: BareRoot, user: Bare, words: tuple[object, ...], where: str
) -> None:
    program = () if "--install-shims" in words else ("/work/program.sh",)
    (bare.work / "program.sh").write_text("#!/bin/sh\necho started >/work/started\n")
    (bare.work / "program.sh").chmod(0o755)
    refused(bare.run(user, *words, *program), 1, where, READ_ONLY)
    assert not (bare.work / "started").exists()


def test_without_dev_null_the_message_is_about_it_and_not_about_a_login(bare: BareRoot) -> None:
    missing = Bare(null=False)
    refused(bare.run(missing, "-n", 2, *RANKS), 255, "no agent could be started here: /dev/null is missing")
    refused(bare.run(missing, "-n", 2, "-H", "localhost:2", *RANKS), 255, "no agent could be started here: /dev/null")
    refused(bare.run(missing, "--detach", "-n", 1, *RANKS), 1, "no detached job can be started", "/dev/null is missing")
    assert bare.run(missing, "--version").code == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_where_no_process_can_be_forked_the_system_is_quoted(bare: BareRoot, processes: int) -> None:
    """One is the launcher, two are the launcher and the guard of its agent."""
    ended = bare.run(OTHER_USER._replace(processes=processes), "-n", 1, "true")
    refused(ended, 255, "no agent could be started here: Resource temporarily unavailable")
    assert "ulimit -u" in ended.err


def test_without_proc_a_job_is_not_detached(bare: BareRoot) -> None:
    refused(bare.run(Bare(proc=False), "--detach", "-n", 1, "true"), 1, "/proc: ", "a detached job")
