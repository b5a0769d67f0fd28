"""The control socket of a launcher: where `--top` and `--stacks` ask what its ranks do.

A UNIX socket in the directory of the job, which only its user can enter; the kernel also says who calls (SO_PEERCRED of
unix(7)), and others than the user and root get no answer.  A question is one line, an object of JSON; the answer is
another.  Nothing can be changed through it, and a question that cannot be answered closes its client only.
"""

from __future__ import annotations

import errno
import os
import time

from mslaunch.faststd import TYPE_CHECKING, struct
from mslaunch.jobs.private_folder import job_folder
from mslaunch.runtime.fd_writer import Writer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from mslaunch.runtime.loop import Loop, Timer

    Answer = Callable[[dict[str, Any]], None]
    Questions = Callable[[dict[str, Any], Answer], None]

NAME = "control"
SECONDS = 20.0  #: for a question and its answer
_AGAIN = 0.02
_LATE = "no whole answer came in time"
_CLIENTS = 16
_QUESTION = 4096  # bytes
_ANSWER = 64 << 20
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class ControlSocket:
    """Listens in `folder`; `ask` gets each question, and what it answers by.  Raises OSError."""

    def __init__(self, loop: Loop, folder: str, ask: Questions) -> None:
        self._loop = loop
        self._folder = folder
        self._ask = ask
        self._clients: set[_OpenQuestion] = set()
        import socket

        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _at(folder, self._socket.bind)
            self._socket.listen(_CLIENTS)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        loop.reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection = self._socket.accept()[0]
        except OSError:  # it has gone again
            return
        if len(self._clients) >= _CLIENTS or caller_of(connection) not in (0, os.geteuid()):
            connection.close()
            return
        self._clients.add(_OpenQuestion(self._loop, connection, self._ask, self._clients.discard))

    def close(self) -> None:
        """Nobody is answered any more."""
        self._loop.reader(self._socket.fileno(), None)
        self._socket.close()
        for client in list(self._clients):
            client.close()
        try:
            with job_folder(self._folder) as fd:
                os.unlink(NAME, dir_fd=fd)
        except OSError:
            pass


class _OpenQuestion:
    """One who asks; `gone` is told at the end."""

    def __init__(
        self, loop: Loop, connection: socket.socket, ask: Questions, gone: Callable[[_OpenQuestion], None]
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._ask = ask
        self._gone = gone
        self._said = b""
        self._closed = False
        connection.setblocking(False)
        self._writer = Writer(loop, connection.fileno(), lambda error: self.close(), self._sent)
        self._limit: Timer = loop.after(SECONDS, self.close)
        loop.reader(connection.fileno(), self._read)

    def _read(self) -> None:
        try:
            data = self._connection.recv(_QUESTION)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._said += data
        if not data or len(self._said) > _QUESTION:
            self.close()
        elif self._said.endswith(b"\n"):
            self._loop.reader(self._connection.fileno(), None)
            self._answer_it()

    def _answer_it(self) -> None:
        import json

        try:
            question = json.loads(self._said)
        except (ValueError, RecursionError):
            question = None
        if not isinstance(question, dict):
            self.close()
            return
        try:
            self._ask(question, self.answer)
        except Exception:  # whatever it is, the job goes on
            self.close()

    def answer(self, answer: dict[str, Any]) -> None:
        """Send this, and close."""
        if not self._closed:
            import json

            self._writer.send(json.dumps(answer).encode("utf-8", "replace") + b"\n")

    def _sent(self, size: int) -> None:
        if not self._writer.pending:
            self.close()

    def close(self) -> None:
        """It is over."""
        if not self._closed:
            self._closed = True
            self._limit.cancel()
            self._loop.reader(self._connection.fileno(), None)
            self._writer.close()
            self._connection.close()
            self._gone(self)


def caller_of(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    import socket

    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


def ask(folder: str, question: dict[str, Any], seconds: float = SECONDS) -> dict[str, Any]:
    """The answer of the launcher whose directory this is.

    Raises OSError if there is nobody, if no answer is whole within so many seconds, or if it has no sense.
    """
    import json
    import socket

    deadline = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        while not _connected(connection, folder):  # connect(2): EAGAIN, as long as too many others wait
            connection.settimeout(_left(deadline, "too many others ask"))
            time.sleep(_AGAIN)
        if caller_of(connection) not in (0, os.geteuid()):
            raise PermissionError(1, "another user listens there")
        try:
            said = _answer(connection, json.dumps(question).encode() + b"\n", deadline)
        except socket.timeout as error:  # no TimeoutError before Python 3.10
            raise TimeoutError(errno.ETIMEDOUT, error.strerror or _LATE) from None
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise OSError(errno.EPROTO, "its answer has no sense")
    return answer


def _answer(connection: socket.socket, question: bytes, deadline: float) -> bytes:
    connection.settimeout(_left(deadline))
    connection.sendall(question)
    said = bytearray()
    while not said.endswith(b"\n"):
        connection.settimeout(_left(deadline))
        data = connection.recv(1 << 16)
        if not data or len(said) > _ANSWER:
            raise ConnectionResetError(104, "the launcher did not answer")
        said += data
    return bytes(said)


def _left(deadline: float, why: str = "") -> float:
    """Seconds until then.  Raises TimeoutError if there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(errno.ETIMEDOUT, why or _LATE)
    return left


def listens(folder: str) -> bool:
    """Whether a launcher listens there, as far as can be known."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            _connected(connection, folder)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            pass
    return True


def _connected(connection: socket.socket, folder: str) -> bool:
    try:
        _at(folder, connection.connect)
        return True
    except BlockingIOError:
        return False


def _at(folder: str, act: Callable[[str], Any]) -> None:
    """`bind` or `connect` there by a descriptor: the address of a UNIX socket has room for 107 bytes only."""
    with job_folder(folder) as fd:
        act(f"/proc/self/fd/{fd}/{NAME}")
