"""The meeting: the launcher's side of MPI programs, entered when the first frame of one arrives.

It makes events of what ranks do (MPI_Init, MPI_Finalize, MPI_Abort), sends agents the parts that they lack, and leaves
to the `exchange` what ranks tell each other.  It knows worlds by name and ranks by frame.  The surprising thing: a rank
that runs an MPI library nobody serves is only mentioned until it is certain that it took itself for the only one; then
the job ends, for it would do its work as often as there are ranks.
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.job import events
from mslaunch.launcher.messages.exit_text import advice
from mslaunch.launcher.mpi.collectives import Collectives
from mslaunch.protocol import frames
from mslaunch.protocol.mpi import pack_part, unpack_abort, unpack_alone

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mslaunch.datamodel.node_plan import World
    from mslaunch.launcher.job.job_state import JobState
    from mslaunch.protocol.mpi import Answer, Question


_ABOUT_A_RANK = (frames.JOINED, frames.LEFT, frames.ABORT, frames.ALONE)


class Coordinator:
    """Between the agents of a launch and its state."""

    def __init__(
        self,
        send: Callable[[int, bytes], None],
        event: Callable[[Any], None],
        notice: Callable[[str], None],
        state: JobState,
        spawn: Callable[[Question, Callable[[Answer], None]], None],
    ) -> None:
        """`send(node, frame)` goes down, `event` to the state, `notice` to the user, `spawn` starts more ranks."""
        self._send = send
        self._event = event
        self._notice = notice
        self._state = state
        self._firsts: dict[str, int] = {}  # world -> the frame's number of its rank 0
        self._exchange = Collectives(
            send,
            lambda node, question, done: spawn(question, done),
            self._peer_gone,
            lambda what, todo: event(events.Impossible(what, todo)),
        )
        self._alone: set[str] = set()
        self._on: dict[int, Callable[[int, frames.Frame], None]] = {
            frames.NEED: self._send_module,
            frames.JOINED: lambda node, frame: event(events.Joined(frame.rank)),
            frames.LEFT: lambda node, frame: event(events.Left(frame.rank)),
            frames.ABORT: lambda node, frame: event(events.Aborted(frame.rank, *unpack_abort(frame.payload))),
            frames.ALONE: self._on_singleton,
            frames.GATHER: lambda node, frame: self._exchange.gathered(node, frame.payload),
            frames.ASK: lambda node, frame: self._exchange.asked(node, frame.payload),
            frames.REPLY: lambda node, frame: self._exchange.replied(node, frame.payload),
        }

    def add_world(self, world: World) -> None:
        """A world whose ranks have been started."""
        nodes = [0] * world.size
        names = self._state.hosts
        for host, ranks in zip(world.hosts, world.ranks):
            for rank in ranks:
                nodes[rank] = names.index(host)
        self._firsts[world.name] = world.first
        self._exchange.add_world(world.name, nodes)

    def on_frame(self, node: int, frame: frames.Frame) -> None:
        """One of `frames.OF_MPI` has come; raises `WireError` for one that is about nobody."""
        if frame.kind in _ABOUT_A_RANK and frame.rank < 0:
            raise WireError(f"it sent a frame of kind {frame.kind} about no rank")
        self._on[frame.kind](node, frame)

    def ended(self, rank: int) -> None:
        """The process of a rank is over."""
        found = [(first, name) for name, first in self._firsts.items() if first <= rank]
        if found:
            first, name = max(found)
            self._exchange.ended(name, rank - first)

    def lost(self, node: int) -> None:
        """Its link has ended."""
        self._exchange.lost(node)

    def _peer_gone(self, world: str, rank: int) -> None:
        self._event(events.Stranded(self._firsts[world] + rank))

    def _send_module(self, node: int, frame: frames.Frame) -> None:
        """An agent on another host lacks a part."""
        from mslaunch.transport.bootstrap import part

        try:
            sources = part(frame.payload.decode("ascii", "replace"))
        except KeyError:
            raise WireError("it asked for a part that there is not") from None
        self._send(node, frames.encode(frames.PART, payload=pack_part(sources)))

    def _on_singleton(self, node: int, frame: frames.Frame) -> None:
        alone = unpack_alone(frame.payload)
        if alone.certain:
            self._event(events.CameAlone(frame.rank, alone.library, alone.family, alone.offered))
        elif (
            alone.library not in self._alone
            and alone.offered != "none"
            and (alone.family == "Open MPI") != (alone.offered == "pmix")
        ):
            self._alone.add(alone.library)
            who = self._state.worlds.name(frame.rank)
            what = f"{who} has loaded {alone.family} ({alone.library}), which was not expected"
            self._notice(f"{what}; if it comes up alone, {advice(alone.family, alone.offered)}")
