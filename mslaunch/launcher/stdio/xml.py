"""Output of ranks as XML: Open MPI 4.1.4's --xml, an element for each line, all on standard output.

    <mpirun>
    <stdout rank="0">a &lt; b&#010;</stdout>
    </mpirun>

The text of an element is its bytes read as Latin-1, those above 127 as numbers (observed of 4.1.4).  XML 1.0 cannot
express most control characters, and parsers refuse the `&#027;` that 4.1.4 writes for ESC: such characters stand as
their pictures from U+2400 on, here `&#9243;`.
"""

from __future__ import annotations

import time

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.stdio.line_prefix import STREAMS

if TYPE_CHECKING:
    from mslaunch.datamodel.jobmap import JobMap
    from mslaunch.launcher.rank_names import RankNames
    from mslaunch.launcher.stdio.terminal import OutputFd

_PICTURES = 0x2400
_ALLOWED = b"\t\n\r"  # of the control characters, in XML 1.0
_LINE_END = "&#010;"

_TEXT = {code: f"&#{code:03d};" for code in (*_ALLOWED, *range(128, 256))}
_TEXT.update({code: f"&#{_PICTURES + code};" for code in range(32) if code not in _ALLOWED})
_TEXT.update({ord("<"): "&lt;", ord(">"): "&gt;", ord("&"): "&amp;"})


class XmlDocument:
    """The document of a job, on `terminal`; the first element opens it, unless an earlier attempt has `begun` it."""

    def __init__(self, terminal: OutputFd, begun: bool = False) -> None:
        self._terminal = terminal
        self._begun = begun

    def send(self, elements: bytes) -> None:
        """Write elements."""
        self.begin()
        self._terminal.send(elements)

    def begin(self) -> None:
        """Open the document: elements will come, if only in a later attempt."""
        if not self._begun:
            self._begun = True
            self._terminal.send(b"<mpirun>\n")

    def end(self) -> None:
        """Close the document, which may be empty."""
        self.send(b"</mpirun>\n")


def elements(worlds: RankNames, timestamp: bool, kind: int, rank: int, lines: bytes) -> bytes:
    """`lines` as elements, one a line; that of an unfinished line has no line end, as in 4.1.4.

    Elements of spawned ranks also have the number of their world; `timestamp` adds the time, as 5.0.11 does.
    """
    name = STREAMS[kind]
    stamp = f' timestamp="{time.ctime()}"' if timestamp else ""
    number, own = worlds.of(rank)
    world = f' world="{number}"' if number > 1 else ""
    head, tail = f'<{name} rank="{own}"{world}{stamp}>', f"</{name}>"
    text = lines.decode("latin-1").translate(_TEXT)
    ended = text.endswith(_LINE_END)
    body = text[: -len(_LINE_END)] if ended else text
    middle = body.replace(_LINE_END, f"{_LINE_END}{tail}\n{head}")
    return f"{head}{middle}{_LINE_END if ended else ''}{tail}{chr(10) if ended else ''}".encode("ascii")


def map_element(jobmap: JobMap) -> bytes:
    """The map for --display-map, as 4.1.4 writes it between <map> and </map>."""
    lines = ["<map>"]
    used = {placement.node for placement in jobmap.placements}
    for index, node in enumerate(jobmap.nodes):
        if index not in used:  # the scheduler's
            continue
        name = node.name.translate(_TEXT).replace('"', "&quot;")
        lines.append(f'\t<host name="{name}" slots="{node.slots or 0}" max_slots="{node.max_slots or 0}">')
        ranks = [placement.rank for placement in jobmap.placements if placement.node == index]
        lines += [f'\t\t<process rank="{rank}" status="INITIALIZED"/>' for rank in ranks]
        lines.append("\t</host>")
    return "\n".join([*lines, "</map>", "", ""]).encode("ascii", "xmlcharrefreplace")
