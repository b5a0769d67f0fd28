"""The stream below one SSH connection: a TCP socket, a ProxyCommand, or a channel through another host.

`SocketStream` is the socket that paramiko sees.  Each `recv` waits until the host's `Deadline` at most, so every stage
of the handshake ends when the stream does.  `close` only shuts the stream down, which wakes its reader; `release`
closes the descriptor, once no other thread can be using its number.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mslaunch.errors import LinkError
from mslaunch.transport.last_words import LastWords
from mslaunch.transport.ssh.deadline import Arm, ConnectCancelled, Deadline

if TYPE_CHECKING:
    import subprocess

AHEAD = 1 << 18  #: bytes read at one time; paramiko itself asks for 16 and then for the rest of a packet
WAITING = 1 << 10  #: the same while nothing comes: Python holds memory for that many as long as it waits
DEAD_AFTER = 30  #: seconds without an answer before a silent host counts as lost (TCP_USER_TIMEOUT, keepalive)


class SocketStream:
    """The socket interface that `paramiko.Transport` needs, over a socket or a channel.

    `late`: the deadline ended the stream.  `error`: the OSError that ended it.  `refused`: what its host sent that ends
    the connection.  `head`: the first bytes of the host, for the message in case they are not SSH.
    """

    def __init__(self, carrier: Any, deadline: Deadline, child: ProxyChild | None = None) -> None:
        self._carrier = carrier
        self._child = child
        self._quickack = isinstance(carrier, socket.socket) and carrier.family != socket.AF_UNIX
        self.deadline: Deadline | None = deadline  # None: open, wait for ever
        self.late = False
        self.error: OSError | None = None
        self.refused = ""
        self.head = b""
        self._ahead, self._at = b"", 0  # what was read ahead, and how much of it was taken
        self._room = WAITING
        self.before_read: Callable[[], None] = lambda: None  #: called when all that has come was taken
        self._down = False

    def recv(self, size: int) -> bytes:
        """Read at most `size` bytes; b"" at the end, after an error, and once the deadline has passed."""
        if self._at >= len(self._ahead):
            self.before_read()
            self._ahead, self._at = self._fetch(), 0
            if len(self.head) < 256:
                self.head += self._ahead[:256]
        data = self._ahead[self._at : self._at + size]
        self._at += size
        return data

    def _fetch(self) -> bytes:
        while not self._down:
            deadline = self.deadline
            left = deadline.left() if deadline else None
            if left == 0.0:
                self.late = True
                return b""
            try:
                if left or self._carrier.gettimeout() is not None:
                    self._carrier.settimeout(left and max(left, 0.01))
                if deadline or self._room == WAITING:  # much data is acknowledged without that
                    self.acknowledge_at_once()
                if self._child and not self._child.listen(self._carrier, left):
                    continue
                data = bytes(self._carrier.recv(self._room))
                self._room = AHEAD if len(data) >= WAITING else WAITING
                return data
            except OSError as error:
                # our own timeout has no errno, unlike TCP's; the clock may have been halted meanwhile
                if error.errno is None and isinstance(error, socket.timeout):
                    continue
                self.error = self.error or error
                return b""
        return b""

    def acknowledge_at_once(self) -> None:
        """Ask that of the kernel, which forgets it; without it Nagle's algorithm in sshd costs 40 ms a stage."""
        if self._quickack:
            self._carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def send(self, data: bytes) -> int:
        """Send as much as fits; raises OSError."""
        try:
            return int(self._carrier.send(data))
        except OSError as error:
            if error.errno is not None:  # not our own timeout, after which paramiko tries again
                self.error = self.error or error
            raise

    def has_room(self) -> bool:
        """Whether a short message can be sent without waiting."""
        if not isinstance(self._carrier, socket.socket):
            return bool(self._carrier.send_ready())
        if self._carrier.fileno() < 0:
            return False
        room = select.poll()
        room.register(self._carrier, select.POLLOUT)
        return bool(room.poll(0))

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing: the deadline decides."""

    def close(self) -> None:
        """Shut down both directions; a thread in `recv` wakes up with b""."""
        self._down = True
        with contextlib.suppress(OSError, EOFError):
            self._carrier.shutdown(socket.SHUT_RDWR)
            if not isinstance(self._carrier, socket.socket):  # a channel: its shutdown does not wake its reader
                self._carrier.close()

    def cut(self) -> None:
        """Shut down both directions, and kill the ProxyCommand, without waiting for it."""
        self.close()
        if self._child:
            self._child.kill()

    @property
    def _closed(self) -> bool:  # read by paramiko
        return self._down

    def getpeername(self) -> Any:
        """The address of the other side."""
        return self._carrier.getpeername()

    def noise(self) -> bytes:
        """What a ProxyCommand wrote on its standard error."""
        return self._child.noise() if self._child else b""

    def release(self) -> None:
        """Close the descriptor and end the ProxyCommand, once no thread reads any more."""
        self.close()
        with contextlib.suppress(OSError, EOFError):
            self._carrier.close()
        if self._child:
            self._child.end()


class ProxyChild:
    """A running ProxyCommand; whoever reads its output also listens to its standard error."""

    def __init__(self, process: subprocess.Popen[bytes], words: LastWords) -> None:
        self._process = process
        self._words = words
        words.begin()

    def listen(self, output: socket.socket, seconds: float | None) -> bool:
        """Wait for `output`, or for its last words, which are read; False if there is nothing on `output` yet."""
        ours, other = output.fileno(), self._words.fileno()
        if min(ours, other) < 0:
            return True
        both = select.poll()
        both.register(ours, select.POLLIN)
        both.register(other, select.POLLIN)
        ready = dict(both.poll(None if seconds is None else seconds * 1000))
        if other in ready:
            self._words.read()
        return ours in ready

    def noise(self) -> bytes:
        """The last 4 KiB of its standard error."""
        return self._words.said()

    def kill(self) -> None:
        """Kill it, and do not wait."""
        self._process.kill()

    def end(self) -> None:
        """Give it a second to end, now that its streams are closed; then terminate, and then kill it."""
        import subprocess

        for insist in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(1)
                break
            except subprocess.TimeoutExpired:
                insist()
        self._process.wait()
        self._words.close()


def proxy_stream(command: str, environ: Mapping[str, str], deadline: Deadline, arm: Arm) -> SocketStream:
    """Start a ProxyCommand as ssh_config(5) says: by the user's shell, with `exec`, stdin and stdout the connection."""
    import subprocess

    near, far = socket.socketpair()
    words = LastWords()
    shell = environ.get("SHELL") or "/bin/sh"
    try:
        process = subprocess.Popen(
            [shell, "-c", f"exec {command}"],
            stdin=far.fileno(),
            stdout=far.fileno(),
            stderr=words.pipe,
            env=environ,
            start_new_session=True,
        )
    except OSError as error:
        near.close()
        words.begin()
        words.close()
        raise LinkError(f"ProxyCommand could not be started: {error.strerror}", shell, f"It was: {command}") from error
    finally:
        far.close()
    stream = SocketStream(near, deadline, ProxyChild(process, words))
    return _armed(stream, arm)


def tcp_stream(host: str, port: int, family: str, deadline: Deadline, arm: Arm, patience: int = 0) -> SocketStream:
    """Connect to the first address of `host` that answers; each gets its share of the remaining time.

    `patience`: seconds of silence after which the host counts as lost; 0: DEAD_AFTER.
    Raises LinkError, without `where`, if the name does not resolve or no address answers.
    """
    addresses = resolve(host, port, family, deadline, arm)
    failures: list[str] = []
    for index, (kind, address) in enumerate(addresses):
        sock = socket.socket(kind, socket.SOCK_STREAM)
        stream = _armed(SocketStream(sock, deadline), arm)
        try:
            sock.settimeout(max(0.001, deadline.left() / (len(addresses) - index)))
            _tune(sock, patience or DEAD_AFTER)
            sock.connect(address)
            sock.getpeername()  # a connect that is shut down meanwhile returns without an error
            return stream
        except OSError as error:
            stream.release()
            _armed(stream, arm)
            failures.append(f"{address[0]} port {port}: {_why(error)}")
    raise _unanswered(failures, deadline)


class NoAddressError(LinkError):
    """The name of a host leads to no address."""

    check = "name"  #: as --check names what has failed


def resolve(host: str, port: int, family: str, deadline: Deadline, arm: Arm) -> list[tuple[int, Any]]:
    """The addresses of `host` as (family, address), in getaddrinfo's order; raises LinkError if there are none.

    A resolver may take longer than the deadline and cannot be interrupted, so it runs in a thread of its own.
    """
    kinds = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
    answer: list[Any] = []
    done = threading.Event()

    def look(flags: int = 0) -> None:
        try:
            answer.append(socket.getaddrinfo(host, port, kinds.get(family, 0), socket.SOCK_STREAM, 0, flags))
        except (OSError, UnicodeError) as error:
            answer.append(error)
        done.set()

    look(socket.AI_NUMERICHOST)
    if not isinstance(answer[0], list):
        answer.clear()
        done.clear()
        arm(done.set)
        threading.Thread(target=look, daemon=True, name=f"resolve {host}").start()
        done.wait(deadline.left())
        arm(done.set)
    if not answer:
        what = f"no answer from the name service within {deadline.seconds:g} s"
        raise NoAddressError(what, host, "Is DNS reachable?")
    if not isinstance(answer[0], list):
        reason = getattr(answer[0], "strerror", None) or str(answer[0])
        todo = "Check the spelling, or give it a HostName in ~/.ssh/config or a line in /etc/hosts."
        raise NoAddressError(f"the name {host} has no address: {reason}", "", todo)
    return list(dict.fromkeys((info[0], info[4]) for info in answer[0]))


def _armed(stream: SocketStream, arm: Arm) -> SocketStream:
    try:
        arm(stream.close)
    except ConnectCancelled:
        stream.release()
        raise
    return stream


def _tune(sock: socket.socket, patience: int) -> None:
    tcp = socket.IPPROTO_TCP
    sock.setsockopt(tcp, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", max(1, patience // 2)),
        ("TCP_KEEPINTVL", max(1, patience // 6)),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", patience * 1000),  # keepalive does not work while data is in flight
    ):
        if hasattr(socket, name):
            sock.setsockopt(tcp, getattr(socket, name), value)


def _why(error: OSError) -> str:
    return "no answer to TCP" if isinstance(error, socket.timeout) else error.strerror or str(error)


def _unanswered(failures: Sequence[str], deadline: Deadline) -> LinkError:
    text = "; ".join(failures)
    if any("no answer" in failure for failure in failures):
        todo = "Is the host up, and does a firewall drop the packets?"
        return LinkError(f"no answer to TCP within {deadline.seconds:g} s ({text})", "", todo)
    refused = os.strerror(errno.ECONNREFUSED)
    todo = "Does sshd run there, on that port?" if refused in text else "Is there a route to the host?"
    return LinkError(f"no TCP connection ({text})", "", todo)
