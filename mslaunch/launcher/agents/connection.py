"""Connections to agents: the phases of a start, frames in both directions, and why one ended.

Whoever owns a connection at the moment is attached; an end that comes while nobody is attached is reported to the next
owner.  What ranks print is held back at its source, by PAUSE.  Reading stops in one case, which no honest host meets in
an ordinary job: more than `MOST` bytes wait for a host, and a host asks for more of them.  Whoever asks waits then, and
the host that takes nothing is given up after a lease (`leases`).
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.node_plan import NO_RANK, is_rank
from mslaunch.errors import LinkError, WireError
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.protocol import control, frames
from mslaunch.runtime.fd_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.datamodel.node_report import Topology
    from mslaunch.launcher.agents.link_room import HeldLink, LinkRoom
    from mslaunch.protocol.program_request import ProgramRequest
    from mslaunch.runtime.loop import Loop
    from mslaunch.transport.base import Link

#: the phases, in order: the link is being opened, or waits for its turn; an interpreter there has asked for the agent's
#: program, where it has to; the agent runs; all that was asked of it is known, and frames are for whoever is attached
OPENING, PROGRAM_SENT, HELLO_CAME, READY = range(4)

#: whom a frame of an agent may be about: its node, one of the ranks there, one of the services there
OF_NODE, OF_RANK, OF_SERVICE = 1, 2, 4
#: kind -> these; a kind that has no row here is refused.  Collectives and questions name members in their payload, and
#: `mpi.collectives` checks those
SUBJECTS = {
    **dict.fromkeys(
        (
            frames.HELLO, frames.TOPOLOGY, frames.STORED, frames.FAULT, frames.RESERVED, frames.REACHED, frames.NEED,
            frames.GATHER, frames.ASK, frames.REPLY, frames.ENDING, frames.CLEANED, frames.FITS,
            frames.ALIVE, frames.WRITE, frames.HOLDERS, frames.CHECKED, frames.USED,
        ),
        OF_NODE,
    ),
    **dict.fromkeys((frames.JOINED, frames.LEFT, frames.ABORT, frames.ALONE, frames.STDIN_TAKEN), OF_RANK),
    **dict.fromkeys((frames.STARTED, frames.STDOUT, frames.STDERR), OF_RANK | OF_SERVICE),
    frames.EXIT: OF_NODE | OF_RANK | OF_SERVICE,
    frames.TRACES: OF_NODE | OF_RANK,
    frames.SERVES: OF_RANK | OF_SERVICE,
    frames.NOTICE: OF_NODE | OF_SERVICE,
}  # fmt: skip
#: what is answered, or makes the launcher send something to other hosts
ASKING = (frames.NEED, frames.GATHER, frames.ASK, frames.REPLY, frames.WRITE)
MOST = 1 << 23  #: bytes on their way to a host beyond which nobody may ask for more
_CHUNK = 1 << 18
_NO_AGENT = 0.1  # seconds that a link has to go by itself if no agent ever answered
_ALIVE = frames.encode(frames.ALIVE)
_CPUS = 1 << 16  # of a host


def is_about(frame: frames.Frame, here: bool) -> bool:
    """Whether a frame is about its node, or about a process that is `here`, on that node, if its kind may be.

    An agent can lie about what it has started, and about nothing else.
    """
    number = frame.rank
    subject = OF_NODE if number == NO_RANK else OF_RANK if is_rank(number) else OF_SERVICE
    return (here or subject == OF_NODE) and bool(SUBJECTS.get(frame.kind, 0) & subject)


def meaningless(frame: frames.Frame) -> WireError:
    """The error for a frame that is not expected; raised by a handler of frames, it ends the link."""
    if frame.rank == NO_RANK:
        return WireError(f"it sent a frame of kind {frame.kind}, which means nothing here")
    return WireError(f"it sent a frame of kind {frame.kind} about a process ({frame.rank}) that it does not run")


def _refuse(frame: frames.Frame) -> None:
    raise meaningless(frame)


def _ignore(*_: object) -> None:
    pass


def _printed(decoder: frames.Decoder, request: ProgramRequest | None) -> bytes:
    """What has come in place of an agent."""
    return decoder.noise + (request.held if request else b"")


def _checked(hello: control.Hello) -> control.Hello:
    """Its numbers may become slots.  Other hosts are told to try its addresses, which may become parts of file names.

    A name among them would make these hosts ask a name service.
    """
    if not (0 < hello.cores <= _CPUS and 0 < hello.cpus <= _CPUS and hello.pid > 0):
        raise WireError("it claims what no host has: cores, cpus, or the id of its process")
    for address in (*hello.addresses, *filter(None, (hello.seen_from,))):
        if not _is_numeric(address):
            raise WireError(f"it says that its address is {address[:60]!r}, which is no IP address")
    return hello


def _is_numeric(address: str) -> bool:
    """Whether it is an IP address, IPv6 perhaps with %interface, and no name that would have to be looked up."""
    import _socket

    number, _, interface = address.partition("%")
    family = _socket.AF_INET6 if ":" in number else _socket.AF_INET
    try:
        _socket.inet_pton(family, number)
    except (OSError, ValueError):
        return False
    letters = interface.replace("-", "").replace("_", "").replace(".", "")
    return not interface or (family == _socket.AF_INET6 and letters.isalnum())


class AgentConnection:
    """One agent; `error` says why it `ended`, None without a reason."""

    def __init__(self, loop: Loop, link: Link, describe: dict[bytes, Topology] | None = None) -> None:
        """`describe`: the agent is asked for its topology at once, which costs no round trip; it has those known."""
        self.link = link
        self.node = link.node
        self.phase = OPENING
        self.hello: control.Hello | None = None
        self.greeted = 0.0  # when HELLO came
        self.topology: Topology | None = None
        self.open, self.ended = True, False
        self.error: LinkError | None = None
        self.crashed = False  # the agent sent why it cannot go on
        self.terminated = False  # the agent is being ended in order, by itself or by somebody else
        self.silent = self.busy = False  # it was given up, or has given us up; the agent is starting processes
        self.heard = self.spoke = self.took = loop.now()  #: when bytes came last, and when they went
        self.behind: set[HeldLink] = set()  #: for whose room it waits, its own perhaps: it is not read
        self._came: list[frames.Frame] = []  # that have come, and wait until there is room
        self.room: LinkRoom | None = None  #: once somebody waits for it
        self.on_suspended: Callable[[], None] = _ignore  # the agent does not expect to hear of us
        self._describe = describe
        self.loop = loop
        self._decoder = frames.Decoder(frames.UP, magic=True, opener=link.opener)
        self._writer = Writer(loop, link.writer, _ignore, self._wrote, sealer=link.sealer)  # the reader sees a break
        self._request: ProgramRequest | None = None  # holds frames back until the host has asked for the program
        if link.program:
            from mslaunch.protocol.program_request import ProgramRequest

            self._request = ProgramRequest(self._send_program)
        self.say = self._writer.say  #: a short frame that goes out at once
        self.share = partial(setattr, self._writer, "lock")  #: with a `Lock`: another thread may `say` something
        self.detach()
        os.set_blocking(link.reader, False)
        if link.first:
            self._writer.send(link.first)
        if describe is not None:
            self.send(frames.encode(frames.DESCRIBE))
        loop.reader(link.reader, self._read)

    def begin(self) -> None:
        """Open the link."""
        self.link.begin()
        if self._request and self.link.unasked:
            self._request.cancel = self.loop.after(self.link.unasked, self._request.expire).cancel

    # --- who owns it

    def attach(
        self,
        on_end: Callable[[LinkError | None], None],
        on_frame: Callable[[frames.Frame], None] = _refuse,
        on_sent: Callable[[int], None] = _ignore,
        on_ready: Callable[[], None] = _ignore,
    ) -> None:
        """Replace the owner: the end goes to `on_end`, frames of a READY agent to `on_frame`.

        `on_sent` gets the number of bytes that have just gone down.
        """
        self._on_end, self._on_frame, self._on_sent, self._on_ready = on_end, on_frame, on_sent, on_ready
        if self.ended:
            self.loop.soon(lambda: self._on_end(self.error))

    def detach(self) -> None:
        """Leave it without an owner: until the next one attaches, any frame ends the connection."""
        self._on_end, self._on_frame, self._on_sent, self._on_ready = _ignore, _refuse, _ignore, _ignore

    @property
    def lost(self) -> bool:
        """The agent ran and has ended, or was given up: it may have left something behind."""
        return self.ended and self.hello is not None and not self.terminated

    # --- down

    @property
    def pending(self) -> int:
        """Bytes on their way to the agent."""
        return self._writer.pending

    def send(self, *pieces: bytes) -> None:
        """One frame, down, perhaps in pieces.  Of long ones no copies are made: they may go to many agents."""
        (self._request or self._writer).send(*[each if len(each) <= _CHUNK else memoryview(each) for each in pieces])

    def _send_program(self, kind: str, held: list[bytes | memoryview]) -> None:
        assert self.link.program
        self._request, self.phase = None, PROGRAM_SENT
        self._writer.send(self.link.program(kind), *held)

    def _wrote(self, size: int) -> None:
        self.spoke = self.took = self.loop.now()
        self._on_sent(size)
        if self.room and self._writer.pending < MOST // 2:
            self.room.is_there()

    # --- up

    def _read(self) -> None:
        try:
            data = os.read(self.link.reader, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._stream_ended()
            return
        self.heard = self.loop.now()
        if data == _ALIVE and self._decoder.between:  # the only frame of most links, for most of the time
            self.busy = False
            return
        self._handle(data)

    def read_on(self, on: bool) -> None:
        """Read, or let the host wait; see `link_room`."""
        self.loop.reader(self.link.reader, self._read if on else None)
        if on:
            self.heard = self.loop.now()
            self._handle(b"")

    def _handle(self, data: bytes) -> None:
        """The frames that `data` completes, after those that have waited."""
        came, self._came = self._came, []
        try:
            if data:
                came = self._decoder.feed(self._request.feed(data) if self._request else data)
            for at, frame in enumerate(came):
                if self.ended:
                    return
                if self._writer.pending > MOST and frame.kind in ASKING:
                    from mslaunch.launcher.agents.link_room import hold

                    hold(self, self)
                if self.behind:
                    self._came = came[at:]
                    return
                if frame.kind == frames.FAULT:
                    from mslaunch.launcher.agents.diagnose_start import fault

                    self.crashed = True
                    self._end(fault(frame.payload.decode("utf-8", "replace"), self.node.name))
                    return
                self._receive(frame)
        except WireError as error:
            self.close()
            todo = error.todo or "something else may write on its standard output"
            self._end(LinkError(error.what, self.node.name, todo))

    def _receive(self, frame: frames.Frame) -> None:
        if frame.kind == frames.ALIVE:
            self._on_alive(frame.payload)
            return
        if self.phase == READY:
            self._on_frame(frame)
            return
        if not is_about(frame, here=False):
            raise meaningless(frame)
        if frame.kind == frames.HELLO and not self.hello and not self._request:
            self.hello = _checked(control.unpack_record(control.Hello, frame.payload))
            self.phase, self.greeted = HELLO_CAME, self.heard
        elif frame.kind == frames.TOPOLOGY and self._describe is not None and not self.topology:
            self.topology = self._describe.get(frame.payload) or control.unpack_topology(frame.payload)
            if len(frame.payload) < _CHUNK:  # most hosts of a job are alike
                self._describe[frame.payload] = self.topology
        else:
            raise meaningless(frame)
        if self.hello and (self.topology or self._describe is None):
            self.phase = READY
            self._on_ready()

    def _on_alive(self, word: bytes) -> None:
        self.busy = word == frames.BUSY
        if word == frames.SUSPENDED:
            self.on_suspended()
        elif word.startswith(frames.GIVEN_UP):
            from mslaunch.launcher.agents.diagnose_start import given_up

            self.terminated = True
            self.lose(given_up(control.unpack_number(word[len(frames.GIVEN_UP) + 1 :]), self.node.name))

    # --- the end

    def lose(self, error: LinkError) -> None:
        """One side has given the other up: wait for nothing more."""
        self.silent = True
        self.close()
        self._end(error)

    def todo(self) -> str:
        """What to do about it if it does not answer in time."""
        from mslaunch.launcher.agents.diagnose_start import unanswered

        return "" if self.hello else unanswered(self.link, _printed(self._decoder, self._request))

    def _stream_ended(self) -> None:
        self._stop()
        self.link.stream_ended()
        if self.hello:
            self._end(self.link.failure())
            return
        from mslaunch.launcher.agents.diagnose_start import explain

        self._end(explain(self.link, _printed(self._decoder, self._request)))

    def _end(self, error: LinkError | None) -> None:
        self._stop()
        self.ended, self.error = True, error
        self._on_end(error)

    def _stop(self) -> None:
        self.open = False
        self.loop.reader(self.link.reader, None)  # the writer may have closed itself already: a broken pipe
        self._writer.close()
        if self.room:
            self.room.is_there()
        if self._request:
            self._request.close()

    def close(self) -> None:
        """Close the link: the agent ends what it still holds."""
        self._stop()
        self.link.close()


def close_all(connections: Sequence[AgentConnection], seconds: float = 5.0) -> list[str]:
    """Close all, and wait for what carried them; returns the hosts of those that would not go."""
    for connection in connections:
        connection.close()
    stuck = []
    deadline = time.monotonic() + seconds
    for connection in connections:
        answers = connection.hello and not connection.silent
        patience = max(0.0, deadline - time.monotonic()) if answers else _NO_AGENT
        if not connection.link.wait(patience):
            connection.link.kill()
            if answers:
                stuck.append(connection.node.name)
    return stuck
