"""The place of one rank: the numbers from which every framework's variables are made.  It knows no framework."""

from __future__ import annotations

from mslaunch.faststd import NamedTuple


class RankInfo(NamedTuple):
    """Where a rank is, among how many, and in which of the job's programs."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int  # number of its node, among those that have ranks
    nodes: int
    slots: int  # of the allocation
    address: str  # where ranks meet, an IP address of rank 0's host
    port: int
    service_port: int
    job: int = 0  # a number of this launch, below 2 ** 32
    app: int = 0  # index of its program
    sizes: tuple[int, ...] = ()  # ranks of each program
    bound: bool = False  # to some of the node's cpus
    crowded: bool = False  # its node has more ranks than slots
    service_address: str = ""  # the scheduler's; "": `address`
    servers: int = 0  # of MindSpore's Parameter Server mode
    simulated: bool = False  # MindSpore's dry run: each rank by itself, meeting nobody
    numbered: bool = True  # False: its rank, and the number of its node, are only known when all ranks have met


class ProgramInfo(NamedTuple):
    """One of the job's programs, the same for all of its ranks."""

    number: int  # from 0
    argv: tuple[str, ...]
    wdir: str  # where its ranks start
