"""The key store of a job, as its agent serves it to the ranks of this host: HTTP at a port of 127.0.0.1.

The clients are those of Horovod (horovod/common/gloo/http_store.cc and third_party/HTTPRequest, 0.28.1), the answers
those of horovodrun's server (horovod/runner/http/http_server.py): GET of a name finds its value or 404, PUT sets it,
DELETE says that a rank is done with a scope; each request has a connection of its own.  A GET for what is not there is
held for a second, since the client would ask again 10 ms later.

Requests begin with a token, and others are refused: every user of this host can connect.  Writes go through the
launcher (`launcher.job.shared_store`), and are answered when it has taken them; reads are answered from the copy here.
"""

from __future__ import annotations

import hmac
import os
from weakref import WeakKeyDictionary

from mslaunch.agent.services.http_requests import RefusedRequestError, StoreRequest, read_request
from mslaunch.agent.services.own_interface import interface_towards
from mslaunch.errors import LaunchError, WireError, reason
from mslaunch.faststd import TYPE_CHECKING, socket
from mslaunch.protocol import frames
from mslaunch.protocol.store_messages import (
    DELETE,
    DONE,
    GONE,
    PUT,
    REFUSED,
    SERVE,
    SERVED,
    VALUE,
    StoreMessage,
    compressed,
    expanded,
    unpack_keys,
)
from mslaunch.runtime.fd_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.launcher_link import AgentContext, LauncherLink
    from mslaunch.runtime.loop import Loop

_AF_INET, _SOCK_STREAM = 2, 1
_STRANGERS = 128  # connections that have shown no token; of more the oldest are closed
_BACKLOG = 1024
_REQUEST_SECONDS = 3.0  # for a request to come, and for an answer to be taken, as in http_server.py
_HELD_SECONDS = 1.0  # for what is not there yet; a rank waits for 30 in all by default
_CHUNK = 1 << 16
_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
            413: "Payload Too Large", 500: "Internal Server Error", 507: "Insufficient Storage"}  # fmt: skip

_stores: WeakKeyDictionary[LauncherLink, HttpStore] = WeakKeyDictionary()


def handle(context: AgentContext, frame: frames.Frame) -> None:
    """KEYS."""
    message = unpack_keys(frame.payload)
    if message.what == SERVE:
        try:
            store = _stores[context.link] = HttpStore(context.loop, message.name, context.link.send)
        except OSError as error:
            what = f"no key store can be served at 127.0.0.1 (--horovod): {reason(error)}"
            context.link.not_started(frames.NO_RANK, LaunchError(what, todo="raise ulimit -n there, if it is that"))
            return
        interface = context.environ.get("HOROVOD_GLOO_IFACE") or interface_towards(message.value.decode("ascii"))
        store.send(StoreMessage(SERVED, store.port, interface))
    else:
        _stores[context.link].on_message(message)


class HttpStore:
    """The server and the copy of one host."""

    def __init__(self, loop: Loop, token: str, send: Callable[[int, int, bytes], None]) -> None:
        """`send(kind, rank, payload)` a frame."""
        self._loop = loop
        self._send = send
        self._listener = socket(_AF_INET, _SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._prefix = f"/{token}:{self.port}/"
        self._values: dict[str, bytes] = {}  # compressed
        self._clients: set[_StoreClient] = set()
        self._strangers: dict[_StoreClient, None] = {}  # the newest of them, in the order in which they came
        self._held: dict[str, list[_StoreClient]] = {}  # by name: GETs that wait for it
        self._writes: dict[int, tuple[_StoreClient, StoreMessage]] = {}  # those that the launcher has not answered
        self._count = 0
        loop.reader(self._listener.fileno(), self._accept)

    def send(self, message: StoreMessage) -> None:
        """To the launcher."""
        self._send(frames.WRITE, frames.NO_RANK, message.pack())

    # --- connections

    def _accept(self) -> None:
        try:
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        while len(self._strangers) >= _STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            if not oldest.proved:
                oldest.close()
        client = _StoreClient(self._loop, fd, self._prefix, self._requested, self._closed)
        self._clients.add(client)
        self._strangers[client] = None

    def _closed(self, client: _StoreClient) -> None:
        self._clients.discard(client)
        self._strangers.pop(client, None)

    def _requested(self, connection: _StoreClient, request: StoreRequest, name: str) -> None:
        if request.method == "GET":
            if name in self._values:
                _give(connection, self._values[name])
            else:
                self._held.setdefault(name, []).append(connection)
                self._loop.after(_HELD_SECONDS, lambda: self._not_found(name, connection))
            return
        self._count += 1
        value = compressed(request.body) if request.method == "PUT" else b""
        message = StoreMessage(PUT if request.method == "PUT" else DELETE, self._count, name, value)
        self._writes[self._count] = connection, message
        self.send(message)

    def _not_found(self, name: str, connection: _StoreClient) -> None:
        waiting = self._held.get(name, [])
        if connection in waiting:
            waiting.remove(connection)
            if not waiting:
                del self._held[name]
            connection.answer(404)

    # --- the launcher

    def on_message(self, message: StoreMessage) -> None:
        """A value of another host, one that is gone, or the answer to a write of this one."""
        if message.what == VALUE:
            self._set(message.name, message.value)
        elif message.what == GONE:
            self._values.pop(message.name, None)
        elif message.what in (DONE, REFUSED):
            connection, wrote = self._writes.pop(message.number)
            if message.what == DONE and wrote.what == PUT:
                self._set(wrote.name, wrote.value)
            connection.answer(200 if message.what == DONE else 507)

    def _set(self, name: str, value: bytes) -> None:
        self._values[name] = value
        for connection in self._held.pop(name, ()):
            _give(connection, value)


def _give(connection: _StoreClient, value: bytes) -> None:
    """Answer a GET; a value that another host has not compressed as it should is an error of that host's ranks."""
    try:
        body = expanded(value)
    except WireError:
        connection.answer(500)
    else:
        connection.answer(200, body)


class _StoreClient:
    """One request and its answer."""

    def __init__(
        self,
        loop: Loop,
        fd: int,
        prefix: str,
        requested: Callable[[_StoreClient, StoreRequest, str], None],
        closed: Callable[[_StoreClient], None],
    ) -> None:
        """`requested(self, request, name)` once it is whole, and begins with `prefix`; `closed(self)` at the end."""
        self._loop = loop
        self._fd = fd
        self._prefix = prefix
        self._requested = requested
        self._closed = closed
        self._data = b""
        self._writer: Writer | None = None
        self.proved = False  #: it has shown the token
        self._open = True
        os.set_blocking(fd, False)
        loop.reader(fd, self._read)
        self._limit = loop.after(_REQUEST_SECONDS, self.close)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._data += data
        try:
            request = read_request(self._data, self._check)
        except RefusedRequestError as error:
            self.answer(error.status)
            return
        if request:
            self._loop.reader(self._fd, None)
            self._limit.cancel()
            self._data = b""
            self._requested(self, request, request.path[len(self._prefix) :])

    def _check(self, path: str) -> None:
        """Raises `RefusedRequestError` for a path without the token, before anything else is looked at."""
        if not hmac.compare_digest(path[: len(self._prefix)].encode(), self._prefix.encode()):
            raise RefusedRequestError(403)
        self.proved = True

    def answer(self, status: int, body: bytes = b"") -> None:
        """The answer; then the connection is closed."""
        if not self._open:
            return
        self._loop.reader(self._fd, None)
        self._limit.cancel()
        self._limit = self._loop.after(_REQUEST_SECONDS, self.close)
        self._writer = Writer(self._loop, self._fd, lambda error: self.close(), self._wrote)
        head = f"HTTP/1.0 {status} {_REASONS[status]}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.send(head.encode() + body)

    def _wrote(self, size: int) -> None:
        if self._writer and not self._writer.pending:
            self.close()

    def close(self) -> None:
        """At the end, or when it has taken too long."""
        if self._open:
            self._open = False
            self._limit.cancel()
            self._loop.reader(self._fd, None)
            if self._writer:
                self._writer.close()
            os.close(self._fd)
            self._closed(self)
