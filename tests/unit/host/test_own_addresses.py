"""The local address of connections to another host, tested over loopback only."""

from __future__ import annotations

import pytest

from mslaunch.host.own_addresses import source_address


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


def test_a_name_is_looked_up_on_request() -> None:
    assert source_address("localhost", resolve=True) in ("127.0.0.1", "::1")
    assert source_address("no.such.host.invalid", resolve=True) == ""
