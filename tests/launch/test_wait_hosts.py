"""--wait-hosts where a program of the user's reaches the hosts: tried again is what may only be starting."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import BOUND, environment, on_terminal

#: a host that comes with its third call; before that the program says the words in the file
PROGRAM = """#!/bin/sh
echo call >> "$0.$1"
if [ $(wc -l < "$0.$1") -lt 3 ]; then cat "$0.words" >&2; exit 1; fi
shift; exec sh -c "$*"
"""


def agent(directory: Path, words: str) -> Path:
    program = directory / "reach"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    Path(f"{program}.words").write_text(f"a first line\n{words}\n")
    return program


def command(program: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "mslaunch", "--rsh-agent", str(program), "-H", "w-1:1,w-2:1", *words]


def calls(program: Path, host: str) -> int:
    return len(Path(f"{program}.{host}").read_text().splitlines())


@pytest.mark.parametrize(
    "words",
    [
        "ssh: connect to host w-1 port 22: Connection refused",
        "ssh: Could not resolve hostname w-1: Name or service not known",
        'Error from server (NotFound): pods "w-1" not found',
        'error: unable to upgrade connection: container not found ("worker")',
        "Error response from daemon: No such container: w-1",
    ],
)
def test_a_host_that_is_starting_is_tried_again(words: str, tmp_path: Path) -> None:
    program = agent(tmp_path, words)
    line = command(program, "--wait-hosts", "60", "sh", "-c", "echo rank $RANK")
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=BOUND, check=False)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["0", "1", "rank", "rank"]), done.stderr
    assert f"{words}; such hosts are tried again for 60 s (--wait-hosts)" in done.stderr
    assert done.stderr.count("\n") == 1 and (calls(program, "w-1"), calls(program, "w-2")) == (3, 3)


@pytest.mark.parametrize(
    "words", ["Permission denied (publickey).", 'Error from server (NotFound): namespaces "tema" not found']
)
def test_what_will_not_change_is_not_tried_again(words: str, tmp_path: Path) -> None:
    program = agent(tmp_path, words)
    line = command(program, "--wait-hosts", "60", "true")
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode != 0 and words in done.stderr and "tried again" not in done.stderr
    assert (calls(program, "w-1"), calls(program, "w-2")) == (1, 1)


def test_a_terminal_names_the_hosts_that_are_slow(tmp_path: Path) -> None:
    """The first answers at once, the others when this test has seen their names."""
    program = tmp_path / "reach"
    program.write_text('#!/bin/sh\n[ "$1" = w-1 ] || : < "$0.go"\nshift; exec sh -c "$*"\n')
    program.chmod(0o755)
    os.mkfifo(f"{program}.go")
    words = ["--rsh-agent", str(program), "-H", "w-1,w-2,w-3", "true"]
    with contextlib.ExitStack() as held:  # both open it for reading
        code, shown = on_terminal(words, b"waiting for", lambda: held.enter_context(open(f"{program}.go", "w")))
    assert code == 0, shown
    lines = [part for part in shown.decode().split("\r\x1b[K") if part.startswith("connecting")]
    assert lines[0] == "connecting 1/3 hosts", "the first only has numbers"
    assert "connecting 1/3 hosts, waiting for w-[2-3]" in lines


def test_a_terminal_shows_who_is_waited_for(tmp_path: Path) -> None:
    """With the reason and the time, in one line that replaces itself, and is gone at the end."""
    program = agent(tmp_path, "ssh: Connection refused")
    Path(program).write_text(PROGRAM.replace("-lt 3", "-lt 6"))
    words = command(program, "--wait-hosts", "60", "true")[3:]
    code, shown = on_terminal(words, b"", lambda: None, NO_COLOR="1")
    assert code == 0, shown
    lines = [part for part in shown.decode().split("\r\x1b[K") if part.startswith("connecting")]
    assert lines and lines[0].startswith("connecting 0/2 hosts; tried again: 1 of 60 s, w-1, w-2: ssh: ")
    assert all(len(one) < 80 for one in lines)
    assert b"\r\x1b[Kmslaunch: w-" in shown, "the line is gone before another one is printed"
