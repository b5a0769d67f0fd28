"""The addresses of this host, and the local one of connections to another, tested over loopback only."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import mslaunch
from mslaunch.host.own_addresses import (
    addresses,
    bare_address,
    is_loopback,
    leads_back,
    network_stack,
    source_address,
)

ROOT = Path(mslaunch.__file__).parents[1]


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.3.4.5", "127.0.0.1"),
        ("::1", "::1"),
        ("fe80::1%nosuchinterface", ""),
        ("no address", ""),
        ("localhost", ""),
    ],
)
def test_an_address_is_used_as_it_is(host: str, own: str) -> None:
    assert source_address(host) == own


@pytest.mark.parametrize(
    ("address", "loops"), [("127.0.0.2", True), ("::1", True), ("128.0.0.1", False), ("::2", False)]
)
def test_an_address_of_loopback_is_known(address: str, loops: bool) -> None:
    assert is_loopback(address) is loops


def test_a_name_is_looked_up_on_request() -> None:
    assert source_address("localhost", resolve=True) in ("127.0.0.1", "::1")
    assert source_address("no.such.host.invalid", resolve=True) == ""


def test_the_interfaces_are_listed_without_the_package_collections() -> None:
    """Which array imports: it takes longer than all that an agent does before HELLO.  It can still be imported."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from mslaunch.host.own_addresses import addresses\n"
        "print(*addresses())\n"
        "print(*sorted({'collections', 'collections.abc'} & set(sys.modules)))\n"
        "import collections.abc\n"
        "print(collections.abc.MutableSequence.__name__)"
    )
    words = [sys.executable, "-I", "-S", "-c", program, str(ROOT)]
    said, before, after = "", [""], [""]
    while not said or before != after:  # other tests make hosts with addresses of their own, and remove them
        before = addresses()
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
        after = addresses()
    assert said.splitlines() == [" ".join(after), "", "MutableSequence"]
    assert "127.0.0.1" in after


def test_an_address_leads_back_if_both_ends_have_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as sock:
            assert leads_back(sock)
        with socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) as sock:
            assert not leads_back(sock)


def test_an_address_of_ipv4_leads_back_on_a_socket_of_ipv6() -> None:
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::", 0))
        server.listen()
        with socket.create_connection(("127.0.0.1", server.getsockname()[1])) as sock, server.accept()[0] as accepted:
            assert leads_back(sock) and leads_back(accepted)
            assert bare_address(accepted.getsockname()[0]) == bare_address(sock.getpeername()[0]) == "127.0.0.1"


def test_an_address_without_its_interface() -> None:
    assert [bare_address(text) for text in ("10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "fd00::1")] == [
        "10.0.0.1", "10.0.0.1", "fe80::1", "fd00::1",
    ]  # fmt: skip


def test_a_network_stack_has_a_word_of_its_own() -> None:
    word = network_stack()
    assert word and word == network_stack() and not set(word) & set(" \n")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_namespace_is_another_network_stack() -> None:
    show = "from mslaunch.host.own_addresses import network_stack; print(network_stack())"
    done = subprocess.run(["unshare", "-n", sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout.strip() not in ("", network_stack())
