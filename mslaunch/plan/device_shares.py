"""Which accelerators of its node each rank gets (--devices-per-rank, --devices).

Only the agent of a node can say what is there (`agent.ranks.devices`); the launcher asks before it makes the plans, and
sets the variables that limit a process to its devices.  The first rank of a node gets the first ones, and so on.

MindSpore takes the device with its local rank, whatever DEVICE_ID says, since `mindspore.communication` overwrites that
from OMPI_COMM_WORLD_LOCAL_RANK.  So with one Ascend device for each rank, all ranks of a node see all of theirs.
"""

from __future__ import annotations

from mslaunch.datamodel.device_kinds import ASCEND, KINDS
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.datamodel.request import DevicePolicy

_LONGEST = 1 << 14  # characters of an answer
_KNOWN = {kind.name: kind for kind in KINDS}


class DeviceShares:
    """What agents have found, and what of it a rank gets."""

    def __init__(self, asked: DevicePolicy) -> None:
        self._asked = asked
        self._found: dict[int, list[tuple[str, list[str]]]] = {}  # by node: kind, and the names of its devices

    @property
    def question(self) -> bytes:
        """What `agent.ranks.devices.fits` answers: devices for each rank, and behind a blank those that may be used."""
        return f"{self._asked.each} {','.join(self._asked.names)}".rstrip().encode()

    def found(self, node: int, text: str) -> None:
        """The answer of a node that has enough of some kind.  Raises ValueError if it makes no sense."""
        rows = [line.partition(" ") for line in text.splitlines()]
        sane = all(kind in _KNOWN and names and names.isprintable() for kind, _, names in rows)
        if not rows or not sane or len(text) > _LONGEST:
            raise ValueError(text[:80])
        self._found[node] = [(kind, names.split(",")) for kind, _, names in rows]

    def variables(self, node: int, local_rank: int, local_size: int) -> list[str]:
        """ "NAME=value" of a rank."""
        each = self._asked.each
        made = []
        for kind, names in self._found.get(node, ()):
            first, last = local_rank * each, (local_rank + 1) * each
            if kind == ASCEND.name and each == 1:
                first, last = 0, local_size
            mine = names[first:last] if each else names
            made.append(f"{_KNOWN[kind].variable}={','.join(mine)}")
        return made
