"""A measurement of a link ends in time, whatever the other end does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from mslaunch.agent.checks import measure_link
from mslaunch.preflight import ask_hosts
from mslaunch.protocol.check_messages import LINK_SECONDS, LinkFacts, LinkQuestion

TOKEN, PROOF = "1" * 32, "2" * 32


Answer = Callable[[socket.socket], None]


def measured(answer: Answer) -> LinkFacts:
    """The way to a host that proves who it is, and answers as it likes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(len(TOKEN))
                client.sendall(PROOF.encode())
                answer(client)

        thread = threading.Thread(target=serve)
        thread.start()
        question = LinkQuestion(("127.0.0.1",), server.getsockname()[1], TOKEN, PROOF, 0.02)
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
