"""The calls of an MPI engine to the launcher, as frames, and the way back for answers.

The collectives of each engine have its name before their own, and the numbers of its questions are odd or even, so that
the two engines of a node cannot take each other's.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol import frames
from mslaunch.protocol.mpi import Abort, Answer, Gathering, Question, Released, pack_abort, pack_with_blobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Send = Callable[[int, int, bytes], None]


class LauncherCalls:
    """For one engine."""

    def __init__(
        self, kind: str, send: Send, joined: Callable[[int, str], None], reply: Callable[[int, bytes], None]
    ) -> None:
        """`kind` is pmi or pmix; `send(kind, rank, payload)` a frame; `joined` and `reply`: see `Engines`."""
        self._send = send
        self.joined = joined
        self.reply = reply
        self._prefix = f"{kind} "
        self._asked: dict[int, Callable[[Answer], None]] = {}
        self._number = len(kind)  # odd for one engine, even for the other

    def released(self, whole: Released) -> Released | None:
        """A collective as our engine knows it; None if it is not of our kind."""
        if not whole.op.startswith(self._prefix):
            return None
        return whole._replace(op=whole.op[len(self._prefix) :])

    def gather(self, part: Gathering) -> None:
        """Our part of a collective."""
        self._send(frames.GATHER, frames.NO_RANK, pack_with_blobs(part._replace(op=self._prefix + part.op)))

    def ask(
        self,
        what: str,
        fields: Mapping[str, Iterable[str]],
        blobs: tuple[bytes, ...],
        done: Callable[[Answer], None],
    ) -> None:
        """Ask the launcher; `done` gets the answer."""
        self._number += 2
        self._asked[self._number] = done
        question = Question(self._number, what, fields, blobs)
        self._send(frames.ASK, frames.NO_RANK, pack_with_blobs(question))

    def answer(self, answer: Answer) -> None:
        """The answer to what another node asked."""
        self._send(frames.REPLY, frames.NO_RANK, pack_with_blobs(answer))

    def left(self, rank: int) -> None:
        """A rank has called MPI_Finalize."""
        self._send(frames.LEFT, rank, b"")

    def abort(self, rank: int, abort: Abort) -> None:
        """A rank has called MPI_Abort, or violates the protocol."""
        self._send(frames.ABORT, rank, pack_abort(abort))

    def log(self, rank: int, text: bytes) -> None:
        """Text that a library has for the user."""
        self._send(frames.STDERR, rank, text)

    def answered(self, answer: Answer) -> bool:
        """ANSWER has come; True if the question was ours."""
        done = self._asked.pop(answer.number, None)
        if done:
            done(answer)
        return done is not None
