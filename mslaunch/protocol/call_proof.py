"""The proofs by which an agent that calls back and its launcher know each other: a token, and two nonces.

    agent      mslaunch-call NONCE NODE BYTECODE
    launcher   NONCE PROOF
    agent      PROOF
    launcher   SIZE, and so many bytes: the modules of the agent (`bootstrap.modules_for`)

Each is a line of ASCII, nonces and proofs in hexadecimal.  A proof is keyed BLAKE2b (RFC 7693) over who proves, both
nonces and the node; the token never travels here.  The launcher proves first, so an agent talks to nobody else.
"""

from __future__ import annotations

import os
import sys

CALL = "mslaunch-call"
LONGEST = 512  #: bytes of a line
TOKEN = 32  #: bytes
ARGUMENT = "argv"  #: in the terms of a call: the name of the node is the first argument
NO_CALL = 79  #: exit code of an agent that cannot call back, where its command passes that on
_NONCE = 16


def bytecode() -> str:
    """The kind that this Python runs; another one with the same runs what this one has compiled."""
    from _frozen_importlib_external import MAGIC_NUMBER

    return f"{sys.implementation.cache_tag}-{MAGIC_NUMBER.hex()}"


def new_nonce() -> str:
    """Of this connection."""
    return os.urandom(_NONCE).hex()


def proof(who: str, token: bytes, agent_nonce: str, launcher_nonce: str, node: str) -> str:
    """What `who`, agent or launcher, sends."""
    try:
        from _blake2 import blake2b
    except ImportError:  # an interpreter without this C core
        from hashlib import blake2b
    text = "\n".join((who, agent_nonce, launcher_nonce, node))
    return blake2b(text.encode(), key=token, digest_size=32).hexdigest()


def same(one: str, other: str) -> bool:
    """In a time that does not tell where they differ."""
    from _operator import _compare_digest

    return _compare_digest(one.encode(), other.encode())
