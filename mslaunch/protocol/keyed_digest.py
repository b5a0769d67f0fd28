"""Digests that only somebody who knows a secret can make: keyed BLAKE2b (RFC 7693), and their comparison.

BLAKE2b is what every Python has in C without OpenSSL, whose import takes ten times as long.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # an interpreter without this C core
    from hashlib import blake2b

__all__ = ["blake2b", "keyed", "same"]


def keyed(key: bytes, *words: str, size: int = 32) -> bytes:
    """Return `size` bytes over these words, which have no line ends.  A key has at most 64 bytes."""
    return blake2b("\n".join(words).encode(), key=key, digest_size=size).digest()


def same(one: str, other: str) -> bool:
    """Whether two digests are equal, compared in a time that does not tell where they differ."""
    from _operator import _compare_digest

    return _compare_digest(one.encode(), other.encode())
