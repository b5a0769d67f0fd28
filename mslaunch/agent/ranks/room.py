"""Whether the ranks that this node is about to get can start here: processes, memory and, if wanted, accelerators."""

from __future__ import annotations

from mslaunch.agent.ranks import devices
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.start_limits import fits
from mslaunch.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def handle(context: Any, frame: frames.Frame) -> None:
    """ROOM; `context` is the `AgentContext`, whose module imports from this folder."""
    context.link.send(frames.FITS, frames.NO_RANK, answer(frame.payload, context.environ))


def answer(question: bytes, environ: Mapping[str, str]) -> bytes:
    """The payload of FITS, for that of ROOM: a number of ranks and, behind a blank, the devices that they want."""
    ranks, _, wanted = question.partition(b" ")
    told = fits(int(ranks))
    return devices.fits(int(ranks), wanted, environ) if wanted and told == ranks else told
