"""Commands that are to start agents, played by scripts, in the loop of the test."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.errors import LaunchError, LinkError
from mslaunch.protocol.call_proof import CALL, LONGEST
from mslaunch.runtime.loop import Loop
from mslaunch.transport import batch_tasks
from mslaunch.transport.base import OpenContext
from mslaunch.transport.batch_tasks import TasksStart, Way


class Started:
    """What becomes of hosts whose command is a shell script."""

    def __init__(self, loop: Loop, directory: Path, script: str, fanout: int = 32, timeout: float = 15.0) -> None:
        self.failed: dict[str, LinkError] = {}
        self.notices: list[str] = []
        self.done = 0
        self.loop = loop
        report = (self.notices.append, pytest.fail, lambda node, error: self.failed.update({node.name: error}))
        policy = LinkPolicy(fanout=fanout, timeout=timeout)
        self.context = OpenContext(policy, {"PATH": os.defpath, "DIR": str(directory)}, *report, loop, [])
        self.script = script

    def run(self, *names: str, given: bytes = b"", held: bool = False) -> TasksStart:
        def end() -> None:
            self.done += 1

        argv = ["/bin/sh", "-c", self.script]
        way = Way(lambda node: [*argv, node.name], lambda node: given, end, held=held)
        return TasksStart([Node(name, 1, "the job") for name in names], self.context, lambda calling: way)

    def until(self, condition: object) -> None:
        assert self.loop.run(condition, 20)  # type: ignore[arg-type]

    def close(self) -> None:
        for close in self.context.closers:
            close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


@pytest.fixture
def by_ssh(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that SSH is to reach."""
    names: list[str] = []

    def take(nodes: Sequence[Node], context: OpenContext) -> None:
        names.extend(node.name for node in nodes)

    monkeypatch.setattr(batch_tasks, "_open_by_ssh", take)
    return names


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"echo {CALL} $0 10.0.0.1 port 5: Connection refused", "its agent cannot call back (10.0.0.1 port 5: Conne"),
        ("exit 79", "its agent cannot call back"),
        ("exit 0", "its agent ended without a word"),
        ("exit 78", "the file with the token cannot be read there"),
        ("echo 'pbsdsh(): task 0 exit status 78' >&2", "the file with the token cannot be read there"),  # Torque
    ],
)
def test_ssh_starts_agents_that_have_no_way(
    script: str, why: str, loop: Loop, tmp_path: Path, by_ssh: list[str]
) -> None:
    """Several hosts at one time, since they have one configuration and one passphrase."""
    started = Started(loop, tmp_path, script)
    started.run("n1", "n2")
    started.until(lambda: len(by_ssh) == 2)
    assert started.failed == {}
    assert [notice.partition(":")[0] for notice in sorted(started.notices)] == ["n1", "n2"]
    assert all(f": {why}" in notice and notice.endswith("is started by SSH") for notice in started.notices)
    assert started.done
    started.close()


def test_what_ssh_refuses_is_said_of_each_host(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nodes: Sequence[Node], context: OpenContext) -> None:
        raise LaunchError("paramiko is not installed", todo="install it")

    monkeypatch.setattr(batch_tasks, "_open_by_ssh", refuse)
    started = Started(loop, tmp_path, "exit 79")
    started.run("n1", "n2")
    started.until(lambda: len(started.failed) == 2)
    assert str(started.failed["n2"]) == "n2: paramiko is not installed\n  install it"
    started.close()


@pytest.mark.parametrize(
    ("script", "what", "todo"),
    [
        ("echo tm_init: no daemon >&2; exit 255", "tm_init: no daemon", "--mca plm rsh"),
        ("exit 254", "sh ended with status 254", "--agent-python"),  # of PBS
        ("echo 'Error: rank 1: x' >&2; echo '1: Exit 127' >&2; exit 127", "Error: rank 1: x", "--agent-python"),
        ("echo too old >&2; echo 'pbsdsh(): task 0 exit status 1' >&2", "too old", "--mca plm rsh"),
        ("kill -9 $$", "sh was killed by signal 9", "--mca plm rsh"),
        (f"echo {CALL}; exit 3", "sh ended with status 3", "--mca plm rsh"),
    ],
)
def test_how_a_command_failed_is_said_with_what_to_do(
    script: str, what: str, todo: str, loop: Loop, tmp_path: Path, by_ssh: list[str]
) -> None:
    started = Started(loop, tmp_path, script)
    started.run("n1")
    started.until(lambda: started.failed)
    assert (started.failed["n1"].what, started.failed["n1"].where) == (what, "n1")
    assert todo in started.failed["n1"].todo
    assert by_ssh == []
    started.close()


def test_a_host_that_prints_without_end_is_not_kept_in_memory(loop: Loop, tmp_path: Path) -> None:
    started = Started(loop, tmp_path, "head -c 3000000 /dev/zero; exit 3")
    start = started.run("n1")
    task = start._starting["n1"][1]
    started.until(lambda: started.failed)
    assert len(task.said) <= 2 * LONGEST
    started.close()


def test_commands_are_started_as_others_end(loop: Loop, tmp_path: Path) -> None:
    """No more at one time than --fanout says."""
    at_once = "touch $DIR/$0; ls $DIR | wc -l >> $DIR.most; sleep 0.02; rm $DIR/$0; exit 3"
    (tmp_path / "d").mkdir()
    started = Started(loop, tmp_path / "d", at_once, fanout=2)
    started.run(*(f"n{number}" for number in range(6)))
    started.until(lambda: len(started.failed) == 6)
    most = [int(line) for line in (tmp_path / "d.most").read_text().split()]
    assert len(most) == 6
    assert max(most) <= 2
    assert started.done
    started.close()


def test_a_silent_host_is_given_up_and_its_command_ended(loop: Loop, tmp_path: Path) -> None:
    started = Started(loop, tmp_path, "exec sleep 600", timeout=0.1)
    start = started.run("n1")
    process = start._starting["n1"][1]._process
    started.until(lambda: started.failed)
    assert started.failed["n1"].what == "no agent has called back within 0.1 seconds"
    assert process.poll() == -9
    started.close()


def test_nothing_runs_or_listens_once_nobody_is_waited_for(loop: Loop, tmp_path: Path) -> None:
    started = Started(loop, tmp_path, "exec sleep 600", fanout=1)
    start = started.run("n1", "n2")
    process = start._starting["n1"][1]._process
    started.close()
    started.close()
    assert process.poll() == -9
    assert started.failed == {}
    assert started.done


def test_input_that_is_held_begins_with_the_first_words_of_the_task(loop: Loop, tmp_path: Path) -> None:
    """And does not end before the task."""
    script = "echo; head -c 50000 | wc -c > $DIR/count; timeout 0.3 head -c 1; [ $? = 124 ] && touch $DIR/open; exit 1"
    started = Started(loop, tmp_path, script)
    started.run("n1", given=bytes(50_000), held=True)
    started.until(lambda: "n1" in started.failed)
    assert (tmp_path / "count").read_text().strip() == "50000"
    assert (tmp_path / "open").exists()
    started.close()


def test_input_that_is_held_waits_for_words(loop: Loop, tmp_path: Path) -> None:
    started = Started(loop, tmp_path, "timeout 0.3 head -n 1 | grep -q . || touch $DIR/nothing; exit 1")
    started.run("n1", given=b"program\n", held=True)
    started.until(lambda: "n1" in started.failed)
    assert (tmp_path / "nothing").exists()
    started.close()
