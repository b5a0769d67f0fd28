"""The TCP port at which ranks reach libpmix: only processes of our user are passed on to the library.

libpmix listens on 127.0.0.1, where every local user can connect, and believes the uid that a client states.  It also
reads a client's first message in its only thread, however long that takes.  So its TCP socket is taken over: in place
of it, the library gets a socket in a private directory.  A TCP connection is passed on once the kernel has said that
its other end is our user's, and once its first message is whole and names a world.
"""

from __future__ import annotations

import _thread
import os
import time
from errno import EAGAIN, EBADF, EMLINK, ETIMEDOUT

from mslaunch.agent.mpi.pmix.relayed_client import RelayedClient
from mslaunch.faststd import TYPE_CHECKING, partial, socket
from mslaunch.host.connection_owners import owner
from mslaunch.host.processes import link
from mslaunch.host.system_files import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mslaunch.runtime.loop import Loop

_AF_UNIX, _AF_INET, _AF_INET6, _SOCK_STREAM = 1, 2, 10, 1
_SOL_SOCKET, _SO_ACCEPTCONN = 1, 30
_SHUT_WR, _SHUT_RDWR = 1, 2
FIRST_MESSAGE = 10.0  #: seconds that a client may take for its first message
UNFINISHED = 1024  #: connections whose first message is not whole: of more, the oldest is closed
STRANGERS = 16  #: of other users; more are closed unread
_BATCH = 64  # connections that are accepted at once
_TOLD = 8  # other users that are reported
_AGAIN = 0.5  # seconds until the next try, where there are no descriptors, or the library is busy
_INTERVAL = 0.002  # seconds between two looks at what the library opens
_SETTLE = 5.0  # seconds that the library may take to accept a connection


class PmixListener:
    """The library's two sockets: that of TCP, which is ours now, and the private one in place of it."""

    def __init__(self, tcp: socket, folder: int) -> None:
        """`folder`: a descriptor of the directory with the library's socket."""
        self.tcp = tcp
        self._folder = folder
        self._path = f"/proc/self/fd/{folder}/libpmix"  # the directory's own path may be longer than a socket's can be

    def bind(self) -> socket:
        """The library's socket."""
        sock = socket(_AF_UNIX, _SOCK_STREAM)
        sock.bind(self._path)
        sock.listen(4096)
        sock.setblocking(False)
        return sock

    def close(self) -> None:
        """Our descriptors; the library keeps its own."""
        self.tcp.close()
        os.close(self._folder)

    def connect(self) -> socket:
        """A connection to the library; raises OSError, with EAGAIN if too many wait."""
        sock = socket(_AF_UNIX, _SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(self._path)
        except OSError:
            sock.close()
            raise
        return sock


class PortTakeover:
    """Takes over the TCP port of a library within milliseconds after the library has begun to listen.

    It begins before the library starts.  A connection that the library has accepted by then is broken: it would occupy
    the library's only thread, and no rank knows the port yet.  libpmix 4 and 5 ask the kernel for the number of their
    port before they listen, so they learn that of the TCP socket.
    """

    def __init__(self, folder: str) -> None:
        """`folder`: private; for the library's socket."""
        self._folder = folder
        self._known = {*open_sockets()}
        self._taken: PmixListener | None = None
        self._error: Exception | None = None
        self._ended = False
        self._stop, self._stopped = _thread.allocate_lock(), _thread.allocate_lock()
        self._stop.acquire()
        self._stopped.acquire()
        _thread.start_new_thread(self._run, ())

    def listener(self) -> PmixListener | None:
        """The port of a library that has started; None: the library listens at no TCP port.  Raises OSError."""
        self.close()
        self._look()
        try:
            if self._taken:
                self._wait_for_library(self._taken)
            if self._error:
                raise self._error
            if any(_listens(fd) for name, fd in open_sockets().items() if name not in self._known):
                raise OSError(EMLINK, "it listens at several ports")
        except Exception:
            if self._taken:
                self._taken.close()
            raise
        return self._taken

    def close(self) -> None:
        """End the thread."""
        if not self._ended:
            self._ended = True
            self._stop.release()
            self._stopped.acquire()

    def _run(self) -> None:
        while not self._stop.acquire(True, _INTERVAL):
            self._look()
        self._stopped.release()

    def _look(self) -> None:
        try:
            for name, fd in open_sockets().items():
                if name in self._known:
                    continue
                if self._taken:
                    _break(fd, self._taken.tcp.getsockname())
                elif _listens(fd):
                    self._take(name, fd)
        except Exception as error:  # of any kind: `close` waits for the thread, and `listener` raises it
            self._error = error

    def _take(self, name: str, fd: int) -> None:
        tcp = _tcp_socket(fd)
        if tcp:
            taken = PmixListener(tcp, os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            inside = taken.bind()
            os.dup2(inside.fileno(), fd, inheritable=False)
            inside.close()
            self._known.add(name)
            self._taken = taken

    def _wait_for_library(self, taken: PmixListener) -> None:
        """Wait until the library accepts connections at its new socket: it closes one that ends without a word.

        Its thread may still be waiting for the socket that it had.  A connection to that one wakes the kernel's select
        or poll, which then looks at what the descriptor is by now.
        """
        sock, knock = taken.connect(), socket(taken.tcp.family, _SOCK_STREAM)
        knock.setblocking(False)
        left = _SETTLE
        try:
            sock.shutdown(_SHUT_WR)
            knock.connect_ex(taken.tcp.getsockname())
            while left > 0:
                self._look()  # at connections that the library has accepted before
                try:
                    sock.recv(1)
                except BlockingIOError:
                    time.sleep(_INTERVAL)
                    left -= _INTERVAL
                else:
                    self._look()
                    return
            raise OSError(ETIMEDOUT, "it accepts no connections")
        finally:
            sock.close()
            knock.close()


def open_sockets() -> dict[str, int]:
    """The sockets that this process has open: what the kernel calls each, and a descriptor."""
    found = {link(os.getpid(), f"fd/{fd}"): int(fd) for fd in listed("/proc/self/fd")}
    return {name: fd for name, fd in found.items() if name.startswith("socket:")}


def _tcp_socket(fd: int) -> socket | None:
    """The socket behind a descriptor, with a descriptor of its own; None if it is no TCP socket."""
    try:
        copy = os.dup(fd)
    except OSError as error:
        if error.errno == EBADF:  # closed meanwhile
            return None
        raise
    sock = socket(fileno=copy)
    if sock.family in (_AF_INET, _AF_INET6) and sock.type == _SOCK_STREAM:
        return sock
    sock.close()
    return None


def _listens(fd: int) -> bool:
    """Whether it is a TCP socket that listens."""
    sock = _tcp_socket(fd)
    if sock is None:
        return False
    try:
        return bool(sock.getsockopt(_SOL_SOCKET, _SO_ACCEPTCONN))
    finally:
        sock.close()


def _break(fd: int, address: tuple[object, ...]) -> None:
    """End the connection, if it is one to `address`."""
    sock = _tcp_socket(fd)
    if sock:
        try:
            if sock.getsockname() == address:
                sock.shutdown(_SHUT_RDWR)
        except OSError:  # it has ended already
            pass
        sock.close()


class ClientPort:
    """The port, and the connections through it."""

    def __init__(
        self,
        loop: Loop,
        listener: PmixListener,
        names: Callable[[], Iterable[str]],
        stranger: Callable[[int, bool], None],
    ) -> None:
        """`names`: the namespaces that the library has now.

        `stranger(uid, knowing)`: another user has connected; `knowing`: and stated one of these names.
        """
        self._loop = loop
        self._library = listener
        self._names = names
        self._stranger = stranger
        self._strangers: set[int] = set()  # that were reported
        self._unfinished: list[RelayedClient] = []  # of ours
        self._others: list[RelayedClient] = []  # of other users
        self._tcp = listener.tcp
        self._tcp.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Accept no more."""
        self._loop.reader(self._tcp.fileno(), None)
        self._library.close()
        for client in [*self._unfinished, *self._others]:
            client.close()

    def _watch(self) -> None:
        if self._tcp.fileno() >= 0:
            self._loop.reader(self._tcp.fileno(), self._accept)

    def _accept(self) -> None:
        fds: list[int] = []
        try:
            while len(fds) < _BATCH:
                fds.append(self._tcp._accept()[0])  # type: ignore[attr-defined]
        except BlockingIOError:
            pass
        except OSError:  # no descriptors
            self._loop.reader(self._tcp.fileno(), None)
            self._loop.after(_AGAIN, self._watch)
        for fd in fds:
            uid = owner(fd)
            if uid is None:
                os.close(fd)
            else:
                self._take(fd, uid)

    def _take(self, fd: int, uid: int) -> None:
        """A client, whose first message shall come; also of another user, to find out what he knows."""
        if uid == os.getuid():
            clients, judge = self._unfinished, self._began
            if len(clients) >= UNFINISHED:
                clients[0].close()
        else:
            clients, judge = self._others, partial(self._refuse, uid)
            if uid not in self._strangers and len(self._strangers) < _TOLD:
                self._strangers.add(uid)
                self._stranger(uid, False)
            if len(clients) >= STRANGERS:
                os.close(fd)
                return

        def began(first: bytes, whole: bool) -> None:
            clients.remove(client)
            judge(client, first, whole)

        client = RelayedClient(self._loop, fd, began)
        clients.append(client)
        self._loop.after(FIRST_MESSAGE, client.hurry)

    def _refuse(self, uid: int, client: RelayedClient, first: bytes, _: bool) -> None:
        if any(name.encode() in first for name in self._names()):
            self._stranger(uid, True)
        client.close()

    def _began(self, client: RelayedClient, first: bytes, whole: bool) -> None:
        """Words that state no world are none of libpmix's clients, and could crash it."""
        if whole and any(name.encode() + b"\0" in first for name in self._names()):
            self._pass_on(client, first)
        else:
            client.close()

    def _pass_on(self, client: RelayedClient, first: bytes) -> None:
        """Connect a client with the library."""
        try:
            sock = self._library.connect()
        except OSError as error:
            if error.errno == EAGAIN:  # many ranks start at once
                self._loop.after(_AGAIN, lambda: self._pass_on(client, first))
            else:  # no descriptors
                client.close()
        else:
            # it is there in one go: the library's thread, for which we may have to wait, does not wait for us
            sock.send(first)
            client.relay(sock.detach())
