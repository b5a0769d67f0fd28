"""The collectives of PMIx: fences, connects and groups, gathered over all nodes by the launcher."""

from __future__ import annotations

from mslaunch.agent.mpi.pmix.pmix_values import BYTE_OBJECT, DATA_ARRAY, SIZE, Item, first, raw
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.mpi import Gathering

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.agent.mpi.launcher_calls import LauncherCalls
    from mslaunch.agent.mpi.pmix.answers import PmixAnswers
    from mslaunch.agent.mpi.pmix.callbacks import Upcall
    from mslaunch.agent.mpi.pmix.pmix_values import Memory
    from mslaunch.agent.mpi.pmix.pmix_worlds import Member, PmixWorlds
    from mslaunch.protocol.mpi import Released

    Finish = Callable[[tuple[bytes, ...]], None]


class PmixCollectives:
    """Those under way on one node."""

    def __init__(
        self, answers: PmixAnswers, launcher: LauncherCalls, worlds: PmixWorlds, hold: Callable[[Memory], None]
    ) -> None:
        """`hold` keeps memory until the library has read it."""
        self._answers = answers
        self._launcher = launcher
        self._worlds = worlds
        self._hold = hold
        #: the nth part that we gave for a key belongs to the nth release
        self._open: dict[tuple[str, tuple[str, ...]], list[Finish]] = {}
        self._groups: dict[tuple[str, tuple[str, ...]], int] = {}  # how many there were of this name

    def fence(self, upcall: Upcall, members: Sequence[Member], items: Sequence[Item], blob: bytes) -> None:
        """All members exchange what they have put."""
        self._collect("fence", members, blob, lambda blobs: self._answers.blob(upcall, b"".join(blobs)))

    def connect(self, upcall: Upcall, members: Sequence[Member], items: Sequence[Item]) -> None:
        """Connect and disconnect."""
        self._collect(upcall.name, members, b"", lambda _: self._answers.done(upcall))

    def group(self, upcall: Upcall, operation: int, name: str, members: Sequence[Member], items: list[Item]) -> None:
        """A group of processes (MPI Sessions) is made (0) or ended (1).

        Who makes it gets a number for it, the same on all nodes and no other group's.
        """
        words = self._worlds.members(members)
        op = f"group:{name}:{'destruct' if operation else 'construct'}"
        self._groups[op, words] = count = self._groups.get((op, words), 0) + 1

        def finish(blobs: tuple[bytes, ...]) -> None:
            answer = []
            if not operation:
                answer = [
                    Item("pmix.grp.ctxid", SIZE, _context(op, words, count)),
                    Item("pmix.grp.endpt", BYTE_OBJECT, b"".join(blobs)),
                    Item("pmix.grp.mbrs", DATA_ARRAY, list(members)),
                ]
            self._hold(self._answers.items(upcall, answer))

        endpoint = first(items, "pmix.grp.endpt")
        self._collect(op, members, endpoint if isinstance(endpoint, bytes) else b"", finish)

    def _collect(self, op: str, members: Sequence[Member], blob: bytes, finish: Finish) -> None:
        """All members of this node are in.  If that is all of them, the others need not hear of it."""
        words = self._worlds.members(members)
        if all(self._worlds.is_local(*member) for member in members):
            finish((blob,))
            return
        self._open.setdefault((op, words), []).append(finish)
        self._launcher.gather(Gathering(op, words, blob))

    def released(self, whole: Released) -> None:
        """One is complete.  One in which we have no part is dropped: its ranks have ended."""
        key = (whole.op, whole.members)
        queue = self._open.get(key)
        if queue:
            finish = queue.pop(0)
            if not queue:
                del self._open[key]
            finish(whole.blobs)


def _context(op: str, words: tuple[str, ...], count: int) -> int:
    """A number of 63 bits that all nodes find by themselves, and that two groups do not share."""
    from hashlib import blake2b

    name = "\0".join((op, *words, str(count)))
    return int.from_bytes(blake2b(raw(name), digest_size=8).digest(), "big") >> 1
