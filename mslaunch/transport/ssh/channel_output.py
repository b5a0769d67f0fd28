"""What a host sends on its channel, passed on to the launcher by paramiko's own thread.

paramiko keeps what has come in an array of bytes, from which another thread takes it: two copies and two changes of
threads for each packet of 32 KiB, which took longer than to decrypt it.  Here the thread that decrypts also writes to
the launcher's socket, all packets that it has read ahead at once.  It may block there, since the launcher reads a link
until its end, whatever ranks have to wait for.  The window is widened by the link's own thread, because in a key
exchange that has to wait for paramiko's.
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
_WIDEN = WINDOW // 4  # bytes that have come when the window is widened


class ChannelOutput:
    """Takes the place of the `paramiko.BufferedPipe` of a channel: `feed` and `close` are called by paramiko."""

    def __init__(self, channel: Any, sink: socket.socket) -> None:
        """`sink` blocks."""
        self._channel = channel
        self._sink = sink
        self._lock = threading.Lock()
        self._held: list[bytes] = []  # packets to be passed on together
        self._waiting = 0  # bytes of these, and of those that the launcher takes just now
        self._taken = 0  # bytes that were passed on since the window was widened
        self._due = threading.Event()  # the window is to be widened, or this is the end
        self._ended = False

    def count(self, size: int) -> None:
        """So many bytes came besides, and were taken."""
        with self._lock:
            self._taken += size
            due = self._taken >= _WIDEN
        if due:
            self._due.set()

    def feed(self, data: bytes) -> None:
        """One packet of the host."""
        with self._lock:
            self._held.append(data)
            self._waiting += len(data)

    def flush(self) -> None:
        """Pass on what has come, before more is waited for; it is dropped if the launcher takes no more."""
        with self._lock:
            held, self._held = self._held, []
        if held:
            data = b"".join(held)
            with contextlib.suppress(OSError):
                self._sink.sendall(data)
            with self._lock:
                self._waiting -= len(data)
            self.count(len(data))

    def close(self) -> None:
        """The stream has ended."""
        self.flush()
        self._ended = True
        self._due.set()

    def __len__(self) -> int:
        """How many bytes wait for the launcher: at most what was read ahead."""
        return self._waiting

    def wait(self) -> None:
        """Widen the window, until the stream has ended."""
        while True:
            self._due.wait()
            self._due.clear()
            with self._lock:
                size, self._taken = self._taken, 0
            if self._ended:
                return
            if size:
                text = struct.pack(">BII", _WINDOW_ADJUST, self._channel.remote_chanid, size)
                with contextlib.suppress(OSError, EOFError):
                    self._channel.transport._send_user_message(load_paramiko().Message(text))


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


def take_output(channel: Any, sink: socket.socket) -> Callable[[], None]:
    """Let what comes on a new channel go to `sink`; what is returned is to be called before more is waited for."""
    output = channel.in_buffer = ChannelOutput(channel, sink)
    channel.in_stderr_buffer = ChannelNoise(output)
    return output.flush
