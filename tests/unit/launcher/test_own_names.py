"""Whether a name with a domain is this host, with a name service of the test's."""

from __future__ import annotations

import _socket
import os
import threading

import pytest

from mslaunch.launcher import own_names
from mslaunch.launcher.attempt import is_this_host

OWN = os.uname().nodename.partition(".")[0]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were asked for; all are at 203.0.113.7, but for those of `ours`."""
    names: list[str] = []

    def answer(name: str, port: object) -> list[tuple[object, ...]]:
        names.append(name)
        if name.endswith(".unknown"):
            raise OSError("no such name")
        return [(2, 1, 6, "", ("127.0.0.1" if name.endswith(".ours") else "203.0.113.7", 0))]

    monkeypatch.setattr(_socket, "getaddrinfo", answer)
    return names


@pytest.mark.parametrize(("domain", "local"), [("ours", True), ("theirs", False), ("unknown", True)])
def test_a_name_that_begins_with_ours_is_looked_up(domain: str, local: bool, asked: list[str]) -> None:
    assert is_this_host(f"{OWN}.{domain}") is local
    assert asked == [f"{OWN}.{domain}"]


@pytest.mark.parametrize("name", ["localhost", OWN, "other.ours", f"{OWN}x.ours", "10.0.0.1"])
def test_no_other_name_is_looked_up(name: str, asked: list[str]) -> None:
    assert is_this_host(name) is (name in ("localhost", OWN))
    assert asked == []


def test_a_name_service_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(_socket, "getaddrinfo", lambda *words: answered.wait(30) and [])
    assert own_names.addresses_of("host.domain", 0.01) == set()
    answered.set()
