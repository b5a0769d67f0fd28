"""The plans of a job on several hosts as bytes: what they have alike is made into words once.  Loaded only for these.

What is alike is the same object in all plans (`plan.node_plans`).  So the payload of a node with 8 ranks takes half the
time that `control.pack_plan` needs.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import NodePlan, World
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.folded_worlds import folded_names, folded_rows
from mslaunch.protocol.codec import pack
from mslaunch.protocol.control import plan_fields, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

#: how the fields of a world are written that grow with the number of hosts
_FOLDS: dict[str, Callable[[Any], Sequence[str]]] = {"hosts": folded_names, "ranks": folded_rows}


class AlikePlans:
    """Packs plans, one after the other."""

    def __init__(self) -> None:
        self._worlds = _Alike(World._fields, _of_world)
        self._plans = _Alike(NodePlan._fields, self._of_plan)

    def pack(self, plan: NodePlan) -> bytes:
        """The payload of LAUNCH."""
        return self._plans.packed(plan)

    def _of_plan(self, name: str, value: Any) -> bytes:
        return self._worlds.packed(value) if name == "world" else pack(plan_fields(name, value))


def _of_world(name: str, value: Any) -> bytes:
    return pack({f"world.{name}": _FOLDS.get(name, words_of)(value)})


class _Alike:
    """Packs records, field by field; what the record before had as well stays as it is."""

    def __init__(self, names: Sequence[str], pack_field: Callable[[str, Any], bytes]) -> None:
        self._names = names
        self._pack_field = pack_field
        self._before: Sequence[object] = [None] * len(names)  # which is no field of these records
        self._fields = [b""] * len(names)

    def packed(self, record: Sequence[Any]) -> bytes:
        """The next record."""
        for at, value in enumerate(record):
            if value is not self._before[at]:
                self._fields[at] = self._pack_field(self._names[at], value)
        self._before = record
        return b"\0".join(self._fields)
