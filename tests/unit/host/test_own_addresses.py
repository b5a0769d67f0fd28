"""The addresses of this host, and the local one of connections to another, tested over loopback only."""

from __future__ import annotations

import os
import shutil
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
    assert source_address("bücher.invalid", resolve=True) == ""


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


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("fd00::ffff:1", "fd00::ffff:1"),
        ("::1", "::1"),
    ],
)
def test_an_address_of_a_socket_is_compared_as_one_writes_it(address: str, plain: str) -> None:
    assert bare_address(address) == plain


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_to_an_own_address_leads_back(family: socket.AddressFamily) -> None:
    """At either end, one of which may be a socket of IPv6 with a mapped address."""
    host = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}[family]
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.create_connection((host, server.getsockname()[1]), 5) as caller,
        server.accept()[0] as called,
    ):
        assert leads_back(caller) and leads_back(called)


def test_a_connection_between_two_addresses_does_not_lead_back() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), 5, ("127.0.0.3", 0)) as caller,
        server.accept()[0] as called,
    ):
        assert not leads_back(caller) and not leads_back(called)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"), reason="needs root")
def test_a_connection_to_a_secondary_address_leads_back() -> None:
    """The kernel calls it from the primary address of the interface."""
    network = (
        "ip link set lo up && ip link add docker0 type bridge && ip link set docker0 up && "
        "ip addr add 172.17.0.1/16 dev docker0 && ip addr add 172.17.0.2/16 dev docker0 && "
    )
    code = (
        "import socket, sys; sys.path.insert(0, sys.argv[1])\n"
        "from mslaunch.host.own_addresses import leads_back\n"
        "for bound, called in (('0.0.0.0', '172.17.0.1'), ('0.0.0.0', '172.17.0.2'), ('::', '172.17.0.2')):\n"
        "    family = socket.AF_INET6 if ':' in bound else socket.AF_INET\n"
        "    server = socket.create_server((bound, 0), family=family, dualstack_ipv6=':' in bound)\n"
        "    caller = socket.create_connection((called, server.getsockname()[1]), 5)\n"
        "    print(caller.getsockname()[0], leads_back(caller), leads_back(server.accept()[0]))"
    )
    words = ["unshare", "-n", "sh", "-c", f'{network} exec "$@"', "sh", sys.executable, "-I", "-S", "-c", code]
    said = subprocess.run([*words, str(ROOT)], capture_output=True, text=True, timeout=60, check=False)
    assert said.stdout.splitlines() == ["172.17.0.1 True True"] * 3, said.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"), reason="needs root")
def test_addresses_of_bridges_come_after_those_of_other_interfaces() -> None:
    """The bridge comes first in the kernel's list."""
    network = (
        "mount -t sysfs sysfs /sys && ip link set lo up && ip link add docker0 type bridge && "
        "ip addr add 172.17.0.1/16 dev docker0 && ip addr add fd00::17/64 dev docker0 nodad && "
        "ip link add eth9 type veth peer name far && ip addr add 10.9.1.1/24 dev eth9 && "
        "ip addr add fd00::9/64 dev eth9 nodad && "
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from mslaunch.host.own_addresses import addresses\n"
        "print(*addresses())"
    )
    words = ["unshare", "-n", "-m", "sh", "-c", f'{network} exec "$@"', "sh"]
    words += [sys.executable, "-I", "-S", "-c", code, str(ROOT)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if said.returncode:
        pytest.skip(f"NOT TESTED, there are no bridges here: {said.stderr}")
    assert said.stdout.split() == ["10.9.1.1", "fd00::9", "172.17.0.1", "fd00::17", "127.0.0.1", "::1"]


def test_a_network_stack_has_a_word_of_its_own() -> None:
    word = network_stack()
    assert word and word == network_stack() and not set(word) & set(" \n")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_namespace_is_another_network_stack() -> None:
    show = "from mslaunch.host.own_addresses import network_stack; print(network_stack())"
    done = subprocess.run(["unshare", "-n", sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout.strip() not in ("", network_stack())
