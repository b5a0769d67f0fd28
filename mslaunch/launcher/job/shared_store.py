"""The launcher's end of a job's key store, by which ranks of Horovod find each other.

Each agent serves the store to the ranks of its own host (`agent.services.http_store`) and has a copy of it.  What a
rank writes comes here, is checked, and goes to the other agents; the writer gets its answer after that, so that all
copies change in one order.  A host writes for its own ranks only: in a scope that the framework has named, a key is a
number whose host is known; in any other scope a name belongs to the host that was the first to write it.

A scope is emptied once all of its ranks have said that they are done, as horovodrun's server does
(horovod/runner/http/http_server.py, `RendezvousHandler.do_DELETE`, 0.28.1), so that Horovod can be started once more.
"""

from __future__ import annotations

import os

from mslaunch.datamodel.jobmap import NodeStore
from mslaunch.errors import printable
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.launcher.agents.connection import meaningless
from mslaunch.launcher.mpi.node_quota import NodeQuota
from mslaunch.protocol import frames
from mslaunch.protocol.store_messages import (
    COMPRESSED_SIZE,
    DELETE,
    DONE,
    GONE,
    PUT,
    REFUSED,
    SERVE,
    SERVED,
    VALUE,
    StoreMessage,
    unpack_write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: bytes of values and names, compressed, that a job may hold, or for each of its ranks if that is more; every node has
#: the share of its ranks
HELD, HELD_EACH = 1 << 25, 1 << 17
NAMES_EACH = 256  #: names for each rank of a node; each process set of Horovod has some
_ENTRY = 200  # bytes that a name costs besides
_INTERFACE = 15  # characters of its name: IFNAMSIZ, netdevice(7)


class _Entry(NamedTuple):
    node: int  # which wrote it
    size: int


class SharedStore:
    """The store of one attempt; a new attempt has a new one."""

    def __init__(self, scopes: Mapping[str, Sequence[int]], send: Callable[[int, bytes], None]) -> None:
        """`scopes`: for each scope that is known before, the node of each of its numbers.  `send(node, frame)`."""
        self._scopes = scopes
        self._send = send
        nodes = {node for members in scopes.values() for node in members}
        self._tokens = {node: os.urandom(16).hex() for node in sorted(nodes)}
        self.places: dict[int, NodeStore] = {}  #: by node, of those that have answered
        self._names: dict[str, _Entry] = {}
        self._finished: dict[str, set[str]] = {}  # by scope
        ranks = max(scopes.values(), key=len, default=())
        each = max(HELD_EACH, HELD // max(len(ranks), 1))
        self._quotas = {node: NodeQuota(NAMES_EACH * ranks.count(node), each * ranks.count(node)) for node in nodes}

    @property
    def missing(self) -> list[int]:
        """The nodes that do not serve it yet."""
        return [node for node in self._tokens if node not in self.places]

    def begin(self, address: str) -> None:
        """Have it served on all nodes; `address` is one of rank 0's host."""
        for node, token in self._tokens.items():
            self._tell([node], StoreMessage(SERVE, 0, token, address.encode("ascii")))

    def on_frame(self, node: int, frame: frames.Frame) -> None:
        """WRITE.  Raises `WireError` for what no agent of ours sends."""
        message = unpack_write(frame.payload)
        if node not in self._tokens or (message.what == SERVED) != (node not in self.places):
            raise meaningless(frame)
        if message.what == SERVED:
            if (
                not 0 < message.number < 1 << 16
                or len(message.name) > _INTERFACE
                or printable(message.name) != message.name
            ):
                raise meaningless(frame)
            self.places[node] = NodeStore(message.number, self._tokens[node], message.name)
        else:
            applied = self._apply(node, message)
            self._tell([node], StoreMessage(DONE if applied else REFUSED, message.number))

    def _apply(self, node: int, message: StoreMessage) -> bool:
        if not self._owns(node, message.name):
            return False
        if message.what == DELETE:
            self._finish(message.name)
            return True
        return message.what == PUT and self._put(node, message.name, message.value)

    def _owns(self, node: int, name: str) -> bool:
        scope, _, key = name.partition("/")
        members = self._scopes.get(scope)
        if members is None:
            entry = self._names.get(name)
            return entry is None or entry.node == node
        number = key[len("rank_") :] if key.startswith("rank_") else key
        return number.isdigit() and len(number) < 10 and int(number) < len(members) and members[int(number)] == node

    def _put(self, node: int, name: str, value: bytes) -> bool:
        if len(value) > COMPRESSED_SIZE:
            return False
        before, new = self._names.get(name), _Entry(node, len(value) + len(name) + _ENTRY)
        quota = self._quotas[node]
        if before:
            quota.give(node, before.size)
        if not quota.take(node, new.size):
            if before:
                quota.take(node, before.size)
            return False
        self._names[name] = new
        self._tell([other for other in self._tokens if other != node], StoreMessage(VALUE, 0, name, value))
        return True

    def _finish(self, name: str) -> None:
        """A rank needs nothing of a scope any more."""
        scope, _, key = name.partition("/")
        if scope not in self._scopes:
            self._drop([name])
            return
        finished = self._finished.setdefault(scope, set())
        finished.add(key)
        if len(finished) == len(self._scopes[scope]):
            del self._finished[scope]
            self._drop([known for known in self._names if known.startswith(f"{scope}/")])

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            entry = self._names.pop(name, None)
            if entry:
                self._quotas[entry.node].give(entry.node, entry.size)
                self._tell(self._tokens, StoreMessage(GONE, 0, name))

    def _tell(self, nodes: Iterable[int], message: StoreMessage) -> None:
        frame = frames.encode(frames.KEYS, payload=message.pack())  # one for all of them
        for node in nodes:
            self._send(node, frame)
