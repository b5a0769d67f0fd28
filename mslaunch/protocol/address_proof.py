"""The proof that an address leads to the agent that knows a token: the agent's answer to a nonce.

    caller     NONCE
    listener   PROOF ADDRESS

PROOF is keyed BLAKE2b (RFC 7693) over the nonce and the address at which the caller has reached the listener; the token
is the key, and never travels on that connection.  So a relay proves only the address at which the relay itself has
reached the listener, and the caller wants a proof of the address that the caller has dialled.

Where the listener serves only those who know the token (links of --check), more follows:

    listener   NONCE
    caller     PROOF
"""

from __future__ import annotations

import os

from mslaunch.protocol.keyed_digest import keyed, same

_BYTES = 16  # of nonces, tokens and proofs
NONCE = 2 * _BYTES  #: characters of each, in hexadecimal
LONGEST = 256  #: bytes of an answer
_KEY = 64  # bytes of a key that BLAKE2b can take


def new_secret() -> str:
    """A new token or nonce."""
    return os.urandom(_BYTES).hex()


def proof(token: str, *words: str) -> str:
    """What only somebody who knows the token can make of the words."""
    key = token.encode("utf-8", "surrogateescape")[:_KEY]  # a host chooses its own, and may choose nonsense
    return keyed(key, *words, size=_BYTES).hex()


def answer(token: str, nonce: bytes, address: str) -> bytes:
    """The answer to `nonce` of a caller that has reached us at `address`."""
    return f"{proof(token, 'listener', nonce.decode('ascii', 'replace'), address)} {address}\n".encode()


def proved_address(token: str, nonce: str, said: bytes) -> str:
    """The address that an answer proves; "" if it proves none."""
    given, _, address = said.decode("ascii", "replace").partition(" ")
    address = address.rstrip("\n")
    return address if same(given, proof(token, "listener", nonce, address)) else ""


def caller_proof(token: str, nonce: str, listeners_nonce: str, address: str) -> str:
    """The proof of a caller to a listener that has proved `address`."""
    return proof(token, "caller", nonce, listeners_nonce, address)
