"""A session channel on which a command is started; where the host allows it, asked for without waiting in between.

OpenSSH's server takes one request after the other, whatever has been answered meanwhile (what it has read before a user
is authenticated goes to the process that serves the user: packet.c, ssh_packet_get_state), and its first channel has
the number 0 (channels.c, channel_new).  So the requests for a channel, and for the command on it, may follow the one
for authentication at once, which saves two round trips, and a third with the request for the service before.  Other
servers are asked step by step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from mslaunch.transport.ssh.paramiko_transport import WINDOW, load_paramiko
from mslaunch.transport.ssh.user_keys import pack

_PACKET = 1 << 15  # the most in one packet from the host, RFC 4253, 6.1
_FIRST = 0  # the number of a host's first channel


class RequestedCommand(NamedTuple):
    """A channel that was asked for, with a command on it; `answered` is set when the channel is open or refused."""

    channel: Any
    answered: threading.Event


def is_sequential(transport: Any) -> bool:
    """Whether the host is known to take requests that do not wait for the answers to those before."""
    return str(transport.remote_version).startswith("SSH-2.0-OpenSSH_")


def request_command(transport: Any, line: str, prepare: Callable[[Any], None]) -> RequestedCommand:
    """Ask a host that `is_sequential` for its first channel, and for a command on it; wait for nothing.

    `prepare` gets the channel before anything can come on it.
    """
    number = 0
    channel = load_paramiko().channel.Channel(number)
    answered = threading.Event()
    transport._channels.put(number, channel)
    transport._channel_counter = number + 1
    transport.channel_events[number] = answered
    transport.channels_seen[number] = True
    channel._set_transport(transport)
    channel._set_window(WINDOW, _PACKET)
    prepare(channel)
    for kind, text in (
        (90, pack("session") + _number(number) + _number(WINDOW) + _number(_PACKET)),
        (98, _number(_FIRST) + pack("exec") + b"\1" + pack(line)),
    ):
        transport._send_message(load_paramiko().Message(bytes([kind]) + text))
    return RequestedCommand(channel, answered)


def wait_until_started(transport: Any, requested: RequestedCommand) -> Any:
    """The channel, once its command runs; raises what paramiko does for one that was not opened or started.

    Every wait ends with the stream of the connection, which has the deadline.
    """
    requested.answered.wait()
    channel = requested.channel
    if not channel.active:  # it never was; a command that has ended meanwhile has closed it, too
        raise transport.get_exception() or EOFError("no channel was opened")
    channel._wait_for_event()
    return channel


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")
