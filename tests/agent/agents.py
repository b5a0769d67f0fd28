"""An agent, started by the bootstrap; the test takes the place of the launcher."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan
from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.protocol import control, frames
from mslaunch.protocol.program_request import ASKS
from mslaunch.transport.bootstrap.agent_program import pack_part, part, program_for
from mslaunch.transport.bootstrap.command_lines import boot_argv

BOUND = 20.0  # seconds for what should take a few milliseconds
GIVEN = (
    b"agent.services.service",
    b"host.listeners",
    b"agent.port_claims",
    b"agent.services.rank_port",
    b"host.connection_owners",
    b"agent.ranks.numa_memory",
    b"agent.stack_traces",
)  # parts that an agent gets as soon as it asks


def plan(*argv: str, ranks: int = 1, env: Sequence[str] = (), **more: Any) -> NodePlan:
    """A plan of `ranks` ranks of one program."""
    numbers = tuple(RankPlan(rank, 0, (f"NUMBER={rank}",)) for rank in range(ranks))
    return NodePlan(numbers, (AppPlan(argv, "/"),), tuple(env), **more)


class TestedAgent:
    """A process that is guard and agent; `send` and `expect` speak in frames."""

    __test__ = False

    def __init__(
        self,
        python: str = sys.executable,
        limit: int = 0,
        timeout: float = BOUND,
        argv: Sequence[str] = (),
        **environ: str,
    ) -> None:
        """`limit`: its limit of open files; 0 for the limit of the test.  `timeout`: until its payload has come.

        `argv`: what starts it instead of the bootstrap.
        """
        argv = argv or boot_argv(python, timeout)
        if limit:
            argv = ["sh", "-c", f'ulimit -n {limit}; exec "$0" "$@"', *argv]
        env = {"PATH": os.environ.get("PATH", os.defpath), **environ}
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, bufsize=0
        )
        self.frames: list[frames.Frame] = []
        self.given: list[str] = []  # the parts that have been sent
        self._decoder = frames.Decoder(magic=True)

    def raw(self, data: bytes) -> None:
        """Send bytes."""
        assert self.process.stdin
        self.process.stdin.write(data)

    def program(self) -> bytes:
        """What the interpreter asks for, once it has asked."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line.startswith(b"\0" + ASKS.encode()) and line.endswith(b"\n"), line
        return program_for(line[len(ASKS) + 1 : -1].decode())

    def begin(self) -> control.Hello:
        """Send the program, and wait for HELLO."""
        self.raw(self.program())
        return control.unpack_record(control.Hello, self.expect(frames.HELLO).payload)

    def send(self, kind: int, rank: int = frames.NO_RANK, payload: bytes = b"") -> None:
        """Send a frame."""
        self.raw(frames.encode(kind, rank, payload))

    def launch(self, plan: NodePlan) -> None:
        """LAUNCH."""
        self.send(frames.LAUNCH, payload=control.pack_plan(plan))

    def expect(self, kind: int, rank: int | None = None) -> frames.Frame:
        """Wait for the next frame of that kind (and rank); others are kept."""
        deadline = time.monotonic() + BOUND
        while True:
            for frame in self.frames:
                if frame.kind == kind and rank in (None, frame.rank):
                    self.frames.remove(frame)
                    return frame
            assert self._more(deadline), f"no frame {kind} of rank {rank}, but {self.frames}, {self._errors()}"

    def give(self, name: str) -> None:
        """Wait until one of the parts `GIVEN` has been asked for, and sent."""
        deadline = time.monotonic() + BOUND
        while name not in self.given:
            assert self._more(deadline), f"nobody needs {name}, {self._errors()}"

    def output(self, kind: int, rank: int, size: int | None = None) -> bytes:
        """The bytes of a stream up to its end, or the first `size` bytes."""
        data = b""
        while size is None or len(data) < size:
            payload = self.expect(kind, rank).payload
            if not payload:
                break
            data += payload
        return data

    def exit(self, rank: int) -> ExitStatus:
        """How a rank ended."""
        return control.unpack_record(ExitStatus, self.expect(frames.EXIT, rank).payload)

    def _more(self, deadline: float) -> bool:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        for frame in self._decoder.feed(data):
            if frame.kind == frames.NEED and frame.payload in GIVEN:
                self.given.append(frame.payload.decode())
                self.send(frames.PART, payload=pack_part(part(self.given[-1])))
            else:
                self.frames.append(frame)
        return bool(data)

    def _errors(self) -> str:
        return f"status {self.process.poll()}"

    def hang_up(self) -> None:
        """Close the link, as when the launcher ends."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()

    def wait(self) -> int:
        """The exit code of the guard."""
        return self.process.wait(BOUND)

    def destroy(self) -> None:
        """End all processes, in any case."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        try:
            self.process.wait(BOUND)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def state_of(pid: int) -> str:
    """The kernel's letter for a process; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def wait_gone(*pids: int) -> None:
    """Wait until none of the processes runs."""
    _wait_for("", "Z", pids=pids)


def wait_asleep(pid: int) -> None:
    """Wait until the process sleeps as usual."""
    _wait_for("S", pids=(pid,))


def _wait_for(*states: str, pids: tuple[int, ...]) -> None:
    deadline = time.monotonic() + BOUND
    while any(state_of(pid) not in states for pid in pids):
        assert time.monotonic() < deadline, [(pid, state_of(pid)) for pid in pids]
        time.sleep(0.005)
