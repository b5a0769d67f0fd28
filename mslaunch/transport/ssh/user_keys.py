"""The user's keys: ssh-agent, identity files, certificates and their passphrases; and signatures with them.

Signing is done with `cryptography` (paramiko's own foundation) or by ssh-agent.  A `Keyring` is shared by all hosts of
a launch: a file is read once, a passphrase asked once.  Key files are read by their
contents, not by their names.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import socket
import struct
import termios
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mslaunch.host.files import read_bytes
from mslaunch.transport.ssh.config.algorithms import USER_KEYS
from mslaunch.transport.ssh.deadline import ConnectCancelled

if TYPE_CHECKING:
    from mslaunch.transport.ssh.config.ssh_config import HostConfig

USUAL = ("ed25519", "ecdsa", "rsa")  #: ~/.ssh/id_…
USUAL_IN_HARDWARE = ("ed25519_sk", "ecdsa_sk")  #: the same, of security keys, with which only the ssh program signs
Sign = Callable[[bytes, str], bytes]  #: data, algorithm -> signature as RFC 4253 6.6 packs it
CERT = "-cert-v01@openssh.com"
_LONGEST_PASSPHRASE = 1024  # bytes
_AGENT_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}


def pack(*values: str | bytes) -> bytes:
    """Encode `values` as SSH strings (RFC 4251, section 5)."""
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    return b"".join(struct.pack(">I", len(value)) + value for value in raw)


def unpack(data: bytes) -> list[bytes]:
    """The SSH strings at the beginning of `data`, as many as there are."""
    found = []
    while len(data) >= 4 and len(data) - 4 >= (size := int.from_bytes(data[:4], "big")):
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def plain_blob(blob: bytes) -> bytes:
    """The public key inside a certificate (PROTOCOL.certkeys); any other blob as it is."""
    kind = unpack(blob)[0].decode("ascii", "replace") if unpack(blob) else ""
    if not kind.endswith(CERT):
        return blob
    numbers = 1 if "ed25519" in kind else 2
    return pack(kind[: -len(CERT)], *unpack(blob)[2 : 2 + numbers])


def usable_algorithms(kind: str, accepted: Sequence[str]) -> list[str]:
    """The algorithms by which a key of this type may sign; RSA keys never sign with SHA-1."""
    if kind.startswith("ssh-rsa"):
        names = ["rsa-sha2-512" + kind[len("ssh-rsa") :], "rsa-sha2-256" + kind[len("ssh-rsa") :]]
    else:
        names = [kind]
    return [name for name in names if name in accepted]


class Identity(NamedTuple):
    """One key to offer."""

    blob: bytes  # the public key or the certificate
    label: str  # for messages
    sign: Sign | None  # None: locked; `Keyring.unlock(path)` asks for the passphrase
    path: str = ""
    algorithms: Sequence[str] = USER_KEYS  # of PubkeyAcceptedAlgorithms

    @property
    def type(self) -> str:
        """The key type in the blob; "" if the blob is unknown until the file is unlocked."""
        return unpack(self.blob)[0].decode("ascii", "replace") if self.blob else ""


class KeyFile(NamedTuple):
    """What one identity file holds."""

    blob: bytes = b""
    sign: Sign | None = None
    locked: bool = False
    trouble: str = ""  # why it is of no use

    @property
    def missing(self) -> bool:
        """Neither a private nor a public key was found."""
        return self == KeyFile()


def load_private(data: bytes, password: bytes | None) -> tuple[bytes, Sign]:
    """Public blob and signer of a private key: OpenSSH, PKCS#1, SEC1 or PKCS#8, whatever its file is called.

    Raises TypeError if it needs a passphrase, ValueError if it is broken, unknown or the passphrase is wrong.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    modern = b"BEGIN OPENSSH PRIVATE KEY" in data
    load: Any = serialization.load_ssh_private_key if modern else serialization.load_pem_private_key
    try:
        key = load(data, password)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    except Exception as error:
        # bcrypt and InvalidTag have exceptions of their own for a wrong passphrase
        if isinstance(error, (TypeError, ValueError)):
            raise
        raise ValueError(str(error) or "wrong passphrase") from error
    form = serialization.PublicFormat.OpenSSH, serialization.Encoding.OpenSSH
    blob = base64.b64decode(key.public_key().public_bytes(form[1], form[0]).split()[1])
    return blob, _signer(key, unpack(blob)[0].decode())


def _signer(key: Any, kind: str) -> Sign:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    def ed25519(data: bytes, algorithm: str) -> bytes:
        return pack(kind, key.sign(data))

    def rsa(data: bytes, algorithm: str) -> bytes:
        hashing = hashes.SHA512() if algorithm == "rsa-sha2-512" else hashes.SHA256()
        return pack(algorithm, key.sign(data, padding.PKCS1v15(), hashing))

    def ecdsa(data: bytes, algorithm: str) -> bytes:
        hashing = {"256": hashes.SHA256(), "384": hashes.SHA384(), "521": hashes.SHA512()}[kind[-3:]]
        numbers = decode_dss_signature(key.sign(data, ec.ECDSA(hashing)))
        return pack(kind, pack(*(n.to_bytes(n.bit_length() // 8 + 1, "big") for n in numbers)))

    return {"ssh-ed25519": ed25519, "ssh-rsa": rsa}.get(kind, ecdsa)


def is_in_hardware(blob: bytes) -> bool:
    """Whether a public key is that of a security key (PROTOCOL.u2f)."""
    return unpack(blob)[:1] in ([b"sk-ssh-ed25519@openssh.com"], [b"sk-ecdsa-sha2-nistp256@openssh.com"])


def read_public(path: str) -> bytes:
    """The blob in a .pub or -cert.pub file; b"" if there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return base64.b64decode(read_bytes(path).split()[1], validate=True)
    return b""


def _public_inside(data: bytes) -> bytes:
    """The public half of an encrypted key in OpenSSH's format, which is not encrypted (PROTOCOL.key)."""
    lines = [line for line in data.splitlines() if line and not line.startswith(b"-----")]
    with contextlib.suppress(ValueError):
        raw = base64.b64decode(b"".join(lines))
        magic = b"openssh-key-v1\0"
        fields = unpack(raw[len(magic) :])
        after = len(magic) + sum(4 + len(field) for field in fields[:3]) + 4  # + the number of keys
        return unpack(raw[after:])[0] if raw.startswith(magic) else b""
    return b""


def read_key(path: str) -> KeyFile:
    """What one identity file holds; never raises.  A file that others can read is refused, as ssh does."""
    try:
        data = read_bytes(path)
        status = os.stat(path)
    except FileNotFoundError:
        return KeyFile(read_public(path + ".pub"))  # the agent may hold its private key
    except OSError as error:
        return KeyFile(trouble=f"{path}: {error.strerror}")
    if b"PRIVATE KEY-----" not in data:
        return KeyFile(read_public(path))  # IdentityFile may name the public key
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        return KeyFile(trouble=f"{path} can be read by others (chmod 600 {path})")
    try:
        blob, sign = load_private(data, None)
    except TypeError:
        return KeyFile(_public_inside(data) or read_public(path + ".pub"), locked=True)
    except ValueError as error:
        blob = _public_inside(data)
        if is_in_hardware(blob):
            return KeyFile(blob, trouble=f"{path} is of a security key, with which only ssh-agent and ssh can sign")
        return KeyFile(trouble=f"{path} cannot be read as a private key: {error}")
    return KeyFile(blob, sign)


class SshAgent:
    """A client of ssh-agent, with a connection for each request (draft-ietf-sshm-ssh-agent).

    An agent that is absent or does not answer has no keys.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def _ask(self, message: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)  # it may be asking a person
            sock.connect(self._path)
            sock.sendall(pack(message))
            with sock.makefile("rb") as stream:
                return stream.read(int.from_bytes(stream.read(4), "big"))

    def identities(self) -> list[Identity]:
        """The keys and certificates of the agent, in its order."""
        if not self._path:
            return []
        try:
            answer = self._ask(b"\x0b")
        except OSError:
            return []
        if answer[:1] != b"\x0c":
            return []
        pairs = unpack(answer[5:])
        return [
            Identity(blob, f"{comment.decode(errors='replace')} (agent)", self.signer(blob))
            for blob, comment in zip(pairs[::2], pairs[1::2])
        ]

    def signer(self, blob: bytes) -> Sign:
        """A function that signs with the agent's key `blob`; it raises OSError if the agent refuses."""

        def sign(data: bytes, algorithm: str) -> bytes:
            answer = self._ask(b"\x0d" + pack(blob, data) + struct.pack(">I", _AGENT_FLAGS.get(algorithm, 0)))
            if answer[:1] != b"\x0e":
                raise OSError("the agent refused to sign")
            return unpack(answer[1:])[0]

        return sign


class PassphrasePrompt:
    """Asks on the controlling terminal, for one thing at a time: its owner sees to that.

    A question can be cancelled from another thread: a launcher that is interrupted at the prompt must not leave a
    terminal without echo.
    """

    def __init__(self) -> None:
        self._wake_end, self._wake = -1, -1
        self._off = False

    def ask(self, prompt: str) -> bytes | None:
        """What was typed, without echo; None without a terminal or an answer, and after `cancel`."""
        try:
            tty = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            return None
        self._wake_end, self._wake = os.pipe()
        try:
            return None if self._off else self._read(tty, prompt)
        except (OSError, termios.error):
            return None
        finally:
            ends = (self._wake_end, self._wake)
            self._wake_end, self._wake = -1, -1
            for fd in (tty, *ends):
                os.close(fd)

    def _read(self, tty: int, prompt: str) -> bytes | None:
        before: list[Any] = termios.tcgetattr(tty)
        silent = [*before]
        silent[3] &= ~termios.ECHO
        termios.tcsetattr(tty, termios.TCSAFLUSH, silent)
        try:
            os.write(tty, prompt.encode())
            ready = select.select([tty, self._wake_end], [], [])[0]
            answer = os.read(tty, _LONGEST_PASSPHRASE) if self._wake_end not in ready else b""
        finally:
            termios.tcsetattr(tty, termios.TCSAFLUSH, before)
            os.write(tty, b"\n")
        return answer.rstrip(b"\r\n") or None

    def cancel(self) -> None:
        """End the present question, and ask no more."""
        self._off = True
        if self._wake >= 0:
            with contextlib.suppress(OSError):
                os.write(self._wake, b"x")


class Keyring:
    """The keys of one launch; safe to share between threads."""

    def __init__(self, ask: Callable[[str], bytes | None] | None = None) -> None:
        self._terminal = PassphrasePrompt()
        self._ask = ask or self._terminal.ask
        self._lock = threading.RLock()
        self._asking = threading.Lock()
        self._called_off = False
        self._files: dict[str, KeyFile] = {}
        self._agents: dict[str, list[Identity]] = {}

    def file(self, path: str) -> KeyFile:
        """`read_key`, once."""
        with self._lock:
            if path not in self._files:
                self._files[path] = read_key(path)
            return self._files[path]

    def agent(self, path: str) -> list[Identity]:
        """The agent's keys, asked once."""
        with self._lock:
            if path not in self._agents:
                self._agents[path] = SshAgent(path).identities()
            return self._agents[path]

    def cancel(self) -> None:
        """End the present question, and ask nothing more: the launch is being ended."""
        self._called_off = True
        self._terminal.cancel()

    def unlock(self, path: str) -> KeyFile:
        """Ask for the passphrase of a locked file, three times at most and once for all hosts.

        Raises `ConnectCancelled` after `cancel`: links that wait for the answer may be closed a little later.
        """
        with self._asking:
            found = self.file(path)
            tries = 3 if found.locked else 0
            for _ in range(tries):
                password = self._ask(f"Passphrase for key {path}: ")
                if password is None:
                    if self._called_off:
                        raise ConnectCancelled
                    found = found._replace(locked=False, trouble=f"{path} has a passphrase, and nobody typed it")
                    break
                with contextlib.suppress(ValueError, TypeError, OSError):
                    found = KeyFile(*load_private(read_bytes(path), password))
                    break
            else:
                if tries:
                    found = found._replace(locked=False, trouble=f"{path}: the passphrase was wrong three times")
            with self._lock:
                self._files[path] = found
            return found


def default_files(config: HostConfig, home: str) -> list[str]:
    """~/.ssh/id_…, if the configuration names no IdentityFile."""
    return [] if config.identity_files else [f"{home}/.ssh/id_{kind}" for kind in USUAL]


def candidates(keyring: Keyring, config: HostConfig, home: str) -> list[Identity]:
    """The keys to offer, in order: of the files that are named, of the agent, of the default files.

    If the agent holds the key of a file, the agent signs (ssh_config(5), IdentityFile).  Certificates
    (CertificateFile, or FILE-cert.pub) come just before their key.
    """
    held = keyring.agent(config.agent)
    by_blob = {identity.blob: identity for identity in held}
    extra = [blob for blob in map(read_public, config.certificate_files) if blob]
    named, usual = (
        [one for path in paths for one in _of_file(keyring, path, by_blob, extra)]
        for paths in (config.identity_files, default_files(config, home))
    )
    in_agent = [one for one in usual if one.blob in by_blob]
    rest = [] if config.identities_only else held
    chosen: dict[tuple[bytes, str], Identity] = {}
    for one in [*named, *in_agent, *rest, *usual]:
        chosen.setdefault((one.blob, "" if one.blob else one.path), one)
    return list(chosen.values())


def _of_file(keyring: Keyring, path: str, held: dict[bytes, Identity], extra: Sequence[bytes]) -> list[Identity]:
    found = keyring.file(path)
    sign = held[found.blob].sign if found.blob in held else found.sign
    if sign is None and not found.locked:
        return []
    beside = read_public(path + "-cert.pub")
    certificates = [blob for blob in [*extra, *([beside] if beside else [])] if plain_blob(blob) == found.blob]
    names = [f"{path} (certificate)"] * len(certificates) + [path]
    return [Identity(blob, name, sign, path) for blob, name in zip([*certificates, found.blob], names)]
