"""What a host sends on its channel, passed on to the launcher by paramiko's own thread.

paramiko keeps what has come in an array of bytes, from which another thread takes it: two copies and two changes of
threads for each packet of 32 KiB, which took longer than to decrypt it.  Here the thread that decrypts also writes to
the launcher's socket, all packets that it has read ahead at once.  It may block there, since the launcher reads a link
until its end, whatever ranks have to wait for.  It widens the window, too, where it need not wait for that: a
ProxyCommand may read nothing until we have read what it writes.  A key exchange, which nothing else may interrupt, is
its own work, and once that is over it comes back to what is due.  (One that we begin, as paramiko does after 512 MiB,
waits for whoever sends all the same.)
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from mslaunch.transport.ssh.paramiko_transport import WINDOW, load_paramiko

_WINDOW_ADJUST = 93  # RFC 4254
LAST = 4096  #: bytes of standard error that are kept
_AT_ONCE = 64  # packets in one call; IOV_MAX of Linux is 1,024
_WIDEN = WINDOW // 4  # bytes that have come when the window is widened


class ChannelOutput:
    """Takes the place of the `paramiko.BufferedPipe` of a channel: `feed` and `close` are called by paramiko."""

    def __init__(self, channel: Any, sink: socket.socket, over: Callable[[], None]) -> None:
        """`sink` blocks.  `over` is called when nothing more comes, perhaps more than once."""
        self._channel = channel
        self._sink = sink
        self._over = over
        self._lock = threading.Lock()  # of what is held and due
        self._held: list[bytes] = []  # packets to be passed on together
        self._waiting = 0  # bytes that the launcher takes just now
        self._taken = 0  # bytes that were passed on since the window was widened
        self._widening = False  # another thread does
        self.ended = False

    def count(self, size: int) -> None:
        """So many bytes were taken."""
        with self._lock:
            self._taken += size

    def feed(self, data: bytes) -> None:
        """One packet of the host."""
        self._held.append(data)

    def flush(self) -> None:
        """Pass on what has come, before more is waited for; it is dropped if the launcher takes no more."""
        with self._lock:  # a link that is closed flushes, too
            held, self._held = self._held, []
        if held:
            self._waiting = size = sum(map(len, held))
            with contextlib.suppress(OSError):
                _send_all(self._sink, held)
            self._waiting = 0
            self.count(size)
        if self._taken >= _WIDEN and self._channel.transport.clear_to_send.is_set():
            self._widen()

    def _widen(self) -> None:
        transport = self._channel.transport
        lock = transport.packetizer._Packetizer__write_lock  # an RLock; whoever holds it sends
        if lock.acquire(blocking=False):
            try:
                if transport.sock.has_room():
                    self._adjust(transport._send_message)
                    return
            finally:
                lock.release()
        with self._lock:
            if self._widening:
                return  # and looks again when it has
            self._widening = True
        try:
            threading.Thread(target=self._widen_elsewhere, daemon=True).start()
        except RuntimeError:  # no room for a thread
            self._widening = False
            self._adjust(transport._send_message)

    def _widen_elsewhere(self) -> None:
        """In a thread, which may wait, until nothing is due."""
        while True:
            with self._lock:
                if self._taken < _WIDEN or not self._channel.transport.is_active():
                    self._widening = False
                    return
            self._adjust(self._send_between_keys)

    def _send_between_keys(self, message: Any) -> None:
        transport = self._channel.transport
        while transport.is_active():
            with contextlib.suppress(load_paramiko().ssh_exception.SSHException):  # keys take longer than 30 s
                transport._send_user_message(message)
                return

    def _adjust(self, send: Callable[[Any], None]) -> None:
        with self._lock:
            size, self._taken = self._taken, 0
        text = struct.pack(">BII", _WINDOW_ADJUST, self._channel.remote_chanid, size)
        with contextlib.suppress(OSError, EOFError):
            send(load_paramiko().Message(text))

    def close(self) -> None:
        """The stream has ended."""
        self.flush()
        self.ended = True
        self._over()

    def __len__(self) -> int:
        """How many bytes wait for the launcher: at most what was read ahead."""
        return self._waiting


def _send_all(sink: socket.socket, parts: list[bytes]) -> None:
    """Send them in order, and copy none of them as long as `sink` takes all at once."""
    sent = sink.sendmsg(parts[:_AT_ONCE])
    for part in parts:
        if sent < len(part):
            sink.sendall(memoryview(part)[sent:])
        sent = max(0, sent - len(part))


class ChannelNoise:
    """The same for standard error, of which the last bytes are kept."""

    def __init__(self, output: ChannelOutput) -> None:
        """`output`: that of the same channel, which has one window."""
        self.kept = b""
        self._output = output

    def feed(self, data: bytes) -> None:
        """One packet of the host."""
        self.kept = (self.kept + data)[-LAST:]
        self._output.count(len(data))

    def close(self) -> None:
        """The stream has ended; what is kept stays."""

    def __len__(self) -> int:
        """Nothing waits."""
        return 0


def take_output(channel: Any, sink: socket.socket, over: Callable[[], None]) -> Callable[[], None]:
    """Let what comes on a new channel go to `sink`, and call `over` at its end.

    What is returned is to be called before more is waited for.
    """
    output = channel.in_buffer = ChannelOutput(channel, sink, over)
    channel.in_stderr_buffer = ChannelNoise(output)
    return output.flush
