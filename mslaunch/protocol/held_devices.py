"""HELD and HOLDERS: the question which processes hold the accelerators of a node, and the answer."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.codec import checked, integer, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 16  #: processes that an answer names
_WORDS = 256  # of an answer


class HeldQuestion(NamedTuple):
    """What HELD says."""

    seconds: float  # since the job began: what has run for longer is none of it
    names: tuple[str, ...] = ()  # the devices that ranks may use (--devices); (): all
    jobid: str = ""  # what runs for another job of ours is left out


class Holder(NamedTuple):
    """A process that holds accelerators."""

    pid: int
    name: str  # of its command
    user: str
    device: str  # the path of the first; "": it is on its way out, and what it holds cannot be seen any more


def pack_question(question: HeldQuestion) -> bytes:
    """The payload of HELD."""
    return pack({"seconds": [f"{question.seconds:.3f}"], "names": question.names, "jobid": [question.jobid]})


def unpack_question(payload: bytes) -> HeldQuestion:
    """The same, read by the agent."""
    fields = unpack(payload)
    return HeldQuestion(float(fields["seconds"][0]), tuple(fields["names"]), fields["jobid"][0])


def pack_holders(holders: Sequence[Holder]) -> bytes:
    """The payload of HOLDERS."""
    return pack({"holders": [word for one in holders for word in (str(one.pid), one.name, one.user, one.device)]})


def unpack_holders(payload: bytes) -> list[Holder]:
    """The same, read by the launcher, whom the host may tell anything; raises `WireError`."""

    def read() -> list[Holder]:
        words = unpack(payload, _WORDS)["holders"]
        if len(words) % len(Holder._fields) or len(words) > MOST * len(Holder._fields):
            raise ValueError(len(words))
        rows = zip(*[iter(words)] * len(Holder._fields))
        return [Holder(integer(pid), name, user, device) for pid, name, user, device in rows]

    return checked("HOLDERS", read)
