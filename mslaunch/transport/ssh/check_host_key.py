"""Accepts or refuses the key that a host shows, by the known_hosts files that the configuration names.

A new host's key is added to the first of them where that is allowed (--ssh-accept-new, StrictHostKeyChecking).
Judging and accepting are one step under one lock, so that of two links to one name that show different keys, only one
gets in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable

from mslaunch.errors import LinkError
from mslaunch.transport.ssh import known_hosts_file as kh
from mslaunch.transport.ssh.ssh_config import WAY_OUT, HostConfig


class HostKeyCheck:
    """The known hosts of one launch; safe to share between threads."""

    def __init__(self, accept_new: bool, notice: Callable[[str], None]) -> None:
        self._accept_new = accept_new
        self._notice = notice
        self._lock = threading.RLock()
        self._known: dict[tuple[str, ...], kh.KnownHosts] = {}

    def algorithms(self, config: HostConfig) -> list[str]:
        """Host key algorithms to ask for, in order."""
        with self._lock:
            return self._of(config).algorithms(names_of(config))

    def verify(self, config: HostConfig, type_: str, blob: bytes) -> None:
        """Is this the host we know?  Raises LinkError with the fingerprint and what to do."""
        strict = "accept-new" if self._accept_new and config.strict != "no" else config.strict
        with self._lock:
            verdict = self._of(config).judge(names_of(config), type_, blob)
            if verdict.kind == kh.KNOWN:
                return
            if verdict.kind == kh.UNKNOWN and strict in ("accept-new", "no"):
                self._accept(config, type_, blob)
                return
        if verdict.kind == kh.CHANGED and strict == "no" and verdict.entry:
            said = f"host key of {config.name} is not the one in {verdict.entry.where}"
            self._notice(f"{said} (StrictHostKeyChecking no)")
            return
        raise _refusal(config, verdict, type_, blob)

    def _of(self, config: HostConfig) -> kh.KnownHosts:
        paths = (*config.user_known_hosts, *config.global_known_hosts)
        if paths not in self._known:
            self._known[paths] = kh.KnownHosts(entry for path in paths for entry in _read_known(path))
        return self._known[paths]

    def _accept(self, config: HostConfig, type_: str, blob: bytes) -> None:
        name = names_of(config)[0]
        self._of(config).add(kh.KnownHostLine(name, type_, blob, "", "accepted just now"))
        path = config.user_known_hosts[0] if config.user_known_hosts else ""
        shown = f"{name} ({type_} {kh.fingerprint(blob)})"
        try:
            _append(path, kh.line_of(kh.hashed(name) if config.hash_known_hosts else name, type_, blob))
            self._notice(f"host key of {shown} added to {path}")
        except OSError as error:
            self._notice(f"host key of {shown} accepted for this run only: {path or 'no file'}: {error.strerror}")


def names_of(config: HostConfig) -> list[str]:
    """The names under which the host may stand in known_hosts, the right one first."""
    if config.host_key_alias:
        return [config.host_key_alias.lower()]
    exact = kh.name_of(config.hostname, config.port)
    return list(dict.fromkeys([exact, config.hostname.lower()]))


def _read_known(path: str) -> list[kh.KnownHostLine]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return kh.parse(file.read(), path)
    return []


def _append(path: str, line: str) -> None:
    directory = os.path.dirname(path)
    if directory and not os.path.isdir(directory):
        os.makedirs(directory, mode=0o700)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # another mslaunch may be at it
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = "\n" + line
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def _refusal(config: HostConfig, verdict: kh.Verdict, type_: str, blob: bytes) -> LinkError:
    shown, entry = f"{type_} {kh.fingerprint(blob)}", verdict.entry
    if entry is None:
        return LinkError(f"its host key is not known: {shown}", config.where, _how_to_know(config, type_))
    if verdict.kind == kh.REVOKED:
        todo = "Do not connect; ask the host's administrator."
        return LinkError(f"its host key {shown} is revoked in {entry.where}", config.where, todo)
    if verdict.kind == kh.AUTHORITY:
        todo = f"mslaunch's own SSH cannot check host certificates.\n{WAY_OUT}"
        return LinkError(f"only a certificate authority is known for it ({entry.where})", config.where, todo)
    known = f"{entry.type} {kh.fingerprint(entry.blob)}"
    file = entry.where.rpartition(":")[0] or _file(config)
    todo = (
        "Somebody may be in between, or the host was installed anew.\n"
        f"If its administrator confirms the new key: ssh-keygen -f {file} -R '{names_of(config)[0]}'"
    )
    return LinkError(f"its host key has CHANGED: {shown} now, {known} in {entry.where}", config.where, todo)


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
