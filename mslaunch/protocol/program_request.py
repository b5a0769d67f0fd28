"""The question that an interpreter on a host asks before it is an agent: it says which bytecode it has, in one line.

    NUL "mslaunch python " KIND LF        KIND as `call_proof.bytecode`, or anything else

The launcher answers with a size in decimal and LF, and so many bytes: the program
(`transport.bootstrap.agent_program`).  Frames may follow at once.  Where the question may be lost (`Link.unasked`), the
launcher does not wait for ever, and sends what any Python can read.
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ASKS = "mslaunch python "
_MARK = b"\0" + ASKS.encode()
_LONGEST = 100  # bytes of the line


class ProgramRequest:
    """The request of one host; until it has come, frames wait behind the program."""

    def __init__(self, answer: Callable[[str, list[bytes | memoryview]], None]) -> None:
        """`answer(kind, frames)` is called once, with the frames that have waited."""
        self._answer = answer
        self._answered = False
        self.cancel: Callable[[], None] = lambda: None  #: what ends the wait after which to `expire`
        self._frames: list[bytes | memoryview] = []
        self.held = b""  #: what may be the beginning of the line

    def send(self, *pieces: bytes | memoryview) -> None:
        """One frame, down, behind the program."""
        self._frames += pieces

    def feed(self, data: bytes) -> bytes:
        """What comes before and behind the question; raises `WireError` for one without end."""
        data = self.held + data
        at = data.find(_MARK)
        end = data.find(b"\n", at) if at >= 0 else -1
        if end >= 0:
            self.held = b""
            self._answer_once(data[at + len(_MARK) : end].decode("ascii", "replace").strip())
            return data[:at] + data[end + 1 :]
        if at < 0:
            ends = range(max(0, len(data) - len(_MARK)), len(data))
            at = next((at for at in ends if _MARK.startswith(data[at:])), len(data))
        elif len(data) - at > _LONGEST:
            raise WireError("it asked for its program in a line without end")
        self.held = data[at:]
        return data[:at]

    def expire(self) -> None:
        """Wait no longer: the question may be lost, and every Python takes the program as source."""
        self._answer_once("")

    def close(self) -> None:
        """Nobody waits any more."""
        self.cancel()
        self._answered = True

    def _answer_once(self, kind: str) -> None:
        if not self._answered:
            self.close()
            self._answer(kind, self._frames)
