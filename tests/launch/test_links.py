"""Hosts reached through a program: login shells and their output, Python versions, and errors."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys

import pytest
from launching import PROGRAMS, program, through_rsh

ONE = through_rsh("alpha")
THREE = through_rsh("alpha", "beta", "gamma")
PYTHONS = sorted(
    path
    for path in glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))
    if re.search(r"/3\.\d+\.\d+/", path)
)


def version(path: str) -> tuple[int, ...]:
    found = re.search(r"/(3)\.(\d+)\.\d+/", path)
    return tuple(map(int, found.groups())) if found else sys.version_info[:2]


NEW = [sys.executable, *(path for path in PYTHONS if version(path) >= (3, 8))]
OLD = [path for path in PYTHONS if version(path) < (3, 8)]


# --- what a login prints


@pytest.mark.parametrize("noise", ["Welcome to alpha!\n", "no end of line", "x" * 100_000 + "\n", "mslaunch agent\n"])
def test_a_banner(run, noise):
    """(One that holds a part of the magic is in tests/agent: no variable can hold a NUL.)"""
    ended = run([*ONE, "-n", "1", "echo", "hello"], env={"RSH_NOISE": noise})
    assert (ended.code, ended.out, ended.err) == (0, b"hello\n", "")


SHELLS = [name for name in ("sh", "bash", "dash", "tcsh", "csh", "zsh", "fish", "ksh") if shutil.which(name)]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("home", ["plain", "noisy"])
def test_login_shells(run, shell, home, tmp_path):
    """The command line survives them all, and start-up files that print."""
    if home == "noisy":
        for name in (".bashrc", ".zshenv", ".tcshrc", ".cshrc", ".kshrc"):
            (tmp_path / name).write_text("echo noise from the start-up file\n")
        (tmp_path / ".config" / "fish").mkdir(parents=True)
        (tmp_path / ".config" / "fish" / "config.fish").write_text("echo noise\n")
    env = {"RSH_SHELL": str(shutil.which(shell)), "HOME": str(tmp_path)}
    words = [*THREE, "-n", "3", "-x", "ODD=a b'c\"d!e", "sh", "-c", 'echo "$OMPI_COMM_WORLD_RANK $ODD"']
    ended = run(words, env=env)
    assert (ended.code, ended.lines) == (0, [f"{rank} a b'c\"d!e" for rank in range(3)]), ended.err


# --- Pythons


@pytest.mark.parametrize("python", NEW, ids=lambda path: ".".join(map(str, version(path))))
def test_agents_of_every_python(run, python):
    """From the oldest that an agent runs on, with input and output and a rank that fails."""
    words = [*through_rsh("alpha:2", "beta:2"), "-n", "4"]
    words[words.index("--agent-python") + 1] = python
    ended = run([*words, *program("die", 5, 3)])
    assert ended.code == 5
    assert "rank 3 ended with exit code 5" in ended.err and "Traceback" not in ended.err


COMMANDS = [path for path in NEW if version(path) >= (3, 9)]  # what the package itself needs


@pytest.mark.parametrize("python", COMMANDS, ids=lambda path: ".".join(map(str, version(path))))
def test_the_command_on_every_python(python, tmp_path):
    """Where paramiko is missing as well: it is needed for ssh only."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROGRAMS.parents[2])}
    words = [python, "-m", "mslaunch", *ONE, "-n", "1", *program("touch", tmp_path)]
    ended = subprocess.run(
        words, env=env, cwd=tmp_path, capture_output=True, timeout=30, stdin=subprocess.DEVNULL, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert len(os.listdir(tmp_path)) == 1


def test_no_python(run):
    words = [*ONE, "-n", "1", "true"]
    words[words.index("--agent-python") + 1] = "no-such-python"
    ended = run(words)
    assert ended.code != 0
    assert "alpha: it has no Python that the agent could run with" in ended.err
    assert "--agent-python" in ended.err and "Traceback" not in ended.err


@pytest.mark.parametrize("shell", SHELLS)
def test_a_missing_python_is_recognised_in_every_shell(run, shell):
    words = [*ONE, "-n", "1", "true"]
    words[words.index("--agent-python") + 1] = "no-such-python"
    ended = run(words, env={"RSH_SHELL": str(shutil.which(shell))})
    assert "it has no Python that the agent could run with" in ended.err, ended.err


@pytest.mark.parametrize(
    "python", OLD or ["pretended"], ids=lambda path: os.path.basename(os.path.dirname(os.path.dirname(path)))
)
def test_a_python_that_is_too_old(run, python, tmp_path):
    if python == "pretended":
        python = str(tmp_path / "python3")
        (tmp_path / "python3").write_text("#!/bin/sh\necho 'mslaunch: python 3.6.15 is older than 3.8' >&2\nexit 1\n")
        (tmp_path / "python3").chmod(0o755)
    words = [*ONE, "-n", "1", "true"]
    words[words.index("--agent-python") + 1] = python
    ended = run(words)
    assert ended.code != 0
    assert "alpha: its Python is too old for the agent, which needs 3.8" in ended.err
    assert "--agent-python" in ended.err and "Traceback" not in ended.err


# --- what goes wrong on the way


@pytest.mark.parametrize("size", ["0", "1000", "9000"])
def test_a_payload_that_is_cut_short(run, size):
    ended = run([*ONE, "-n", "1", "true"], env={"RSH_CUT": size})
    assert ended.code != 0
    assert "alpha: " in ended.err and len(ended.err.splitlines()) < 15
    assert "nothing was started" in ended.err


@pytest.mark.parametrize("said", ["long", "hello", "fields", "stray", "rank", "number"])
def test_garbage_from_an_agent_is_reported(run, said):
    """After the magic: a broken header, a broken greeting, a kind of frame that does not exist.

    What comes after the greeting comes while it is asked for its cpus, or for ports.
    """
    for binding in ("core", "none"):
        words = [*through_rsh("alpha", agent="false_agent"), "-n", "1", "--bind-to", binding, "true"]
        ended = run(words, env={"FALSE_AGENT": said})
        assert ended.code != 0
        assert "alpha" in ended.err and "Traceback" not in ended.err
        assert "no answer" not in ended.err and "did not answer" not in ended.err


@pytest.mark.slow
def test_an_agent_that_falls_silent(run):
    """It sends HELLO and nothing else; it is given up after --connect-timeout, but not before ten seconds."""
    words = [
        *through_rsh("alpha", agent="false_agent"),
        "--connect-timeout",
        "5",
        "-n",
        "1",
        "--bind-to",
        "none",
        "true",
    ]
    ended = run(words, env={"FALSE_AGENT": "silent"})
    assert ended.code != 0
    assert "did not answer within 10 seconds on alpha" in ended.err


def test_a_host_that_stalls(run, tmp_path):
    ended = run([*THREE, "-n", "3", "--connect-timeout", "6", *program("touch", tmp_path)], env={"RSH_STALL": "beta"})
    assert ended.code == 255
    assert "beta: no answer within 6 seconds" in ended.err
    assert "  | rsh: beta: waiting for its key to be confirmed" in ended.err
    assert "alpha" not in ended.err and "gamma" not in ended.err
    assert os.listdir(tmp_path) == []


def test_a_program_that_loses_what_a_host_says_first(run, tmp_path):
    """The question for the agent's program is lost, so it goes unasked.  Only kubectl is known to do that."""
    script = tmp_path / "kubexec.sh"
    script.write_text(f'#!/bin/sh\nexec {PROGRAMS / "rsh"} "$@"\n')
    script.chmod(0o755)
    words = ["--rsh-agent", script, "-H", "alpha,beta,gamma", "-n", "3", "echo", "here"]
    ended = run(words, env={"RSH_LOSES": "beta"})
    assert (ended.code, ended.lines, ended.err) == (0, ["here"] * 3, "")


def test_one_bad_host_of_three(run, tmp_path):
    """The error names it, and nothing is started on any host."""
    ended = run([*THREE, "-n", "3", *program("touch", tmp_path)], env={"RSH_DOWN": "beta"})
    assert ended.code == 255
    assert ended.err.startswith("mslaunch: beta: ")
    assert "rsh: beta: no route to host" in ended.err
    assert "nothing was started on the other hosts" in ended.err
    assert "alpha" not in ended.err and "gamma" not in ended.err
    assert os.listdir(tmp_path) == []


def test_two_bad_hosts_of_three(run, tmp_path):
    ended = run([*THREE, "-n", "3", *program("touch", tmp_path)], env={"RSH_DOWN": "alpha,gamma"})
    assert ended.code == 255
    assert "2 of 3 hosts could not be used; nothing was started" in ended.err
    assert "alpha" in ended.err and "gamma" in ended.err and "beta" not in ended.err
    assert os.listdir(tmp_path) == []


def test_an_rsh_that_is_not_there(run):
    ended = run(["--rsh-agent", "/no/such/rsh", "-H", "alpha,beta", "true"])
    assert ended.code == 127, ended.err
    assert "/no/such/rsh cannot be run" in ended.err and "--rsh-agent" in ended.err


def test_an_rsh_that_is_not_there_and_this_host(run):
    """The local agent, begun before, goes as well."""
    ended = run(["--rsh-agent", "/no/such/rsh", "-H", "localhost,beta", "true"])
    assert ended.code == 127


def test_this_host_and_another(run, tmp_path):
    ended = run([*through_rsh("localhost", "alpha"), "-n", "2", *program("touch", tmp_path)])
    assert ended.code == 0, ended.err
    assert len(os.listdir(tmp_path)) == 2


# --- hosts without a number of slots


def cores() -> int:
    return len(os.sched_getaffinity(0))


def test_slots_are_counted_from_cores(run, tmp_path):
    """As many ranks as the hosts have cores, without -n."""
    (tmp_path / "hosts").write_text("alpha\nbeta\n")
    ended = run(
        [*through_rsh(), "--hostfile", "hosts", "sh", "-c", "echo $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_SIZE"]
    )
    assert ended.code == 0, ended.err
    assert ended.lines == [f"{2 * cores()} {cores()}"] * (2 * cores())


def test_each_host_is_reached_once_and_unused_ones_are_let_go(start, tmp_path):
    (tmp_path / "hosts").write_text("alpha\nbeta\n")
    words = [*through_rsh(), "--hostfile", "hosts", "-n", "1", *program("wait", tmp_path / "go")]
    job = start(words, env={"RSH_LOG": str(tmp_path / "log")})
    job.expect(b"ready")
    seen = dict(line.split() for line in (tmp_path / "log").read_text().splitlines())
    assert sorted(seen) == ["alpha", "beta"] and (tmp_path / "log").read_text().count("\n") == 2
    assert os.path.exists(f"/proc/{seen['alpha']}") and not os.path.exists(f"/proc/{seen['beta']}")
    (tmp_path / "go").touch()
    assert job.end().code == 0


def test_an_unused_host_is_released_even_if_this_host_is_added_later(run, tmp_path):
    """The local agent, forked while the link to beta was open, must not hold it."""
    (tmp_path / "hosts").write_text("alpha\nlocalhost slots=1\nbeta\n")
    words = [*through_rsh(), "--hostfile", "hosts", "-n", str(cores() + 1), *program("touch", tmp_path)]
    ended = run(words)
    assert ended.code == 0, ended.err
    assert "still ending" not in ended.err, "it was waited for in vain"
