"""What ranks of this node wait for in PMI: barriers, and attributes of the node that another rank is to put.

A wait that can never end, because a rank has ended, ends the job.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi.pmi_wire import Garbled, Refused, number, shown
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.mpi import Abort, Gathering

if TYPE_CHECKING:
    from mslaunch.agent.mpi.pmi.pmi_client import Call, Client
    from mslaunch.protocol.mpi import Released


class _Barrier(NamedTuple):
    """Some ranks of a world that wait for each other."""

    op: str
    members: tuple[str, ...]
    here: frozenset[int]  # the members on this node, as ranks of their world
    outside: bool  # there are members on other nodes
    tag: str
    calls: dict[int, Call]  # the commands of those that are in


def _barrier(client: Client, group: str) -> _Barrier:
    """What a rank enters with a barrier of `group`: WORLD, NODE or ranks, and a tag."""
    space, world = client.space, client.space.world
    who, _, tag = group.partition(":")
    tag = str(number(tag or "0", 1 << 31))
    end = "" if (client.life, tag) == (1, "0") else f".{client.life}.{tag}"
    if who == "NODE":
        return _Barrier(f"node{end}", (world.name,), space.here, False, tag, {})
    if who == "WORLD":
        return _Barrier(f"fence{end}", (world.name,), space.here, len(space.here) < world.size, tag, {})
    ranks = sorted({number(word) for word in who.split(",")})
    if len(ranks) != who.count(",") + 1 or ranks[-1] >= world.size or client.number not in ranks:
        raise Refused("invalid_group")
    here = space.here.intersection(ranks)
    members = tuple(f"{world.name}.{member}" for member in ranks)
    return _Barrier(f"fence{end}", members, here, len(here) < len(ranks), tag, {})


class PmiWaits:
    """All that ranks of one node wait for."""

    def __init__(self) -> None:
        self._barriers: dict[tuple[str, tuple[str, ...]], _Barrier] = {}
        self._broken: set[tuple[str, tuple[str, ...]]] = set()  # those that can never be complete, which was reported
        self._attributes: list[tuple[Call, str]] = []  # and the key

    # --- barriers

    def fence(self, call: Call, group: str) -> None:
        """The rank is in a barrier; the answer comes when all are."""
        client, entered = call.client, _barrier(call.client, group)
        key = entered.op, entered.members
        barrier = self._barriers.setdefault(key, entered)
        if client.number in barrier.calls:
            what = shown(f"{call.message.command} {group}".encode())
            raise Garbled(f"{what}, though it is in that barrier already")
        barrier.calls[client.number] = call
        if len(barrier.calls) < len(barrier.here):
            self._check_barrier(barrier)
        elif barrier.outside:
            blob = client.space.packed(client.life, barrier.members == (client.space.world.name,))
            client.launcher.gather(Gathering(*key, (blob,)))
        else:
            self._release(barrier)

    def released(self, whole: Released) -> None:
        """A collective is complete on all nodes."""
        barrier = self._barriers.get((whole.op, whole.members))
        if barrier is not None:
            client = next(iter(barrier.calls.values())).client
            for blob in whole.blobs:
                client.space.learn(client.life, blob)
            self._release(barrier)

    def _release(self, barrier: _Barrier) -> None:
        key = barrier.op, barrier.members
        del self._barriers[key]
        self._broken.discard(key)
        for _, call in sorted(barrier.calls.items()):
            call.done(*([("tag", barrier.tag)] if call.message.version == 1 else []))

    def _check_barrier(self, barrier: _Barrier) -> None:
        """If a rank that has ended is waited for, that is an error."""
        client, key = next(iter(barrier.calls.values())).client, (barrier.op, barrier.members)
        missing = client.space.ended & barrier.here - set(barrier.calls)
        if missing and key not in self._broken:
            self._broken.add(key)
            rank, first = (client.space.world.first + each for each in (min(missing), min(barrier.calls)))
            text = f"rank {rank} has ended, and rank {first} waits for it in a barrier of PMI"
            client.launcher.abort(rank, Abort(1, text, broken=True))

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
        for barrier in self._barriers.values():
            if next(iter(barrier.calls.values())).client.space is client.space:
                self._check_barrier(barrier)
        self._check_attributes(client)

    def close(self) -> None:
        """All ranks have ended."""
        self._barriers.clear()
        self._attributes.clear()
