"""The place of one rank: the numbers from which every framework's variables are made.  It knows no framework."""

from __future__ import annotations

from mslaunch.lean import NamedTuple


class Place(NamedTuple):
    """Where a rank is, among how many."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int  # among the nodes that have ranks
    nodes: int
    slots: int  # of the allocation
    address: str  # where ranks meet, an IP address of rank 0's host
    port: int
    service_port: int
