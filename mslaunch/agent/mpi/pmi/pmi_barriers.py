"""What ranks of this node wait for in PMI: barriers, and attributes of the node that another rank is to put.

A wait that can never end, because a rank has ended, ends the job.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi.pmi_wire import Garbled, shown
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.mpi import Abort, Gathering

if TYPE_CHECKING:
    from mslaunch.agent.mpi.pmi.key_value_store import Collective, KeySpace
    from mslaunch.agent.mpi.pmi.pmi_client import Call, Client
    from mslaunch.protocol.mpi import Released


class _Barrier(NamedTuple):
    collective: Collective
    space: KeySpace
    calls: dict[int, tuple[Call, tuple[tuple[str, object], ...]]]  # of each rank: its command, and what to answer


class PmiWaits:
    """All that ranks of one node wait for."""

    def __init__(self) -> None:
        self._barriers: dict[tuple[str, tuple[str, ...]], _Barrier] = {}
        self._attributes: list[tuple[Call, str]] = []  # and the key

    # --- barriers

    def fence(self, call: Call, group: str) -> None:
        """The rank is in a barrier; the answer comes when all are."""
        client, space = call.client, call.client.space
        collective, tag = space.collective(client.number, client.life, group)
        key = collective.op, collective.members
        barrier = self._barriers.setdefault(key, _Barrier(collective, space, {}))
        collective = barrier.collective
        if client.number in collective.inside:
            what = shown(f"{call.message.command} {group}".encode())
            raise Garbled(f"{what}, though it is in that barrier already")
        collective.inside.add(client.number)
        barrier.calls[client.number] = call, (("tag", tag),) if call.message.version == 1 else ()
        if len(collective.inside) < len(collective.here):
            self._check_barrier(barrier)
        elif collective.outside:
            blob = space.store(collective.life).packed(collective.members == (space.world.name,))
            client.launcher.gather(Gathering(*key, (blob,)))
        else:
            self._release(self._barriers.pop(key))

    def released(self, whole: Released) -> None:
        """A collective is complete on all nodes."""
        barrier = self._barriers.pop((whole.op, whole.members), None)
        if barrier is not None:
            store = barrier.space.store(barrier.collective.life)
            for blob in whole.blobs:
                store.learn(blob)
            self._release(barrier)

    @staticmethod
    def _release(barrier: _Barrier) -> None:
        for _, (call, pairs) in sorted(barrier.calls.items()):
            call.done(*pairs)

    @staticmethod
    def _check_barrier(barrier: _Barrier) -> None:
        """If a rank that has ended is waited for, that is an error."""
        collective, space = barrier.collective, barrier.space
        missing = sorted(space.ended & collective.here - collective.inside) if space.ended else []
        if missing and collective.inside and not collective.broken:
            collective.broken = True
            rank, first = (space.world.first + number for number in (missing[0], min(collective.inside)))
            text = f"rank {rank} has ended, and rank {first} waits for it in a barrier of PMI"
            call, _ = next(iter(barrier.calls.values()))
            call.client.launcher.abort(rank, Abort(1, text, broken=True))

    # --- attributes of the node

    def attribute(self, call: Call, key: str) -> None:
        """The rank waits for an attribute of the node."""
        self._attributes.append((call, key))
        self._check_attributes(call.client)

    def put(self, client: Client, key: str, value: str) -> None:
        """An attribute of the node was put."""
        waiting, self._attributes = self._attributes, []
        for call, wanted in waiting:
            if (call.client.space, call.client.life, wanted) == (client.space, client.life, key):
                call.done(("found", "TRUE"), ("value", value))
            else:
                self._attributes.append((call, wanted))

    def _check_attributes(self, client: Client) -> None:
        """If all others of the node have ended, nobody will put the attribute that some wait for."""
        space = client.space
        waiting = [call.client for call, _ in self._attributes if call.client.space is space]
        waiting = [waits for waits in waiting if not waits.ignored]
        if waiting and {waits.number for waits in waiting} | space.ended >= space.here:
            waiting[0].fail(
                f"rank {waiting[0].rank} waits for an attribute of its node, and no rank is left there to put it"
            )

    # --- the end

    def ended(self, client: Client) -> None:
        """A process is over: waits for it are in vain."""
        for barrier in list(self._barriers.values()):
            if barrier.space is client.space:
                self._check_barrier(barrier)
        self._check_attributes(client)

    def close(self) -> None:
        """All ranks have ended."""
        self._barriers.clear()
        self._attributes.clear()
