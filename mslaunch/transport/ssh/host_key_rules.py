"""What the SSH configuration says about a host's key whatever known_hosts has: RevokedHostKeys, RequiredRSASize.

A list of revoked keys that cannot be read, or has a line that cannot, refuses every key, as in ssh.
"""

from __future__ import annotations

import base64
import hashlib

from mslaunch.host.files import read_bytes
from mslaunch.transport.base import OwnSshError
from mslaunch.transport.ssh.config.algorithms import rsa_bits
from mslaunch.transport.ssh.config.config_lines import WAY_OUT
from mslaunch.transport.ssh.config.ssh_config import HostConfig
from mslaunch.transport.ssh.user_keys import plain_blob, unpack

_KRL = b"SSHKRL\n\0"  # PROTOCOL.krl


class HostKeyError(OwnSshError):
    """The key of a host is refused."""

    check = "host key"  #: as --check names what has failed


def fingerprint(blob: bytes) -> str:
    """`SHA256:…` as ssh and ssh-keygen -l print it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def refuse_key(config: HostConfig, type_: str, blob: bytes) -> None:
    """Raise LinkError if the configuration forbids this host key."""
    bits = rsa_bits(blob)
    if 0 < bits < config.required_rsa:
        what = f"its host key {type_} {fingerprint(blob)} has {bits} bits; RequiredRSASize is {config.required_rsa}"
        raise HostKeyError(what, config.where, "Have a longer key, or an ed25519 one, made on the host.")
    if not config.revoked:
        return
    try:
        data = read_bytes(config.revoked)
    except OSError as error:
        todo = "No host key is accepted without it, as in ssh."
        raise HostKeyError(
            f"RevokedHostKeys {config.revoked} cannot be read: {error.strerror}", config.where, todo
        ) from error
    if data.startswith(_KRL):
        what = f"RevokedHostKeys {config.revoked} is a binary list (KRL), which mslaunch's own SSH cannot read"
        refused = HostKeyError(what, config.where, f"Name a file of public keys, one a line.\n{WAY_OUT}")
        refused.ssh_reason = f"RevokedHostKeys {config.revoked} is a binary list"
        raise refused
    if blob in _keys(data, config):
        todo = "Do not connect; ask the host's administrator."
        what = f"its host key {type_} {fingerprint(blob)} is revoked in {config.revoked} (RevokedHostKeys)"
        raise HostKeyError(what, config.where, todo)


def _keys(data: bytes, config: HostConfig) -> set[bytes]:
    found = set()
    for number, line in enumerate(data.split(b"\n"), 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        blob = _blob(words)
        if not blob:
            what = f"RevokedHostKeys {config.revoked}:{number} is no public key"
            raise HostKeyError(what, config.where, "No host key is accepted with such a file, as in ssh.")
        found.add(plain_blob(blob))
    return found


def _blob(words: list[bytes]) -> bytes:
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (ValueError, IndexError):
        return b""
    return blob if unpack(blob)[:1] == words[:1] else b""
