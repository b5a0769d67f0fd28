"""Starting agents: their answers, agents that give none, and errors of single hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from open_descriptors import open_descriptors

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.node_report import Topology
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.errors import LaunchError, LinkError
from mslaunch.host.read_topology import read_topology
from mslaunch.launcher.agents.connection import AgentConnection
from mslaunch.launcher.agents.start_agents import AgentPool, ConnectPhase, OpenLinks, UnreachedError, close_all
from mslaunch.launcher.stdio.terminal import Console
from mslaunch.protocol import control, frames
from mslaunch.runtime.loop import Loop
from mslaunch.transport import transport_table
from mslaunch.transport.base import Link, OpenContext
from mslaunch.transport.fork import open_local

HERE = Node("here", 1, "-H", local=True)
THERE = Node("there", 1, "-H")
HELLO = control.pack_record(control.Hello("h", 1, 4, 2, "3.8.0", ()))
FAULT = frames.encode(frames.FAULT, payload=b"Traceback: x")


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


class Agents:
    """A pool, and the connections that were made."""

    def __init__(self, loop: Loop, policy: LinkPolicy) -> None:
        self.pool = AgentPool(loop, policy, {}, Console(loop, 2, True, False), loop.run)

    def __call__(self, nodes: Sequence[Node], topologies: bool = False) -> list[AgentConnection]:
        return self.pool._connect(nodes, topologies)

    @property
    def reached(self) -> list[AgentConnection]:
        return list(self.pool._connected.values())


def meet(loop: Loop, nodes: Sequence[Node], policy: LinkPolicy, topologies: bool) -> list[AgentConnection]:
    return Agents(loop, policy)(nodes, topologies)


def other(folder: Path, more: bytes = b"", timeout: float = 15.0, stays: bool = True, before: str = "") -> LinkPolicy:
    """Hosts on which something else answers: HELLO, and then `more`, after the commands `before`; $1 is the host.

    It is a shell, which has answered long before a Python would have begun: some tests give it less than a second.
    """
    hello = frames.MAGIC + frames.encode(frames.HELLO, payload=HELLO)
    (folder / "said").write_bytes(b"\0mslaunch python x\n" + hello + more)
    program = folder / "agent"
    program.write_text(f"cd '{folder}'; {before}\ncat said\n" + "cat > /dev/null\n" * stays)
    return LinkPolicy(agent=("/bin/sh", str(program)), timeout=timeout)


def real(folder: Path) -> LinkPolicy:
    """Hosts that are this machine: the command runs locally."""
    program = folder / "rsh"
    program.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    program.chmod(0o755)
    return LinkPolicy(agent=(str(program),), python=sys.executable)


def test_every_peer_has_its_topology(loop: Loop, tmp_path: Path) -> None:
    """A forked agent, and one that gets its program through the link."""
    peers = meet(loop, [THERE, HERE], real(tmp_path), topologies=True)
    expected = read_topology(os.sched_getaffinity(0))
    try:
        assert [peer.topology for peer in peers] == [expected, expected]
        assert all(peer.hello for peer in peers)
    finally:
        assert close_all(peers) == []


def test_no_topology_is_requested_unless_it_is_needed(loop: Loop) -> None:
    peers = meet(loop, [HERE], LinkPolicy(), topologies=False)
    assert peers[0].hello and peers[0].topology is None
    assert close_all(peers) == []


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (frames.encode(frames.TOPOLOGY), "no message of ours"),
        (frames.encode(frames.TOPOLOGY, payload=b"x"), "garbled"),
        (frames.encode(99), "a frame of kind 99, which means nothing here"),
        (frames.encode(frames.STARTED, 0, b"1"), "a frame of kind 68 about a process (0) that it does not run"),
        (FAULT, "internal error in the agent"),
    ],
)
def test_a_bad_answer_is_an_error_of_its_host(more: bytes, what: str, loop: Loop, tmp_path: Path) -> None:
    agents = Agents(loop, other(tmp_path, more))
    with pytest.raises(UnreachedError) as caught:
        agents([HERE, THERE], topologies=True)
    assert [error.where for error in caught.value.errors] == ["there"]
    assert list(caught.value.by_node) == ["there"]
    assert [peer.node.name for peer in agents.reached] == ["here"], "they may be kept"
    assert agents.pool.close() == []
    assert what in caught.value.what
    assert ("Traceback: x" in caught.value.todo) == (more == FAULT)


def test_the_first_error_of_a_host_is_reported(loop: Loop, tmp_path: Path) -> None:
    """The end of the link follows, while the launcher still waits for others."""
    slow = 'while [ "$1" = slow ]; do [ -e gone ] && exit 3; sleep 0.2; done'
    policy = other(tmp_path, FAULT, stays=False, before=slow)
    program = tmp_path / "agent"
    program.write_text(f"{program.read_text()}touch gone\n")
    with pytest.raises(UnreachedError) as caught:
        meet(loop, [THERE, Node("slow", 1, "-H")], policy, topologies=True)
    assert list(caught.value.by_node) == ["slow", "there"]
    assert "internal error in the agent" in caught.value.by_node["there"].what


def test_the_wait_for_a_topology_is_as_long_as_for_hello(loop: Loop, tmp_path: Path) -> None:
    with pytest.raises(UnreachedError) as caught:
        meet(loop, [THERE], other(tmp_path, timeout=0.2), topologies=True)
    assert "no answer within 0.2 seconds" in caught.value.what and caught.value.where == "there"
    assert caught.value.todo == "", "its login shell is innocent"


def test_hello_is_enough_without_topologies(loop: Loop, tmp_path: Path) -> None:
    peers = meet(loop, [THERE], other(tmp_path), topologies=False)
    assert peers[0].hello and (peers[0].hello.cpus, peers[0].hello.cores) == (4, 2)
    assert close_all(peers) == []


def test_an_interrupted_wait_closes_all_links(loop: Loop) -> None:
    """Also those that have already been opened."""

    def interrupted(until: Callable[[], bool]) -> None:
        loop.run(until)
        raise LaunchError("ended")

    before = open_descriptors()
    with pytest.raises(LaunchError, match="ended"):
        AgentPool(loop, LinkPolicy(), {}, Console(loop, 2, True, False), interrupted).require([HERE])
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_connecting_goes_on_while_others_are_served(loop: Loop, tmp_path: Path) -> None:
    """The result has the hosts that were reached, and the errors of the others; no agent is forked any more."""
    ended: list[ConnectPhase] = []
    nodes = [HERE, THERE, Node("down", 1, "-H")]
    policy = real(tmp_path)
    rsh = Path(policy.agent[0])
    rsh.write_text(rsh.read_text().replace("shift", '[ "$1" = down ] && exit 3; shift'))
    connecting = ConnectPhase(OpenLinks(loop, policy), {}, pytest.fail, policy, nodes, done=ended.append)
    assert not ended and len(connecting.connections) == 3
    loop.run(lambda: bool(ended))
    peers = connecting.reached
    try:
        assert [peer.node.name for peer in peers] == ["here", "there"] and all(peer.hello for peer in peers)
        assert type(peers[0].link).__name__ == "ProcessLink"
        assert list(connecting.failed) == ["down"]
    finally:
        assert close_all(connecting.connections) == []


def test_a_host_that_is_lost_between_two_questions(loop: Loop, tmp_path: Path) -> None:
    """It reported its cores, and then its agent ended, while others were being asked."""
    answer = frames.encode(frames.TOPOLOGY, payload=control.pack_topology(Topology((0,), ((0,),) * 8)))
    policy = other(tmp_path, answer, stays=False)
    pool = AgentPool(loop, policy, {}, Console(loop, 2, True, False), loop.run, False)
    assert pool.cores([THERE], False) == {"there": 2}
    loop.run(lambda: pool._connected["there"].ended)
    with pytest.raises(UnreachedError) as caught:
        pool.require([HERE, THERE])
    assert (caught.value.where, caught.value.code) == ("there", 205)
    assert pool.close() == []


def test_hosts_that_were_reached_are_kept(loop: Loop, tmp_path: Path) -> None:
    """Hosts that may be lost get less time than others."""
    policy = other(tmp_path, timeout=100, before='[ "$1" = there ] && cat > /dev/null')
    pool = AgentPool(loop, policy, {}, Console(loop, 2, True, False), loop.run, False)
    near = Node("near", 1, "-H")
    with pytest.raises(UnreachedError) as caught:
        pool.probe([near, THERE], 0.5)
    assert list(caught.value.by_node) == ["there"]
    (reached,) = pool._connected.values()
    assert pool.require([near]) == [reached], "it is not called a second time"
    assert pool.close() == []


def test_the_traceback_of_an_agent_that_crashes_before_launch_is_shown(loop: Loop) -> None:
    """A real agent that gets a frame of nonsense."""
    pool = AgentPool(loop, LinkPolicy(), {}, Console(loop, 2, True, False), loop.run, False)
    (here,) = pool.require([HERE])
    here.send(frames.encode(frames.SIGNAL, payload=b"x"))
    loop.run(lambda: here.ended)
    with pytest.raises(UnreachedError, match="internal error in the agent") as caught:
        pool.require([HERE])
    assert caught.value.where == "here"
    assert "Traceback (most recent call last)" in caught.value.todo and "ValueError" in caught.value.todo
    assert pool.close() == []


def test_an_opener_may_refuse_single_nodes_and_be_called_back(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one srun for many nodes: an error for one of them, and links that are there once agents have called."""
    asked: list[list[str]] = []
    listening, calling = os.pipe()

    def open_together(nodes: Sequence[Node], context: OpenContext) -> None:
        asked.append([node.name for node in nodes])
        context.failed(nodes[0], LinkError("not in this job step", nodes[0].name))

        def called_back() -> None:
            assert os.read(listening, 1) == b"!"
            open_local(nodes[1:], context)

        context.loop.reader(listening, called_back)
        context.closers.extend((partial(os.close, listening), partial(context.loop.reader, listening, None)))
        loop.after(0.01, partial(os.write, calling, b"!"))

    monkeypatch.setattr(transport_table, "load", lambda row: open_together)
    nodes = [Node("a", 1, "-H"), HERE, Node("b", 1, "-H"), Node("c", 1, "-H")]
    agents = Agents(loop, LinkPolicy())
    with pytest.raises(UnreachedError) as caught:
        agents(nodes)
    assert asked == [["a", "b", "c"]], "all nodes in one call"
    assert {name: error.what for name, error in caught.value.by_node.items()} == {"a": "not in this job step"}
    assert [connection.node.name for connection in agents.reached] == ["here", "b", "c"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(listening)
    os.close(calling)
    assert agents.pool.close() == []


def test_an_opener_that_never_answers_is_not_waited_for(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that arrives too late is closed at once."""
    late: list[OpenContext] = []
    monkeypatch.setattr(transport_table, "load", lambda row: lambda nodes, context: late.append(context))
    with pytest.raises(UnreachedError, match=r"no answer within 0\.1 seconds"):
        meet(loop, [THERE], LinkPolicy(timeout=0.1), topologies=False)
    links: list[Link] = []
    open_local([THERE], late[0]._replace(opened=links.append))
    late[0].opened(links[0])
    assert links[0].reader == -1 and links[0].wait(10)


def test_a_call_during_the_job_ends_with_the_pool(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawn that still waits for an agent: what its opener holds is released, and the spawner hears no more."""
    called: list[OpenContext] = []
    answers: list[object] = []
    released: list[str] = []
    monkeypatch.setattr(transport_table, "load", lambda row: lambda nodes, context: called.append(context))
    pool = Agents(loop, LinkPolicy(timeout=0.1)).pool
    pool.call([THERE], lambda *answer: answers.append(answer))
    called[0].closers.append(partial(released.append, "listener"))
    assert pool.close() == []
    assert released == ["listener"]
    links: list[Link] = []
    open_local([THERE], called[0]._replace(opened=links.append))
    called[0].opened(links[0])
    assert links[0].reader == -1 and links[0].wait(10)
    due: list[bool] = []
    loop.after(1.0, partial(due.append, True))
    loop.run(lambda: bool(due))
    assert answers == []


def test_no_more_than_fanout_are_begun_at_a_time(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the transport: the next one begins when one is ready or has failed."""
    begun: list[str] = []
    ends: dict[str, tuple[int, int]] = {}

    class Turn(Link):
        def begin(self) -> None:
            begun.append(self.node.name)

    def open_turns(nodes: Sequence[Node], context: OpenContext) -> None:
        for node in nodes:
            (down, writer), (reader, up) = os.pipe(), os.pipe()
            ends[node.name] = down, up
            context.opened(Turn(node, reader, writer))

    def ready(name: str) -> None:
        os.write(ends[name][1], frames.MAGIC + frames.encode(frames.HELLO, payload=HELLO))

    monkeypatch.setattr(transport_table, "load", lambda row: open_turns)
    nodes = [Node(name, 1, "-H") for name in "abcde"]
    phase = ConnectPhase(OpenLinks(loop, LinkPolicy()), {}, str, LinkPolicy(fanout=2), nodes)  # type: ignore[arg-type]
    assert begun == ["a", "b"]
    ready("b")
    loop.run(lambda: len(begun) > 2, 5)
    assert begun == ["a", "b", "c"]
    os.close(ends["a"][1])
    ready("c")
    loop.run(lambda: len(begun) > 4, 5)
    assert begun == ["a", "b", "c", "d", "e"]
    phase.close()
    assert close_all(phase.connections) == []
    for name in "bcde":
        os.close(ends[name][1])
    for down, _ in ends.values():
        os.close(down)


@pytest.mark.parametrize("asks", [True, False])
def test_who_has_asked_or_left_is_not_sent_its_program_later(loop: Loop, asks: bool) -> None:
    """The timer would keep each connection of an attempt until it fires."""

    class Losing(Link):
        program = staticmethod(lambda kind: b"program for " + kind.encode())
        unasked = 60.0

    (down, writer), (reader, up) = os.pipe(), os.pipe()
    connection = AgentConnection(loop, Losing(THERE, reader, writer))
    connection.begin()
    assert [timer.callback for _, _, timer in loop._timers] != [None]
    if asks:
        os.write(up, b"\0mslaunch python x\n")
        loop.run(lambda: connection.phase > 0, 5)
        loop.run(lambda: not connection.pending, 5)
        assert os.read(down, 100) == b"program for x"
    else:
        connection.close()
    assert [timer for _, _, timer in loop._timers if timer.callback] == []
    connection.close()
    os.close(down)
    os.close(up)


def test_looks_at_many_clocks_take_a_twentieth_of_the_time(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 links one look takes long, and all that answers meanwhile waits."""
    clock, delays = [0.0], [0.0]

    class Slow(Link):
        def overdue(self, seconds: float) -> bool:
            clock[0] += 0.05
            return False

    ends: list[int] = []

    def open_slow(nodes: Sequence[Node], context: OpenContext) -> None:
        for node in nodes:
            (down, writer), (reader, up) = os.pipe(), os.pipe()
            ends.extend((down, up))
            context.opened(Slow(node, reader, writer))

    monkeypatch.setattr(transport_table, "load", lambda row: open_slow)
    phases = [
        ConnectPhase(OpenLinks(loop, LinkPolicy()), {}, str, LinkPolicy(), nodes)  # type: ignore[arg-type]
        for nodes in ([Node(f"n{number}", 1, "-H") for number in range(size)] for size in (20, 0))
    ]
    with monkeypatch.context() as patched:
        patched.setattr(loop, "now", lambda: clock[0])
        patched.setattr(loop, "after", lambda seconds, call: delays.append(seconds))
        for phase in phases:
            phase._check_clocks()
    assert delays[1:] == [pytest.approx(20 * 20 * 0.05), 0.25], "and not more often than four times a second"
    for phase in phases:
        phase._limit = phase._progress_timer
        phase.close()
        assert close_all(phase.connections) == []
    for fd in ends:
        os.close(fd)
