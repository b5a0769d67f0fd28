"""Ed25519 keys of hosts: the signature of the key exchange, and everything that is not it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from paramiko import Message
from paramiko.ed25519key import Ed25519Key

from mslaunch.transport.ssh.ed25519_host_key import Ed25519HostKey
from mslaunch.transport.ssh.user_keys import pack

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = PRIVATE.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
BLOB = pack("ssh-ed25519", PUBLIC)
DATA = b"the hash of an exchange"
SIGNATURE = PRIVATE.sign(DATA)


def flipped(data: bytes, bit: int) -> bytes:
    return bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(data))


@pytest.mark.parametrize("make", [Ed25519HostKey, Ed25519Key], ids=["ours", "paramiko"])
def test_a_signature_of_the_host_and_no_other(make: Callable[[Message], Ed25519HostKey]) -> None:
    """As paramiko's own class."""
    key = make(Message(BLOB))
    assert (key.get_name(), key.asbytes()) == ("ssh-ed25519", BLOB)
    assert key.verify_ssh_sig(DATA, Message(pack("ssh-ed25519", SIGNATURE)))
    assert not key.verify_ssh_sig(DATA + b"x", Message(pack("ssh-ed25519", SIGNATURE)))
    assert not key.verify_ssh_sig(DATA, Message(pack("ssh-rsa", SIGNATURE)))
    for bit in range(0, 512, 7):
        assert not key.verify_ssh_sig(DATA, Message(pack("ssh-ed25519", flipped(SIGNATURE, bit)))), bit


@pytest.mark.parametrize("signature", [b"", SIGNATURE[:63], SIGNATURE + b"x", bytes(64)])
def test_what_is_no_signature_is_none(signature: bytes) -> None:
    assert not Ed25519HostKey(Message(BLOB)).verify_ssh_sig(DATA, Message(pack("ssh-ed25519", signature)))


@pytest.mark.parametrize("blob", [b"", pack("ssh-rsa", PUBLIC), pack("ssh-ed25519", PUBLIC[:31]), pack("ssh-ed25519")])
def test_another_kind_of_key_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError):
        Ed25519HostKey(Message(blob))
