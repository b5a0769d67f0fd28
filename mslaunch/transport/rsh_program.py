"""The transport `rsh`: a program of the user's, such as ssh or kubectl exec, whose input and output are the link.

How it is called: `agent_command`.
"""

from __future__ import annotations

import os
import time

from mslaunch.errors import LaunchError, LinkError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.transport.agent_command import AgentCommand
from mslaunch.transport.base import Link
from mslaunch.transport.bootstrap.agent_program import program_for
from mslaunch.transport.bootstrap.command_lines import boot_line
from mslaunch.transport.last_words import LastWords

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.runtime.loop import Loop, Timer
    from mslaunch.transport.base import OpenContext


#: seconds after which the agent's program goes unasked, where the question may have been lost
_UNASKED = 2.0
_LISTEN = 30.0  # seconds that a program is listened to after its link was closed, if nobody waits for its end
#: what programs say of a host that may only be starting: OpenSSH (sshconnect.c, kex.c; no address, nobody listens, an
#: sshd that has no room yet), kubectl and the kubelet (a pod that is not there yet, or whose container does not run
#: yet), docker and podman
_STARTING = (
    "Could not resolve hostname", "Connection refused", "Connection timed out", "No route to host",
    "kex_exchange_identification", "Connection reset by", '(NotFound): pods "', "container not found",
    "unable to upgrade connection", "does not have a host assigned", "No such container", "is not running",
    "no such container",
)  # fmt: skip


class ProcessLink(Link):
    """A link through a child process, which is not started before `begin`."""

    program = staticmethod(program_for)

    def __init__(
        self,
        node: Node,
        argv: Sequence[str],
        loop: Loop | None,
        environ: Mapping[str, str] | None = None,
        far: int = -1,
    ) -> None:
        """`loop` reads what the program says; None: a thread of the caller's does (`listen`).

        `far`: a socket that is the program's input and output, and is closed here; the caller has the near end.
        """
        if far >= 0:
            self._child_in = self._child_out = far
            super().__init__(node, -1, -1)
        else:
            (self._child_in, writer), (reader, self._child_out) = os.pipe(), os.pipe()
            super().__init__(node, reader, writer)
        self._argv = argv
        self._loop = loop
        self._environ = environ  # None: ours
        self._process: subprocess.Popen[bytes] | None = None
        self._refused: LinkError | None = None
        self._begun = 0.0
        self._words: LastWords | None = None
        self._listening: Timer | None = None  # until it is closed, once the link is
        self._ended = False

    def begin(self) -> None:
        """Run the program."""
        import subprocess

        from mslaunch.host.helper_programs import find_typed

        self._begun = time.monotonic()
        self._words = LastWords()
        try:
            self._process = subprocess.Popen(
                [find_typed(self._argv[0], self._environ or {}, ".") or self._argv[0], *self._argv[1:]],
                stdin=self._child_in,
                stdout=self._child_out,
                stderr=self._words.pipe,
                env=self._environ,
                start_new_session=True,
            )
        except OSError as error:
            what = f"{self._argv[0]} cannot be run: {error.strerror}"
            self._refused = LinkError(what, self.node.name, "see --rsh-agent", code=127)
        except LaunchError as error:
            self._refused = LinkError(error.what, self.node.name, error.todo, code=127)
        self._words.begin(self._loop)
        self._close_child_ends()

    def _close_child_ends(self) -> None:
        for fd in {self._child_in, self._child_out} - {-1}:
            os.close(fd)
        self._child_in = self._child_out = -1

    def overdue(self, seconds: float) -> bool:
        """Counted from `begin`."""
        return bool(self._begun) and time.monotonic() - self._begun > seconds

    @property
    def exit_status(self) -> int | None:  # type: ignore[override]
        """The exit status of the program, once it has ended; most programs pass on that of the remote command."""
        return self._wait_for_status()

    def stream_ended(self) -> None:
        """From now on, wait for the exit status."""
        self._ended = True

    def failure(self) -> LinkError | None:
        """The program's status, if it ended badly."""
        code = self._wait_for_status()
        if self._refused:
            return self._refused
        if not code:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        what = f"{os.path.basename(self._argv[0])}, which carried the link, {how}"
        error = LinkError(what, self.node.name, code=code if 0 < code < 256 else 255)
        lines = self.noise().decode("utf-8", "replace").splitlines()
        error.passing = next((line for line in reversed(lines) if any(words in line for words in _STARTING)), "")
        return error

    def _wait_for_status(self) -> int | None:
        """The exit status; a process that has closed its output gets a second to end."""
        if self._process and self.wait(1.0 if self._ended else 0.0):
            return int(self._process.returncode)
        return None

    def listen(self) -> None:
        """Read what the program says until it has ended."""
        if self._words:
            self._words.listen()

    def noise(self) -> bytes:
        """The last 4 KiB of the program's standard error."""
        return self._words.said() if self._words else b""

    def close(self) -> None:
        """Close both ends; the program sees the end of its input.  What it still says is read."""
        if self._words and self._loop and self.reader >= 0:
            self._listening = self._loop.after(_LISTEN, self._words.close)
        super().close()
        self._close_child_ends()

    def wait(self, seconds: float) -> bool:
        """Wait for the program to end, and reap it."""
        if not self._process or not self._words:
            return True
        ended = ended_within(self._process, self._words, seconds)
        if ended and self.reader < 0:
            self._hear_no_more(self._words)
        return ended

    def kill(self) -> None:
        """Kill the program."""
        if self._process and self._words:
            self._process.kill()
            self._hear_no_more(self._words)

    def _hear_no_more(self, words: LastWords) -> None:
        words.close()
        if self._listening:
            self._listening.cancel()


def ended_within(process: subprocess.Popen[bytes], words: LastWords, seconds: float) -> bool:
    """Whether a child ends within `seconds`, while it is listened to; it is reaped then."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while process.poll() is None:
        words.said()
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    return True


def open_by_rsh(nodes: Sequence[Node], context: OpenContext) -> None:
    """A process for each node; see `base.Opener`."""
    policy = context.policy
    line = boot_line(policy.python, policy.timeout)
    agent = AgentCommand(policy)
    for node in nodes:
        link = ProcessLink(node, agent.argv(node, line), context.loop, context.environ)
        link.unasked = _UNASKED if agent.may_lose else 0.0
        context.opened(link)
