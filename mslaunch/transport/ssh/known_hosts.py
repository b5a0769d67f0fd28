"""Known hosts: the format of their files, the verdict on a key that a host shows, and the keys of new hosts.

The rules are sshd(8)'s, "SSH_KNOWN_HOSTS FILE FORMAT": plain, hashed and wildcard names, [host]:port, negation,
@revoked and @cert-authority.  A line that cannot be read is skipped, as ssh does.  A host of which another key is
known, of whatever type, counts as changed and not as unknown: the known type is asked for first, so a host that still
had its old key would have shown it.

A new host's key is added to the first file where that is allowed (--ssh-accept-new, StrictHostKeyChecking).  Judging
and accepting are one step under one lock, so that of two links to one name that show different keys, only one gets in.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hmac
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mslaunch.errors import LinkError
from mslaunch.host.files import NO_FILE, read_bytes
from mslaunch.transport.ssh.config.config_lines import WAY_OUT, lowered, pattern_matches
from mslaunch.transport.ssh.config.ssh_config import HostConfig
from mslaunch.transport.ssh.host_key_rules import HostKeyError, fingerprint, refuse_key

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
    hidden: bool = False  # the ssh program, which splits the line differently, does not see the marker


class Verdict(NamedTuple):
    """What the files say about a key that a host showed."""

    kind: str
    entry: KnownHostLine | None = None  # the line that decided it
    authority: KnownHostLine | None = None  # a line with the authority that may have signed a certificate of the host


def parse(text: str, source: str) -> list[KnownHostLine]:
    """The entries of one file; `source` is its name for messages.  Never raises: what cannot be read is skipped."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked", "@cert-authority"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        if _type_of(blob) == words[1]:
            hidden = bool(marker) and not _ssh_sees(line, marker)
            entries.append(KnownHostLine(words[0], words[1], blob, marker, f"{source}:{number}", hidden))
    return entries


def _ssh_sees(line: str, marker: str) -> bool:
    """Whether ssh takes the marker for one: it ends it at the first blank, and at a tab only if there is no blank.

    That is OpenSSH's hostfile.c, check_markers.  To ssh, only blanks and tabs separate words.
    """
    text = line.strip(" \t\r")
    seen = text.partition(" " if " " in text else "\t")[0]
    return seen == marker and text.split() == [word for word in text.replace("\t", " ").split(" ") if word]


def _type_of(blob: bytes) -> str:
    length = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + length].decode("ascii", "replace")


def name_of(host: str, port: int) -> str:
    """The name under which ssh files a host: `host`, or `[host]:port` if the port is not 22."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def matches(names: str, host: str) -> bool:
    """Whether the first field of a line covers `host` (as `name_of` writes it)."""
    return _hash_matches(names, host) if names.startswith("|") else pattern_matches(lowered(names).split(","), host)


def _hash_matches(names: str, host: str) -> bool:
    try:
        _, version, salt, digest = names.split("|")
        want = base64.b64decode(digest, validate=True)
        have = hmac.new(base64.b64decode(salt, validate=True), host.encode(), "sha1").digest()
    except (binascii.Error, ValueError):
        return False
    return version == "1" and hmac.compare_digest(want, have)


def hashed(host: str, salt: bytes = b"") -> str:
    """The first field for `host` with HashKnownHosts; a random 20 byte salt unless one is given."""
    salt = salt or os.urandom(20)
    digest = hmac.new(salt, host.encode(), "sha1").digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def line_of(names: str, type_: str, blob: bytes) -> str:
    """One line of a file, with its newline."""
    return f"{names} {type_} {base64.b64encode(blob).decode()}\n"


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
        """The entries that cover `host` (as `name_of` writes it), those with markers too."""
        return [*self._plain.get(host, ()), *(entry for entry in self._others if matches(entry.names, host))]

    def _keys(self, names: Sequence[str]) -> list[KnownHostLine]:
        """The keys of the first name that has any: ssh looks for `[host]:port` and then for `host`."""
        for name in names:
            keys = [entry for entry in self.of(name) if not entry.marker and entry.type in ALGORITHMS]
            if keys:
                return keys
        return []

    def judge(self, names: Sequence[str], type_: str, blob: bytes) -> Verdict:
        """The verdict on the key `blob` of a host with these `names`, the exact one first."""
        marked = [entry for name in names for entry in self.of(name) if entry.marker]
        for entry in marked:
            if entry.marker == "@revoked" and entry.blob == blob:
                return Verdict(REVOKED, entry)
        authority = next((entry for entry in marked if entry.marker == "@cert-authority"), None)
        exact = self._keys(names[:1])
        for entry in exact or self._keys(names[1:]):
            if entry.blob == blob:
                return Verdict(KNOWN, entry)
        if exact:
            return Verdict(CHANGED, next((entry for entry in exact if entry.type == type_), exact[0]), authority)
        return Verdict(AUTHORITY, authority, authority) if authority else Verdict(UNKNOWN)

    def algorithms(self, names: Sequence[str]) -> list[str]:
        """Host key algorithms in the order of preference: those of known keys first, as ssh does."""
        known = [algorithm for entry in self._keys(names) for algorithm in ALGORITHMS[entry.type]]
        return list(dict.fromkeys([*known, *(a for group in ALGORITHMS.values() for a in group)]))


class HostKeyCheck:
    """The known hosts of one launch, for any number of threads."""

    def __init__(self, accept_new: bool, notice: Callable[[str], None]) -> None:
        self._accept_new = accept_new
        self._notice = notice
        self._lock = threading.RLock()
        self._known: dict[tuple[str, ...], KnownHosts] = {}

    def algorithms(self, config: HostConfig) -> list[str]:
        """Host key algorithms in the order of preference."""
        with self._lock:
            known = self._of(config).algorithms(names_of(config))
        wanted = config.algorithms["hostkeyalgorithms"]
        return [*wanted] if config.host_keys_as_listed else [name for name in known if name in wanted]

    def lists(self, config: HostConfig) -> bool:
        """Whether the files have a key for a host, of whatever type, or an authority that may vouch for it."""
        names = names_of(config)
        with self._lock:
            known = self._of(config)
            found = [(name, entry.marker) for name in names for entry in known.of(name)]
        return any(marker == "@cert-authority" or (not marker and name == names[0]) for name, marker in found)

    def refuse_hidden_markers(self, config: HostConfig) -> None:
        """Raise LinkError if a line about a host has a marker that the ssh program would not see."""
        with self._lock:
            found = [entry for name in names_of(config) for entry in self._of(config).of(name) if entry.hidden]
        for entry in found:
            todo = "Write one blank after the marker, and only blanks between the words."
            raise LinkError(f"the ssh program does not see that the line says {entry.marker}", entry.where, todo)

    def announce(self, config: HostConfig) -> None:
        """Say which key of a host the ssh program has added to the files, which had none when they were read."""
        with self._lock:
            self._known.pop(_files(config), None)
            found = [entry for entry in self._of(config).of(names_of(config)[0]) if not entry.marker]
        for entry in found:
            shown = f"{names_of(config)[0]} ({entry.type} {fingerprint(entry.blob)})"
            self._notice(f"host key of {shown} added to {entry.where.rpartition(':')[0]}")

    def verify(self, config: HostConfig, type_: str, blob: bytes) -> None:
        """Accept the key of a host, or raise LinkError with its fingerprint and what to do."""
        refuse_key(config, type_, blob)
        strict = "accept-new" if self._accept_new and config.strict != "no" else config.strict
        with self._lock:
            verdict = self._of(config).judge(names_of(config), type_, blob)
            if verdict.kind == KNOWN:
                return
            if verdict.kind == UNKNOWN and strict in ("accept-new", "no"):
                self._accept(config, type_, blob)
                return
        if verdict.kind == CHANGED and strict == "no" and verdict.entry:
            said = f"host key of {config.name} is not the one in {verdict.entry.where}"
            self._notice(f"{said} (StrictHostKeyChecking no)")
            return
        error = _refusal(config, verdict, type_, blob)
        if verdict.authority:
            error.ssh_reason = f"a certificate authority is to vouch for the host key ({verdict.authority.where})"
        raise error

    def _of(self, config: HostConfig) -> KnownHosts:
        paths = _files(config)
        if paths not in self._known:
            self._known[paths] = KnownHosts(entry for path in paths for entry in _read_known(path))
        return self._known[paths]

    def _accept(self, config: HostConfig, type_: str, blob: bytes) -> None:
        name = names_of(config)[0]
        self._of(config).add(KnownHostLine(name, type_, blob, "", "accepted just now"))
        path = config.user_known_hosts[0] if config.user_known_hosts else ""
        if path == os.devnull:  # as images of Kubernetes' operators have it: who looks at no list wants no news of it
            return
        shown = f"{name} ({type_} {fingerprint(blob)})"
        try:
            _append(path, line_of(hashed(name) if config.hash_known_hosts else name, type_, blob))
            self._notice(f"host key of {shown} added to {path}")
        except OSError as error:
            self._notice(f"host key of {shown} accepted for this run only: {path or 'no file'}: {error.strerror}")


def _files(config: HostConfig) -> tuple[str, ...]:
    return (*config.user_known_hosts, *config.global_known_hosts)


def names_of(config: HostConfig) -> list[str]:
    """The names under which the host may be listed in known_hosts, the exact one first."""
    if config.host_key_alias:
        return [config.host_key_alias.lower()]
    exact = name_of(config.hostname, config.port)
    return list(dict.fromkeys([exact, config.hostname.lower()]))


def _read_known(path: str) -> list[KnownHostLine]:
    try:
        return parse(read_bytes(path).decode("utf-8", "replace"), path)
    except OSError as error:
        if error.errno not in NO_FILE:  # without what it may hold, a changed key would look like a new one
            raise LinkError(
                f"{path} cannot be read: {error.strerror}", "", "It is one of the known_hosts files."
            ) from None
        return []


def _append(path: str, line: str) -> None:
    directory = os.path.dirname(path)
    if directory and not os.path.isdir(directory):
        os.makedirs(directory, mode=0o700)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # another mslaunch may write at the same time
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = "\n" + line
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def _refusal(config: HostConfig, verdict: Verdict, type_: str, blob: bytes) -> HostKeyError:
    shown, entry = f"{type_} {fingerprint(blob)}", verdict.entry
    if entry is None:
        return HostKeyError(f"its host key is not known: {shown}", config.where, _how_to_know(config, type_))
    if verdict.kind == REVOKED:
        todo = "Do not connect; ask the host's administrator."
        return HostKeyError(f"its host key {shown} is revoked in {entry.where}", config.where, todo)
    if verdict.kind == AUTHORITY:
        todo = f"mslaunch's own SSH cannot check host certificates.\n{WAY_OUT}"
        return HostKeyError(f"only a certificate authority is known for it ({entry.where})", config.where, todo)
    known = f"{entry.type} {fingerprint(entry.blob)}"
    file = entry.where.rpartition(":")[0] or _file(config)
    todo = (
        "Somebody may be in between, or the host was installed anew.\n"
        f"If its administrator confirms the new key: ssh-keygen -f {file} -R '{names_of(config)[0]}'"
    )
    return HostKeyError(f"its host key has CHANGED: {shown} now, {known} in {entry.where}", config.where, todo)


def _how_to_know(config: HostConfig, type_: str) -> str:
    kind = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}.get(type_, "ecdsa")
    port = f"-p {config.port} " if config.port != 22 else ""
    scan = f"ssh-keyscan {port}-t {kind} {config.hostname}"
    scan += f" | sed 's/^[^ ]*/{config.host_key_alias}/'" if config.host_key_alias else ""
    return (
        "Compare the fingerprint with the host's "
        f"(there: ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub), then\n"
        f"{scan} >> {_file(config)}\n"
        "or trust each new host at first sight: --ssh-accept-new"
    )


def _file(config: HostConfig) -> str:
    return config.user_known_hosts[0] if config.user_known_hosts else "~/.ssh/known_hosts"
