"""The format of known_hosts files, and the verdict on a key that a host showed; reads and writes no file.

The rules are sshd(8)'s, "SSH_KNOWN_HOSTS FILE FORMAT": plain, hashed and wildcard names, [host]:port, negation,
@revoked and @cert-authority.  A line that cannot be read is skipped, as ssh does.  A host of which another key is
known, of whatever type, counts as changed and not as unknown: the known type is asked for first, so a host that still
had its old key would have shown it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from re import Pattern, compile, escape
from typing import NamedTuple

KNOWN, UNKNOWN, CHANGED, REVOKED, AUTHORITY = "known", "unknown", "changed", "revoked", "authority"

#: key types as they stand in a file -> the host key algorithms to ask for
ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}


class KnownHostLine(NamedTuple):
    """One line."""

    names: str  # as written: a comma list of patterns, or |1|salt|hash
    type: str
    blob: bytes
    marker: str = ""  # "", "@revoked", "@cert-authority"
    where: str = ""  # file:line


class Verdict(NamedTuple):
    """What the files say of a key that a host showed."""

    kind: str
    entry: KnownHostLine | None = None  # the line that decided it


def parse(text: str, source: str) -> list[KnownHostLine]:
    """The entries of one file; `source` is its name for messages.  Never raises: what cannot be read is skipped."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked", "@cert-authority"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        if _type_of(blob) == words[1]:
            entries.append(KnownHostLine(words[0], words[1], blob, marker, f"{source}:{number}"))
    return entries


def _type_of(blob: bytes) -> str:
    length = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + length].decode("ascii", "replace")


def name_of(host: str, port: int) -> str:
    """The name under which ssh files a host: `host`, or `[host]:port` if the port is not 22."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def matches(names: str, host: str) -> bool:
    """Does the first field of a line mean `host` (as `name_of` writes it)?"""
    if names.startswith("|"):
        return _hash_matches(names, host)
    found = False
    for pattern in names.lower().split(","):
        if pattern.startswith("!"):
            if _pattern(pattern[1:]).match(host):
                return False
        elif pattern and _pattern(pattern).match(host):
            found = True
    return found


def _hash_matches(names: str, host: str) -> bool:
    try:
        _, version, salt, digest = names.split("|")
        want = base64.b64decode(digest, validate=True)
        have = hmac.new(base64.b64decode(salt, validate=True), host.encode(), "sha1").digest()
    except (binascii.Error, ValueError):
        return False
    return version == "1" and hmac.compare_digest(want, have)


@lru_cache(maxsize=4096)
def _pattern(text: str) -> Pattern[str]:
    # only * and ? are special; [ is the beginning of [host]:port, which rules fnmatch out
    return compile(escape(text).replace(r"\*", ".*").replace(r"\?", ".") + r"\Z")


def hashed(host: str, salt: bytes = b"") -> str:
    """The first field for `host` with HashKnownHosts; a random 20 byte salt unless one is given."""
    salt = salt or os.urandom(20)
    digest = hmac.new(salt, host.encode(), "sha1").digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def line_of(names: str, type_: str, blob: bytes) -> str:
    """One line of a file, with its newline."""
    return f"{names} {type_} {base64.b64encode(blob).decode()}\n"


def fingerprint(blob: bytes) -> str:
    """`SHA256:…` as ssh and ssh-keygen -l print it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


class KnownHosts:
    """The entries of all files, indexed: a name costs one lookup, plus one test per pattern and hashed line."""

    def __init__(self, entries: Iterable[KnownHostLine] = ()) -> None:
        self._plain: dict[str, list[KnownHostLine]] = {}
        self._others: list[KnownHostLine] = []
        for entry in entries:
            self.add(entry)

    def add(self, entry: KnownHostLine) -> None:
        """One more line, as if it stood at the end of the last file."""
        names = entry.names.lower().split(",")
        if entry.marker or any(set(name) & set("*?!|") for name in names):
            self._others.append(entry)
        else:
            for name in names:
                self._plain.setdefault(name, []).append(entry)

    def of(self, host: str) -> list[KnownHostLine]:
        """The entries that mean `host` (as `name_of` writes it), those with markers too."""
        return [*self._plain.get(host, ()), *(entry for entry in self._others if matches(entry.names, host))]

    def _keys(self, names: Sequence[str]) -> list[KnownHostLine]:
        """Those of the first name that is known at all: ssh looks for `[host]:port` and then for `host`."""
        for name in names:
            keys = [entry for entry in self.of(name) if not entry.marker and entry.type in ALGORITHMS]
            if keys:
                return keys
        return []

    def judge(self, names: Sequence[str], type_: str, blob: bytes) -> Verdict:
        """What is known of a host that goes by `names` (the exact one first) and shows the key `blob`."""
        marked = [entry for name in names for entry in self.of(name) if entry.marker]
        for entry in marked:
            if entry.marker == "@revoked" and entry.blob == blob:
                return Verdict(REVOKED, entry)
        exact = self._keys(names[:1])
        for entry in exact or self._keys(names[1:]):
            if entry.blob == blob:
                return Verdict(KNOWN, entry)
        if exact:
            return Verdict(CHANGED, next((entry for entry in exact if entry.type == type_), exact[0]))
        authorities = [entry for entry in marked if entry.marker == "@cert-authority"]
        return Verdict(AUTHORITY, authorities[0]) if authorities else Verdict(UNKNOWN)

    def algorithms(self, names: Sequence[str]) -> list[str]:
        """Host key algorithms in the order to ask for: those of known keys first, as ssh does."""
        known = [algorithm for entry in self._keys(names) for algorithm in ALGORITHMS[entry.type]]
        return list(dict.fromkeys([*known, *(a for group in ALGORITHMS.values() for a in group)]))
