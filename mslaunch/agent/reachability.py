"""Which addresses lead to a node: its agent listens and proves them, and the agents of other nodes probe them.

An address that leads back to this host counts only if a process of our own user answers there, for the nodes of a job
may be one host: another user could listen at an address that many hosts have alike, as that of a bridge for containers.
"""

from __future__ import annotations

import os

from mslaunch.agent import on_demand
from mslaunch.faststd import TYPE_CHECKING, socket
from mslaunch.host.free_ports import Listener
from mslaunch.host.own_addresses import bare_address, is_loopback, leads_back
from mslaunch.protocol import address_proof
from mslaunch.protocol.control import Reached

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.protocol.control import Probe
    from mslaunch.runtime.loop import Loop, Timer

    Need = Callable[[str, Callable[[], None]], None]  # `ModuleRequests.need`

_AF_INET, _AF_INET6, _SOCK_STREAM = 2, 10, 1
CALLERS = 128  #: of a token listener: without a nonce, and with an answer
PROBE_SECONDS = 4.0  #: for all addresses together
_SETTLE = 0.3  #: seconds that other addresses have after the first proved itself
_TRANSLATED = 1.5  # the same after a translated one: a relay may be quicker than the host itself


class TokenListener:
    """Proves to the other agents that an address is this node's: it answers their nonces (`protocol.address_proof`)."""

    def __init__(self, loop: Loop) -> None:
        self.token = address_proof.new_secret()
        self._loop = loop
        self._silent: dict[int, socket] = {}  # callers without a nonce yet, by descriptor, in the order of coming
        self._answered: dict[int, socket] = {}
        self._listener = Listener()
        self._listener.listen()
        self.port = self._listener.port
        loop.reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            caller = self._listener.accept()
        except OSError:
            return
        caller.setblocking(False)
        fd = caller.fileno()
        self._keep(self._silent, fd, caller)
        self._loop.reader(fd, lambda: self._heard(fd))

    def _heard(self, fd: int) -> None:
        """Answer a nonce, and stay until the caller goes: it may want to know whose our end is."""
        caller = self._silent[fd]
        try:
            nonce = caller.recv(address_proof.NONCE + 1)
            known = len(nonce) == address_proof.NONCE
            if known:
                caller.send(address_proof.answer(self.token, nonce, bare_address(caller.getsockname()[0])))
        except BlockingIOError:
            return
        except OSError:
            known = False
        if not known:
            self._hang_up(self._silent, fd)
            return
        self._keep(self._answered, fd, self._silent.pop(fd))
        self._loop.reader(fd, lambda: self._hang_up(self._answered, fd))

    def _keep(self, callers: dict[int, socket], fd: int, caller: socket) -> None:
        """Add a caller; of too many, the one that came first is hung up on."""
        callers[fd] = caller
        if len(callers) > CALLERS:
            self._hang_up(callers, next(iter(callers)))

    def _hang_up(self, callers: dict[int, socket], fd: int) -> None:
        self._loop.reader(fd, None)
        callers.pop(fd).close()

    def close(self) -> None:
        """No more proofs are needed."""
        self._loop.reader(self._listener.fileno(), None)
        self._listener.close()
        for callers in (self._silent, self._answered):
            while callers:
                self._hang_up(callers, next(iter(callers)))


class Prober:
    """Tries addresses of another node, all at once, and reports those that its token listener has proved."""

    def __init__(self, loop: Loop, need: Need, probe: Probe, done: Callable[[Reached], None]) -> None:
        self._loop = loop
        self._need = need
        self._token = probe.token
        self._nonce = address_proof.new_secret()
        self._done = done
        self._open: dict[str, socket] = {}
        self._reached: list[str] = []
        self._translated: list[str] = []  # where the listener says that it was reached at another address
        self._timer: Timer | None = loop.after(PROBE_SECONDS, self._finish)
        for address in dict.fromkeys(probe.addresses):
            self._connect(address, probe.port)
        if not self._open:
            self._finish()

    def _connect(self, address: str, port: int) -> None:
        try:
            sock = socket(_AF_INET6 if ":" in address else _AF_INET, _SOCK_STREAM)
            sock.setblocking(False)
            sock.connect_ex((address, port))  # if there is no route, the nonce cannot be sent
        except OSError:
            return
        self._open[address] = sock
        self._loop.writer(sock.fileno(), lambda: self._connected(address))

    def _connected(self, address: str) -> None:
        sock = self._open[address]
        self._loop.writer(sock.fileno(), None)
        try:
            sock.send(self._nonce.encode())
        except OSError:
            self._close(address)
            return
        self._loop.reader(sock.fileno(), lambda: self._answered(address))

    def _answered(self, address: str) -> None:
        sock = self._open[address]
        try:
            proved = address_proof.proved_address(self._token, self._nonce, sock.recv(address_proof.LONGEST))
            back = is_loopback(address) or leads_back(sock)
            translated = proved != bare_address(sock.getpeername()[0])
        except BlockingIOError:
            return
        except OSError:
            self._close(address)
            return
        self._loop.reader(sock.fileno(), None)
        if not proved:
            self._close(address)
        elif back:
            self._need("host.connection_owners", lambda: self._led_back(address, translated))
        else:
            self._note(address, translated)

    def _led_back(self, address: str, translated: bool) -> None:
        """Whether it counts, now that the kernel's word on the other end can be had."""
        sock = self._open.get(address)
        if sock is None:  # it came too late
            return
        if on_demand.get("host.connection_owners").owner(sock.fileno()) == os.geteuid():
            self._note(address, translated)
        else:
            self._close(address)

    def _note(self, address: str, translated: bool) -> None:
        """It has been proved."""
        if self._timer and not self._reached and not (translated and self._translated):
            self._timer.cancel()
            self._timer = self._loop.after(_TRANSLATED if translated else _SETTLE, self._finish)
        (self._translated if translated else self._reached).append(address)
        self._close(address)

    def _close(self, address: str) -> None:
        sock = self._open.pop(address)
        self._loop.reader(sock.fileno(), None)
        self._loop.writer(sock.fileno(), None)
        sock.close()
        if not self._open:
            self._finish()

    def _finish(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        while self._open:
            self._close(next(iter(self._open)))
        self._done(Reached(tuple(self._reached), tuple(self._translated)))
