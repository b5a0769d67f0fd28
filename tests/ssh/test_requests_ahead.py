"""Requests that follow one another without waiting, and hosts that are asked step by step."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from sshd import SshLab, keygen, public
from sshlinks import Opener, failure, read

from mslaunch.transport.ssh import command_channel, paramiko_transport
from mslaunch.transport.ssh.config.algorithms import USER_KEYS
from mslaunch.transport.ssh.paramiko_transport import AuthSession
from mslaunch.transport.ssh.user_keys import Identity, pack


class SilentHost:
    """A transport whose host answers when the test says so."""

    session_id = b"session"
    server_extensions: dict[str, bytes] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.session = AuthSession(self, SimpleNamespace(refused=""))
        self._auth_trigger = lambda: None

    def _send_message(self, message: Any) -> None:
        self.sent.append(message.asbytes()[0])

    def answer(self, kind: int, text: bytes = b"") -> None:
        self.session._handler_table[kind](paramiko_transport.load_paramiko().Message(text))


def identity(kind: str) -> Identity:
    return Identity(pack(kind, b"key"), "a key", lambda data, algorithm: pack(algorithm, b"signed"), "", USER_KEYS)


def test_a_proof_and_what_follows_it_wait_for_nothing() -> None:
    host = SilentHost()
    assert host.session.begin(wait=False).kind == "service"
    replies = []
    ahead = threading.Event()
    waiting = threading.Thread(
        target=lambda: replies.append(host.session.prove("user", identity("ssh-ed25519"), ahead.set)), daemon=True
    )
    waiting.start()
    assert ahead.wait(20)
    assert host.sent == [5, 50]
    host.answer(6)
    host.answer(52)
    waiting.join(20)
    assert [reply.kind for reply in replies] == ["welcome"]


def test_an_rsa_key_waits_for_what_the_host_says_of_algorithms() -> None:
    """It comes before the answer to the first request (RFC 8308, 2.4)."""
    host = SilentHost()
    host.session.begin(wait=False)
    host.server_extensions = {"server-sig-algs": b"rsa-sha2-256"}
    asked = []
    waiting = threading.Thread(target=lambda: asked.append(host.session._algorithm(identity("ssh-rsa"))), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive() and not asked
    host.answer(6)
    waiting.join(20)
    assert asked == ["rsa-sha2-256"]


def test_a_host_that_hangs_up_after_the_first_request_is_gone_for_all() -> None:
    host = SilentHost()
    host.session.begin(wait=False)
    host.session.abort()
    assert host.session.prove("user", identity("ssh-ed25519")).kind == "gone"


@pytest.mark.parametrize(
    ("version", "ahead"),
    [
        ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3", True),
        ("SSH-2.0-OpenSSH_for_Windows_9.5", True),
        ("SSH-2.0-dropbear_2022.83", False),
        ("SSH-2.0-Go", False),
        ("SSH-1.99-OpenSSH_3.9p1", False),
    ],
)
def test_only_openssh_is_asked_ahead(version: str, ahead: bool) -> None:
    assert command_channel.is_sequential(SimpleNamespace(remote_version=version)) is ahead


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each command that was asked for without waiting: whether the user was authenticated by then."""
    found: list[bool] = []
    request = command_channel.request_command

    def note(transport: Any, *how: Any) -> command_channel.RequestedCommand:
        found.append(transport.auth_handler.is_authenticated())
        return request(transport, *how)

    monkeypatch.setattr("mslaunch.transport.ssh.reach_host.request_command", note)
    return found


@pytest.mark.sshd
def test_a_user_with_one_key_asks_for_the_command_with_the_proof(
    lab: SshLab, opener: Opener, asked: list[bool]
) -> None:
    assert read(opener(lab.sshd(), "printf x"), 1) == b"x"
    assert asked == [False]


@pytest.mark.sshd
def test_a_user_with_several_keys_waits_until_one_is_accepted(lab: SshLab, opener: Opener, asked: list[bool]) -> None:
    """Requests that come too early are noted in the log of the host."""
    keygen(lab.ssh / "id_ecdsa", "ecdsa")
    host = lab.sshd("LogLevel VERBOSE", authorized=public(keygen(lab.ssh / "id_rsa", "rsa")))
    assert read(opener(host, "printf x"), 1) == b"x"
    assert asked == [True]
    assert "dispatch_protocol_error" not in host.log()


@pytest.mark.sshd
@pytest.mark.parametrize("known", [True, False])
def test_a_host_whose_key_is_not_known_is_told_nothing_of_the_user(lab: SshLab, opener: Opener, known: bool) -> None:
    """Nothing is asked ahead of the check of its key: neither the name of the user, nor a signature, nor a command."""
    host = lab.sshd("LogLevel DEBUG1", known=known)
    link = opener(host, "printf x")
    assert read(link) == (b"x" if known else b"")
    assert (link.failure() is None) is known
    log = host.wait_log("Connection closed by" if not known else "Closing connection to")
    assert ("userauth-request for user" in log) is known


@pytest.mark.sshd
def test_a_command_may_be_over_before_its_start_is_looked_at(
    lab: SshLab, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = command_channel.wait_until_started

    def late(transport: Any, requested: command_channel.RequestedCommand) -> Any:
        forgotten, forget = threading.Event(), transport._channels.delete
        transport._channels.delete = lambda number: (forget(number), forgotten.set())
        assert transport._channels.get(requested.channel.chanid) is None or forgotten.wait(20)
        return wait(transport, requested)

    monkeypatch.setattr("mslaunch.transport.ssh.reach_host.wait_until_started", late)
    link = opener(lab.sshd(), "printf x; exit 7")
    assert read(link) == b"x"
    assert link.wait(20) and link.exit_status == 7 and link.failure() is None


@pytest.mark.sshd
def test_a_key_that_is_refused_is_told_as_ever(lab: SshLab, opener: Opener, asked: list[bool]) -> None:
    host = lab.sshd(authorized=public(keygen(lab.home / "other", "ed25519")))
    assert "no key was accepted" in failure(opener(host, "printf x"))
    assert asked == [False]


@pytest.mark.sshd
def test_a_host_that_is_not_known_to_be_openssh_is_asked_step_by_step(
    lab: SshLab, opener: Opener, asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mslaunch.transport.ssh.reach_host.is_sequential", lambda transport: False)
    assert read(opener(lab.sshd(), "printf x"), 1) == b"x"
    assert asked == []
