"""Reaches one host by SSH: TCP or a proxy, banner, key exchange, host key, authentication, within one deadline.

A connection that is dropped before the banner is tried again, since that is how sshd says that it is busy
(sshd_config(5), MaxStartups).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mslaunch.datamodel.request import LinkPolicy
from mslaunch.errors import LinkError, one_line, quoted_lines
from mslaunch.transport.base import HandedOver, OwnSshError
from mslaunch.transport.ssh import paramiko_transport
from mslaunch.transport.ssh.authenticate import Authentication, LoginError, authenticate
from mslaunch.transport.ssh.channel_output import take_output
from mslaunch.transport.ssh.command_channel import (
    RequestedCommand,
    is_sequential,
    request_command,
    wait_until_started,
)
from mslaunch.transport.ssh.config.algorithms import OF_SSH
from mslaunch.transport.ssh.config.config_lines import WAY_OUT
from mslaunch.transport.ssh.config.ssh_config import HostConfig, Resolver
from mslaunch.transport.ssh.deadline import CommandRequest, ConnectAttempt, ConnectCancelled, Deadline
from mslaunch.transport.ssh.known_hosts import HostKeyCheck
from mslaunch.transport.ssh.tcp_and_proxy import DEAD_AFTER, SocketStream, proxy_stream, tcp_stream
from mslaunch.transport.ssh.user_keys import Keyring, unpack

_LISTED = 20  # algorithms of a host that a message names
_PAUSE = 1.0  # seconds between two attempts to connect, as in ssh; a little less, that not all come at one time


class Shared:
    """The configuration, known hosts and keys of one launch, each read once."""

    def __init__(
        self,
        policy: LinkPolicy,
        environ: Mapping[str, str],
        notice: Callable[[str], None],
        handed_over: HandedOver,
    ) -> None:
        self.policy = policy
        self.environ = environ
        self.handed_over = handed_over
        self.trust = HostKeyCheck(policy.accept_new, notice)
        self.keyring = Keyring()
        self._lock = threading.Lock()
        self._resolver: Resolver | None = None

    def resolver(self) -> Resolver:
        """The configuration; raises LinkError."""
        with self._lock:
            if self._resolver is None:
                self._resolver = Resolver(self.environ, self.policy.agent_args)
            return self._resolver


class Connection:
    """An authenticated connection, and those below it that carry it."""

    def __init__(self, config: HostConfig, transport: Any, stream: SocketStream, below: Connection | None) -> None:
        self.config = config
        self.transport = transport
        self.stream = stream
        self.below = below
        self.requested: RequestedCommand | None = None  # where a command was asked for ahead

    def request(self, command: CommandRequest) -> None:
        """Ask for a channel and a command on it, without waiting."""
        self.requested = request_command(self.transport, command.line, lambda channel: self._take(channel, command))

    def _take(self, channel: Any, command: CommandRequest) -> None:
        def over() -> None:
            # a command that was requested ahead of a refused login never began, and the ssh program may carry its link
            if self.transport.auth_handler.is_authenticated():
                command.over()

        self.stream.before_read = take_output(channel, command.sink, over)

    def start(self, command: CommandRequest, seconds: float) -> Any:
        """The channel with the command running on it; raises what paramiko does, after `seconds` at the latest."""
        if not self.requested and is_sequential(self.transport):
            self.request(command)
        if self.requested:
            return wait_until_started(self.transport, self.requested)
        channel = self.transport.open_session(timeout=seconds)
        self._take(channel, command)
        channel.exec_command(command.line)
        return channel

    def opened(self) -> None:
        """The command runs: lift the deadline."""
        self.stream.deadline = None
        if self.below:
            self.below.opened()

    def lost(self) -> str:
        """Why the connection ended; "" if unknown."""
        error = self.stream.error
        if error and not self.stream.refused:
            return error.strerror or str(error)
        said = self.stream.refused or str(self.transport.farewell)
        return said or (self.below.lost() if self.below else "")

    def cut(self) -> None:
        """Cut the lowest connection, without waiting for anybody: whoever sends or reads on any of them wakes."""
        if self.below:
            self.below.cut()
        else:
            self.stream.cut()

    def close(self) -> None:
        """Shut down this connection and those below it, and close their descriptors."""
        self.transport.close()
        self.stream.close()
        self.transport.join(5)
        self.stream.release()
        if self.below:
            self.below.close()


def connect(shared: Shared, config: HostConfig, attempt: ConnectAttempt) -> Connection:
    """Reach `config` and authenticate.  Raises LinkError, or ConnectCancelled."""
    if config.connect_timeout is not None:
        attempt = attempt._replace(deadline=Deadline(config.connect_timeout, attempt.deadline))
    tries = 0
    while True:
        tries += 1
        try:
            return _once(shared, config, attempt)
        except _Dropped as dropped:
            rest = _between(0.1, 0.3) * min(tries, 5)
            if rest >= attempt.deadline.left():
                hung_up = _hung_up(config, dropped, tries)
                hung_up.passing = hung_up.what
                raise hung_up from None
            attempt.pause(rest)


def _between(least: float, most: float) -> float:
    from random import uniform  # few hosts need it

    return uniform(least, most)


class _Dropped(Exception):  # noqa: N818
    """The host hung up before its banner."""

    def __init__(self, head: bytes, noise: bytes) -> None:
        super().__init__(head, noise)
        self.head = head
        self.noise = noise


def _once(shared: Shared, config: HostConfig, attempt: ConnectAttempt) -> Connection:
    deadline = attempt.deadline
    opened: list[Any] = []  # what must be closed after an error, the last first
    try:
        below = _jump(shared, config, attempt)
        opened += [below.close] if below else []
        paramiko_transport.import_ahead()
        stream = _carrier(shared, config, attempt, below)
        opened.append(stream.release)
        paramiko_transport.greet(stream)
        transport = _handshake(shared, config, stream, deadline)
        connection = Connection(config, transport, stream, below)
        opened[:] = [connection.close]
        blob = bytes(transport.get_remote_server_key().asbytes())
        shared.trust.verify(config, unpack(blob)[0].decode("ascii", "replace"), blob)
        _log_in(shared, connection, attempt)
    except BaseException:
        for close in reversed(opened):
            close()
        attempt.arm(lambda: None)  # raises ConnectCancelled if closing the link caused the error
        raise
    return connection


def _jump(shared: Shared, config: HostConfig, attempt: ConnectAttempt) -> Connection | None:
    """The connection to the last host of ProxyJump; the hosts before it become its own ProxyJump."""
    if not config.proxy_jump:
        return None
    trail = (*attempt.trail, config.name)
    name, user, port = split_jump(config.proxy_jump[-1])
    if name in trail:
        todo = f"Give {name} a `ProxyJump none` in front."
        raise LinkError(f"ProxyJump goes in a circle: {' -> '.join((*trail, name))}", config.name, todo)
    try:
        hop = shared.resolver().host(name, user, port)
        hop = hop._replace(proxy_jump=config.proxy_jump[:-1] or hop.proxy_jump)
        return connect(shared, hop, attempt._replace(trail=trail, command=None))
    except LinkError as error:
        error.what += f" (on the way to {config.name}, ProxyJump)"
        if isinstance(error, OwnSshError) and error.ssh_reason:
            error.ssh_reason += f" (ProxyJump {name})"
        raise


def split_jump(text: str) -> tuple[str, str | None, int | None]:
    """Host, user and port of `[user@]host[:port]`, or of `ssh://…`."""
    text = text.strip()
    text = text[len("ssh://") :] if text.startswith("ssh://") else text
    user, _, rest = text.rpartition("@")
    host, colon, port = rest.rpartition(":")
    if not colon or "]" in port or (":" in host and not host.startswith("[")):
        host, port = rest, ""
    if port and not port.isdigit():
        raise LinkError(f"ProxyJump {text!r} has no number as its port")
    return host.strip("[]"), user or None, int(port) if port else None


def _connected(config: HostConfig, attempt: ConnectAttempt, patience: int) -> SocketStream:
    """A TCP connection by as many attempts as ConnectionAttempts says, a second apart, while there is time.

    Unlike ssh, a name without an address is an attempt as well: operators of Kubernetes set the keyword for pods that
    come later than their launcher, and so do their names.
    """
    for left in range(max(1, config.attempts) - 1, -1, -1):
        try:
            return tcp_stream(config.hostname, config.port, config.family, attempt.deadline, attempt.arm, patience)
        except LinkError as error:
            if not left or attempt.deadline.left() <= _PAUSE:
                error.passing = error.what
                raise
        attempt.pause(_PAUSE * _between(0.75, 1.0))
    raise AssertionError("there is at least one attempt")


def _carrier(shared: Shared, config: HostConfig, attempt: ConnectAttempt, below: Connection | None) -> SocketStream:
    deadline, arm = attempt.deadline, attempt.arm
    try:
        if below:
            there, here = (config.hostname, config.port), ("127.0.0.1", 0)  # RFC 4254, 7.2
            channel = below.transport.open_channel("direct-tcpip", there, here, timeout=deadline.left())
            paramiko_transport.bound(channel, below.stream)
            stream = SocketStream(channel, deadline)
            arm(stream.close)
            return stream
        if config.proxy_command:
            return proxy_stream(config.proxy_command, shared.environ, deadline, arm)
        patience = config.patience or max(DEAD_AFTER, round(2 * shared.policy.lease))
        return _connected(config, attempt, patience)
    except LinkError as error:
        error.where = error.where or config.where
        raise
    except (ConnectCancelled, AttributeError, TypeError, NameError):
        raise
    except Exception as error:
        assert below
        reason = below.lost() or getattr(error, "text", "") or one_line(str(error))  # ChannelException has a text
        todo = f"Does {below.config.name} reach it, and allow forwarding (AllowTcpForwarding)?"
        raise LinkError(f"{below.config.name} opened no way to it: {reason}", config.where, todo) from error


def _handshake(shared: Shared, config: HostConfig, stream: SocketStream, deadline: Deadline) -> Any:
    """Banner and key exchange; raises _Dropped if the host hung up before its banner, which is worth another try."""
    algorithms = {**config.algorithms, "hostkeyalgorithms": shared.trust.algorithms(config)}
    try:
        transport, event = paramiko_transport.start(stream, algorithms)
    except LinkError as refused:
        refused.where = refused.where or config.where
        raise
    event.wait()
    if transport.active and transport.initial_kex_done:
        return transport
    transport.join(5)
    error = transport.get_exception()
    if stream.refused:
        todo = "Is that port one of sshd's, and does nothing in between change what passes?"
        raise LinkError(f"key exchange: {stream.refused}", config.where, todo)
    if stream.late:
        stage = "key exchange" if transport.remote_version else "no SSH banner"
        raise _late(config, stage, deadline, stream)
    if not transport.remote_version:
        if stream.head and not stream.head.startswith((b"SSH-", b"Exceeded", b"Not allowed")) and b"\n" in stream.head:
            raise LinkError(f"what answers there is no SSH server: it said {_quote(stream.head)}", config.where)
        raise _Dropped(stream.head, stream.noise())
    if type(error).__name__ == "IncompatiblePeer":
        raise _nothing_in_common(config, transport.shown, paramiko_transport.offers(transport)) from error
    reason = transport.farewell or (one_line(str(error)) if error else "") or "the host hung up"
    failed = LinkError(f"key exchange: {reason}", config.where)
    failed.passing = "" if error else failed.what  # the host hung up: its sshd is starting, or too busy
    raise failed


def _nothing_in_common(
    config: HostConfig, shown: Mapping[str, Sequence[str]], ours: Mapping[str, Sequence[str]]
) -> LinkError:
    """The host has only algorithms that are too weak, or that the configuration rules out."""
    for keyword, theirs in shown.items():
        if not set(theirs) & set(ours[keyword]):
            wanted = ", ".join(ours[keyword])
            what = f"key exchange: of {keyword} it offers only {_listed(theirs)}, none of which is allowed here"
            where = f" ({config.chosen[keyword]})" if keyword in config.chosen else ""
            todo = f"Allowed{where}: {wanted}.\nA newer sshd there has them.  {WAY_OUT}"
            error = OwnSshError(what, config.where, todo)
            if set(theirs) & set(OF_SSH[keyword]):
                error.ssh_reason = f"of {keyword} it offers only {_listed(theirs)}"
            return error
    return LinkError("key exchange: no algorithm in common", config.where, WAY_OUT)


def _listed(names: Sequence[str]) -> str:
    """The names that anybody may have sent: its host key has not been looked at."""
    more = f", and {len(names) - _LISTED} others" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}" if names else "names that RFC 4251 forbids"


def _hung_up(config: HostConfig, dropped: _Dropped, tries: int) -> LinkError:
    said = f" after saying {_quote(dropped.head)}" if dropped.head else ""
    often = f", {tries} times" if tries > 1 else ""
    if config.proxy_command:
        todo = "\n".join([f"ProxyCommand was: {config.proxy_command}", *_printed(dropped.noise)])
        return LinkError("no SSH banner: ProxyCommand ended" + said + often, config.where, todo)
    todo = "sshd may be busy (MaxStartups) or refuse this address; its log says which."
    return LinkError(f"no SSH banner: the host hung up{said}{often}", config.where, todo)


def _late(config: HostConfig, stage: str, deadline: Deadline, stream: SocketStream) -> LinkError:
    end = "within" if stage.startswith("no ") else "did not end within"
    todo = "\n".join(_printed(stream.noise())) or "The host is overloaded, or something in between swallows data."
    return LinkError(f"{stage} {end} {deadline.seconds:g} s", config.where, todo)


def _printed(noise: bytes) -> list[str]:
    """What a ProxyCommand, or the host behind it, wrote on its standard error."""
    return quoted_lines(noise.decode(errors="replace"))


def _quote(data: bytes) -> str:
    return repr(data.splitlines()[0][:80].decode(errors="replace"))


def _log_in(shared: Shared, connection: Connection, attempt: ConnectAttempt) -> None:
    stream, home, transport = connection.stream, shared.resolver().home, connection.transport
    login = Authentication(connection.config, shared.keyring, home, attempt.deadline, attempt.arm, connection.lost)
    command = attempt.command
    if command and is_sequential(transport):
        login = login._replace(ahead=lambda: connection.request(command))
    try:
        authenticate(transport.auth_handler, login)
        attempt.arm(stream.close)
    except LinkError:
        if stream.late:
            late = _late(connection.config, "authentication", attempt.deadline, stream)
            raise LoginError(late.what, late.where, late.todo) from None
        raise
