"""The entry point of an agent that calls its launcher back: one that a batch system starts, which carries no frames.

`call_terms` of `transport.call_back` say where the launcher listens, the token, how this node is called, and where the
launcher's addresses are.  Under srun and qrsh they are a line of standard input, behind the program; elsewhere the
program has them.  All other modules come on the connection, which then takes the place of standard input and output.
An agent that gets no connection says so in one line on standard output, unless that is the job's, and by its exit code.
"""

from __future__ import annotations

import os
import sys
import time

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING, socket
from mslaunch.host.own_addresses import bare_address, leads_back, network_stack
from mslaunch.protocol.call_proof import (
    ARGUMENT,
    CALL,
    CALLER,
    HOST,
    LONGEST,
    NO_CALL,
    CallWords,
    bytecode,
    new_nonce,
    proof,
    seals,
)
from mslaunch.protocol.keyed_digest import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.protocol.sealed_records import Seals

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_IPPROTO_TCP, _TCP_NODELAY = 6, 1
_SECONDS = 5.0  # for all tries together
_TRY = 2.0  # for one


def call_back_main(modules: dict[str, object]) -> None:
    """Under srun: call back by the terms on standard input, and become the agent of that connection.

    `modules`: the table of the finder that has loaded this one (`transport.bootstrap`).
    """
    terms = _line(lambda: os.read(0, 1))
    why = _become_agent(terms, modules)
    os.write(1, f"{CALL} {_node(terms)} {why}\n".encode("ascii", "replace"))
    os._exit(0)


def call_back_apart(modules: dict[str, object]) -> None:
    """The same for a task of Grid Engine."""
    call_back_by(_line(lambda: os.read(0, 1)), modules)


def call_back_by(terms: str, modules: dict[str, object]) -> None:
    """The same for a task of PBS, LSF or Flux, which has read the terms in its program."""
    _leave_session()
    why = _become_agent(terms, modules)
    if len(sys.argv) < 2:  # else its output is the job's
        os.write(1, f"{CALL} {_node(terms)} {why}\n".encode("ascii", "replace"))
    os._exit(NO_CALL)


def _become_agent(terms: str, modules: dict[str, object]) -> str:
    """Call back, and become the agent of the connection; returns why there is none."""
    port, token, _, stack, address_variable, *addresses = terms.split(" ")
    first = os.environ.get(address_variable, "")
    known = list(dict.fromkeys(filter(None, (first, *addresses))))
    callback = _Callback(int(port), bytes.fromhex(token), _node(terms), stack == network_stack())
    while True:
        found = callback.connect(known)
        if not found:
            return callback.why
        sock, ours = found
        try:
            modules.update(_modules(sock, ours))
            break
        except WireError as error:  # in front of the magic: the launcher, who has taken this agent, shows it
            sock.sendall(b"".join(ours.sealer.seal(f"{error.what}\n".encode())))
            os._exit(NO_CALL)
        except OSError as error:  # it was cut off in a flood before its proof was read, or the launcher has gone
            sock.close()
            if callback.is_late(error):
                return callback.why
    for fd in (0, 1):
        os.dup2(sock.fileno(), fd)
    sock.close()
    exec(str(modules.pop("")), {"SOURCES": modules, "SEALS": ours})
    return ""


def _modules(sock: socket, ours: Seals) -> dict[str, object]:
    """Those that the launcher sends, who has been proved.  Raises OSError if it ends, and `WireError`."""
    import marshal
    import zlib

    size = int(_line(lambda: ours.opener.read(1, sock.recv)))
    found: dict[str, object] = marshal.loads(zlib.decompress(ours.opener.read(size, sock.recv)))
    return found


def _node(terms: str) -> str:
    """The name of this node: that of a variable, `=NAME` itself, or the first argument."""
    word = terms.split(" ")[2]
    if word == ARGUMENT:
        return sys.argv[1]
    return word[1:] if word[:1] == "=" else os.environ.get(word, "")


def _leave_session() -> None:
    """Let the agent have a session of its own when it is forked.

    PBS ends a task by SIGKILL to its session, Flux and Grid Engine to its process group (`kill_session` of openpbs
    src/resmom/linux/mom_mach.c, flux-core src/common/libsubprocess/server.c).  That would be guard and agent at once,
    and nobody would end the ranks, which are sessions of their own.  So it is the guard alone.
    """
    guard = os.getpid()

    def leave() -> None:
        if os.getppid() == guard:
            os.setsid()

    os.register_at_fork(after_in_child=leave)


def _line(read: Callable[[], bytes]) -> str:
    """A line, without its end; raises OSError if there is none."""
    text = b""
    while not text.endswith(b"\n"):
        piece = read()
        if not piece or len(text) > 16 * LONGEST:
            raise OSError("the other side ended the connection")
        text += piece
    return text[:-1].decode("ascii", "replace")


class _Callback:
    """The call of one agent."""

    def __init__(self, port: int, token: bytes, node: str, at_home: bool) -> None:
        """`at_home`: the launcher has the network stack of this process, so its addresses may lead back here."""
        self._port = port
        self._token = token
        self._node = node
        self._at_home = at_home
        self._reasons: dict[str, tuple[int, str]] = {}  # by address, with how much each matters
        self._deadline = time.monotonic() + _SECONDS
        self._last = ""  # the address of the last connection

    @property
    def why(self) -> str:
        """Why there is no connection: somebody hands calls on, or the reason of the first address."""
        default = "the launcher", (0, "it has no address")
        address, (_, text) = max(self._reasons.items(), key=lambda item: item[1][0], default=default)
        return f"{address} port {self._port}: {text}"

    def connect(self, addresses: list[str]) -> tuple[socket, Seals] | None:
        """The first connection to somebody who knows the token and was called where he listens; None: there is none.

        Addresses are tried again for a while, except those that lead elsewhere.
        """
        deadline, left = self._deadline, list(addresses)
        while left:
            for address in list(left):
                self._last = address
                try:
                    return self._try(address, min(_TRY, max(0.1, deadline - time.monotonic())))
                except LeadsBackError as error:
                    self._reasons[address] = 0, str(error)
                    left.remove(address)
                except WrongPlaceError as error:
                    self._reasons[address] = 2, str(error)
                    left.remove(address)
                except OSError as error:
                    self._reasons[address] = 1, error.strerror or str(error)
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        return None

    def is_late(self, error: OSError) -> bool:
        """Whether no time is left to call again, now that the last connection has ended, with this error."""
        self._reasons[self._last] = 1, error.strerror or str(error)
        return time.monotonic() > self._deadline

    def _try(self, address: str, seconds: float) -> tuple[socket, Seals]:
        sock = socket(_AF_INET6 if ":" in address else _AF_INET, _SOCK_STREAM)
        try:
            sock.settimeout(seconds)
            sock.connect((address, self._port))
            if not self._at_home and leads_back(sock):
                raise LeadsBackError("it is an address of this host, too, where mslaunch does not run")
            sock.setsockopt(_IPPROTO_TCP, _TCP_NODELAY, 1)
            found = prove(sock, self._token, self._node, bare_address(sock.getpeername()[0]))
            sock.settimeout(None)
        except OSError:
            sock.close()
            raise
        return sock, found


class LeadsBackError(OSError):
    """An address of the launcher leads to this very host."""


class WrongProofError(OSError):
    """Somebody who does not know the token listens there."""


class WrongPlaceError(OSError):
    """What listens there is not what was called, or hands calls on."""


def prove(sock: socket, token: bytes, name: str, place: str, kind: str = "") -> Seals:
    """Both sides prove that they know the token; returns what seals the rest of the connection.

    `place`: where this side has called.  `kind`: what the caller is, in a word.  The time limit of `sock` is one for
    the answer as a whole.  Raises `WrongProofError` if the other side does not know the token, `WrongPlaceError` if it
    was called at another place, or another OSError.
    """
    nonce, deadline = new_nonce(), time.monotonic() + (sock.gettimeout() or _TRY)
    kind = kind or bytecode()

    def read() -> bytes:
        sock.settimeout(max(0.001, deadline - time.monotonic()))  # for the whole line: its bytes may come one by one
        return sock.recv(1)

    sock.sendall(f"{CALL} {nonce} {name} {kind}\n".encode("ascii", "replace"))
    theirs, _, answer = _line(read).partition(" ")
    at, _, answer = answer.partition(" ")
    call = CallWords(nonce, theirs, name, kind, at)
    if not same(answer, proof(HOST, token, call)):
        raise WrongProofError("somebody else listens there")
    if at != place:
        raise WrongPlaceError(f"it hands calls on to {at}, as address translation does, or another user's program")
    sock.sendall(proof(CALLER, token, call).encode() + b"\n")
    return seals(CALLER, token, call)
