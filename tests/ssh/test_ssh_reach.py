"""Ways to a host: addresses, silence, dropped banners, ProxyJump, ProxyCommand, configuration; and the sentences."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sshd import Sshd, SshLab, free_port
from sshlinks import Opener, failure, read

from mslaunch.datamodel.jobmap import Node
from mslaunch.errors import EXIT_UNREACHED
from mslaunch.transport.ssh import paramiko_transport

pytestmark = pytest.mark.sshd


@contextmanager
def server(handle: Callable[[socket.socket, int], None], address: str = "127.0.0.1") -> Iterator[Node]:
    """A TCP server that calls `handle(connection, number)` for each connection, in turn."""
    listener = socket.create_server((address, 0))

    def serve() -> None:
        number = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                number += 1
                handle(connection, number)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield Node(address, 1, "test", port=listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def relay(connection: socket.socket, host: Sshd) -> None:
    """Carry one connection on to a real sshd, until either side ends."""
    with socket.create_connection((host.address, host.port)) as far:
        back = threading.Thread(target=copy, args=(far, connection), daemon=True)
        back.start()
        copy(connection, far)
        back.join(10)


def copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()


def until_closed(connection: socket.socket, number: int = 0) -> None:
    while connection.recv(1 << 16):
        pass


def test_a_refused_port(lab: SshLab, opener: Opener) -> None:
    port = free_port("127.0.0.9")
    link = opener(Node("127.0.0.9", 1, "test", port=port))
    message = failure(link)
    assert f"127.0.0.9 port {port}: Connection refused" in message
    assert "sshd" in message
    assert link.failure().code == EXIT_UNREACHED  # type: ignore[union-attr]


def test_a_name_without_an_address(lab: SshLab, opener: Opener) -> None:
    message = failure(opener("no-such-host.invalid"))
    assert "the name no-such-host.invalid has no address" in message


def test_an_alias_needs_no_address(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd()
    lab.config(f"Host node1\n HostName {host.address}\n Port {host.port}\n")
    assert read(opener("node1", "cat", b"x"), 1) == b"x"


def test_silence_after_the_connection(lab: SshLab, opener: Opener) -> None:
    with server(until_closed) as node:
        begin = time.monotonic()
        message = failure(opener(node, timeout=1.5))
        assert "no SSH banner within 1.5 s" in message
        assert 1.4 < time.monotonic() - begin < 10


def test_a_host_hears_who_we_are_while_paramiko_is_imported(
    lab: SshLab, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with its KEXINIT meanwhile.  That it is said once, a real sshd checks."""
    greeted = threading.Event()
    transport_class = paramiko_transport.transport_class
    host = lab.sshd(known=False)

    def imported() -> Any:
        assert greeted.wait(20), "nothing came before the import had ended"
        return transport_class()

    def handle(connection: socket.socket, number: int) -> None:
        assert connection.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL) == b"SSH-"
        greeted.set()
        relay(connection, host)

    monkeypatch.setattr(paramiko_transport, "transport_class", imported)
    with server(handle) as node:
        lab.known_hosts(host.known_line.replace(host.name, f"[127.0.0.1]:{node.port}"))
        link = opener(node, "cat", b"x")
        assert read(link, 1) == b"x"
        link.close()


def test_silence_after_the_banner(lab: SshLab, opener: Opener) -> None:
    def handle(connection: socket.socket, number: int) -> None:
        connection.sendall(b"SSH-2.0-Silent\r\n")
        until_closed(connection)

    with server(handle) as node:
        assert "key exchange did not end within 3 s" in failure(opener(node, timeout=3))


def test_the_stages_share_one_deadline(lab: SshLab, opener: Opener) -> None:
    """A host that takes half of the time for its banner has only the other half for the rest."""

    def handle(connection: socket.socket, number: int) -> None:
        connection.settimeout(2.0)
        with pytest.raises(OSError, match="timed out"):
            while connection.recv(1 << 16):
                pass
        connection.settimeout(None)
        connection.sendall(b"SSH-2.0-Slow\r\n")
        until_closed(connection)

    with server(handle) as node:
        begin = time.monotonic()
        assert "key exchange did not end within 4 s" in failure(opener(node, timeout=4))
        assert time.monotonic() - begin < 5.8, "and not after the two seconds of the banner and four more"


def test_silence_instead_of_tcp(lab: SshLab, opener: Opener) -> None:
    """A listener whose queue is full no longer answers to SYN."""
    with closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        message = failure(opener(Node("127.0.0.1", 1, "test", port=address[1]), timeout=0.4))
        for filler in fillers:
            filler.close()
    assert "no answer to TCP within 0.4 s" in message


def test_a_server_of_another_kind(lab: SshLab, opener: Opener) -> None:
    def handle(connection: socket.socket, number: int) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with server(handle) as node:
        assert "no SSH server: it said 'HTTP/1.1 400 Bad Request'" in failure(opener(node))


@pytest.mark.parametrize("last_words", [b"", b"Exceeded MaxStartups\r\n"])
def test_a_busy_host_is_tried_again(lab: SshLab, opener: Opener, last_words: bytes) -> None:
    host = lab.sshd(known=False)

    def handle(connection: socket.socket, number: int) -> None:
        if number <= 2:
            connection.sendall(last_words)
        else:
            relay(connection, host)

    with server(handle) as node:
        lab.known_hosts(host.known_line.replace(host.name, f"[127.0.0.1]:{node.port}"))
        link = opener(node, "cat", b"x")
        assert read(link, 1) == b"x"
        link.close()


def test_a_host_that_stays_busy(lab: SshLab, opener: Opener) -> None:
    def handle(connection: socket.socket, number: int) -> None:
        connection.sendall(b"Exceeded MaxStartups\r\n")

    with server(handle) as node:
        message = failure(opener(node, timeout=1.5))
    assert "the host hung up after saying 'Exceeded MaxStartups'" in message
    assert "times" in message


def test_more_links_than_a_host_lets_in_at_one_time(lab: SshLab, opener: Opener) -> None:
    """A real sshd that drops every connection beyond the third that has not logged in yet."""
    host = lab.sshd("MaxStartups 3")
    for link in opener.many([host] * 16, "cat", b"x", timeout=30):
        assert read(link, 1) == b"x", link.failure()
    assert "MaxStartups" in host.log()


def test_all_addresses_of_a_name_are_tried(lab: SshLab, opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    host = lab.sshd(known=False)
    known = host.known_line.split(" ", 1)[1]
    lab.known_hosts(f"[two]:{host.port} {known}")
    look = socket.getaddrinfo

    def resolve(name: str, port: int, *args: int) -> list:
        if name != "two":
            return look(name, port, *args)
        if args[-1] & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        return [*look("::1", port, *args), *look(host.address, port, *args)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert read(opener(Node("two", 1, "test", port=host.port), "cat", b"x"), 1) == b"x"


def test_ipv6(lab: SshLab, opener: Opener) -> None:
    try:
        host = lab.sshd(address="[::1]", known=False)
    except OSError:
        pytest.skip("NOT TESTED: no IPv6 here")
    lab.known_hosts(host.known_line.replace("[[::1]]", "[::1]"))
    assert read(opener(Node("::1", 1, "test", port=host.port), "cat", b"x"), 1) == b"x"


def test_closing_aborts_the_wait_for_a_banner(lab: SshLab, opener: Opener) -> None:
    entered = threading.Event()

    def handle(connection: socket.socket, number: int) -> None:
        entered.set()
        until_closed(connection)

    with server(handle) as node:
        link = opener(node)
        assert entered.wait(20)
        link.close()
        assert link.wait(4)
        assert link.failure() is None


def test_closing_aborts_the_wait_for_tcp(lab: SshLab, opener: Opener) -> None:
    with closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        link = opener(Node("127.0.0.1", 1, "test", port=full.getsockname()[1]))
        end = time.monotonic() + 5
        while not connecting(full.getsockname()[1]) and time.monotonic() < end:
            time.sleep(0.005)
        link.close()
        assert link.wait(4)
        for filler in fillers:
            filler.close()


def connecting(port: int) -> bool:
    """Has anybody of us sent a SYN to `port` that is not answered?"""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return len([row for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "02"]) > 0


def test_closing_at_any_moment_leaves_nothing_behind(lab: SshLab, opener: Opener, tmp_path: object) -> None:
    host = lab.sshd()
    for number in range(12):
        link = opener(host, f"touch {tmp_path}/started-$$; exec cat")
        link.wait(number * 0.004)
        link.close()
        assert link.wait(10)
        assert link.failure() is None


def test_proxyjump(lab: SshLab, opener: Opener) -> None:
    first, second, last = lab.sshd(), lab.sshd(), lab.sshd()
    lab.config(
        f"Host gate\n HostName {first.address}\n Port {first.port}\n"
        f"Host inner\n HostName {second.address}\n Port {second.port}\n ProxyJump gate\n"
        f"Host node1\n HostName {last.address}\n Port {last.port}\n ProxyJump inner\n"
        f"Host node2\n HostName {last.address}\n Port {last.port}\n"
        f" ProxyJump {first.address}:{first.port},{second.address}:{second.port}\n"
    )
    data = os.urandom(100_000)
    for link in opener.many(["node1", "node2"], "cat", data):
        assert read(link, len(data)) == data
        link.close()
        assert link.wait(5)
    for gate in (first, second):
        assert gate.log().count("Accepted publickey") == 2


def test_proxyjump_to_nowhere(lab: SshLab, opener: Opener) -> None:
    gate = lab.sshd()
    lab.config(
        f"Host node1\n HostName 127.0.0.1\n Port {free_port('127.0.0.1')}\n ProxyJump gate\n"
        f"Host gate\n HostName {gate.address}\n Port {gate.port}\n"
    )
    message = failure(opener("node1"))
    assert message.startswith("node1 [127.0.0.1]")
    assert "gate opened no way to it" in message
    assert "Connect failed" in message


def test_proxyjump_over_a_dead_gate(lab: SshLab, opener: Opener) -> None:
    lab.config(f"Host node1\n ProxyJump gate\nHost gate\n HostName 127.0.0.1\n Port {free_port('127.0.0.1')}\n")
    message = failure(opener("node1"))
    assert message.startswith("gate")
    assert "Connection refused" in message
    assert "on the way to node1" in message


def test_proxyjump_in_a_circle(lab: SshLab, opener: Opener) -> None:
    lab.config("Host a\n ProxyJump b\nHost b\n ProxyJump a\nHost c\n ProxyJump c\n")
    assert "a -> b -> a" in failure(opener("a"))
    assert "c -> c" in failure(opener("c"))


def test_proxycommand(lab: SshLab, opener: Opener) -> None:
    gate, last = lab.sshd(), lab.sshd(known=False)
    lab.known_hosts(f"inside {last.known_line.split(' ', 1)[1]}")
    options = f"-F none -i {lab.key} -o UserKnownHostsFile={lab.ssh}/known_hosts -p {gate.port} {gate.address}"
    lab.config(
        f"Host node1\n HostName {last.address}\n Port {last.port}\n HostKeyAlias inside\n"
        f" ProxyCommand ssh -W %h:%p {options}\n"
    )
    data = os.urandom(300_000)
    link = opener("node1", "cat", data)
    assert read(link, len(data)) == data
    link.close()
    assert link.wait(5)


def test_proxycommand_that_fails(lab: SshLab, opener: Opener) -> None:
    lab.config("Host node1\n ProxyCommand echo cannot reach %h >&2; exit 1\n")
    message = failure(opener("node1"))
    assert "ProxyCommand ended" in message
    assert "cannot reach node1" in message


def test_words_of_the_rsh_command_are_used(lab: SshLab, opener: Opener) -> None:
    host = lab.sshd()
    assert read(opener(host.address, "cat", b"x", agent_args=("-p", str(host.port))), 1) == b"x"
    message = failure(opener(host.address, agent_args=("-L", "1:a:2")))
    assert "--rsh-agent ssh" in message


def test_a_server_that_speaks_only_what_we_do_not(lab: SshLab, opener: Opener) -> None:
    message = failure(opener(lab.sshd("Ciphers aes256-cbc")))
    assert "key exchange" in message
    assert "--rsh-agent ssh" in message


def test_a_server_with_the_official_name_of_curve25519_only(lab: SshLab, opener: Opener) -> None:
    assert read(opener(lab.sshd("KexAlgorithms curve25519-sha256"), "cat", b"x"), 1) == b"x"


def test_an_account_that_runs_no_commands(lab: SshLab, opener: Opener) -> None:
    message = failure(opener(lab.sshd("MaxSessions 0")))
    assert "the command was not started" in message
