"""The transport `ssh`: links through paramiko, a socketpair to the launcher each, with threads that move the bytes.

A thread connects the host, and then moves bytes to it (`channel_input`); paramiko's own moves bytes from it to the
launcher (`channel_output`).  They block, so that whoever is slow slows the other side and no buffer grows.  When the
launcher closes its end of the socketpair, the thread that feeds the host sees the end of the stream and passes it on to
the agent.  When the host ends its stream first, that thread is woken by the end of its own.

A host that paramiko cannot reach as the SSH configuration wants it is handed over to the ssh program: that gets the far
end of the socketpair, and the thread ends.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.errors import EXIT_UNREACHED, LinkError
from mslaunch.transport.base import HandedOver, Link, OpenContext, OwnSshError
from mslaunch.transport.bootstrap.agent_program import program_for
from mslaunch.transport.bootstrap.command_lines import boot_line
from mslaunch.transport.ssh.channel_input import ChannelInput
from mslaunch.transport.ssh.deadline import Arm, CommandRequest, ConnectAttempt, ConnectCancelled, Deadline
from mslaunch.transport.ssh.tcp_and_proxy import AHEAD

if TYPE_CHECKING:
    from mslaunch.transport.rsh_program import ProcessLink
    from mslaunch.transport.ssh.reach_host import Connection, Shared

LINGER = 5.0  #: seconds an agent has to end after its launcher closed the link
LEAST_SSH_TIME = 3.0  #: seconds that the ssh program has to connect, however long our own SSH has tried
STATUS = 0.5  #: seconds the end of the stream waits for the exit status, which sshd sends just after it


def make_links(
    nodes: Sequence[Node],
    line: str,
    policy: LinkPolicy,
    environ: Mapping[str, str],
    notice: Callable[[str], None],
    handed_over: HandedOver | None = None,
) -> list[SshLink]:
    """One link for each node, in order, to be begun.

    `notice` gets sentences for the user (a host key was accepted), from other threads.  `handed_over`: the hosts of the
    launch that the ssh program reaches, known and to come.
    """
    made: list[Shared] = []
    known = handed_over or HandedOver({}, set())
    lock = threading.Lock()

    def shared() -> Shared:
        from mslaunch.transport.ssh.reach_host import Shared  # 30 ms that the launcher need not wait for

        with lock:
            if not made:
                made.append(Shared(policy, environ, notice, known))
            return made[0]

    return [SshLink(node, line, shared) for node in nodes]


def open_by_ssh(nodes: Sequence[Node], context: OpenContext) -> None:
    """All nodes; see `base.Opener`."""
    line = boot_line(context.policy.python, context.policy.timeout)
    known = context.handed_over or HandedOver({}, set())
    links = make_links(nodes, line, context.policy, context.environ, context.notice, known)
    context.closers.append(lambda: _tell(links, known, context.notice))
    for link in links:
        context.opened(link)


def _tell(links: Sequence[SshLink], known: HandedOver, notice: Callable[[str], None]) -> None:
    """Once nobody is waited for: name the hosts that the ssh program has reached, if there are any."""
    carriers = [(link.node.name, link.carrier, link.announce) for link in links if link.carrier]
    if carriers:
        from mslaunch.transport.ssh_command import tell

        tell(carriers, known, notice)


def _arm_with_programs(shared: Shared, arm: Arm) -> Arm:
    """The same `arm`, by which a cancelled link also ends the programs that this thread runs for the configuration."""
    programs, me = shared.resolver().programs, threading.current_thread()

    def both(cancel: Callable[[], None]) -> None:
        def end() -> None:
            cancel()
            programs.end(me)

        arm(end)

    return both


class SshLink(Link):
    """The launcher's end of a link over SSH; `exit_status` is that of the remote command, once it is known."""

    program = staticmethod(program_for)

    def __init__(self, node: Node, line: str, shared: Callable[[], Shared]) -> None:
        """`shared` returns what all links have in common; called by the thread that connects."""
        near, self._far = socket.socketpair()
        self._far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, AHEAD)  # what one read brings is passed on at once
        fd = near.detach()
        super().__init__(node, fd, fd)
        self._input = ChannelInput(self._far)
        self._command = CommandRequest(line, self._far, self._host_ended)
        self._shared = shared
        self._begun = False
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] = lambda: None
        self._closing = False  # the launcher closed its end
        self._woken = threading.Event()  # it did, or the host's stream has ended
        self._gone = threading.Event()  # everything is released
        self._failure: LinkError | None = None
        self.carrier: ProcessLink | None = None  #: the ssh program, once the host is handed over to it
        self.announce: Callable[[], None] = lambda: None  #: `SshCommand.announce`
        self._jumps: Sequence[str] = ()  # `SshCommand.jumps`
        self._channel: Any = None  # with the command running on it
        self._connection: Connection | None = None
        self._deadline: Deadline | None = None  # from when its turn came

    def begin(self) -> None:
        """Connect, in a thread."""
        self._begun = True
        try:
            threading.Thread(target=self._open, daemon=True, name=self.node.name).start()
        except RuntimeError as error:
            self._failure = LinkError(str(error), self.node.name, "--fanout N connects fewer hosts at a time")
            self._end()

    def overdue(self, seconds: float) -> bool:
        """Waiting for its turn does not count either."""
        return self._deadline is not None and self._deadline.left() <= 0 and not self._deadline.halted

    def failure(self) -> LinkError | None:
        """Why the host could not be reached, or how the connection was lost."""
        ended = self.carrier.failure() if self.carrier else None
        if not self.carrier or not ended:
            return self._failure
        if self.carrier.exit_status != EXIT_UNREACHED:  # that of the command, or a signal
            return ended
        from mslaunch.transport.ssh_last_words import explained

        cause = self._shared().handed_over.causes[self.node.name]
        return explained(ended, self.carrier.noise(), cause, self._jumps)

    def stream_ended(self) -> None:
        """The ssh program is about to end, if it carries the link."""
        if self.carrier:
            self.carrier.stream_ended()
            self.exit_status = self.carrier.exit_status

    def noise(self) -> bytes:
        """The last 4 KiB of the remote standard error, and of a ProxyCommand's."""
        if self.carrier:
            return self.carrier.noise()
        from mslaunch.transport.ssh.channel_output import LAST

        below = self._connection.stream.noise() if self._connection else b""
        kept = self._channel.in_stderr_buffer.kept if self._channel else b""
        return (below + kept)[-LAST:]

    def close(self) -> None:
        """An attempt that is under way is cancelled; nothing is started on the host then."""
        super().close()
        with self._lock:
            carrier = None if self._closing else self.carrier
            if not self._closing:
                self._closing, self._input.until = True, time.monotonic() + LINGER
            cancel, self._cancel = self._cancel, lambda: None
        self._woken.set()
        cancel()
        if carrier:
            carrier.close()
        if not self._begun:
            self._end()

    def wait(self, seconds: float) -> bool:
        """True once the connection and its threads are gone."""
        until = time.monotonic() + seconds
        if not self._gone.wait(seconds):
            return False
        return not self.carrier or self.carrier.wait(max(0.0, until - time.monotonic()))

    def kill(self) -> None:
        """Cut the connection: a ProxyCommand may take nothing more, and let the thread that feeds it wait."""
        if self._connection:
            self._connection.cut()
        if self.carrier:
            self.carrier.kill()

    def _arm(self, cancel: Callable[[], None]) -> None:
        with self._lock:
            if self._closing:
                raise ConnectCancelled
            self._cancel = cancel

    def _pause(self, seconds: float) -> None:
        self._woken.wait(seconds)
        if self._closing:
            raise ConnectCancelled

    def _open(self) -> None:
        """Connect and start the command, in a thread.  Never raises."""
        try:
            shared = self._shared()
            self._pause(0)
            cause = shared.handed_over.causes.get(self.node.name)
            if not cause or not self._hand_over(shared, cause):
                self._connect(shared)
        except MemoryError:
            self._failure = LinkError("mslaunch has no more memory for its connection", self.node.name)
        except ConnectCancelled:
            pass
        except LinkError as error:
            error.where = error.where or self.node.name
            self._failure = error
        except Exception as error:
            self._failure = LinkError(f"{type(error).__name__}: {error}", self.node.name, "Please report this.")
        self._end()
        if self.carrier:
            self.carrier.listen()

    def _connect(self, shared: Shared) -> None:
        """Connect by our own SSH, and carry the link to its end; or hand the host over.  Raises LinkError."""
        from mslaunch.transport.ssh.reach_host import connect

        deadline = self._deadline = Deadline(shared.policy.timeout)
        try:
            _arm_with_programs(shared, self._arm)(lambda: None)
            config = shared.resolver().host(self.node.called, self.node.user, self.node.port)
            attempt = ConnectAttempt(deadline, self._arm, self._pause, command=self._command)
            self._connection = connect(shared, config, attempt)
        except LinkError as error:
            error.where = error.where or self.node.name
            if isinstance(error, OwnSshError) and error.ssh_reason and self._hand_over(shared, error):
                return
            raise
        self._channel = self._start(self._connection, deadline)
        self._input.feed(self._channel)
        self._finish(self._channel)

    def _hand_over(self, shared: Shared, cause: OwnSshError) -> bool:
        """Let the ssh program carry the link, because of an error of our own SSH; False if it cannot."""
        from mslaunch.transport.rsh_program import ProcessLink
        from mslaunch.transport.ssh.hand_over import ssh_command

        deadline = self._deadline = self._deadline or Deadline(shared.policy.timeout)
        arm = _arm_with_programs(shared, self._arm)
        arm(lambda: None)
        command = ssh_command(shared, self.node, cause, arm)
        if not command:
            return False
        self._arm(lambda: None)
        shared.handed_over.causes.setdefault(self.node.name, cause)
        seconds = max(deadline.left(), min(LEAST_SSH_TIME, shared.policy.timeout))
        self._deadline = Deadline(seconds)
        self.announce, self._jumps = command.announce, command.jumps
        words = command._replace(seconds=seconds).argv(self.node.called, self._command.line)
        carrier = ProcessLink(self.node, words, None, command.environment(), self._far.detach())
        carrier.begin()
        with self._lock:
            self.carrier = carrier
            closing = self._closing
        if closing:  # meanwhile
            carrier.kill()
            carrier.close()
        return True

    def _start(self, connection: Connection, deadline: Deadline) -> Any:
        """A channel with the command running on it."""
        name, stream = connection.config.where, connection.stream
        try:
            self._arm(stream.close)  # nothing but an interpreter that waits for its program may be running there
            channel = connection.start(self._command, deadline.left() + 1)
            connection.opened()
            self._arm(lambda: None)  # from here on closing means end of stream for the command
            return channel
        except ConnectCancelled:
            raise
        except Exception as error:
            if self._closing:
                raise ConnectCancelled from error
            if stream.late:
                what = f"the command was not started within {deadline.seconds:g} s"
                raise LinkError(what, name, "The host is overloaded.") from error
            reason = connection.lost() or str(error)
            todo = "It let us in and then refused: is the account allowed to run commands, is MaxSessions 0?"
            raise LinkError(f"the command was not started: {reason}", name, todo) from error

    def _host_ended(self) -> None:
        """Nothing more comes: wake the thread that feeds the host.  Called by paramiko's."""
        self._input.end()
        self._woken.set()

    def _finish(self, channel: Any) -> None:
        """Wait for the host's end, once the launcher has closed no longer than LINGER; then end both directions."""
        self._woken.wait()
        if self._input.over.wait(max(0.0, min(LINGER, self._input.until - time.monotonic()))):
            channel.status_event.wait(STATUS)
            self._note_end(channel)
            self._shut(socket.SHUT_WR)
            channel.status_event.wait(LINGER)  # set by the exit status, or by the end of the channel
        self._note_end(channel)
        with contextlib.suppress(OSError, EOFError):
            channel.close()

    def _note_end(self, channel: Any) -> None:
        if channel.exit_status >= 0:
            self.exit_status = channel.exit_status
        elif not channel.eof_received and not self._closing and self._failure is None and self._connection:
            reason = self._connection.lost() or "the host hung up"
            todo = "Is the host still up? Its agent ends the ranks there as soon as it sees the same."
            self._failure = LinkError(f"the connection was lost: {reason}", self._connection.config.where, todo)

    def _shut(self, how: int) -> None:
        with contextlib.suppress(OSError):
            self._far.shutdown(how)

    def _end(self) -> None:
        """Release everything; the launcher sees the end of the stream."""
        self._shut(socket.SHUT_RDWR)
        if self._connection:
            self._connection.close()
        self._far.close()
        self._gone.set()
