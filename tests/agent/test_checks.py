"""CHECK: an agent tells of its host and its programs, measures links, and runs a command in bounds."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import TestedAgent, plan, state_of, wait_gone

from mslaunch.datamodel.node_plan import AppPlan
from mslaunch.protocol import address_proof, control, frames
from mslaunch.protocol import check_messages as messages
from mslaunch.transport.bootstrap.agent_program import pack_part, part

PART = "agent.checks.answer_checks"


def ask(agent: TestedAgent, word: str, record: Any = None, raw: bytes | None = None) -> bytes:
    """The answer to a question."""
    agent.send(frames.PART, payload=pack_part(part(PART)))
    agent.send(frames.CHECK, payload=messages.pack_check(word, record) if raw is None else raw)
    return agent.expect(frames.CHECKED).payload


def host(agent: TestedAgent, ranks: int = 1, ports: tuple[int, ...] = ()) -> messages.HostFacts:
    answer = ask(agent, messages.HOST, messages.HostQuestion(ranks, ports))
    return messages.unpack_check(messages.HOST, messages.HostFacts, answer)


def programs(agent: TestedAgent, *argv: str, **app: Any) -> list[messages.ProgramFacts]:
    made = plan(*argv, env=("PATH=" + os.environ.get("PATH", os.defpath), *app.pop("env", ())))
    made = made._replace(apps=(AppPlan(argv, app.pop("wdir", "/"), **app),))
    return messages.unpack_programs(ask(agent, "", raw=b"programs\n" + control.pack_plan(made)))


def test_facts_of_the_host(agent: TestedAgent) -> None:
    before = time.time()
    found = host(agent)
    assert before - 1 < found.came <= found.went < time.time() + 1
    assert found.hostname == os.uname().nodename
    assert (found.memory > 1 << 20, found.memory_left > 0, found.short) == (True, True, "")
    assert (len(found.memlock), len(found.files)) == (2, 2)
    assert found.machine == host(agent).machine != ""


def test_two_agents_of_one_machine_say_so(agent: TestedAgent, other: TestedAgent) -> None:
    assert host(agent).machine == host(other).machine


def test_a_port_that_is_taken_is_told_with_its_holder(agent: TestedAgent) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        (busy,) = host(agent, ports=(port,)).busy
    assert busy.startswith(f"port {port} is taken by process {os.getpid()}")
    assert host(agent, ports=(port,)).busy == ("",)


def test_more_ranks_than_can_be_started(agent: TestedAgent) -> None:
    assert host(agent, ranks=10**9).short != ""


def test_a_directory_for_temporary_files_that_is_not_there() -> None:
    agent = TestedAgent(TMPDIR="/nowhere/at/all")
    try:
        agent.begin()
        found = host(agent)
        assert (found.tmp, found.tmp_free) == ("/nowhere/at/all", ())
    finally:
        agent.hang_up()
        agent.destroy()


# --- programs


def test_a_script_its_interpreter_and_packages(agent: TestedAgent, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os\nimport hypothesis, mine, nowhere_at_all\nraise SystemExit('it was run')\n")
    (tmp_path / "mine.py").write_text("raise SystemExit('it was imported')\n")
    (found,) = programs(agent, sys.executable, "-u", "train.py", wdir=str(tmp_path))
    import hypothesis

    assert (found.error, found.script, found.python) == ("", "train.py", sys.version.split()[0])
    versions = dict(zip(found.modules, found.versions))
    assert versions == {"hypothesis": hypothesis.__version__, "mine": "", "nowhere_at_all": "-"}
    assert found.packages == ("hypothesis", "", "")
    (again,) = programs(agent, sys.executable, "train.py", wdir=str(tmp_path))
    assert again.digest == found.digest != ""
    script.write_text("pass\n")
    assert programs(agent, sys.executable, "train.py", wdir=str(tmp_path))[0].digest != found.digest


@pytest.mark.parametrize(
    ("about", "files", "expected"),
    [
        ("Some_Thing-3.1.dist-info", {"top_level.txt": "other\nthing\n"}, ("3.1", "Some_Thing")),
        ("some-3.1.dist-info", {"RECORD": "a.py,,\nthing/b.py,,\n", "METADATA": "Name: S.T\n"}, ("3.1", "S.T")),
        ("some-3.1.dist-info", {"RECORD": "thing.cpython-311.so,sha256=0,0\n"}, ("3.1", "some")),
        ("S.egg-info", {"top_level.txt": "thing\n", "PKG-INFO": "Name: S\nVersion: 4\n\nVersion: 5"}, ("4", "S")),
        ("Thing-3.1.dist-info", {}, ("3.1", "Thing")),
        ("thing-3.1.dist-info", {"RECORD": "other.py,,\n"}, ("3.1", "")),
    ],
)  # fmt: skip
def test_a_package_whose_name_is_not_that_of_its_module(
    agent: TestedAgent, tmp_path: Path, about: str, files: dict[str, str], expected: tuple[str, str]
) -> None:
    (tmp_path / about).mkdir()
    for name, text in {"METADATA": "Version: 3.1\n", **files}.items():
        (tmp_path / about / name).write_text(text)
    if "PKG-INFO" in files:
        (tmp_path / about / "METADATA").unlink()
    (tmp_path / "thing.py").write_text("")
    script = tmp_path / "a.py"
    script.write_text("#!/usr/bin/env python3\nimport thing\n")
    script.chmod(0o755)
    (found,) = programs(agent, str(script))
    assert (found.modules, found.versions, found.packages) == (("thing",), expected[:1], expected[1:])


def test_a_module_that_two_packages_have_has_no_name_for_pip(agent: TestedAgent, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}-3.1.dist-info").mkdir()
        (tmp_path / f"{name}-3.1.dist-info" / "RECORD").write_text(f"shared/{name}.py,,\n")
    (tmp_path / "shared").mkdir()
    (tmp_path / "a.py").write_text("import shared.one\n")
    (found,) = programs(agent, sys.executable, "a.py", wdir=str(tmp_path))
    assert (found.modules, found.packages) == (("shared",), ("",))


@pytest.mark.parametrize(
    ("argv", "app", "words"),
    [
        (("nothing-like-this",), {}, "'nothing-like-this' was not found"),
        (("/etc/passwd",), {}, "is not executable"),
        (("true",), {"wdir": "/nowhere"}, "/nowhere does not exist"),
        ((sys.executable, "/nowhere/a.py"), {}, "the script '/nowhere/a.py' does not exist"),
    ],
)
def test_what_cannot_be_started(agent: TestedAgent, argv: tuple[str, ...], app: dict[str, Any], words: str) -> None:
    (found,) = programs(agent, *argv, **app)
    assert words in found.error


def test_an_interpreter_that_hangs_is_not_waited_for(agent: TestedAgent, tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\nexec sleep 1000\n")
    fake.chmod(0o755)
    (found,) = programs(agent, str(fake), "-c", "import numpy")
    assert (found.error, found.python) == ("", "")


# --- links


@pytest.fixture
def other() -> Iterator[TestedAgent]:
    """A second agent."""
    made = TestedAgent()
    try:
        made.begin()
        yield made
    finally:
        made.hang_up()
        made.destroy()


def listening(agent: TestedAgent) -> messages.Listening:
    return messages.unpack_check(messages.LISTEN, messages.Listening, ask(agent, messages.LISTEN))


def measured(agent: TestedAgent, question: messages.LinkQuestion) -> messages.LinkFacts:
    return messages.unpack_check(messages.MEASURE, messages.LinkFacts, ask(agent, messages.MEASURE, question))


def test_a_link_is_measured(agent: TestedAgent, other: TestedAgent) -> None:
    at = listening(other)
    assert at == listening(other)
    addresses = ("192.0.2.1", "no address", "127.0.0.1")
    found = measured(agent, messages.LinkQuestion(addresses, at.port, at.token, 0.02))
    assert (found.error, found.address) == ("", "127.0.0.1")
    assert 0 < found.delay < 1
    assert found.rate > 0
    assert found.sent > 0


def test_a_host_that_cannot_listen_says_so_and_goes_on() -> None:
    agent = TestedAgent(limit=32)
    try:
        agent.begin()
        host(agent)  # what it needs for that is loaded
        guard = agent.process.pid
        (pid,) = map(int, Path(f"/proc/{guard}/task/{guard}/children").read_text().split())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 32))
        found = listening(agent)
        assert (found.port, found.error) == (0, "it cannot listen at any port: Too many open files")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (32, 32))
        assert listening(agent).port > 0
    finally:
        agent.hang_up()
        agent.destroy()


def test_a_host_with_another_token_is_not_measured(agent: TestedAgent, other: TestedAgent) -> None:
    at = listening(other)
    for question in (
        messages.LinkQuestion(("127.0.0.1",), at.port, "0" * 32, 0.02),
        messages.LinkQuestion((), at.port, at.token, 0.02),
    ):
        assert measured(agent, question).error


@pytest.mark.parametrize(
    ("first", "then", "echoes"),
    [
        (b"GET / HTTP/1.1\r\nHost: somewhere-long-enough\r\n\r\n", b"", b""),
        (b"0" * 32, b"0" * 32, b""),
        (b"0" * 32, b"pppp" * 9, b""),
        (b"0" * 32, b"%s", b""),
        (b"0" * 32, b"%sx", b""),
        (b"0" * 32, b"%sp", b"p"),
        (b"0" * 32, b"%s" + b"p" * 1000, b""),
    ],
)
def test_strangers_are_hung_up_on(other: TestedAgent, first: bytes, then: bytes, echoes: bytes) -> None:
    """They may learn a proof for their own nonce.  %s stands for the proof of a caller who knows the token."""
    at = listening(other)
    with socket.create_connection(("127.0.0.1", at.port), timeout=20) as sock:
        sock.sendall(first)
        answer = sock.recv(4096) if then else b""
        proved, _, theirs = answer.partition(b"\n")
        mine = address_proof.caller_proof(at.token, first.decode(), theirs.decode().strip(), "127.0.0.1")
        sock.sendall(then.replace(b"%s", mine.encode()))
        got = b""
        with contextlib.suppress(ConnectionResetError):
            if echoes or then.endswith(b"%s"):
                sock.shutdown(socket.SHUT_WR)  # it would be served
            while data := sock.recv(4096):
                got += data
    assert got == echoes
    assert at.token.encode() not in answer
    if then:
        assert address_proof.proved_address(at.token, first.decode(), proved) == "127.0.0.1"


def test_a_stranger_who_says_nothing_does_not_keep_others_away(agent: TestedAgent, other: TestedAgent) -> None:
    at = listening(other)
    silent = [socket.create_connection(("127.0.0.1", at.port), timeout=20) for _ in range(20)]
    try:
        found = measured(agent, messages.LinkQuestion(("127.0.0.1",), at.port, at.token, 0.02))
        assert found.error == ""
        assert silent[0].recv(1) == b""  # after a while
    finally:
        for sock in silent:
            sock.close()


# --- commands


def command(agent: TestedAgent, *argv: str, seconds: float = 20.0) -> messages.CommandFacts:
    answer = ask(agent, messages.COMMAND, messages.CommandQuestion(argv, seconds))
    return messages.unpack_check(messages.COMMAND, messages.CommandFacts, answer)


def test_commands_and_their_ends(agent: TestedAgent) -> None:
    assert command(agent, "sh", "-c", "echo out; echo err >&2; exit 3") == ("", 3, "out\nerr\n")
    assert command(agent, "sh", "-c", "kill -9 $$").code == 137
    assert "was not found" in command(agent, "nothing-like-this").error
    assert command(agent, "true") == ("", 0, "")


def test_a_command_runs_where_the_agent_began_whatever_was_asked_before(agent: TestedAgent, tmp_path: Path) -> None:
    before = command(agent, "pwd").output
    (tmp_path / "a.py").write_text("import relative\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "relative.py").write_text("")
    (found,) = programs(agent, sys.executable, "a.py", env=("PYTHONPATH=lib",), wdir=str(tmp_path))
    assert (found.modules, found.versions) == (("relative",), ("",))  # the interpreter was asked in that directory
    assert command(agent, "pwd").output == before != f"{tmp_path}\n"


def test_of_much_output_the_end_is_kept(agent: TestedAgent) -> None:
    found = command(agent, "sh", "-c", "yes | head -n 1000000; echo end")
    assert found.output.endswith("y\nend\n")
    assert len(found.output) < 20000


def test_a_command_that_takes_too_long_is_killed_with_what_it_has_started(agent: TestedAgent) -> None:
    found = command(agent, "sh", "-c", "sleep 1000 & echo $!; wait", seconds=1.0)
    assert found.error == "it did not end within 1 s"
    wait_gone(int(found.output))


def test_what_a_command_leaves_behind_does_not_keep_it_open(agent: TestedAgent) -> None:
    found = command(agent, "sh", "-c", "sleep 1000 & echo $!")
    assert (found.error, found.code) == ("", 0)
    wait_gone(int(found.output))


def test_a_command_ends_with_its_launcher() -> None:
    agent = TestedAgent()
    try:
        agent.begin()
        agent.send(frames.PART, payload=pack_part(part(PART)))
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        path = f"/proc/{os.getpid()}/fd/{writer}"
        question = messages.CommandQuestion(("sh", "-c", f"echo $$ > {path}; exec sleep 1000"), 500.0)
        agent.send(frames.CHECK, payload=messages.pack_check(messages.COMMAND, question))
        pid = int(os.read(reader, 20))
        os.close(reader)
        os.close(writer)
        assert state_of(pid)
        agent.hang_up()
        wait_gone(pid)
    finally:
        agent.destroy()
