"""From HELLO to the plans of ranks: a launch on a real loop, with agents that send what the test says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from histories import make_state

from mslaunch.datamodel.jobmap import Endpoint, JobMap, Node, Placement
from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan, ServicePlan, World
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LinkError, UsageError, WireError
from mslaunch.launcher.job import events
from mslaunch.launcher.job.controller import JobController
from mslaunch.launcher.job.events import Interrupted, Signalled
from mslaunch.launcher.job.job_actions import JobAgents
from mslaunch.launcher.job.program_starts import ProgramStarts
from mslaunch.launcher.job.startup import JobPlans
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.output import Output
from mslaunch.launcher.stdio.terminal import Console, OutputFd
from mslaunch.plan.program_steps import MEETING_PORT, ProgramStep
from mslaunch.protocol import control, frames
from mslaunch.protocol.store_messages import StoreMessage, unpack_keys
from mslaunch.runtime.loop import Loop

FIRST_SERVER = SERVICE - 1

HELLO = control.Hello("n0", 1, 2, 2, "3.9", ("127.0.0.1",))
SERVICES = (ServicePlan(6, (), SERVICE, first=True), ServicePlan(0, (), SERVICE - 1, first=True))
FIRST = {0: NodePlan((), (), (), services=SERVICES)}


class Agent:
    """A connection; `say` sends a frame as its agent."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.hello = HELLO
        self.pending, self.behind = 0, ()
        self.sent: list[frames.Frame] = []

    def attach(self, on_end: Callable[[Any], None], on_frame: Callable[[frames.Frame], None]) -> None:
        self.ended, self.handle = on_end, on_frame

    def send(self, *pieces: bytes) -> None:
        self.sent += frames.Decoder().feed(b"".join(pieces))

    def say(self, kind: int, rank: int = frames.NO_RANK, payload: bytes = b"") -> None:
        self.handle(frames.Frame(kind, rank, payload))

    def kinds(self) -> list[int]:
        return [frame.kind for frame in self.sent]


class Job:
    """A launch of two ranks on one host; `heard` has the messages to the user."""

    def __init__(self, loop: Loop, first: dict[int, NodePlan], delay: float = 0.0, count: int = 2, **how: Any) -> None:
        """`count`: so many ranks the agent is asked for; `scopes` are those of a key store."""
        nodes = (Node("n0", 2, "-H", local=True),)
        self.loop = loop
        self.agent = Agent(nodes[0])
        self.jobmap = JobMap(nodes, (Placement(0, 0, 0, 0), Placement(1, 0, 0, 1)), 2)
        steps: tuple[ProgramStep, ...] = how.pop("steps", ())
        order = ProgramStarts(steps, 30.0) if steps else None
        self.state = make_state(self.jobmap, max_restarts=2, delay=delay, grace=1.0, order=order)
        self.refusal: UsageError | None = None
        out, self._said = os.pipe(), os.pipe()
        console = Console(loop, self._said[1], quiet=False, verbose=True)
        terminals = {frames.STDOUT: OutputFd(loop, out[1], "out", console.info), frames.STDERR: console.stderr}
        output = Output(OutputPolicy(), PatternValues([("n0", 0), ("n0", 0)]), terminals, console.info)
        agents: Any = [self.agent]
        plans = JobPlans(self._plans, lambda end: first, counts=[count], scopes=how.pop("scopes", {}))._replace(
            steps=steps
        )
        self.launch = JobController(loop, JobAgents(agents), self.state, output, plans, (0, ()), console, **how)
        self._console, self._fds, self._terminals = console, (*out, *self._said), terminals.values()

    def _plans(self, endpoint: Endpoint) -> list[NodePlan]:
        self.stores = endpoint.stores
        if self.refusal:
            raise self.refusal
        ranks = tuple(RankPlan(rank, 0, ()) for rank in range(2))
        return [NodePlan(ranks, (AppPlan(("x",), "/"),), (), world=World())]

    def prepare(self) -> None:
        reserved = control.Reserved((6, 8, 5), 7, "token")
        self.agent.say(frames.RESERVED, payload=control.pack_record(reserved))

    def started(self, *numbers: int) -> None:
        for number in numbers:
            self.agent.say(frames.STARTED, number, b"99")

    def exited(self, number: int, code: int) -> None:
        self.agent.say(frames.EXIT, number, control.pack_record(ExitStatus(code, None)))

    def heard(self) -> str:
        self._console.stderr.flush()
        os.set_blocking(self._said[0], False)
        try:
            return os.read(self._said[0], 1 << 16).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def make() -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def made(first: dict[int, NodePlan] | None = None, **how: Any) -> Job:
        jobs.append(Job(loop, first or {}, **how))
        return jobs[-1]

    with Loop() as loop:
        yield made
        for job in jobs:
            job.close()


def plan_of(frame: frames.Frame) -> NodePlan:
    assert frame.kind == frames.LAUNCH
    return control.unpack_plan(frame.payload)


def test_services_are_ready_before_agents_get_the_plans_of_ranks(make: Callable[..., Job]) -> None:
    job = make(FIRST)
    job.prepare()
    (launched,) = job.agent.sent
    assert plan_of(launched).services == SERVICES and not plan_of(launched).ranks
    job.started(SERVICE)
    job.agent.say(frames.SERVES, SERVICE)
    job.started(SERVICE - 1)
    assert len(job.agent.sent) == 1
    job.agent.say(frames.SERVES, SERVICE - 1)
    assert [rank.rank for rank in plan_of(job.agent.sent[1]).ranks] == [0, 1]
    said = job.heard()
    assert "the MindSpore scheduler is process 99 on n0" in said
    assert "the MindSpore scheduler listens at 127.0.0.1, port 6, on n0, after 0." in said
    assert "parameter server 0 is process 99 on n0" in said


def test_without_services_ranks_start_at_once(make: Callable[..., Job]) -> None:
    job = make()
    job.prepare()
    assert [rank.rank for rank in plan_of(job.agent.sent[0]).ranks] == [0, 1]
    with pytest.raises(WireError, match=r"about a process \(-3\)"):
        job.started(SERVICE - 1)


@pytest.mark.parametrize("port", [6379, MEETING_PORT])
def test_the_next_program_starts_when_the_head_listens(make: Callable[..., Job], port: int) -> None:
    job = make(steps=(ProgramStep(frozenset({0}), 0, port), ProgramStep(frozenset({1}))))
    with pytest.raises(WireError, match=r"about a process \(0\)"):
        job.agent.say(frames.SERVES, 0)
    job.prepare()
    (launched,) = job.agent.sent
    assert [rank.rank for rank in plan_of(launched).ranks] == [0]
    job.started(0)
    asked = job.agent.sent[1]
    assert job.launch._startup.endpoint
    at = port if port > 0 else job.launch._startup.endpoint.port
    assert (asked.kind, asked.rank, asked.payload) == (frames.AWAIT, 0, b"99 %d" % at)
    with pytest.raises(WireError, match=r"about a process \(1\)"):
        job.agent.say(frames.SERVES, 1)
    job.agent.say(frames.SERVES, 0)
    assert [rank.rank for rank in plan_of(job.agent.sent[2]).ranks] == [1]
    assert f"rank 0 listens at port {at} on n0, after 0." in job.heard()
    with pytest.raises(WireError, match=r"about a process \(0\)"):
        job.agent.say(frames.SERVES, 0)


def test_ranks_start_once_the_key_store_is_served(make: Callable[..., Job]) -> None:
    job = make(scopes={"global": [0, 0]})
    with pytest.raises(WireError, match="which means nothing here"):
        job.agent.say(frames.WRITE, payload=StoreMessage("served", 1024, "lo").pack())
    job.prepare()
    (asked,) = job.agent.sent
    serve = unpack_keys(asked.payload)
    assert (asked.kind, serve.what, serve.value) == (frames.KEYS, "serve", b"127.0.0.1")
    job.agent.say(frames.WRITE, payload=StoreMessage("served", 1024, "lo").pack())
    assert [rank.rank for rank in plan_of(job.agent.sent[1]).ranks] == [0, 1]
    assert job.stores == {0: (1024, serve.name, "lo")}
    job.agent.say(frames.WRITE, payload=StoreMessage("put", 1, "global/0", b"v").pack())
    assert unpack_keys(job.agent.sent[-1].payload) == StoreMessage("done", 1)
    assert job.agent.kinds() == [frames.KEYS, frames.LAUNCH, frames.KEYS]


def test_a_key_store_that_cannot_be_served_ends_the_job(make: Callable[..., Job]) -> None:
    job = make(scopes={"global": [0, 0]})
    job.prepare()
    refused = ExitStatus(1, None, "no key store can be served", "do this")
    job.agent.say(frames.EXIT, payload=control.pack_record(refused))
    assert frames.LAUNCH not in job.agent.kinds()
    assert job.state.failure and job.state.failure.facts["error"] == "no key store can be served"


def test_an_agent_that_does_not_serve_the_store_in_time(make: Callable[..., Job]) -> None:
    job = make(scopes={"global": [0, 0]})
    job.prepare()
    job.launch._startup.give_up()
    assert frames.LAUNCH not in job.agent.kinds() and job.state.failure


def test_a_scheduler_that_waits_for_a_connection_is_reported_as_such(make: Callable[..., Job]) -> None:
    job = make({0: FIRST[0]._replace(services=SERVICES[:1])})
    job.prepare()
    job.agent.say(frames.SERVES, SERVICE)
    assert job.agent.kinds() == [frames.LAUNCH] * 2
    assert "will be started when a rank connects at 127.0.0.1, port 6" in job.heard()


def test_the_wait_for_services_has_a_limit(make: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SERVE_SECONDS", 0.01)
    job = make(FIRST)
    job.prepare()
    job.loop.run(lambda: len(job.agent.sent) > 1)
    notice = (
        "the MindSpore scheduler and parameter server 0 are not ready after 0.01 s; the ranks are started all the same"
    )
    assert notice in job.heard()


def test_a_refused_plan_starts_no_service(make: Callable[..., Job]) -> None:
    job = make(FIRST)
    job.refusal = UsageError("no", "-x")
    with pytest.raises(UsageError):
        job.prepare()
    assert job.agent.sent == []


def test_a_service_that_fails_ends_all_services(make: Callable[..., Job]) -> None:
    job = make(FIRST)
    job.prepare()
    job.started(SERVICE, SERVICE - 1)
    job.exited(SERVICE, 1)
    assert job.agent.kinds() == [frames.LAUNCH, frames.END]
    job.launch.post(Signalled(10))  # there are no ranks to hear it
    for number in (SERVICE, SERVICE - 1):
        for kind in (frames.STDOUT, frames.STDERR):
            job.agent.say(kind, number)
    assert not job.state.finished
    job.exited(SERVICE - 1, 0)
    assert job.state.finished


def test_the_scheduler_is_restarted_without_the_delay_of_ranks(make: Callable[..., Job]) -> None:
    job = make(FIRST, delay=3600.0)
    job.prepare()
    job.started(SERVICE, SERVICE - 1)
    for number in (SERVICE, SERVICE - 1):
        job.agent.say(frames.SERVES, number)
    job.started(0, 1)
    job.exited(SERVICE, 3)
    assert job.agent.sent[-1] == frames.Frame(frames.RESTART, SERVICE, b"1")
    job.exited(1, 3)
    assert job.agent.sent[-1].rank == SERVICE
    said = job.heard()
    assert "the MindSpore scheduler ended with exit code 3 on n0; started again, 1 of 2" in said
    assert "rank 1 ended with exit code 3 on n0; started again in 3600 s, 1 of 2" in said
    job.launch.post(Interrupted("SIGINT"))
    assert [frame.kind for frame in job.agent.sent[-2:]] == [frames.END, frames.RESTART], "the agent answers it"
    assert job.agent.sent[-1].rank == 1


def test_a_delayed_start_happens(make: Callable[..., Job]) -> None:
    job = make(delay=0.01)
    job.prepare()
    job.started(0, 1)
    job.exited(0, 3)
    assert job.agent.kinds() == [frames.LAUNCH]
    job.loop.run(lambda: len(job.agent.sent) > 1)
    assert job.agent.sent[1] == frames.Frame(frames.RESTART, 0, b"1")


# --- room on the hosts


def test_the_plans_wait_for_the_room_of_large_jobs(make: Callable[..., Job]) -> None:
    job = make(count=13)
    job.launch.post(events.Began())
    job.launch._startup.begin()
    assert [(frame.kind, frame.payload) for frame in job.agent.sent][-1] == (frames.ROOM, b"13")
    job.prepare()
    assert frames.LAUNCH not in job.agent.kinds()
    job.agent.say(frames.FITS, payload=b"13")
    assert job.agent.kinds()[-1] == frames.LAUNCH


def test_a_host_with_too_little_room_starts_nothing(make: Callable[..., Job]) -> None:
    job = make(count=13)
    job.launch.post(events.Began())
    job.launch._startup.begin()
    job.agent.say(frames.FITS, payload=b"5 a small house")
    job.prepare()
    assert frames.LAUNCH not in job.agent.kinds() and job.state.finished
    failure = job.state.failure
    assert failure and failure.facts["errors"] == {"only 5 of 13 ranks can be started with a small house": (0,)}
    assert "at most 5 ranks" in failure.facts["todo"]


@pytest.mark.parametrize("payload", [b"", b"x", b"-1", b" 5"])
def test_room_that_means_nothing(make: Callable[..., Job], payload: bytes) -> None:
    job = make(count=13)
    job.launch.post(events.Began())
    job.launch._startup.begin()
    with pytest.raises(WireError):
        job.agent.say(frames.FITS, payload=payload)


def test_small_jobs_are_not_asked(make: Callable[..., Job]) -> None:
    job = make(count=12)
    job.launch._startup.begin()
    assert frames.ROOM not in job.agent.kinds()
    with pytest.raises(WireError):
        job.agent.say(frames.FITS, payload=b"12")


def test_few_notices_of_an_agent_are_shown(make: Callable[..., Job]) -> None:
    job = make()
    for number in range(20):
        job.agent.say(frames.NOTICE, payload=f"notice {number}\n\033[31m{'x' * 1000}".encode())
    said = job.heard().splitlines()
    assert len(said) == 8 and all(line.startswith("mslaunch: n0: notice ") and len(line) < 450 for line in said)
    assert "\033" not in "".join(said)


def test_agents_that_fail_alike_are_told_once(make: Callable[..., Job]) -> None:
    """The first is the cause, the second is told at once, and the others at the end in one line."""

    class Agents:
        crashed = staticmethod(lambda node: True)
        host = staticmethod(lambda node: f"n{node}")
        send = staticmethod(lambda node, frame: None)

    job = make()
    agents: Any = Agents()
    job.launch.agents = agents
    for node in range(5):
        job.launch._on_link_ended(node, LinkError("the agent has no more memory", f"n{node}"))
    job.launch.finish()
    assert job.heard().splitlines() == [
        "mslaunch: n1: the agent has no more memory",
        "mslaunch: n[2-4]: the agent has no more memory, too",
    ]
