"""A host's key of type ssh-ed25519 (RFC 8709), verified with `cryptography`; paramiko has PyNaCl for it, 10 ms more."""

from __future__ import annotations

from typing import Any

_NAME = "ssh-ed25519"


class Ed25519HostKey:
    """What paramiko's transport wants of a key class: it is made from a message, and verifies a signature."""

    def __init__(self, message: Any) -> None:
        """`message`: the blob (RFC 8709, section 4); raises ValueError if it is another kind of key, or none."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        self._blob = bytes(message.asbytes())
        if message.get_text() != _NAME:
            raise ValueError("the host's key is not of the type that was agreed on")
        self._public = Ed25519PublicKey.from_public_bytes(bytes(message.get_binary()))

    def get_name(self) -> str:
        """The type of the key."""
        return _NAME

    def asbytes(self) -> bytes:
        """The blob."""
        return self._blob

    def verify_ssh_sig(self, data: bytes, message: Any) -> bool:
        """Whether the signature in `message` (RFC 8709, section 6) is that of `data`."""
        from cryptography.exceptions import InvalidSignature

        if message.get_text() != _NAME:
            return False
        try:
            self._public.verify(bytes(message.get_binary()), data)
        except InvalidSignature:
            return False
        return True
