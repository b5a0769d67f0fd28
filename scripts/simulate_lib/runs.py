"""The runs of a simulation, each in a process of its own: the launcher as it is, and what it is made to go through."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from typing import Any

from mslaunch.cli.main import parse
from mslaunch.datamodel.jobmap import Endpoint
from mslaunch.datamodel.request import Caller, Request
from mslaunch.errors import LaunchError
from mslaunch.host.files import read_text
from mslaunch.host.system_files import head_of
from mslaunch.launcher import observers
from mslaunch.launcher.attempt import allocation_of, is_this_host
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.job.restart_policy import policy_of
from mslaunch.launcher.launch import run as launch
from mslaunch.launcher.messages.closing_report import unreached_text
from mslaunch.plan.mapping.pipeline import place
from mslaunch.plan.node_plans import make_plans
from mslaunch.protocol.alike_plans import AlikePlans
from mslaunch.protocol.call_proof import bytecode
from mslaunch.runtime.reused_memory import reuse_freed_memory
from mslaunch.transport.bootstrap.agent_program import program_for
from simulate_lib import SimulateError
from simulate_lib.measure import Step, Stopwatch, allow_descriptors, kernel_memory, peak
from simulate_lib.one_stream import OneStream
from simulate_lib.played_agent import TOPOLOGY, Traits
from simulate_lib.played_link import WORD, PlayedTransport
from simulate_lib.player import fork_player

RANKS = 8  #: of each node that is planned; the hosts that are played have one each
LINES = 10
FENCE_MOST = 20_000  #: hosts: every node gets what all have put, which is 600 GB for 100,000
LATE = 2.0  #: seconds
TIMEOUT = 3.0  #: of --connect-timeout, where a host never answers
_SPARE = 64  # descriptors besides those of links
#: one process plays all agents, and may be late where theirs would not; `scripts/bench heartbeats` has signs of life
_LEASE = ("--lease", "0")


def name_of(index: int) -> str:
    return f"node{index:06}"


def index_of(name: str) -> int:
    return int(name[4:])


def write_hostfile(nodes: int, slots: int, bad: int = -1) -> str:
    """A line for each node; the one at `bad` is wrong."""
    with open("hosts", "w", encoding="ascii") as file:
        for index in range(nodes):
            file.write(f"{name_of(index)} slots={'many' if index == bad else slots}\n")
    return "hosts"


def _request(nodes: int, ranks: int, *options: str) -> Request:
    words = ["-n", str(nodes * ranks), "--hostfile", "hosts", "--stdin", "none", *_LEASE, *options, "--", "program"]
    request = parse(words, os.environ, read_text, pods=False)
    return request._replace(link=request.link._replace(asked=WORD))


# --- without hosts


def plan(nodes: int) -> list[Step]:
    """From the hostfile to the frames with the plans, and the state of each rank."""
    write_hostfile(nodes, RANKS)
    request = _request(nodes, RANKS)
    _settle()
    watch = Stopwatch(nodes)
    allocation = allocation_of(request)
    watch.mark("hostfile to allocation")
    names = {node.name: TOPOLOGY for node in allocation.nodes}
    watch.restart()
    here = "launchhost"
    placed = place(request, allocation, lambda asked: names, is_this_host, here, lambda path: head_of(path, 4096))
    watch.mark("map and bind")
    state = JobState(placed.jobmap, policy_of(request), 2, request.grace)
    watch.mark("state of the ranks")
    endpoint = Endpoint("10.0.0.0", 20001, 20000)
    plans = make_plans(request, placed.jobmap, os.environ, os.getcwd(), endpoint, "12345678", secret="0" * 32)
    watch.mark("plans")
    longest = total = 0
    packer = AlikePlans()
    for each in plans:
        size = len(packer.pack(each))
        longest, total = max(size, longest), total + size
    watch.mark("plans to frames", f"{total / nodes:.0f} bytes a frame, the longest {longest}")
    if len(state.table.ranks) != nodes * RANKS or len(plans) != nodes:
        raise SimulateError("not every rank was planned")
    return [*watch.steps, _together("all of the plan", watch.steps, peak())]


def _together(name: str, steps: Sequence[Step], most: int) -> Step:
    first = steps[0]
    seconds, cpu = sum(step.seconds for step in steps), sum(step.cpu for step in steps)
    return Step(name, first.nodes, seconds, cpu, most, "memory: the most that the process had")


def bad_line(nodes: int) -> list[Step]:
    """One line of the hostfile is wrong."""
    write_hostfile(nodes, RANKS, bad=nodes // 2)
    _settle()
    watch = Stopwatch(nodes)
    text = _refusal(lambda: launch(_request(nodes, RANKS), _caller()))
    watch.mark("refusal: a bad line", text.splitlines()[0][:80])
    if f"hosts:{nodes // 2 + 1}" not in text:
        raise SimulateError(f"the bad line is not named: {text[:300]}")
    return watch.steps


# --- with hosts that are played


class Conductor:
    """Lets a launch go through `orders`, one after the other, and notes when each step has ended."""

    def __init__(self, watch: Stopwatch, orders: Sequence[str], played: Played) -> None:
        self._watch = watch
        self._orders = list(orders)
        self._played = played
        self.found = 0  # keys that were looked up after a fence
        self._kernel = kernel_memory()

    def observe(self, record: Any) -> None:
        """A record of the launch."""
        if isinstance(record, observers.Connected):
            kernel = f"the kernel has {max(0, kernel_memory() - self._kernel)} bytes more"
            self._watch.mark("start: links, HELLO, map", kernel if self._played.real else "links without descriptors")
        elif isinstance(record, observers.AllStarted):
            self._watch.mark("start: addresses, plans, STARTED")
            self._next()
        elif isinstance(record, observers.LaunchEnded):
            self._watch.mark("end" if not self._orders else self._orders[0])

    def opened(self) -> None:
        """The first link is about to be opened."""
        self._watch.mark("hostfile to allocation, of the launch")

    def told(self, message: str) -> None:
        """The played hosts have carried an order out."""
        word, found = message.split()
        self.found += int(found) if word == "fence" else 0
        if word == "end":
            return
        self._watch.mark({"fence": "fence", "print": "output"}[word])
        self._next()

    def _next(self) -> None:
        if self._orders:
            word = self._orders.pop(0)
            if word == "die":
                self._orders.append("a host dies")
            self._played.socket.send(word.encode())


class Played:
    """The process that plays the hosts, and the transport to it."""

    def __init__(self, nodes: int, traits: Traits) -> None:
        self.real = allow_descriptors(nodes + _SPARE) >= nodes + _SPARE
        program = len(program_for(bytecode()))
        self.socket, stream, self.pid = fork_player(traits, program, stream=not self.real)
        links = OneStream(stream) if stream else None
        self.transport = PlayedTransport(self.socket, traits, index_of, links)

    def close(self) -> None:
        """It ends by itself when the socket is closed; killed if it does not."""
        self.socket.close()
        _, status, usage = os.wait4(self.pid, 0)
        self.peak = usage.ru_maxrss * 1024
        if status:
            raise SimulateError(f"the process that plays the hosts ended with {os.waitstatus_to_exitcode(status)}")


def _conducted(nodes: int, traits: Traits, orders: Sequence[str], *options: str) -> tuple[Stopwatch, Any, Conductor]:
    """A whole launch."""
    write_hostfile(nodes, 1)
    played = Played(nodes, traits)
    request = _request(nodes, 1, *options)
    _settle()
    watch = Stopwatch(nodes)
    conductor = Conductor(watch, orders, played)
    played.transport.on_message, played.transport.on_open = conductor.told, conductor.opened
    try:
        outcome = launch(request, _caller(conductor.observe))
    finally:
        played.close()
    return watch, outcome, conductor


def whole(nodes: int) -> list[Step]:
    """A job from the hostfile to the outcome: fence, output, end."""
    fences = nodes <= FENCE_MOST
    orders = ("fence", "print", "end") if fences else ("print", "end")
    watch, outcome, conductor = _conducted(nodes, Traits(lines=LINES), orders, "--tag-output")
    if outcome.code or len(outcome.ranks) != nodes or bool(conductor.found) != fences:
        raise SimulateError(f"the job has not ended well: {outcome.failure}")
    with open("stdout", "rb") as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    if lines != nodes * LINES:
        raise SimulateError(f"{lines} lines were printed, not {nodes * LINES}")
    return [*watch.steps, _together("all of the launch", watch.steps, peak())]


def late(nodes: int) -> list[Step]:
    """Every tenth host answers two seconds late."""
    watch, outcome, _ = _conducted(nodes, Traits(late_each=10, late=LATE), ("end",), "--fanout", "1000")
    if outcome.code:
        raise SimulateError(f"the job has not ended well: {outcome.failure}")
    return [step._replace(name="start: every tenth host answers 2 s late") for step in watch.steps[1:2]]


def dies(nodes: int) -> list[Step]:
    """One host is lost in the middle of the run: the ranks of all others are ended."""
    watch, outcome, _ = _conducted(nodes, Traits(dies=nodes // 2), ("die",))
    if not outcome.failure or outcome.failure.host != name_of(nodes // 2):
        raise SimulateError(f"the lost host is not the cause: {outcome.failure}")
    return [step for step in watch.steps if step.name == "a host dies"]


def silent(nodes: int) -> list[Step]:
    """One host never answers."""
    return _refused(
        nodes, Traits(silent=nodes // 2), "refusal: a host never answers", "--connect-timeout", f"{TIMEOUT:g}"
    )


def refusing(nodes: int) -> list[Step]:
    """Every tenth host refuses the connection."""
    return _refused(nodes, Traits(refuse_each=10), "refusal: every tenth host refuses")


def _refused(nodes: int, traits: Traits, name: str, *options: str) -> list[Step]:
    write_hostfile(nodes, 1)
    played = Played(nodes, traits)
    _settle()
    watch = Stopwatch(nodes)
    try:
        text = _refusal(lambda: launch(_request(nodes, 1, *options), _caller()))
    finally:
        played.close()
    watch.mark(name, f"{len(text.splitlines())} lines, {len(text)} bytes")
    if len(text.splitlines()) > 20:
        raise SimulateError(f"the message has {len(text.splitlines())} lines")
    return watch.steps


def _refusal(act: Callable[[], object]) -> str:
    """What the command prints of the error that `act` raises."""
    try:
        act()
    except LaunchError as error:
        errors = getattr(error, "errors", None)
        return unreached_text(errors, error.hosts) if errors else f"mslaunch: {error}\n"  # type: ignore[attr-defined]
    raise SimulateError("nothing was refused")


def _caller(*observing: Callable[[Any], None]) -> Caller:
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    stdout, stderr = (os.open(name, flags, 0o600) for name in ("stdout", "stderr"))
    return Caller(os.environ, os.getcwd(), os.open("/dev/null", os.O_RDONLY), stdout, stderr, True, observing)


def _settle() -> None:
    """As the command does before it launches."""
    reuse_freed_memory()
    gc.set_threshold(20_000, 50)
    gc.freeze()
    gc.enable()


RUNS: dict[str, Callable[[int], list[Step]]] = {
    "plan": plan,
    "launch": whole,
    "late": late,
    "dies": dies,
    "bad-line": bad_line,
    "silent": silent,
    "refusing": refusing,
}
