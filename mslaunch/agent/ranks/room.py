"""Whether the ranks that this node is about to get can start here: processes, memory and, if wanted, accelerators."""

from __future__ import annotations

from mslaunch.agent.ranks import devices
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.start_limits import fits

if TYPE_CHECKING:
    from collections.abc import Mapping


def answer(question: bytes, environ: Mapping[str, str]) -> bytes:
    """The payload of FITS, for that of ROOM: a number of ranks and, behind a blank, the devices that they want."""
    ranks, _, wanted = question.partition(b" ")
    told = fits(int(ranks))
    return devices.fits(int(ranks), wanted, environ) if wanted and told == ranks else told
