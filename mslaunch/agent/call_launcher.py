"""The entry point of an agent that calls its launcher back: one that a batch system starts, which carries no frames.

`call_terms` of `transport.call_back` say where the launcher listens, the token, how this node is called, and a variable
with the launcher's address.  Under srun and qrsh they are a line of standard input, behind the program; elsewhere the
program has them.  All other modules come on the connection, which then takes the place of standard input and output.
An agent that gets no connection says so in one line on standard output, unless that is the job's, and by its exit code.
"""

from __future__ import annotations

import os
import sys
import time

from mslaunch.faststd import TYPE_CHECKING, socket
from mslaunch.protocol.call_proof import ARGUMENT, CALL, LONGEST, NO_CALL, bytecode, new_nonce, proof, same

if TYPE_CHECKING:
    from collections.abc import Callable

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
    port, token, _, address_variable, *addresses = terms.split(" ")
    first = os.environ.get(address_variable, "")
    known = list(dict.fromkeys(filter(None, (first, *addresses))))
    found, why = _call(known, int(port), bytes.fromhex(token), _node(terms))
    if found:
        modules.update(_modules(found))
        for fd in (0, 1):
            os.dup2(found.fileno(), fd)
        found.close()
        exec(str(modules.pop("")), {"SOURCES": modules})
    return why


def _modules(sock: socket) -> dict[str, object]:
    """Those that the launcher sends, who has been proved; raises OSError if it ends."""
    import marshal
    import zlib

    left = int(_line(lambda: sock.recv(1)))
    pieces = []
    while left > 0:
        pieces.append(sock.recv(left))
        if not pieces[-1]:
            raise OSError("the launcher has ended")
        left -= len(pieces[-1])
    found: dict[str, object] = marshal.loads(zlib.decompress(b"".join(pieces)))
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


def _call(addresses: list[str], port: int, token: bytes, node: str) -> tuple[socket | None, str]:
    """The first connection to somebody who knows the token; else why there is none at the first address."""
    deadline = time.monotonic() + _SECONDS
    why = "the launcher has no address"
    while addresses:
        for address in addresses:
            sock = socket(_AF_INET6 if ":" in address else _AF_INET, _SOCK_STREAM)
            try:
                sock.settimeout(min(_TRY, max(0.1, deadline - time.monotonic())))
                sock.connect((address, port))
                sock.setsockopt(_IPPROTO_TCP, _TCP_NODELAY, 1)
                prove(sock, token, node)
            except OSError as error:
                sock.close()
                if address == addresses[0]:
                    why = f"{address} port {port}: {error.strerror or error}"
                continue
            sock.settimeout(None)
            return sock, ""
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return None, why


class WrongProofError(OSError):
    """Somebody who does not know the token listens there."""


def prove(sock: socket, token: bytes, node: str, kind: str = "") -> None:
    """Both sides prove that they know the token.  Raises `WrongProofError` if the other does not, or another OSError.

    `kind`: what the caller is, in a word.  The time limit of `sock` is one for the answer as a whole.
    """
    nonce, deadline = new_nonce(), time.monotonic() + (sock.gettimeout() or _TRY)

    def read() -> bytes:
        sock.settimeout(max(0.001, deadline - time.monotonic()))  # for the whole line: its bytes may come one by one
        return sock.recv(1)

    sock.sendall(f"{CALL} {nonce} {node} {kind or bytecode()}\n".encode("ascii", "replace"))
    theirs, _, answer = _line(read).partition(" ")
    if not same(answer, proof("launcher", token, nonce, theirs, node)):
        raise WrongProofError("somebody else listens there")
    sock.sendall(proof("agent", token, nonce, theirs, node).encode() + b"\n")
