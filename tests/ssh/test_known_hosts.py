"""known_hosts: what a line means, and what is said of a key."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sshd import keygen

from mslaunch.transport.ssh import known_hosts as kh
from mslaunch.transport.ssh.user_keys import pack

ED = pack("ssh-ed25519", b"1" * 32)
ED2 = pack("ssh-ed25519", b"2" * 32)
RSA = pack("ssh-rsa", b"\1\0\1", b"n" * 256)
CA = pack("ssh-ed25519", b"c" * 32)
DSA = pack("ssh-dss", b"d" * 20)


def text(*rows: tuple[str, bytes]) -> str:
    kind = {ED: "ssh-ed25519", ED2: "ssh-ed25519", CA: "ssh-ed25519", RSA: "ssh-rsa", DSA: "ssh-dss"}
    return "".join(f"{names} {kind[blob]} {base64.b64encode(blob).decode()} comment\n" for names, blob in rows)


def judge(lines: str, name: str = "node1", blob: bytes = ED, port: int = 22) -> str:
    known = kh.KnownHosts(kh.parse(lines, "kh"))
    kind = "ssh-rsa" if blob == RSA else "ssh-ed25519"
    return known.judge(list(dict.fromkeys([kh.name_of(name, port), name])), kind, blob).kind


@pytest.mark.parametrize(
    ("names", "host", "port", "verdict"),
    [
        ("node1", "node1", 22, kh.KNOWN),
        ("NODE1", "node1", 22, kh.KNOWN),
        ("node1", "NODE1", 22, kh.KNOWN),
        ("other,node1", "node1", 22, kh.KNOWN),
        ("node2", "node1", 22, kh.UNKNOWN),
        ("[node1]:2222", "node1", 2222, kh.KNOWN),
        ("[node1]:2222", "node1", 22, kh.UNKNOWN),
        ("[node1]:2222", "node1", 2223, kh.UNKNOWN),
        ("node1", "node1", 2222, kh.KNOWN),  # ssh also looks for the name without a port
        ("node*", "node1", 22, kh.KNOWN),
        ("node?", "node12", 22, kh.UNKNOWN),
        ("10.77.*", "10.77.1.1", 22, kh.KNOWN),
        ("[node*]:2222", "node1", 2222, kh.KNOWN),
        ("[n-z]ode1", "node1", 22, kh.UNKNOWN),  # brackets are no character class
        ("node*,!node1", "node1", 22, kh.UNKNOWN),
        ("!node1,node*", "node1", 22, kh.UNKNOWN),
        ("!node2,node*", "node1", 22, kh.KNOWN),
        ("fe80::1", "fe80::1", 22, kh.KNOWN),
        ("node1.", "node1", 22, kh.UNKNOWN),
    ],
)
def test_names(names: str, host: str, port: int, verdict: str) -> None:
    assert judge(text((names, ED)), host, ED, port) == verdict


def test_hashed_names() -> None:
    assert judge(text((kh.hashed("node1"), ED))) == kh.KNOWN
    assert judge(text((kh.hashed("node2"), ED))) == kh.UNKNOWN
    assert judge(text((kh.hashed("[node1]:2222"), ED)), port=2222) == kh.KNOWN
    assert judge("|1|broken ssh-ed25519 AAAA\n|2|YQ==|YQ== ssh-ed25519 AAAA\n" + text(("node1", ED))) == kh.KNOWN


@pytest.mark.sshd
def test_hashed_as_ssh_keygen_does(tmp_path: Path) -> None:
    key = keygen(tmp_path / "key")
    kind, blob = Path(f"{key}.pub").read_text().split()[:2]
    known = tmp_path / "known_hosts"
    known.write_text(f"node1 {kind} {blob}\n[node2]:2222 {kind} {blob}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "node" not in known.read_text()
    assert judge(known.read_text(), "node1", base64.b64decode(blob)) == kh.KNOWN
    assert judge(known.read_text(), "node2", base64.b64decode(blob), 2222) == kh.KNOWN
    shown = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], check=True, capture_output=True, text=True).stdout
    assert kh.fingerprint(base64.b64decode(blob)) == shown.split()[1]


@given(st.text(st.characters(codec="ascii", categories=["Ll", "Nd"], include_characters="-."), min_size=1, max_size=20))
def test_a_name_hashed_here_is_found_by_its_hash_only(name: str) -> None:
    assert kh.matches(kh.hashed(name), name)
    assert not kh.matches(kh.hashed(name), name + "x")


def test_another_key_is_a_change_whatever_its_type() -> None:
    assert judge(text(("node1", ED2))) == kh.CHANGED
    assert judge(text(("node1", RSA))) == kh.CHANGED
    assert judge(text(("node1", ED2), ("node1", ED))) == kh.KNOWN
    assert judge(text(("node1", DSA))) == kh.UNKNOWN  # a type that nobody can show any more
    assert judge(text(("node1", ED2)), port=2222) == kh.UNKNOWN  # another server on the same host


def test_the_line_that_decides_is_named() -> None:
    known = kh.KnownHosts(kh.parse("# comment\n\n" + text(("node1", RSA), ("node1", ED2)), "file"))
    verdict = known.judge(["node1"], "ssh-ed25519", ED)
    assert verdict.entry
    assert (verdict.kind, verdict.entry.where, verdict.entry.blob) == (kh.CHANGED, "file:4", ED2)


def test_markers() -> None:
    good = text(("node1", ED))
    assert judge("@revoked * " + good.split(" ", 1)[1] + good) == kh.REVOKED
    assert judge("@revoked node2 " + good.split(" ", 1)[1] + good) == kh.KNOWN
    authority = "@cert-authority *.lab,node1 " + text(("x", CA)).split(" ", 1)[1]
    assert judge(authority) == kh.AUTHORITY
    assert judge(authority + good) == kh.KNOWN
    assert judge(authority, "node2") == kh.UNKNOWN
    assert judge(authority, blob=CA) == kh.AUTHORITY  # its own key is no host key
    assert judge("@unheard " + good) == kh.UNKNOWN


@given(st.text())
def test_garbage_is_skipped(garbage: str) -> None:
    known = kh.KnownHosts(kh.parse(garbage + "\n" + text(("good", ED)), "file"))
    assert known.judge(["good"], "ssh-ed25519", ED).kind == kh.KNOWN


def test_a_type_that_belies_its_key_is_skipped() -> None:
    assert kh.parse(text(("node1", ED)).replace("ssh-ed25519", "ssh-rsa"), "file") == []


def test_the_known_types_are_asked_for_first() -> None:
    known = kh.KnownHosts(kh.parse(text(("node1", RSA), ("node2", ED)), "file"))
    assert known.algorithms(["node1"])[:3] == ["rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519"]
    assert known.algorithms(["node2"])[0] == "ssh-ed25519"
    assert sorted(known.algorithms(["node1"])) == sorted(known.algorithms(["nowhere"]))
