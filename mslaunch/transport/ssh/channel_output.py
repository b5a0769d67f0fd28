"""What a host sends on its channel, passed on to the launcher by paramiko's own thread.

paramiko keeps what has come in an array of bytes, from which another thread takes it: two copies and two changes of
threads for each packet of 32 KiB, which took longer than to decrypt it.  Here the thread that decrypts also writes to
the launcher's socket, all packets that it has read ahead at once.  It may block there for a moment.  If the launcher
lets a host wait, another thread goes on with that: this one is needed, since the host says when it takes more, and the
launcher may be waiting for just that.  What is left to the other thread is no more than the host's window.  This one
widens the window, too, where it need not wait for that: a ProxyCommand may read nothing until we have read what it
writes.  A key exchange, which nothing else may interrupt, is
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
_PATIENCE = 100_000  # microseconds that the thread which reads the host waits for the launcher


class ChannelOutput:
    """Takes the place of the `paramiko.BufferedPipe` of a channel: `feed` and `close` are called by paramiko."""

    def __init__(self, channel: Any, sink: socket.socket, over: Callable[[], None]) -> None:
        """`sink` blocks, for a moment.  `over` is called when nothing more comes, perhaps more than once."""
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, _PATIENCE))
        self._channel = channel
        self._sink = sink
        self._over = over
        self._lock = threading.Lock()  # of what is held and due
        self._held: list[bytes] = []  # packets to be passed on together
        self._left: list[bytes] = []  # what the launcher has not taken in time, for `_late`
        self._late: threading.Thread | None = None
        self._waiting = 0  # bytes that the launcher is to take
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
            self._waiting += sum(map(len, held))
            late = self._late
            if late:
                self._left += held
        if late:
            if self._waiting > WINDOW:  # the host sends more than it may
                late.join()
        elif held:
            self._pass_on(held)
        if self._taken >= _WIDEN and self._channel.transport.clear_to_send.is_set():
            self._widen()

    def _pass_on(self, parts: list[bytes]) -> None:
        self._left = self._send(parts)
        if self._left:
            thread = threading.Thread(target=self._pass_on_late, daemon=True)
            try:
                thread.start()
                self._late = thread
            except RuntimeError:  # no room for a thread
                self._pass_on_late()

    def _pass_on_late(self) -> None:
        """In a thread, which may wait, until nothing is left."""
        while True:
            with self._lock:
                if not self._left:
                    self._late = None
                    return
                parts, self._left = self._left, []
            while parts:
                parts = self._send(parts)
            if self._taken >= _WIDEN and self._channel.transport.clear_to_send.is_set():
                self._widen()

    def _send(self, parts: list[bytes]) -> list[bytes]:
        """Pass on what the launcher takes without much delay; what is left."""
        size = sum(map(len, parts))
        left = _sent_now(self._sink, parts)
        size -= sum(map(len, left))
        self.count(size)
        with self._lock:
            self._waiting -= size
        return left

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
        late = self._late
        if late:
            late.join()
        self.ended = True
        self._over()

    def __len__(self) -> int:
        """How many bytes wait for the launcher: at most the window and what was read ahead."""
        return self._waiting


def _sent_now(sink: socket.socket, parts: list[bytes]) -> list[bytes]:
    """Send them in order; what is left once `sink` has taken nothing for a moment.  After its end all is dropped."""
    while parts:
        try:
            sent = sink.sendmsg(parts[:_AT_ONCE])
        except BlockingIOError:
            return parts
        except OSError:
            return []
        done = 0
        while done < len(parts) and sent >= len(parts[done]):
            sent -= len(parts[done])
            done += 1
        parts = parts[done:]
        if sent:
            parts[0] = parts[0][sent:]
    return parts


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
