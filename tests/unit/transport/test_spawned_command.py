"""A command that starts agents: its input, output, errors and end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from open_descriptors import open_descriptors

from mslaunch.runtime.loop import Loop
from mslaunch.transport import spawned_command
from mslaunch.transport.spawned_command import SpawnedCommand

ENVIRON = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


@pytest.fixture
def run(loop: Loop) -> Iterator[object]:
    """Starts one, which ends with the test."""
    started: list[SpawnedCommand] = []

    def start(*argv: str, given: bytes = b"", **environ: str) -> SpawnedCommand:
        started.append(SpawnedCommand(argv, {**ENVIRON, **environ}, given, loop))
        return started[-1]

    yield start
    for command in started:
        command.kill()
        command.close()
        os.close(command.output)


def output(command: SpawnedCommand) -> bytes:
    pieces = []
    while not pieces or pieces[-1]:
        pieces.append(os.read(command.output, 1 << 16))
    return b"".join(pieces)


def test_it_has_its_input_at_once_and_its_own_session(run) -> None:
    command = run("sh", "-c", "cat; ps -o sid= -p $$; echo $X", given=b"a\n" * 40_000, X="y")
    *lines, sid, word = output(command).decode().split()
    assert (len(lines), word) == (40_000, "y")
    assert int(sid) != os.getsid(0)
    assert command.ended_within(10)
    assert command.status == 0


def test_its_last_words_are_kept(run) -> None:
    command = run("sh", "-c", "head -c 9000 /dev/zero >&2; echo end >&2; exit 3")
    assert command.ended_within(10)
    assert command.status == 3
    command.close()
    assert command.noise() == b"\0" * 4092 + b"end\n"


def test_it_is_killed_and_reaped(run) -> None:
    command = run("sleep", "600")
    assert not command.ended_within(0.01)
    assert command.status is None
    command.kill()
    assert command.status == -signal.SIGKILL
    command.kill()  # once more does nothing


def test_it_does_not_ignore_what_python_ignores(run) -> None:
    command = run("sh", "-c", "grep SigIgn /proc/self/status")
    assert int(output(command).split()[1], 16) & (1 << signal.SIGPIPE - 1) == 0


def test_path_is_that_of_its_environment(run, tmp_path: Path) -> None:
    for number, folder in enumerate(("none", "not-executable", "there")):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "srun-of-test"
        if number:
            program.write_text("#!/bin/sh\necho found\n")
            program.chmod(0o755 if folder == "there" else 0o644)
    path = ":".join(str(tmp_path / folder) for folder in ("missing", "none", "not-executable", "there"))
    assert output(run("srun-of-test", PATH=path)) == b"found\n"
    with pytest.raises(FileNotFoundError, match="srun-of-test"):
        run("srun-of-test", PATH=str(tmp_path / "none"))
    with pytest.raises(PermissionError):
        run("srun-of-test", PATH=str(tmp_path / "not-executable"))


def test_a_program_that_cannot_be_run_leaves_no_descriptor(loop: Loop) -> None:
    before = open_descriptors()
    with pytest.raises(OSError):
        SpawnedCommand(["no-such-program"], ENVIRON, b"", loop)
    assert os.listdir("/proc/self/fd") == before
    pid = spawned_command._spawn(["/bin/true"], ENVIRON, [])
    assert os.waitpid(pid, 0) == (pid, 0)
