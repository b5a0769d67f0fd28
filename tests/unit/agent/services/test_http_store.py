"""The key store of a host: what it answers to Horovod's client, to a stranger, and to one who is slow."""

from __future__ import annotations

import errno
import gc
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.agent.services import http_store, own_interface
from mslaunch.agent.services.http_requests import RefusedRequestError, StoreRequest, read_request
from mslaunch.agent.services.http_store import HttpStore
from mslaunch.errors import LaunchError
from mslaunch.protocol import frames
from mslaunch.protocol import store_messages as messages
from mslaunch.protocol.store_messages import StoreMessage, unpack_write
from mslaunch.runtime.loop import Loop

TOKEN = "5ec7e7"
BOUND = 10.0


class Host:
    """A store; what it sends to the launcher is in `writes`."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.writes: list[StoreMessage] = []
        self.store = HttpStore(loop, TOKEN, lambda kind, rank, payload: self.writes.append(unpack_write(payload)))
        self.clients: list[socket.socket] = []

    @property
    def prefix(self) -> str:
        return f"/{TOKEN}:{self.store.port}/"

    def connect(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.store.port), BOUND)
        self.clients.append(client)
        client.sendall(data)
        client.setblocking(False)
        return client

    def request(self, method: str, name: str, body: bytes = b"", prefix: str | None = None) -> socket.socket:
        """As `http::StoreRequest::send` writes it."""
        path = (self.prefix if prefix is None else prefix) + name
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        return self.connect(head.encode() + body)

    def until(self, true: Callable[[], Any]) -> None:
        assert self.loop.run(lambda: bool(true()), BOUND)

    def answer(self, client: socket.socket) -> tuple[int, bytes]:
        """Status and body; 0: it was closed without one."""
        data = bytearray()
        ended: list[bool] = []

        def read() -> None:
            try:
                found = client.recv(1 << 16)
            except ConnectionResetError:
                found = b""
            data.extend(found)
            if not found:
                ended.append(True)
                self.loop.reader(client.fileno(), None)

        self.loop.reader(client.fileno(), read)
        self.until(lambda: ended)
        if not data:
            return 0, b""
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        return int(head.split()[1]), body

    def write(self, what: str, name: str, body: bytes = b"", answer: str = messages.DONE) -> int:
        before = len(self.writes)
        client = self.request("PUT" if what == messages.PUT else "DELETE", name, body)
        self.until(lambda: len(self.writes) > before)
        wrote = self.writes[-1]
        assert (wrote.what, wrote.name) == (what, name)
        self.store.on_message(StoreMessage(answer, wrote.number))
        return self.answer(client)[0]

    def get(self, name: str) -> tuple[int, bytes]:
        return self.answer(self.request("GET", name))


@pytest.fixture
def host() -> Iterator[Host]:
    with Loop() as loop:
        made = Host(loop)
        yield made
        for client in made.clients:
            client.close()
        made.store._listener.close()
        for connection in list(made.store._clients):
            connection.close()
    gc.collect()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is missing at once."""
    monkeypatch.setattr(http_store, "_HELD_SECONDS", 0.0)


def test_a_value_is_there_once_the_launcher_has_taken_it(host: Host, quick: None) -> None:
    client = host.request("PUT", "global/0", bytes(200_000))
    host.until(lambda: host.writes)
    assert host.get("global/0")[0] == 404
    (wrote,) = host.writes
    assert len(wrote.value) < 2000, "addresses are mostly zeros, and travel compressed"
    host.store.on_message(StoreMessage(messages.DONE, wrote.number))
    assert host.answer(client) == (200, b"")
    assert host.get("global/0") == (200, bytes(200_000))


def test_a_write_that_the_launcher_refuses(host: Host, quick: None) -> None:
    assert host.write(messages.PUT, "global/1", b"v", messages.REFUSED) == 507
    assert host.get("global/1")[0] == 404


def test_values_of_other_hosts_come_and_go(host: Host, quick: None) -> None:
    host.store.on_message(StoreMessage(messages.VALUE, 0, "global/2", messages.compressed(b"there")))
    assert host.get("global/2") == (200, b"there")
    host.store.on_message(StoreMessage(messages.GONE, 0, "global/2"))
    assert host.get("global/2")[0] == 404
    assert host.write(messages.DELETE, "global/0") == 200


def test_a_value_that_another_host_has_spoilt(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_store, "_HELD_SECONDS", 2 * BOUND)
    client = host.request("GET", "global/2")
    host.until(lambda: host.store._held)
    host.store.on_message(StoreMessage(messages.VALUE, 0, "global/2", b"no zlib"))
    assert (host.answer(client), host.get("global/2")) == ((500, b""), (500, b""))


def test_what_is_not_there_yet_is_waited_for(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_store, "_HELD_SECONDS", 2 * BOUND)
    clients = [host.request("GET", "global/2") for _ in range(2)]
    host.until(lambda: len(host.store._held.get("global/2", ())) == 2)
    host.store.on_message(StoreMessage(messages.VALUE, 0, "global/2", messages.compressed(b"there")))
    assert [host.answer(client) for client in clients] == [(200, b"there")] * 2


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize(
    "prefix", ["/", "/5ec7e6:{port}/", "/5ec7e7/", "/5ec7e7:1/", "/5ec7e7:{port}", "/5EC7E7:{port}/", "/é:{port}/"]
)
def test_without_the_token_nothing_is_read_or_written(host: Host, method: str, prefix: str) -> None:
    host.store.on_message(StoreMessage(messages.VALUE, 0, "global/0", messages.compressed(b"secret")))
    status, body = host.answer(host.request(method, "global/0", b"v", prefix.format(port=host.store.port)))
    assert (status in (400, 403), body, host.writes) == (True, b"", [])


def test_a_stranger_is_refused_before_his_body_has_come(host: Host) -> None:
    client = host.connect(b"PUT /x HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
    assert host.answer(client)[0] == 403


def test_a_flood_of_strangers_does_not_keep_ranks_off(host: Host, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest connection without the token makes room; one that waits for an answer of the launcher stays."""
    monkeypatch.setattr(http_store, "_STRANGERS", 8)
    rank = host.request("PUT", "global/0", b"v")
    host.until(lambda: host.writes)
    strangers = [host.connect(b"GET /") for _ in range(20)]
    assert host.get("global/1")[0] == 404
    assert len(host.store._clients) <= 9
    assert host.answer(strangers[0])[0] == 0
    host.store.on_message(StoreMessage(messages.DONE, host.writes[0].number))
    assert host.answer(rank) == (200, b"")


def test_who_says_nothing_is_hung_up_on(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_store, "_REQUEST_SECONDS", 0.0)
    assert host.answer(host.connect(b"GET /")) == (0, b"")
    host.until(lambda: not host.store._clients)


def test_a_rank_that_hangs_up_is_forgotten(host: Host) -> None:
    host.request("PUT", "global/0", b"v").close()
    host.until(lambda: host.writes)
    host.store.on_message(StoreMessage(messages.DONE, host.writes[0].number))
    host.until(lambda: not host.store._clients)
    assert host.store._values.keys() == {"global/0"}


def test_the_port_is_one_of_this_host_alone(host: Host) -> None:
    assert host.store._listener.getsockname()[0] == "127.0.0.1"


def test_a_host_that_cannot_serve_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no descriptor is left: the launcher ends the job with the sentence, before any rank has started."""

    def no_socket(*kind: int) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    said: list[tuple[int, LaunchError]] = []
    link = SimpleNamespace(send=None, not_started=lambda rank, error: said.append((rank, error)))
    monkeypatch.setattr(http_store, "socket", no_socket)
    message = StoreMessage(messages.SERVE, 0, TOKEN, b"127.0.0.1")
    context: Any = SimpleNamespace(loop=None, link=link, environ={})
    http_store.handle(context, frames.Frame(frames.KEYS, frames.NO_RANK, message.pack()))
    ((rank, error),) = said
    assert rank == frames.NO_RANK
    assert error.what.startswith(
        "no key store can be served at 127.0.0.1 (--horovod): Too many open files (ulimit -n is"
    )


def allowed(path: str) -> None:
    assert path.startswith("/t:1/")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /t:1/a/b\r\n\r\n", 400),
        (b"GET  /t:1/a/b HTTP/1.1\r\n\r\n", 400),
        (b"GET /t:1/a/b/c HTTP/1.1\r\n\r\n", 400),
        (b"GET /t:1/a HTTP/1.1\r\n\r\n", 400),
        (b"GET /t:1/a/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /t:1/a/\x01 HTTP/1.1\r\n\r\n", 400),
        (b"GET /t:1/a/" + b"b" * 500 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /t:1/a/b HTTP/1.1\r\n" + b"x" * 5000, None),
        (b"GET /t:1/a/b HTTP/1.1\r\n" + b"x" * 5000 + b"\r\n\r\n", 400),
        (b"POST /t:1/a/b HTTP/1.1\r\n\r\n", 405),
        (b"PUT /t:1/a/b HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", 413),
        (b"PUT /t:1/a/b HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", 400),
        (b"PUT /t:1/a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /t:1/a/b HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"PUT /t:1/a/b HTTP/1.1\r\nContent-Length: 1\r\n\r\nab", 400),
        (b"PUT /t:1/a/b HTTP/1.1\r\nContent-Length: 2\r\n\r\na", None),
        (b"GET /t:1/a/b HTTP/1.1\r\n", None),
    ],
)
def test_requests_that_are_none(data: bytes, status: int | None) -> None:
    """`None`: more is waited for, if the head is not too long already."""
    try:
        assert read_request(data, allowed) is None
        found = None
    except RefusedRequestError as error:
        found = error.status
    assert found == (400 if len(data) > 4200 else status)


NAMES = st.from_regex(r"[!-.0-~]{1,30}/[!-.0-~]{1,30}", fullmatch=True)


@given(st.sampled_from(["GET", "PUT", "DELETE"]), NAMES, st.binary(max_size=100), st.data())
def test_a_request_is_read_however_it_is_cut(method: str, name: str, body: bytes, data: st.DataObject) -> None:
    path = f"/t:1/{name}"
    whole = f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    assert read_request(whole, allowed) == StoreRequest(method, path, body)
    assert read_request(whole[: data.draw(st.integers(0, len(whole) - 1))], lambda path: None) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        read_request(data, lambda path: None)
    except RefusedRequestError:
        pass


def test_the_interface_towards_a_host() -> None:
    assert own_interface.interface_towards("127.0.0.1") == "lo"
    assert own_interface.interface_towards("no address") == ""
    assert own_interface._with_ipv6("00000000000000000000000000000001") in ("lo", "")
