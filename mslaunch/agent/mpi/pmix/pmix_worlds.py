"""The worlds that a PMIx server knows: their ranks and members, and which of them are local."""

from __future__ import annotations

from mslaunch.agent.mpi.pmix.pmix_values import WILDCARD
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.cpus import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.node_plan import World

    Member = tuple[str, int]  # name of the world, rank in it


class UnknownWorldError(Exception):
    """It has not been announced, yet."""


class PmixWorlds:
    """By their names."""

    def __init__(self) -> None:
        self._worlds: dict[str, World] = {}

    def add(self, world: World) -> None:
        """One more."""
        self._worlds[world.name] = world

    def get(self, name: str) -> World:
        """Raises `UnknownWorldError`."""
        if name not in self._worlds:
            raise UnknownWorldError(name)
        return self._worlds[name]

    def local(self, name: str) -> Sequence[int]:
        """The ranks of a world on this node; none of a world that is not known."""
        world = self._worlds.get(name)
        return world.ranks[world.here] if world and world.here >= 0 else ()

    def all_local(self) -> list[Member]:
        """All ranks of this node."""
        return [(name, rank) for name in self._worlds for rank in self.local(name)]

    def is_local(self, name: str, rank: int) -> bool:
        """Whether it is on this node; WILDCARD: whether all of the world is."""
        local = self.local(name)
        return len(local) == self.get(name).size if rank == WILDCARD else rank in local

    def crowded(self) -> bool:
        """Whether this node has more ranks than cpus."""
        return len(self.all_local()) > len(usable_cpus())

    def rank_of(self, member: Member) -> int:
        """Its number in frames."""
        return self.get(member[0]).first + member[1]

    def member_of(self, rank: int) -> Member:
        """Of a number in frames."""
        for world in self._worlds.values():
            if world.first <= rank < world.first + world.size:
                return world.name, rank - world.first
        raise ValueError(f"no world has the rank {rank}")

    def members(self, members: Sequence[Member]) -> tuple[str, ...]:
        """As frames have them: sorted, and a world by its name where all of it is there, so that all nodes agree."""
        ranks: dict[str, set[int]] = {}
        for name, rank in members:
            ranks.setdefault(name, set()).update(range(self.get(name).size) if rank == WILDCARD else (rank,))
        words: list[str] = []
        for name, listed in sorted(ranks.items()):
            size = self.get(name).size
            if max(listed) >= size:
                raise ValueError(f"world {name} has no rank {max(listed)}")
            words += [name] if len(listed) == size else [f"{name}.{rank}" for rank in sorted(listed)]
        return tuple(words)
