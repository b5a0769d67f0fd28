"""The contract of transports: a link is the byte stream to one agent; an opener opens links to many nodes."""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import LinkError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from mslaunch.datamodel.request import LinkPolicy
    from mslaunch.protocol.sealed_records import RecordOpener, RecordSealer
    from mslaunch.runtime.loop import Loop

    class Opener(Protocol):
        """Opens links; what a row of `transport_table.TRANSPORTS` names.

        It gets all nodes of a start in one call, so that one command may start all agents.
        """

        def __call__(self, nodes: Sequence[Node], context: OpenContext) -> None:
            """Hand a link for each of `nodes` to `context.opened`, or an error to `context.failed`.

            Both may be called at once, or later in the thread of the event loop, as by a transport whose agents call
            back: it listens by `context.loop`, hands on no connection that has not proved itself by a token that came
            on the agent's standard input, and appends to `context.closers` what ends that.  It does not block, and
            raises for what is wrong with all nodes alike.
            """


class OwnSshError(LinkError):
    """mslaunch's own SSH cannot reach a host as the SSH configuration wants it."""

    ssh_reason = ""  #: why the ssh program may reach it; "": it may not either
    ssh_todo = ""  #: what to do if the ssh program is refused as well


class HandedOver(NamedTuple):
    """The hosts of one launch that the ssh program reaches, because mslaunch's own SSH cannot."""

    causes: dict[str, OwnSshError]  # by the name of the node, the error of our own SSH
    told: set[str]  # nodes that a notice has named


class OpenContext(NamedTuple):
    """What an opener is given."""

    policy: LinkPolicy
    environ: Mapping[str, str]
    notice: Callable[[str], None]  # a sentence for the user; from any thread
    opened: Callable[[Link], None]
    failed: Callable[[Node, LinkError], None]
    loop: Loop
    closers: list[Callable[[], None]]  # called, the last first, when nobody is waited for any more
    fork: bool = True  # False: a forked process would inherit the descriptors of links that are open already
    handed_over: HandedOver | None = None  # of the launch, so that a host is reached the same way again


class Link:
    """The launcher's end of the byte stream to one agent.

    It has its descriptors before it is open.  A failure to open it is the end of its stream before HELLO; `failure`
    then says why.  `reader` and `writer` may be one descriptor, a socket, so only `close` closes them.
    """

    #: what the launcher must write before any frame: the program of an agent that has called back
    first = b""
    #: what makes records of the bytes that go down, and opens those that come, where nothing else protects the link
    sealer: RecordSealer | None = None
    opener: RecordOpener | None = None
    #: the same, once the host has asked (`protocol.program_request`): the program for the kind of its Python; None if
    #: the agent has it already
    program: Callable[[str], bytes] | None = None
    #: seconds after which a program goes unasked, by transports that may lose the question; 0: never
    unasked = 0.0
    #: whether the agent is on this host, started without a login
    here = False
    #: of the remote command, once it has ended, for transports that learn it
    exit_status: int | None = None

    def __init__(self, node: Node, reader: int, writer: int) -> None:
        self.node = node
        self.reader = reader
        self.writer = writer
        self._opened = time.monotonic()

    def begin(self) -> None:
        """Open it now: its turn has come (`LinkPolicy.fanout`).  Links that one command opens together need no turn."""

    def overdue(self, seconds: float) -> bool:
        """Whether opening takes longer than `seconds`, without the time in which a person is asked something."""
        return time.monotonic() - self._opened > seconds

    def failure(self) -> LinkError | None:
        """Why it could not be opened or broke; None if there is nothing more to say than that it ended."""
        return None

    def noise(self) -> bytes:
        """The last 4 KiB of what the host said outside the stream: stderr of ssh, of the login shell."""
        return b""

    def stream_ended(self) -> None:
        """The launcher saw the end of `reader`; called once, before `failure` is asked."""

    def close(self) -> None:
        """Close the launcher's end; the agent takes that as the order to end its ranks.  May be called twice."""
        for fd in {self.reader, self.writer} - {-1}:
            os.close(fd)
        self.reader = self.writer = -1

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until what carried the link has ended; False if it has not."""
        return True

    def kill(self) -> None:
        """Kill what carried the link and did not end by itself."""
