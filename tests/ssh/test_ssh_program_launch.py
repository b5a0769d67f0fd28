"""Jobs on hosts of which some are reached by the ssh program: output, ends, restarts, and what stays behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sshd import Sshd, SshLab, keygen
from test_ssh_program import command_of, configure

pytestmark = pytest.mark.sshd
ROOT = Path(__file__).parents[2]
BOUND = 60  #: seconds for anything that should take two


class Site:
    """Three hosts by name: n1 and n3 need the ssh program, n2 does not."""

    def __init__(self, lab: SshLab) -> None:
        self.lab = lab
        self.hosts = {name: lab.sshd(known=name == "n2") for name in ("n1", "n2", "n3")}
        self.configure(self.hosts["n1"], self.hosts["n3"])
        self.jobs: list[subprocess.Popen[str]] = []

    def configure(self, *known: Sshd, key: Path | None = None) -> None:
        line = command_of(self.lab, *known, key=key)
        configure(self.lab, f"Match originalhost n1,n3\n {line}Match all\n", **self.hosts)

    def start(self, *words: object) -> subprocess.Popen[str]:
        job = subprocess.Popen(
            [sys.executable, "-m", "mslaunch", *map(str, words)],
            env={**self.lab.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.jobs.append(job)
        return job

    def run(self, *words: object) -> tuple[int, list[str], str]:
        """Exit code, the lines of the output in order, and what mslaunch says."""
        job = self.start(*words)
        out, err = job.communicate(timeout=BOUND)
        return job.returncode, sorted(out.splitlines()), err


@pytest.fixture
def site(lab: SshLab) -> Iterator[Site]:
    made = Site(lab)
    yield made
    for job in made.jobs:
        if job.poll() is None:
            job.kill()
        job.communicate(timeout=BOUND)


def notes(err: str) -> list[str]:
    return [line for line in err.splitlines() if "reached by the ssh program" in line]


def test_hosts_of_both_kinds_in_one_job(site: Site) -> None:
    for words in ((), ("--fanout", 1)):
        program = "echo rank $OMPI_COMM_WORLD_RANK; echo errors >&2; cat"
        code, out, err = site.run(*words, "-H", "n1,n2,n3", "sh", "-c", program)
        assert (code, out) == (0, ["rank 0", "rank 1", "rank 2"])
        assert err.count("errors\n") == 3
        [note] = notes(err)
        assert note.startswith("mslaunch: n[1,3]: reached by the ssh program: the SSH configuration has knownhosts")


def test_exit_codes_and_signals_of_ranks(site: Site) -> None:
    code, _, err = site.run("-H", "n1,n2", "sh", "-c", "test $OMPI_COMM_WORLD_RANK = 1 || exit 7; exec sleep 60")
    assert (code, "rank 0 ended with exit code 7 on n1" in err) == (7, True), err


def test_a_host_with_another_key_starts_nothing_anywhere(site: Site, tmp_path: Path) -> None:
    site.configure(site.hosts["n1"], site.hosts["n3"], key=keygen(tmp_path / "other"))
    code, out, err = site.run("-H", "n1,n2,n3", "touch", tmp_path / "ran")
    assert (code, out) == (255, [])
    assert "2 of 3 hosts could not be used" in err and "its host key has CHANGED" in err, err
    assert notes(err) == []
    assert not (tmp_path / "ran").exists()


def test_check_names_what_has_failed(site: Site) -> None:
    site.configure()
    code, out, err = site.run("--check", "-H", "n1,n2")
    assert code != 0
    assert "host key is not known" in "\n".join([*out, err])


def test_the_note_is_not_repeated_at_a_restart(site: Site, tmp_path: Path) -> None:
    program = f"echo started; mkdir {tmp_path}/$OMPI_COMM_WORLD_RANK 2>/dev/null && exit 5; exit 0"
    code, out, err = site.run("--restart", "group", "-H", "n1,n2,n3", "sh", "-c", program)
    assert (code, len(notes(err))) == (0, 1), err
    assert len(out) >= 4


def test_a_spare_that_is_reached_by_the_program(site: Site, tmp_path: Path) -> None:
    """n1 is lost; n3 takes its place."""
    hostfile = tmp_path / "hosts"
    hostfile.write_text("n1 slots=1\nn2 slots=1\nn3 slots=1 spare\n")
    go = tmp_path / "go"
    program = f"echo up $OMPI_COMM_WORLD_RANK; test -e {go} || exec sleep 60"
    job = site.start("--restart", "group", "-n", 2, "--hostfile", hostfile, "sh", "-c", program)
    assert job.stdout
    assert {job.stdout.readline(), job.stdout.readline()} == {"up 0\n", "up 1\n"}
    go.touch()
    site.hosts["n1"].stop()
    site.lab.hosts.remove(site.hosts["n1"])
    out, err = job.communicate(timeout=BOUND)
    assert (job.returncode, sorted(out.splitlines())) == (0, ["up 0", "up 1"]), err
    assert ["n1: reached" in note for note in notes(err)] == [True, False], err


def children(mark: str) -> list[int]:
    """Processes whose command line has `mark`, and those of the ssh program that belong to this lab."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


def gone(mark: str) -> bool:
    end = time.monotonic() + BOUND
    while children(mark) and time.monotonic() < end:
        select.select([], [], [], 0.05)
    return not children(mark)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_launcher_leaves_nothing_behind(site: Site, tmp_path: Path, how: int) -> None:
    job = site.start("-H", "n1,n2,n3", "sh", "-c", f"echo up; while :; do sleep 1; done; : {tmp_path}")
    assert job.stdout
    assert [job.stdout.readline() for _ in range(3)] == ["up\n"] * 3
    assert any(b"-oBatchMode=yes" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(str(site.lab.ssh)))
    job.send_signal(how)
    job.communicate(timeout=BOUND)
    assert job.returncode == (-how if how == signal.SIGKILL else 1)
    assert gone(f": {tmp_path}"), "ranks"
    assert gone(f"{site.lab.ssh}/config"), "ssh programs, which name the configuration of this lab"


def test_a_killed_program_is_a_lost_host(site: Site, tmp_path: Path) -> None:
    job = site.start("-H", "n1,n2", "sh", "-c", f"echo up; while :; do sleep 1; done; : {tmp_path}")
    assert job.stdout
    assert [job.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    [carrier] = children(f"{site.lab.ssh}/config")
    os.kill(carrier, signal.SIGKILL)
    _, err = job.communicate(timeout=BOUND)
    assert job.returncode == 205, err
    assert "n1" in err and "killed by signal 9" in err
    assert gone(f": {tmp_path}")


def test_a_plain_job_over_ssh_loads_nothing_of_this(site: Site) -> None:
    script = (
        "import sys; from mslaunch.cli.main import command; command(sys.argv[1:])\n"
        "parts = ('ssh_command', 'ssh_last_words', 'rsh_program')\n"
        "print(*sorted(name for name in sys.modules if name.endswith(parts)))"
    )
    for host, expected in (("n2", []), ("n1", ["mslaunch.transport.rsh_program", "mslaunch.transport.ssh_command"])):
        done = subprocess.run(
            [sys.executable, "-c", script, "-H", host, "true"],
            env={**site.lab.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )
        assert done.stdout.split() == expected, done.stderr
