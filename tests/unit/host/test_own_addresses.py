"""The addresses of this host, and the local one of connections to another, tested over loopback only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mslaunch
from mslaunch.host.own_addresses import addresses, is_loopback, source_address

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
