"""Mappers `seq`: rank by rank down the hosts as they are listed, repeats included; and `rounds`, hydra's.

The lists come with the allocation.  An app context that names no hosts goes on in the list of the one before it, as
mpirun 4.1 does with the default hostfile.  Without -np there is a rank for each entry that is left; mpirun 4.1.4 asks
for the number of slots there, and fails if the list is shorter.

hydra deals ranks to the hosts of a job as to hosts that are named (HYDU_gen_rankmap): to each as many as it has slots,
or -ppn, and then again from the first, so that slots never run out.
"""

from __future__ import annotations

import itertools

from mslaunch.errors import AllocationError, counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.mapping.slot_counts import numbered
from mslaunch.plan.mapping.topology_view import WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mslaunch.datamodel.jobmap import Placement
    from mslaunch.plan.mapping.slot_counts import MappingJob
    from mslaunch.plan.mapping.topology_view import Locale


def map_in_sequence(job: MappingJob) -> list[Placement]:
    """The mapper `seq`.  Raises AllocationError if a list is too short, or a node has no room for its ranks."""
    return numbered(_rows(job))


def map_in_rounds(job: MappingJob) -> list[Placement]:
    """The mapper `rounds`: slots, or -ppn, of each node in turn, round after round; ranks go on from app to app."""
    return numbered(_dealt(job))


def _dealt(job: MappingJob) -> Iterator[tuple[int, int, Sequence[Locale]]]:
    slots = job.slots
    each = [job.policy.ppn or many for many in slots.slots]
    turns = itertools.cycle([node for node, many in enumerate(each) for _ in range(many)])
    for app, context in enumerate(job.request.apps):
        for node in itertools.islice(turns, sum(each) if context.np is None else context.np):
            slots.take(node, 1)
            slots.asked += 1
            yield app, node, (WHOLE,)


def _rows(job: MappingJob) -> Iterator[tuple[int, int, Sequence[Locale]]]:
    slots, sequences = job.slots, job.allocation.sequences
    listed: list[int] = []
    for app, context in enumerate(job.request.apps):
        mine = set(slots.all_of(app))
        own = sequences[app] if app < len(sequences) else ()
        listed = [node for node in own if node in mine] or listed
        wanted = len(listed) if context.np is None else context.np
        if not listed:
            todo = "name a host for each rank with -H or --hostfile"
            raise AllocationError("there is no list of hosts (left) to go down", "--map-by seq", todo)
        if wanted > len(listed):
            what = f"{counted(wanted, 'rank')} asked for, {counted(len(listed), 'host')} listed"
            todo = "list a host for each rank, on a line of its own in a hostfile, or lower -np"
            raise AllocationError(what, "--map-by seq", todo)
        for node in listed[:wanted]:
            if not slots.room(node):
                raise slots.refusal(f"not enough slots: {slots.nodes[node].name} has none left for rank {slots.asked}")
            slots.take(node, 1)
            slots.asked += 1
            yield app, node, (WHOLE,)
        listed = listed[wanted:]
