"""The launcher's side of MPI programs: dispatches their frames; made when the first of them arrives.

MPI_Init, MPI_Finalize and MPI_Abort become events, agents get the modules that they lack, and `Collectives` does what
ranks exchange.  Worlds have names here, and ranks their numbers in frames.  A rank that loads an MPI library which it
was offered no protocol for is only mentioned until it has come up as a singleton; then the job ends, for each rank
would do the whole work.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import is_rank
from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher import job_failure
from mslaunch.launcher.job_failure import JobFailure
from mslaunch.launcher.mpi import mpi_events
from mslaunch.launcher.mpi.collectives import Collectives
from mslaunch.protocol import frames
from mslaunch.protocol.mpi import pack_part, unpack_abort, unpack_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.node_plan import World
    from mslaunch.protocol.mpi import Answer, Question


_ABOUT_A_RANK = (frames.JOINED, frames.LEFT, frames.ABORT, frames.ALONE)


class Coordinator:
    """Between the agents of a job and its state."""

    def __init__(
        self,
        send: Callable[[int, bytes], None],
        post: Callable[[Any], None],
        notify: Callable[[str, Mapping[str, Any]], None],
        hosts: Sequence[str],
        spawn: Callable[[Question, Callable[[Answer], None]], None],
    ) -> None:
        """`send(node, frame)`; `post(event)` to the state; `notify(kind, facts)` tells the user; `hosts` may grow.

        `spawn(question, done)` starts a world.
        """
        self._send = send
        self._post = post
        self._notify = notify
        self._hosts = hosts
        self._firsts: dict[str, int] = {}  # world -> the number of its rank 0 in frames
        self._collectives = Collectives(send, spawn, self._stranded, self._too_large)
        self._mentioned: set[str] = set()
        self._on: dict[int, Callable[[int, frames.Frame], None]] = {
            frames.NEED: self._send_module,
            frames.JOINED: lambda node, frame: post(mpi_events.Joined(frame.rank)),
            frames.LEFT: lambda node, frame: post(mpi_events.Left(frame.rank)),
            frames.ABORT: lambda node, frame: post(mpi_events.Aborted(frame.rank, *unpack_abort(frame.payload))),
            frames.ALONE: self._on_singleton,
            frames.GATHER: lambda node, frame: self._collectives.gathered(node, frame.payload),
            frames.ASK: lambda node, frame: self._collectives.asked(node, frame.payload),
            frames.REPLY: lambda node, frame: self._collectives.replied(node, frame.payload),
        }

    def add_world(self, world: World) -> None:
        """A world whose ranks have been started."""
        nodes = [0] * world.size
        for host, ranks in zip(world.hosts, world.ranks):
            for rank in ranks:
                nodes[rank] = self._hosts.index(host)
        self._firsts[world.name] = world.first
        self._collectives.add_world(world.name, nodes)

    def on_frame(self, node: int, frame: frames.Frame) -> None:
        """One of `frames.OF_MPI` has come; raises `WireError` for one that should name a rank and does not."""
        if frame.kind in _ABOUT_A_RANK and not is_rank(frame.rank):
            raise WireError(f"it sent a frame of kind {frame.kind} about no rank")
        self._on[frame.kind](node, frame)

    def ended(self, rank: int) -> None:
        """A rank has ended, and is not restarted."""
        found = [(first, name) for name, first in self._firsts.items() if first <= rank]
        if found:
            first, name = max(found)
            self._collectives.ended(name, rank - first)

    def lost(self, node: int) -> None:
        """The connection to a node has ended."""
        self._collectives.lost(node)

    def _stranded(self, world: str, rank: int) -> None:
        self._post(mpi_events.Stranded(self._firsts[world] + rank))

    def _too_large(self, size: int) -> None:
        self._post(mpi_events.Impossible(JobFailure(job_failure.TOO_LARGE, {"bytes": size})))

    def _send_module(self, node: int, frame: frames.Frame) -> None:
        """An agent needs modules that did not travel with it."""
        from mslaunch.transport.bootstrap import part

        try:
            sources = part(frame.payload.decode("ascii", "replace"))
        except KeyError:
            raise WireError("it asked for a part that there is not") from None
        self._send(node, frames.encode(frames.PART, payload=pack_part(sources)))

    def _on_singleton(self, node: int, frame: frames.Frame) -> None:
        alone = unpack_alone(frame.payload)
        if alone.certain:
            self._post(mpi_events.CameAlone(frame.rank, alone.library, alone.family, alone.offered))
        elif (
            alone.library not in self._mentioned
            and alone.offered != "none"
            and (alone.family == "Open MPI") != (alone.offered == "pmix")
        ):
            self._mentioned.add(alone.library)
            facts = {"rank": frame.rank, "library": alone.library, "family": alone.family, "offered": alone.offered}
            self._notify("unexpected library", facts)
