"""What mslaunch offers to a host, read from the KEXINIT on the wire: with the newest paramiko and the oldest one.

scripts/test makes the environment of the oldest versions (tests/requirements/lowest.txt) and names its interpreter in
MSLAUNCH_TEST_LOWEST_PYTHON.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mslaunch.transport.ssh import command_channel, paramiko_transport

ROOT = Path(__file__).parents[2]
BOUND = 60.0  # seconds
DIAL = """
import sys
from mslaunch.datamodel.jobmap import Node
from mslaunch.datamodel.request import LinkPolicy
from mslaunch.transport.ssh.ssh_link import make_links
home, port = sys.argv[1:]
nodes = [Node("127.0.0.1", 1, "test", port=int(port))]
[link] = make_links(nodes, "true", LinkPolicy(), {"HOME": home}, print)
link.begin()
assert link.wait(60)
print(link.failure())
"""
#: the newest has these; the oldest may lack some, and has nothing else
NEWEST = {
    "kex": [
        *("curve25519-sha256", "curve25519-sha256@libssh.org"),
        *("ecdh-sha2-nistp256", "ecdh-sha2-nistp384", "ecdh-sha2-nistp521", "mlkem768x25519-sha256"),
        *("diffie-hellman-group16-sha512", "diffie-hellman-group14-sha256"),
    ],
    "host keys": [
        *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
        *("rsa-sha2-512", "rsa-sha2-256"),
    ],
    "ciphers": ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr"],
    "macs": [
        *("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512"),
    ],
}
LACKING = {"newest": set(), "oldest": {"mlkem768x25519-sha256", "aes128-gcm@openssh.com", "aes256-gcm@openssh.com"}}
WEAK = re.compile(r"sha1$|sha1-|md5|-96|group1-|group-exchange|cbc|3des|arcfour|ssh-rsa|ssh-dss|blowfish|none")


def interpreter(which: str) -> str:
    if which == "newest":
        return sys.executable
    found = os.environ.get("MSLAUNCH_TEST_LOWEST_PYTHON")
    if not found:
        pytest.skip("NOT TESTED, no environment with the lowest versions: scripts/test ssh")
    return found


def kexinit(which: str, home: Path) -> list[list[str]]:
    """The name-lists of the first packet of a launch to a host that says no more than its banner (RFC 4253, 7.1)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(BOUND)
        port = str(listener.getsockname()[1])
        words = [interpreter(which), "-c", DIAL, str(home), port]
        environ = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(home)}
        child = subprocess.Popen(words, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            host, _ = listener.accept()
            with host, host.makefile("rb") as stream:
                host.settimeout(BOUND)
                host.sendall(b"SSH-2.0-listener\r\n")
                assert stream.readline().startswith(b"SSH-2.0-")
                packet = stream.read(int.from_bytes(stream.read(4), "big"))
            out, _ = child.communicate(timeout=BOUND)
        finally:
            child.kill()
            child.wait()
    assert b"key exchange" in out, out
    assert packet[1] == 20
    left, lists = packet[18:], []
    while len(lists) < 8:
        size = int.from_bytes(left[:4], "big")
        lists.append(left[4 : 4 + size].decode().split(","))
        left = left[4 + size :]
    return lists


@pytest.mark.parametrize("which", ["newest", "oldest"])
def test_only_strong_algorithms_are_offered(which: str, tmp_path: Path) -> None:
    lists = kexinit(which, tmp_path)
    flags = [name for name in lists[0] if name.startswith(("ext-info-", "kex-strict-"))]
    assert "kex-strict-c-v00@openssh.com" in flags  # against Terrapin (CVE-2023-48795)
    offered = {"kex": [name for name in lists[0] if name not in flags], "host keys": lists[1]}
    offered |= {"ciphers": lists[2], "macs": lists[4]}
    assert lists[2:6:2] == lists[3:7:2]  # the same in both directions
    lacking = LACKING[which]
    for kind, names in NEWEST.items():
        assert offered[kind] == [name for name in names if name not in lacking], kind
        assert not [name for name in offered[kind] if WEAK.search(name)]
    assert lists[6] == ["none"] and lists[7] == ["none"]  # no compression below ours


@pytest.mark.limit(240)
def test_the_lowest_versions_that_are_allowed_work(tmp_path: Path) -> None:
    """Real connections, host keys and authentication, in the environment of the lower bounds of pyproject.toml."""
    words = [interpreter("oldest"), "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-n", "0"]
    words += ["tests/ssh/test_ssh_hostkeys.py", "tests/ssh/test_paramiko_transport.py"]
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environ |= {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"\b[1-9][0-9]* passed", done.stdout)
    assert "failed" not in done.stdout and "skipped" not in done.stdout


VERSIONS = """
import re, sys
from importlib.metadata import version
for text in sys.argv[1:]:
    name, low = re.match(r"([\\w.-]+)>=([\\w.]+)", text).groups()
    numbers = [[int(part) for part in each.split(".")[:3]] for each in (version(name), low)]
    assert numbers[0][: len(numbers[1])] == numbers[1], (name, version(name), low)
"""


def test_the_lowest_versions_are_the_bounds_of_pyproject() -> None:
    found = re.search(r"^dependencies = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found
    bounds = re.findall(r'"([^"]+)"', found[1])
    assert all(re.match(r"[\w.-]+>=[\w.]+", each) for each in bounds)
    done = subprocess.run([interpreter("oldest"), "-c", VERSIONS, *bounds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


#: names of paramiko that are not documented, and what mslaunch does with them
PRIVATE = {
    "Transport": {
        "_kex_info": "adds RFC 8731's name",
        "_cipher_info": "offers only what is there",
        "_mac_info": "offers only what is there",
        "_key_info": "offers only what is there",
        "_active_check_timeout": "does not wake ten times a second",
        "_log": "writes no log",
        "_preferred_keys": "offers no host certificates",
        "preferred_keys": "offers no host certificates",
        "_parse_disconnect": "keeps the host's reason",
        "_really_parse_kex_init": "keeps what the host offers",
        "_auth_trigger": "tells that authentication is done",
        "_send_message": "sends messages of authentication",
    },
    "packet.Packetizer": {
        "start_handshake": "starts no timer thread",
        "read_all": "refuses packets that are too long",
        "_read_timeout": "refuses greetings that are too long",
    },
    "buffered_pipe.BufferedPipe": {"feed": "refuses more than the window"},
    "channel.Channel": {
        "_set_transport": "asks for a channel without waiting",
        "_set_window": "asks for a channel without waiting",
        "_wait_for_event": "waits until the command runs",
    },
}
ON_INSTANCES = (
    "_handler_table",
    "server_extensions",
    "auth_handler",
    "initial_kex_done",
    "session_id",
    "remote_version",
    "_channels",
    "_channel_counter",
    "channel_events",
    "channels_seen",
)


def test_private_names_of_paramiko_are_there() -> None:
    paramiko = paramiko_transport.load_paramiko()
    see = "mslaunch/transport/ssh uses it; see there before pyproject.toml allows this version"
    for place, names in PRIVATE.items():
        owner = paramiko
        for part in place.split("."):
            owner = getattr(owner, part)
        for name, why in names.items():
            assert hasattr(owner, name), f"paramiko {paramiko.__version__} has no {place}.{name} ({why}): {see}"
    near, far = socket.socketpair()
    with near, far:
        transport = paramiko.Transport(near)
        missing = [name for name in ON_INSTANCES if not hasattr(transport, name)]
        assert not missing, f"paramiko {paramiko.__version__} has no Transport.{missing[0]}: {see}"
        transport.close()


def test_the_list_of_private_names_is_complete() -> None:
    text = Path(paramiko_transport.__file__).read_text(encoding="utf-8")
    channels = Path(command_channel.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r"(?<=channel)\.(_\w+)", channels)) == set(PRIVATE["channel.Channel"])
    assert set(re.findall(r"transport\.(_\w+|channel\w+)", channels)) <= {*PRIVATE["Transport"], *ON_INSTANCES}
    used = set(re.findall(r"(?:transport|Transport|super\(\)|_transport)\.(_[a-z]\w+)", text))
    used |= set(
        re.findall(
            r"^        (?:def )?(_[a-z]\w+)(?:\(| =)", text[text.index("class Tuned") : text.index("def start")], re.M
        )
    )
    used |= set(re.findall(r'"(_\w+_info)"', text))
    assert used <= {*PRIVATE["Transport"], *PRIVATE["packet.Packetizer"], *ON_INSTANCES}
