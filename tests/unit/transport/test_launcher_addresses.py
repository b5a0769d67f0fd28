"""The order of the launcher's addresses for agents that call back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mslaunch.host.own_addresses import addresses, is_loopback
from mslaunch.transport import launcher_addresses
from mslaunch.transport.launcher_addresses import LauncherAddresses, by_name

ROOT = Path(__file__).parents[3]


def test_all_are_offered_and_no_loopback() -> None:
    own = [address for address in addresses() if not is_loopback(address)]
    assert sorted(LauncherAddresses().for_hosts(["localhost", "127.0.0.1", "no-such-host"])) == sorted(own)


def test_names_are_those_of_the_hosts_file() -> None:
    text = (
        b"127.0.0.1 localhost\n# 10.0.0.9 n9\n10.0.0.1\tn1.example n1 # n3\n\n10.0.0.2 n1 n2\nfd00::1 n1 \xff\n10.0.0.4"
    )
    assert by_name(text) == {
        "localhost": "127.0.0.1", "n1.example": "10.0.0.1", "n1": "10.0.0.1", "n2": "10.0.0.2", "\ufffd": "fd00::1",
    }  # fmt: skip


def test_the_address_of_the_route_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a name of the hosts file, too; others are not looked up."""
    asked: list[str] = []

    def route(host: str) -> str:
        asked.append(host)
        return {"10.0.0.9": "10.0.0.1", "fe80::1": "fe80::2%eth0"}.get(host, "")

    monkeypatch.setattr(launcher_addresses, "addresses", lambda: ["192.0.2.1", "10.0.0.1", "172.17.0.1", "::1"])
    monkeypatch.setattr(launcher_addresses, "head_of", lambda path, most: b"10.0.0.9 n9")
    monkeypatch.setattr(launcher_addresses, "source_address", route)
    known = LauncherAddresses()
    assert known.for_hosts(["n1"]) == ["192.0.2.1", "10.0.0.1", "172.17.0.1"]
    assert known.for_hosts(["n1", "n9", "fe80::1"]) == ["10.0.0.1", "192.0.2.1", "172.17.0.1"]
    assert asked == ["n1", "n1", "10.0.0.9", "fe80::1"]
    known.for_hosts(f"n{number}" for number in range(5000))
    assert len(asked) < 100


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip")
def test_bridges_are_known_by_the_kernel() -> None:
    """In a network namespace of its own, whose /sys shows its interfaces."""
    script = (
        "mount -t sysfs none /sys && ip link add name harmless type bridge && ip addr add 172.17.0.1/16 dev harmless &&"
        "ip link add br-0 type veth peer name br-1 && ip addr add 192.0.2.1/24 dev br-0 &&"
        f"exec {sys.executable} -c 'from mslaunch.transport.launcher_addresses import *; "
        "print(LauncherAddresses().for_hosts([]))'"
    )
    done = subprocess.run(
        ["unshare", "-n", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert (done.stdout, done.stderr) == ("['192.0.2.1', '172.17.0.1']\n", "")
