"""The proofs by which one that calls, such as an agent, and one that listens know each other: a token, and two nonces.

    caller   mslaunch-call NONCE NAME KIND
    host     NONCE PLACE PROOF
    caller   PROOF
    both     records (`sealed_records`), whose keys are made of the same words

Each is a line of ASCII, nonces and proofs in hexadecimal.  A proof is keyed BLAKE2b (RFC 7693) over the role of the one
that proves, and over all of these words.  PLACE is where the host was called, as the host has it: the address of its
own end of the connection; or, where commands meet, a digest of the endpoint and of the run.  A caller takes no proof
for another place than it has called.  So whoever hands a call on to the host gets a proof that is worthless to him.
The host proves first, so a caller talks to nobody else; the token never travels here.

The host sends an agent SIZE, and that many bytes: its modules (`bootstrap.modules_for`), in records already.
"""

from __future__ import annotations

import os
import sys

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mslaunch.protocol.sealed_records import Seals

CALL = "mslaunch-call"
LONGEST = 512  #: bytes of a line
TOKEN = 32  #: bytes
ARGUMENT = "argv"  #: in the terms of a call: the name of the node is the first argument
NO_CALL = 79  #: exit code of an agent that cannot call back, where its command passes that on
CALLER, HOST = "caller", "host"  #: the roles
_NONCE = 16


def bytecode() -> str:
    """The kind that this Python runs; another one with the same runs what this one has compiled."""
    from _frozen_importlib_external import MAGIC_NUMBER

    return f"{sys.implementation.cache_tag}-{MAGIC_NUMBER.hex()}"


def new_nonce() -> str:
    """Of this connection."""
    return os.urandom(_NONCE).hex()


class CallWords(NamedTuple):
    """The words of one call; none has a line end in it, for each came in a line."""

    caller_nonce: str
    host_nonce: str
    name: str  # of the caller
    kind: str  # what the caller is: of an agent its bytecode
    place: str  # where it has called


def proof(role: str, token: bytes, call: CallWords) -> str:
    """What the side with this role sends."""
    from mslaunch.protocol.keyed_digest import keyed

    return keyed(token, f"proof of {role}", *call).hex()


def seals(role: str, token: bytes, call: CallWords) -> Seals:
    """What the side with this role makes records with, and opens those of the other side, once both are proved."""
    from mslaunch.protocol.keyed_digest import keyed
    from mslaunch.protocol.sealed_records import RecordOpener, RecordSealer, Seals

    other = HOST if role == CALLER else CALLER
    ours, theirs = (keyed(token, f"records of {side}", *call) for side in (role, other))
    return Seals(RecordSealer(ours), RecordOpener(theirs))
