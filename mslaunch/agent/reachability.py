"""Which addresses of another node are reachable from here: probes that look for the token that it sends (`ports`)."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, socket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mslaunch.runtime.loop import Loop, Timer

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
PROBE_SECONDS = 4.0  #: for all addresses together
_SETTLE = 0.3  #: seconds that other addresses have after the first answered


class Prober:
    """Tries addresses of another node, all at once, and reports those where `token` was received."""

    def __init__(
        self, loop: Loop, addresses: Iterable[str], port: int, token: str, done: Callable[[list[str]], None]
    ) -> None:
        self._loop = loop
        self._token = token.encode()
        self._done = done
        self._open: dict[str, socket] = {}
        self._reached: list[str] = []
        self._timer: Timer | None = loop.after(PROBE_SECONDS, self._finish)
        for address in addresses:
            self._connect(address, port)
        if not self._open:
            self._finish()

    def _connect(self, address: str, port: int) -> None:
        try:
            sock = socket(_AF_INET6 if ":" in address else _AF_INET, _SOCK_STREAM)
            sock.setblocking(False)
            sock.connect_ex((address, port))  # if there is no route, the first read fails
        except OSError:
            return
        self._open[address] = sock
        self._loop.reader(sock.fileno(), lambda: self._readable(address))

    def _readable(self, address: str) -> None:
        sock = self._open[address]
        try:
            received = sock.recv(64)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        self._close(address)
        if received == self._token:
            if not self._reached and self._timer:
                self._timer.cancel()
                self._timer = self._loop.after(_SETTLE, self._finish)
            self._reached.append(address)
        if not self._open:
            self._finish()

    def _close(self, address: str) -> None:
        sock = self._open.pop(address)
        self._loop.reader(sock.fileno(), None)
        sock.close()

    def _finish(self) -> None:
        for address in list(self._open):
            self._close(address)
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._done(self._reached)
