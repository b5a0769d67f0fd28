"""--wait-hosts: when a host that may only be starting is tried again, and for how long.

Names without an address, refused and dropped connections are worth another try (`LinkError.passing`), and what the
program of --rsh-agent says likewise; wrong keys and refused logins are not.  Operators of Kubernetes start launchers
before their workers (mpi-operator's launcherCreationPolicy: AtStartup), so their variables imply it.  Loaded when a
host was tried in vain.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.errors import LinkError
    from mslaunch.transport.base import OpenContext

_OPERATORS = ("K_MPI_JOB_ROLE", "VC_TASK_INDEX", "VK_TASK_INDEX")  # mpi-operator and Trainer, Volcano
_WAIT = 300.0  # seconds, there: images of workers are pulled meanwhile
_NAMED = 3  # hosts in a line of progress
_FIRST, _MOST = 0.25, 2.0  # seconds between the first tries of a host, and between later ones


class HostRetries:
    """The tries of the hosts of one start, which began at `began` on the loop's clock; `again` makes the next one."""

    def __init__(self, context: OpenContext, began: float, again: Callable[[Node], None]) -> None:
        implied = _WAIT if any(name in context.environ for name in _OPERATORS) else 0.0
        wait = context.policy.wait
        self._until = began + (implied if wait is None else wait)
        self._began = began
        self._context = context
        self._again = again
        self._tries: dict[str, int] = {}
        self._last: dict[str, float] = {}
        self._why: dict[str, str] = {}  # by host, what its last try has met

    def schedule(self, node: Node, error: LinkError) -> bool:
        """Try a host again after a pause with jitter; False if the time is over, and the error says so."""
        loop, host = self._context.loop, node.name
        tries, now = self._tries.get(host, 0), loop.now()
        if now >= self._until:
            if tries:
                error.what += f" ({tries + 1} tries in {now - self._began:.0f} s)"
            return False
        if not self._tries:
            seconds = self._until - self._began
            self._context.notice(
                f"{host}: {error.passing}; such hosts are tried again for {seconds:g} s (--wait-hosts)"
            )
        self._tries[host], self._why[host] = tries + 1, error.passing
        pause = min(_MOST, _FIRST * 2 ** min(tries, 9)) * (0.5 + os.urandom(1)[0] / 512)
        self._last[host] = now + min(pause, self._until - now)
        loop.after(self._last[host] - now, lambda: self._again(node))
        return True

    def about(self, waiting: Collection[str]) -> str:
        """The hosts of `waiting` that were tried in vain, by reason, and how much of the time is over."""
        hosts: dict[str, list[str]] = {}
        for host, why in sorted(self._why.items()):
            if host in waiting:
                hosts.setdefault(why, []).append(host)
        if not hosts:
            return ""
        told = "; ".join(f"{_few(names)}: {why}" for why, names in hosts.items())
        return f"{self._context.loop.now() - self._began:.0f} of {self._until - self._began:.0f} s, {told}"

    def last_try(self, host: str) -> float:
        """When it was tried last, or will be."""
        return self._last.get(host, self._began)


def _few(names: list[str]) -> str:
    """The first of them, and how many more there are: a line of a terminal is short."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
