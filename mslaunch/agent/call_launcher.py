"""The entry point of an agent that calls its launcher back: under srun, which carries input to it but no frames.

Standard input has one line behind the program, `call_terms` of `transport.call_back`: where the launcher listens, the
token, and the variables that name this node and the launcher's address.  The connection then takes the place of
standard input and output.  An agent that gets no connection says so in one line on standard output.
"""

from __future__ import annotations

import os
import time

from mslaunch.agent.main import remote_main
from mslaunch.faststd import TYPE_CHECKING, socket
from mslaunch.protocol.call_proof import CALL, LONGEST, new_nonce, proof, same

if TYPE_CHECKING:
    from collections.abc import Callable

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
_IPPROTO_TCP, _TCP_NODELAY = 6, 1
_SECONDS = 5.0  # for all tries together
_TRY = 2.0  # for one


def call_back_main() -> None:
    """Call back, and become the agent of that connection."""
    port, token, node_variable, address_variable, *addresses = _line(lambda: os.read(0, 1)).split(" ")
    node = os.environ.get(node_variable, "")
    first = os.environ.get(address_variable, "")
    found, why = _call(list(dict.fromkeys(filter(None, (first, *addresses)))), int(port), bytes.fromhex(token), node)
    if not found:
        os.write(1, f"{CALL} {node} {why}\n".encode("ascii", "replace"))
        os._exit(0)
    for fd in (0, 1):
        os.dup2(found.fileno(), fd)
    found.close()
    remote_main()


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
                _prove(sock, token, node)
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


def _prove(sock: socket, token: bytes, node: str) -> None:
    """Both sides prove that they know the token; raises OSError if the other one does not."""
    nonce = new_nonce()
    sock.sendall(f"{CALL} {nonce} {node}\n".encode("ascii", "replace"))
    theirs, _, answer = _line(lambda: sock.recv(1)).partition(" ")
    if not same(answer, proof("launcher", token, nonce, theirs, node)):
        raise OSError("somebody else listens there")
    sock.sendall(proof("agent", token, nonce, theirs, node).encode() + b"\n")
