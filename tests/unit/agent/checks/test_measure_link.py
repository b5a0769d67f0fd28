"""A measurement of a link ends in time, whatever the other end does."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

import pytest

from mslaunch.agent.checks import measure_link
from mslaunch.preflight import ask_hosts
from mslaunch.protocol import address_proof
from mslaunch.protocol.check_messages import LINK_SECONDS, LinkFacts, LinkQuestion

TOKEN = "1" * 32


Answer = Callable[[socket.socket], None]


def prove(client: socket.socket, address: str = "127.0.0.1", token: str = TOKEN) -> str:
    """Answer a nonce as the other host, which was reached at `address`; the proof of the caller."""
    client.sendall(address_proof.answer(token, client.recv(address_proof.NONCE), address) + b"3" * 32 + b"\n")
    return client.recv(address_proof.NONCE).decode()


def measured(answer: Answer) -> LinkFacts:
    """The way to a host that proves who it is, and answers as it likes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                prove(client)
                answer(client)

        thread = threading.Thread(target=serve)
        thread.start()
        question = LinkQuestion(("127.0.0.1",), server.getsockname()[1], TOKEN, 0.02)
        try:
            return measure_link.measure(question)
        finally:
            thread.join()


def _until_end(client: socket.socket) -> None:
    while client.recv(1 << 16):
        pass


def _slow_pings(client: socket.socket) -> None:
    """Each is answered, but late."""
    client.settimeout(0.08)
    while True:
        try:
            if not client.recv(1):
                return
        except TimeoutError:
            try:
                client.sendall(b"p")
            except OSError:
                return


@pytest.mark.parametrize("answer", [_until_end, _slow_pings])
def test_one_deadline_holds_for_all_of_it(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[socket.socket], None]
) -> None:
    monkeypatch.setattr(measure_link, "LINK_SECONDS", 0.2)
    for other in ("_CONNECT", "_ANSWER"):  # so that a busy machine cannot take as long as these do
        monkeypatch.setattr(measure_link, other, 90.0)
    began = time.monotonic()
    found = measured(answer)
    assert time.monotonic() - began < 60
    assert found.error == "the connection to 127.0.0.1 broke: it answers too late"


def test_the_launcher_waits_longer_than_a_measurement_takes() -> None:
    assert ask_hosts._ROUND > LINK_SECONDS + 1


def dialled(*said: tuple[str, str] | None) -> tuple[str, list[str]]:
    """127.0.0.1 and those after it, one port: which is connected to, or why none; and what each hears after its answer.

    Each answers as the host that has this address and this token, or not at all.
    """
    servers = [socket.create_server(("127.0.0.1", 0))]
    port = servers[0].getsockname()[1]
    servers += [socket.create_server((f"127.0.0.{at}", port)) for at in range(2, len(said) + 1)]
    heard = [""] * len(said)

    def serve(at: int, words: tuple[str, str]) -> None:
        with servers[at].accept()[0] as client, contextlib.suppress(ConnectionResetError):  # no use for this address
            heard[at] = prove(client, *words)

    threads = [threading.Thread(target=serve, args=(at, words)) for at, words in enumerate(said) if words]
    for thread in threads:
        thread.start()
    question = LinkQuestion(tuple(f"127.0.0.{at}" for at in range(1, len(said) + 1)), port, TOKEN, 0.02)
    link, why = measure_link._LinkSearch(question).find()
    if link:
        link.sock.sendall(link.proof.encode())
        link.sock.close()
    for thread in threads:
        thread.join()
    for server in servers:
        server.close()
    return (link.address if link else why), heard


def test_only_the_host_itself_gets_a_proof() -> None:
    """Nobody gets the token."""
    address, heard = dialled(("127.0.0.1", "0" * 32), ("127.0.0.2", TOKEN), ("127.0.0.9", TOKEN))
    assert address == "127.0.0.2"
    assert (heard[0], heard[2]) == ("", "") and len(heard[1]) == address_proof.NONCE and heard[1] != TOKEN


def test_an_address_behind_translation_is_the_last_choice() -> None:
    for answers in ((("10.0.0.1", TOKEN), ("127.0.0.2", TOKEN)), (("127.0.0.1", TOKEN), ("10.0.0.1", TOKEN))):
        assert dialled(*answers)[0] == next(said for said, _ in answers if said.startswith("127."))
    assert dialled(("10.0.0.1", TOKEN), ("127.0.0.2", "0" * 32))[0] == "127.0.0.1"


def test_an_address_that_leads_back_to_another_user_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 64321)
    assert dialled(("127.0.0.1", TOKEN)) == ("127.0.0.1: another program answered", [""])
