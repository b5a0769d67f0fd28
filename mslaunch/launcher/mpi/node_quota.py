"""Quotas: how much of a kind each node may have open in the launcher at a time, in entries and in bytes.

What a node asks for is kept until others answer, and a node that lies can ask without end.
"""

from __future__ import annotations


class NodeQuota:
    """The quota of every node for one kind: so many `entries`, of so many bytes together."""

    def __init__(self, entries: int, size: int) -> None:
        self.entries = entries
        self.size = size
        self._taken: dict[int, tuple[int, int]] = {}

    def take(self, node: int, size: int) -> bool:
        """Count one more entry; False, and nothing is counted, if the node may not have it."""
        entries, held = self._taken.get(node, (0, 0))
        if entries >= self.entries or held + size > self.size:
            return False
        self._taken[node] = entries + 1, held + size
        return True

    def give(self, node: int, size: int) -> None:
        """An entry of this size is not kept any more."""
        entries, held = self._taken[node]
        self._taken[node] = entries - 1, held - size
