"""A learning Ethernet switch over TAP devices that delays, loses and cuts, for kernels without netem.

    switch.py LISTENER DELAY_MS LOSS_PERCENT NAME=FD...

LISTENER is the descriptor of a listening unix socket (SOCK_SEQPACKET); each FD is the TAP device of the port NAME.
One connection carries one command: `delay MS`, `loss PERCENT`, `cut NAME`, `cut-to NAME` (nothing reaches it),
`cut-from NAME` (nothing leaves it), `heal NAME` or `status`; the answer is `ok` and perhaps more, or an error.  With a
NAME behind it, `delay` or `loss` is that of the link of one port, with two that of the way between them.  Loss and
delay apply once, when a frame arrives.  Frames that take the same way never overtake each other, even when the delay
shrinks.

It waits with select(2), whose timeout is in microseconds; epoll(7) and poll(2) round to a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import sys
import time
from heapq import heappop, heappush

BURST = 32  # frames taken from one port before the others have their turn
FRAME = 65536
QUEUE = 50_000  # frames on their way; more are dropped, as by any switch


class Switch:
    """Ports by descriptor; `delay` in seconds, `loss` as a probability."""

    def __init__(self, ports: dict[str, int], delay: float, loss: float) -> None:
        self.ports = ports
        self.delay = delay
        self.loss = loss
        self.mute: set[int] = set()  # ports from which nothing is taken
        self.deaf: set[int] = set()  # and to which nothing is sent
        self.seen: dict[bytes, int] = {}  # Ethernet address -> port
        #: of some links: their one or two ports -> what is set, delay in seconds and loss
        self.links: dict[frozenset[int], dict[str, float]] = {}
        self.waiting: list[tuple[float, int, int, bytes]] = []  # a heap: due, number, port it came from, frame
        self.last: dict[tuple[int, int | None], float] = {}  # when the last frame of a way is due
        self.taken = 0
        self.passed = 0
        self.dropped = 0

    def take(self, port: int, frame: bytes, now: float) -> None:
        """A frame came in."""
        target = self._target(frame)
        delay, loss = self._of_way(port, target) if self.links else (self.delay, self.loss)
        lost = loss and random.random() < loss
        if port in self.mute or lost or len(self.waiting) >= QUEUE:
            self.dropped += 1
            return
        self.seen[frame[6:12]] = port
        due = self.last[port, target] = max(now + delay, self.last.get((port, target), 0.0))
        self.taken += 1
        heappush(self.waiting, (due, self.taken, port, frame))

    def _target(self, frame: bytes) -> int | None:
        """The port that a frame is for; None: all."""
        return None if frame[0] & 1 else self.seen.get(frame[:6])  # odd: to a group

    def _of_way(self, source: int, target: int | None) -> tuple[float, float]:
        """Delay and loss from one port to another: what was set for these two, else for one of them, else for all."""
        ports = [source] if target is None else [source, target]
        keys = [frozenset(ports), *(frozenset((port,)) for port in ports)]
        found = [self.links[key] for key in keys if key in self.links]
        delay, loss = (
            next((row[what] for row in found if what in row), usual)
            for what, usual in (("delay", self.delay), ("loss", self.loss))
        )
        return delay, loss

    def deliver(self, now: float) -> float | None:
        """Send what is due; seconds until the next is, or None."""
        while self.waiting:
            due, _, source, frame = self.waiting[0]
            if due > now:
                return due - now
            heappop(self.waiting)
            target = self._target(frame)
            for port in self.ports.values() if target is None else (target,):
                if port != source:
                    self._send(port, frame)
        return None

    def _send(self, port: int, frame: bytes) -> None:
        if port in self.deaf:
            self.dropped += 1
            return
        try:
            os.write(port, frame)
            self.passed += 1
        except OSError:  # the host is gone, or not up yet, or its queue is full: lost, like on any wire
            self.dropped += 1

    def obey(self, command: str) -> str:
        """One command; the answer."""
        word, _, value = command.partition(" ")
        if word in ("cut", "cut-to", "cut-from", "heal") and value in self.ports:
            port = self.ports[value]
            (self.deaf.add if word in ("cut", "cut-to") else self.deaf.discard)(port)
            (self.mute.add if word in ("cut", "cut-from") else self.mute.discard)(port)
        elif word in ("delay", "loss"):
            number, *names = value.split()
            amount = float(number) / (1000 if word == "delay" else 100)
            if not all(name in self.ports for name in names):
                return "no such port"
            if names:
                self.links.setdefault(frozenset(self.ports[name] for name in names), {})[word] = amount
            else:
                setattr(self, word, amount)
                self.links.clear()
        elif word == "status":
            return f"ok {self.passed} frames passed, {self.dropped} dropped"
        else:
            return "no such command or port"
        return "ok"


def serve(switch: Switch, listener: socket.socket) -> None:
    """Switch, until killed."""
    ports = list(switch.ports.values())
    while True:
        wait = switch.deliver(time.monotonic())
        for fd in select.select([*ports, listener.fileno()], [], [], wait)[0]:
            if fd == listener.fileno():
                answer(switch, listener)
            elif not drain(switch, fd):
                ports.remove(fd)


def drain(switch: Switch, port: int) -> bool:
    """Take what has come in; False once the host is gone."""
    now = time.monotonic()
    try:
        for _ in range(BURST):
            switch.take(port, os.read(port, FRAME), now)
    except BlockingIOError:
        return True
    except OSError:  # EBADFD: the namespace, and the device with it, has gone
        return False
    return True


def answer(switch: Switch, listener: socket.socket) -> None:
    """Serve one connection; a client that says nothing holds up the network for a second at most."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(1.0)
        with contextlib.suppress(OSError):
            command = connection.recv(4096).decode(errors="replace")
            try:
                reply = switch.obey(command)
            except ValueError:
                reply = "not a number"
            connection.send(reply.encode())


def main(arguments: list[str]) -> None:
    """See the module's text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=int(arguments[0]))
    ports = {name: int(fd) for name, _, fd in (word.partition("=") for word in arguments[3:])}
    serve(Switch(ports, float(arguments[1]) / 1000, float(arguments[2]) / 100), listener)


if __name__ == "__main__":
    main(sys.argv[1:])
