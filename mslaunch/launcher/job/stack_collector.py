"""Collects the stacks that agents send of their ranks, and tells what they say once a round of questions is over.

Loaded when stacks are wanted.  Of each rank only one process is kept, without addresses: what agents send is bounded.
"""

from __future__ import annotations

from mslaunch.errors import printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job.events import ASKED, ON_FAILURE, ON_HANG, StacksShown
from mslaunch.launcher.messages import stack_groups
from mslaunch.launcher.messages.failure_text import hung_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.launcher.job.events import ShowStacks
    from mslaunch.launcher.job.rank_table import RankTable
    from mslaunch.protocol.control import StackTrace

_PER_RANK = 32  # its process and some below it, perhaps by more than one tool


class StackCollector:
    """Keeps the stacks of the ranks of one job until a round is over; `say` prints text on the console."""

    def __init__(self, table: RankTable, say: Callable[[str], None]) -> None:
        self._table = table
        self._say = say
        self._found: dict[int, stack_groups.ProcessStack] = {}  # rank -> what it does
        self._due: dict[int, list[int]] = {}  # node -> how many stacks may still come, of each round
        self.asked: list[Callable[[str], None]] = []  #: who gets the text of the next round, or of that which runs

    def begin(self, node: int) -> None:
        """A node is asked, once more perhaps; an agent ends its round before when it is asked again."""
        self._found = {rank: found for rank, found in self._found.items() if self._table.ranks[rank].node != node}
        self._due.setdefault(node, []).append(1 + _PER_RANK * len(self._table.on(node)))

    def take(self, node: int) -> bool:
        """Whether one more stack of this node may come."""
        due = self._due.get(node)
        if not due or not due[0]:
            return False
        due[0] -= 1
        return True

    def over(self, node: int) -> bool:
        """These were all of a round; whether it was the last that this node was asked for."""
        self._due[node].pop(0)
        return not self._due[node]

    def came(self, rank: int, node: int, traced: StackTrace) -> None:
        """What one process of a rank does."""
        if len(self._due[node]) == 1:
            stack = stack_groups.process_stack(self._table.hosts[node], traced)
            self._found[rank] = stack_groups.chosen(self._found.get(rank), stack)

    def show(self, action: ShowStacks) -> StacksShown:
        """A round is over."""
        names, hosts = self._table.names, self._table.hosts
        groups = stack_groups.groups_of(self._found)
        self._found = {}
        text = printable(stack_groups.sentence(groups, names))
        missing = [hosts[node] for node in action.missing]
        if set(action.why) != {ASKED}:
            self._say(stack_groups.report(_head(action), groups, names, missing))
        asked, self.asked = self.asked, []
        for done in asked:
            done(printable(stack_groups.report("" if groups else "no rank runs", groups, names, missing)))
        return StacksShown(action.why, text, stack_groups.odd_ranks(groups))

    def close(self) -> None:
        """The job is over."""
        asked, self.asked = self.asked, []
        for done in asked:
            done("mslaunch: the job has ended meanwhile\n")


def _head(action: ShowStacks) -> str:
    """Why the stacks are shown."""
    if action.hung and ON_HANG in action.why:
        return hung_text(action.hung.seconds, action.hung.file, action.hung.missing)
    return (
        "stacks of the other ranks, before they are ended" if ON_FAILURE in action.why else "before the ranks are ended"
    )
