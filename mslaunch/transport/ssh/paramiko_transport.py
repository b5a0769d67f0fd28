"""paramiko, imported only here and only when a remote host is used, and tuned.

`transport_class()` is `paramiko.Transport` with our algorithms and without its timer thread, its polling
and its log; `AuthSession` replaces paramiko's client half of RFC 4252.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mslaunch.errors import LinkError, one_line
from mslaunch.transport.ssh.config.config_lines import WAY_OUT
from mslaunch.transport.ssh.ed25519_host_key import Ed25519HostKey
from mslaunch.transport.ssh.paramiko_import import import_paramiko
from mslaunch.transport.ssh.user_keys import CERT, Identity, pack, usable_algorithms

if TYPE_CHECKING:
    from mslaunch.transport.ssh.tcp_and_proxy import SocketStream

WINDOW = 1 << 20  #: bytes a host may send before the launcher has read; bounds the memory of an unread link
#: bytes of a packet, as in OpenSSH (PACKET_MAX_SIZE in packet.c), and of the MAC behind it
_PACKET, _MAC = 1 << 18, 64
_GREETING = 1 << 16  # bytes of the version and of the lines before it: 8 lines of the length that OpenSSH allows
_LISTS = 1 << 15  # bytes of a KEXINIT, of which OpenSSH's has 1500
_SAID_MOST = 4096  # bytes of what else a host says in lists: methods, and what it knows of signatures
_EXTENSIONS = 64  # of RFC 8308 that a host may name
_FAREWELL = 1000  # characters of the reason that a host gives for hanging up
_SAID = b"SSH-2.0-paramiko_mslaunch\r\n"  # who we are (RFC 4253, 4.2)
_ALIAS = "curve25519-sha256@libssh.org"  #: paramiko knows only this name of RFC 8731's
#: keyword of ssh_config(5) -> where paramiko's options keep it, and what it has
_OPTIONS = {
    "kexalgorithms": ("kex", "_kex_info"),
    "ciphers": ("ciphers", "_cipher_info"),
    "macs": ("digests", "_mac_info"),
    "hostkeyalgorithms": ("key_types", "_key_info"),
}
#: keyword -> the field of the host's KEXINIT
_SHOWN = {
    "kexalgorithms": "kex_algo_list",
    "hostkeyalgorithms": "server_key_algo_list",
    "ciphers": "server_encrypt_algo_list",
    "macs": "server_mac_algo_list",
}
_importing = threading.Lock()


@functools.cache
def load_paramiko() -> Any:
    """Import paramiko, once and without its warnings; raises LinkError if it is not installed."""
    with _importing, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about old ciphers that are not used here
        try:
            paramiko = import_paramiko()
        except ImportError as error:
            todo = "pip install paramiko, or use the ssh program: --rsh-agent ssh"
            raise LinkError(f"paramiko cannot be imported: {error}", "", todo) from error
    logger = logging.getLogger("paramiko")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)  # errors are reported once, by our own messages
    return paramiko


@functools.cache
def import_ahead() -> None:
    """Begin to import paramiko in a thread, once: 100 ms for which the network need not wait."""
    threading.Thread(target=_import_quietly, daemon=True, name="import paramiko").start()


def _import_quietly() -> None:
    with contextlib.suppress(LinkError):  # whoever needs it says so
        load_paramiko()


def greet(stream: SocketStream) -> None:
    """Say who we are as soon as there is a stream, and before paramiko is imported.

    The host answers with its KEXINIT meanwhile: a round trip less where that takes less than the import.
    """
    with contextlib.suppress(OSError, EOFError):  # whoever reads the stream finds its end
        stream.send(_SAID)
        stream.acknowledge_at_once()


def _refusal(stream: SocketStream, why: str) -> Exception:
    """The exception that ends the connection when paramiko's thread meets it, with the reason in `stream`."""
    stream.refused = why
    return load_paramiko().SSHException(why)  # type: ignore[no-any-return]


def _is_name(text: str) -> bool:
    """Whether RFC 4251, 6, allows it as the name of an algorithm or a method."""
    return 0 < len(text) <= 64 and text.isascii() and text.isprintable() and " " not in text


def _packetizer_class(paramiko: Any) -> Any:
    class Packets(paramiko.packet.Packetizer):  # type: ignore[misc]
        def __init__(self, stream: SocketStream) -> None:
            super().__init__(stream)
            self._stream = stream
            self._greeted = 0  # bytes

        def read_all(self, n: int, check_rekey: bool = False) -> bytes:
            """Read `n` bytes, most of which the host has announced: refuse more than a packet may have."""
            if n > _PACKET + _MAC:
                raise _refusal(self._stream, f"it announced an SSH packet of more than {_PACKET >> 10} KiB")
            return bytes(super().read_all(n, check_rekey))

        def _read_timeout(self, timeout: float) -> bytes:
            """Read the next bytes of the greeting (RFC 4253, 4.2), whose lines may have any length in paramiko."""
            data = bytes(super()._read_timeout(timeout))
            self._greeted += len(data)
            if self._greeted > _GREETING:
                raise _refusal(self._stream, f"it sent more than {_GREETING >> 10} KiB before its SSH version")
            return data

        def start_handshake(self, timeout: float) -> None:
            """Start no timer thread: the stream has the deadline."""

        def write_all(self, out: bytes) -> None:
            """Not what `greet` has said."""
            if out != _SAID:
                super().write_all(out)

    return Packets


def _known_kex(paramiko: Any) -> dict[str, Any]:
    known = dict(paramiko.Transport._kex_info)
    if _ALIAS in known:
        known[_ALIAS.partition("@")[0]] = known[_ALIAS]
    return known


def _algorithms(kexinit: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What a host lists: keyword of ssh_config(5) -> names, without flags, which stand among the algorithms."""
    flags = ("ext-info-", "kex-strict-")
    return {
        keyword: [name for name in kexinit[field] if _is_name(name) and not name.startswith(flags)]
        for keyword, field in _SHOWN.items()
    }


def _extensions(m: Any) -> dict[str, bytes]:
    """What `AuthSession` asks for in EXT_INFO (RFC 8308); paramiko keeps all, and believes their number."""
    kept = {}
    for _ in range(min(m.get_int(), _EXTENSIONS)):
        name, value = m.get_binary(), m.get_binary()
        if name == b"server-sig-algs":
            kept["server-sig-algs"] = value[:_SAID_MOST]
    return kept


def _farewell(m: Any) -> str:
    """The reason in a DISCONNECT (RFC 4253, 11.1)."""
    m.get_int()
    return one_line(m.get_binary()[: 4 * _FAREWELL].decode(errors="replace"), _FAREWELL)


@functools.cache
def transport_class() -> Any:
    """The class of all transports."""
    paramiko = load_paramiko()
    packetizer = _packetizer_class(paramiko)
    known_kex = _known_kex(paramiko)
    known_keys = {**paramiko.Transport._key_info, "ssh-ed25519": Ed25519HostKey}

    class Tuned(paramiko.Transport):  # type: ignore[name-defined, misc]
        _active_check_timeout = 3600.0
        _kex_info = known_kex
        _key_info = known_keys

        def __init__(self, stream: SocketStream) -> None:
            super().__init__(stream, default_window_size=WINDOW, packetizer_class=packetizer)
            self.local_version = _SAID.decode().rstrip()
            self._stream, self.farewell = stream, ""
            self.auth_handler = AuthSession(self, stream)
            self.banner_timeout = self.handshake_timeout = self.auth_timeout = 3600
            self.shown: dict[str, list[str]] = {}

        @property
        def preferred_keys(self) -> tuple[str, ...]:
            """Without the certificates that paramiko adds: a host's certificate cannot be checked here."""
            return tuple(self._preferred_keys)

        def _log(self, level: int, msg: Any, *args: Any) -> None:
            pass

        def _really_parse_kex_init(self, m: Any, *args: Any, **how: Any) -> Any:
            if len(m.asbytes()) > _LISTS:
                raise _refusal(self._stream, f"it listed its algorithms in more than {_LISTS >> 10} KiB")
            parsed = super()._really_parse_kex_init(m, *args, **how)
            self.shown = _algorithms(parsed)
            return parsed

        def _parse_ext_info(self, m: Any) -> None:
            self.server_extensions.update(_extensions(m))

        def _parse_debug(self, m: Any) -> None:
            pass

        def _parse_disconnect(self, m: Any) -> None:
            self.farewell = _farewell(m)

    return Tuned


def start(stream: SocketStream, algorithms: Mapping[str, Sequence[str]]) -> Any:
    """Start banner and key exchange over `stream`; offer `algorithms` (keyword of ssh_config(5) -> names).

    Returns the transport, and an event that is set at the end; if it failed, the stream and the transport say why.
    Raises LinkError if the installed paramiko has none of the algorithms of a keyword.
    """
    transport = transport_class()(stream)
    options = transport.get_security_options()
    for keyword, (attribute, table) in _OPTIONS.items():
        names = [name for name in algorithms[keyword] if name in getattr(transport, table)]
        if not names:
            what = (
                f"the installed paramiko has none of the {keyword} that are allowed: {', '.join(algorithms[keyword])}"
            )
            raise LinkError(what, "", WAY_OUT)
        setattr(options, attribute, names)
    event = threading.Event()
    transport.start_client(event)
    return transport, event


def bound(channel: Any, stream: SocketStream) -> None:
    """Hold the host at the other end of `channel`, which `stream` leads to, to the window that it was given.

    paramiko keeps whatever comes.
    """
    for pipe in (channel.in_buffer, channel.in_stderr_buffer):

        def feed(data: bytes, pipe: Any = pipe, keep: Callable[[bytes], None] = pipe.feed) -> None:
            if len(pipe) + len(data) > 2 * WINDOW:
                raise _refusal(stream, "it sent more than the window of a channel allows")
            keep(data)

        pipe.feed = feed


def offers(transport: Any) -> dict[str, Sequence[str]]:
    """What a transport offers: keyword of ssh_config(5) -> names."""
    options = transport.get_security_options()
    return {keyword: getattr(options, attribute) for keyword, (attribute, _) in _OPTIONS.items()}


class Reply(NamedTuple):
    """What the host answered to a request for authentication."""

    kind: str  # "welcome", "offer it" (PK_OK), "no", "gone"
    methods: tuple[str, ...] = ()  # that can continue, with "no"
    partial: bool = False  # with "no": the key was accepted, and another method is required too


class AuthSession:
    """The client's half of RFC 4252; paramiko's transport calls it with each message.

    A reply that was not asked for ends the connection: nobody would take it, and a host could send them for ever.
    """

    def __init__(self, transport: Any, stream: SocketStream) -> None:
        """`stream`: what `transport` talks over."""
        self._transport = transport
        self._stream = stream
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._due = threading.Semaphore(0)  # replies that were asked for, and have not come
        self._welcome = False
        self._service_asked = False  # and not yet granted
        self._handler_table = {
            6: lambda m: self._take(Reply("service")),
            51: self._failure,
            52: self._success,
            53: lambda m: None,  # the banner
            60: lambda m: self._take(Reply("offer it")),
        }

    def _take(self, reply: Reply) -> None:
        if not self._due.acquire(blocking=False):
            raise _refusal(self._stream, "it sent a reply about authentication that was not asked for")
        self._replies.put(reply)

    def _failure(self, m: Any) -> None:
        methods = m.get_binary()[:_SAID_MOST].decode(errors="replace").split(",")
        self._take(Reply("no", tuple(filter(_is_name, methods)), m.get_boolean()))

    def _success(self, m: Any) -> None:
        self._take(Reply("welcome"))
        self._welcome = True
        self._transport._auth_trigger()

    def abort(self) -> None:
        """The connection has ended; called by paramiko."""
        self._replies.put(Reply("gone"))

    def is_authenticated(self) -> bool:
        """Whether the host has accepted a key; called by paramiko."""
        return self._welcome

    def _ask(self, message: bytes) -> Reply:
        return self._wait() if self._send(message) else Reply("gone")

    def _send(self, message: bytes) -> bool:
        """Send a request, to which one reply is due."""
        self._due.release()
        try:
            self._transport._send_message(load_paramiko().Message(message))
        except (OSError, EOFError):
            return False
        return True

    def _wait(self) -> Reply:
        self._await_service()
        return self._replies.get()  # `abort` puts "gone" there

    def begin(self, wait: bool = True) -> Reply:
        """Ask for the authentication service; without `wait`, its answer is awaited together with the next one."""
        if not self._send(b"\x05" + pack("ssh-userauth")):
            return Reply("gone")
        self._service_asked = True
        return self._await_service() if wait else Reply("service")

    def _await_service(self) -> Reply:
        reply = self._replies.get() if self._service_asked else Reply("service")
        self._service_asked = False
        if reply.kind == "gone":
            self._replies.put(reply)  # for the next one who waits
        return reply

    def none(self, user: str) -> Reply:
        """Ask which methods the host offers."""
        return self._ask(b"\x32" + pack(user, "ssh-connection", "none"))

    def probe(self, user: str, identity: Identity) -> Reply:
        """Ask whether the host would accept this key."""
        return self._ask(self._request(user, identity, b"\0"))

    def prove(self, user: str, identity: Identity, ahead: Callable[[], None] = lambda: None) -> Reply:
        """Offer a key with a signature; raises OSError if the signer refuses.

        `ahead` is called when that is sent; what it sends, the host reads once it has answered.
        """
        request = self._request(user, identity, b"\1")
        assert identity.sign is not None
        algorithm = self._algorithm(identity)
        algorithm = algorithm[: -len(CERT)] if algorithm.endswith(CERT) else algorithm
        signature = identity.sign(pack(self._transport.session_id) + request, algorithm)
        if not self._send(request + pack(signature)):
            return Reply("gone")
        with contextlib.suppress(OSError, EOFError):  # its end is the answer
            ahead()
        return self._wait()

    def _request(self, user: str, identity: Identity, signed: bytes) -> bytes:
        head = b"\x32" + pack(user, "ssh-connection", "publickey")
        return head + signed + pack(self._algorithm(identity), identity.blob)

    def _algorithm(self, identity: Identity) -> str:
        """RSA keys sign with SHA-512, or SHA-256 if the host knows only that (RFC 8308, server-sig-algs)."""
        ours = usable_algorithms(identity.type, identity.algorithms)
        if len(ours) < 2:
            return ours[0] if ours else identity.type
        self._await_service()  # the host tells before what it knows
        said = self._transport.server_extensions.get("server-sig-algs", b"")
        known = (said.decode("ascii", "replace") if isinstance(said, bytes) else str(said)).split(",")
        only_256 = "rsa-sha2-512" not in known and "rsa-sha2-256" in known
        return next(name for name in ours if name.startswith("rsa-sha2-256") == only_256)
