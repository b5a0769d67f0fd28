"""The process that plays all hosts: it gets the far ends of links, and gives each to an agent that it plays.

Forked before the launch.  Orders come on a socket, as words; a message that has a descriptor with it is the far end of
a link, and `call` says that its turn has come.  An order that all agents are told is answered when each of them has
done its part and the launcher has read all of it.
"""

from __future__ import annotations

import array
import fcntl
import gc
import os
import select
import socket
import sys
import termios
import time
from collections.abc import Callable

from mslaunch.errors import WireError
from simulate_lib.one_stream import CALL, CLOSE, DATA, TOLD, Stream
from simulate_lib.played_agent import PlayedAgent, Traits

_READ = 1 << 18


class _End:
    """The far end of one link, and what waits to be written to it; `number` is that of a link without a descriptor."""

    __slots__ = ("agent", "fd", "number", "queue")

    def __init__(self, fd: int, number: int = 0) -> None:
        self.fd = fd
        self.number = number
        self.queue = bytearray()
        self.agent: PlayedAgent


class Player:
    """All played hosts; `orders` is a socket to the launcher's process, `stream` that of links without descriptors."""

    def __init__(self, orders: socket.socket, stream: socket.socket | None, traits: Traits, program: int) -> None:
        self._orders = orders
        self._stream = Stream(stream) if stream else None
        self._traits = traits
        self._program = program
        self._poll = select.epoll()
        self._ends: dict[int, _End] = {}  # by descriptor, or number
        self._waiting: dict[int, int] = {}  # links whose turn has not come: index -> descriptor
        self._late: list[tuple[float, int]] = []  # when, descriptor; ascending
        self._waits: tuple[str, Callable[[PlayedAgent], bool]] | None = None  # an order that is not carried out yet
        self._undone: list[_End] = []
        self._over = False

    def run(self) -> None:
        """Until the launcher's process closes the socket."""
        self._poll.register(self._orders, select.EPOLLIN)
        if self._stream:
            self._poll.register(self._stream, select.EPOLLIN)
        while not self._over:
            for fd, events in self._poll.poll(self._patience()):
                if fd == self._orders.fileno():
                    self._order()
                elif fd in self._ends:
                    self._serve(self._ends[fd], events)
                elif self._stream:
                    self._records(self._stream)
            self._answer_late()
            self._look_whether_done()
            if self._stream:
                self._stream.flush()
                self._poll.modify(self._stream, select.EPOLLIN | select.EPOLLOUT * self._stream.pending)

    def _patience(self) -> float:
        """Seconds; -1: any."""
        if self._waits:
            return 0.002
        return max(0.0, self._late[0][0] - time.monotonic()) if self._late else -1

    # --- links

    def _records(self, stream: Stream) -> None:
        for what, number, data in stream.records():
            end = self._ends.get(number)
            if what == CALL:
                self._begin(int(data), number, number)
            elif end and what == DATA:
                end.agent.feed(data)
            elif end:
                self._close(end)

    def _serve(self, end: _End, events: int) -> None:
        if events & select.EPOLLOUT and end.queue:
            self._write(end)
        if events & ~select.EPOLLOUT:
            try:
                data = os.read(end.fd, _READ)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                end.agent.feed(data)
            else:
                self._close(end)

    def _close(self, end: _End) -> None:
        if not self._ends.pop(end.fd, None):
            return
        if end.number:
            assert self._stream
            self._stream.put(CLOSE, end.number)
        else:
            os.close(end.fd)

    def _send(self, end: _End, data: bytes) -> None:
        if end.number:
            assert self._stream
            self._stream.put(DATA, end.number, data)
            return
        before = bool(end.queue)
        end.queue += data
        if not before:
            self._write(end)

    def _write(self, end: _End) -> None:
        watched = select.EPOLLIN
        try:
            while end.queue:
                del end.queue[: os.write(end.fd, end.queue)]
        except BlockingIOError:
            watched |= select.EPOLLOUT
        except OSError:  # the launcher has closed it: the reader finds out
            end.queue.clear()
        if end.fd in self._ends:
            self._poll.modify(end.fd, watched)

    # --- orders

    def _order(self) -> None:
        try:
            message, rights, _, _ = self._orders.recvmsg(64, socket.CMSG_SPACE(4))
        except ConnectionResetError:  # an answer of ours was not read
            message, rights = b"", []
        if not message:
            self._over = True
            return
        word = message.decode()
        if rights:
            descriptors = array.array("i")
            descriptors.frombytes(rights[0][2][:4])
            self._waiting[int(word)] = descriptors[0]
        elif word.startswith("call "):
            index = int(word[5:])
            if index in self._waiting:
                self._begin(index, self._waiting.pop(index))
        else:
            self._tell(word)

    def _begin(self, index: int, fd: int, number: int = 0) -> None:
        """The turn of a link has come: the host is called."""
        self._ends[fd] = end = _End(fd, number)
        if self._traits.refuses(index):
            self._close(end)
            return
        end.agent = PlayedAgent(index, self._program, self._traits, lambda data: self._send(end, data))
        if not number:
            os.set_blocking(fd, False)
            self._poll.register(fd, select.EPOLLIN)
        end.agent.ask()
        if self._traits.is_late(index):
            self._late.append((time.monotonic() + self._traits.late, fd))

    def _answer_late(self) -> None:
        now = time.monotonic()
        due = 0
        while due < len(self._late) and self._late[due][0] <= now:
            end = self._ends.get(self._late[due][1])
            if end:
                end.agent.hello()
            due += 1
        del self._late[:due]

    def _tell(self, word: str) -> None:
        """Tell all agents to do something."""
        if word == "die":
            dying = [end for end in self._ends.values() if end.agent.index == self._traits.dies]
            for end in dying:
                self._close(end)
            return
        acts: dict[str, tuple[Callable[[PlayedAgent], None], Callable[[PlayedAgent], bool]]] = {
            "fence": (PlayedAgent.fence, lambda agent: bool(agent.fences)),
            "print": (PlayedAgent.print, lambda agent: True),
            "end": (PlayedAgent.end, lambda agent: True),
        }
        act, done = acts[word]
        self._undone = [end for end in self._ends.values() if end.agent.launched]
        for end in self._undone:
            act(end.agent)
        self._waits = word, done

    def _look_whether_done(self) -> None:
        """Whether all have done what they were told, and the launcher has read what they said."""
        if not self._waits:
            return
        word, done = self._waits
        while self._undone:
            end = self._undone[-1]
            here = end.fd in self._ends
            if here and not (done(end.agent) and (end.number or not (end.queue or _unread(end.fd)))):
                return
            self._undone.pop()
        self._waits = None
        found = sum(end.agent.found for end in self._ends.values())
        if self._stream:
            self._stream.put(TOLD, 0, f"{word} {found}".encode())
            return
        try:
            self._orders.send(f"{word} {found}".encode())
        except OSError:  # the launch is over
            self._over = True


def _unread(fd: int) -> int:
    """Bytes that the other end has not read, and what the kernel needs to keep them."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.TIOCOUTQ, count)
    return count[0]


def fork_player(traits: Traits, program: int, stream: bool) -> tuple[socket.socket, socket.socket | None, int]:
    """Start the process that plays; returns the socket for orders, that of links without descriptors, and its id."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near, far = socket.socketpair() if stream else (None, None)
    pid = os.fork()
    if pid:
        theirs.close()
        if far:
            far.close()
        return ours, near, pid
    code = 1
    try:
        ours.close()
        if near:
            near.close()
        gc.freeze()
        gc.disable()
        Player(theirs, far, traits, program).run()
        code = 0
    except (WireError, OSError) as error:
        print(f"the played hosts: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)
    raise AssertionError
