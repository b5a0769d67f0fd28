"""Readers of the options about restarts and MindSpore's scheduler, and how options of recovery combine.

Shared by the dialects; imported when a command line names one of these options, or for help.
"""

from __future__ import annotations

from mslaunch.cli.parser import parsed_line, readers
from mslaunch.cli.parser.readers import Expected
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.cli.parser.parsed_line import ParsedLine, Settings
    from mslaunch.cli.parser.readers import Pairs
    from mslaunch.datamodel.request import Request

_OFTEN = 3  # --max-restarts where --restart is given without it
_EXAMPLE = "write it like node1, node1:8118, [fd00::1]:8118, or :8118 for the host of rank 0"


def scheduler(word: str) -> Pairs:
    """--scheduler HOST[:PORT]."""
    host, port = word.strip(), ""
    if host[:1] == "[":
        host, bracket, tail = host[1:].partition("]")
        broken = not bracket or not host or tail[:1] not in ("", ":") or tail == ":"
        port = tail[1:]
    else:
        broken = host.count(":") == 1 and host[-1] == ":"
        if host.count(":") == 1:
            host, _, port = host.partition(":")
    if broken or not (host or port) or any(char.isspace() or char in "[]," for char in host):
        raise Expected("HOST, HOST:PORT or :PORT", _EXAMPLE)
    try:
        number = readers.port(port) if port else 0
    except Expected as error:
        raise Expected(f"{error.what} after the colon", _EXAMPLE) from None
    return [("cluster.host", host), ("cluster.port", number), ("cluster.first", True)]


def servers(word: str) -> Pairs:
    """--server_num; parameter servers need the scheduler before the ranks start."""
    number = readers.count_or_zero(word)
    return [("cluster.servers", number), *([("cluster.first", True)] if number else [])]


def _default_restarts(job: Settings) -> list[tuple[str, int]]:
    """How often, if --restart was given without a number; raises `UsageError` if the two contradict each other."""
    how, often = job.last("restart"), job.last("max_restarts")
    if how == "none" and often:
        raise UsageError(f"it contradicts --max-restarts {often}", "--restart none", "leave one of them out")
    if how in ("rank", "group") and often == 0:
        raise UsageError("it contradicts --max-restarts 0", f"--restart {how}", "leave one of them out")
    return [("max_restarts", _OFTEN)] if how in ("rank", "group") and often is None else []


def assemble(line: ParsedLine, notes: Sequence[str] = ()) -> Request:
    """The request of a command line with options of recovery.  Raises `UsageError` for what makes no sense together."""
    request = parsed_line.assemble(line.over(parsed_line.ParsedLine(_default_restarts(line.job))), notes)
    notes = list(request.notes)
    group = request.restart == "group"
    if request.min_ranks and not group:
        what = "only a group can be started again with fewer ranks"
        raise UsageError(what, "--min-ranks", "add --restart group")
    if request.min_ranks and len(request.apps) > 1:
        what = "with several programs it is not clear which one gets fewer ranks"
        raise UsageError(what, "--min-ranks", "leave it out, and let spares replace lost hosts")
    if request.restart_delay and not request.max_restarts:
        notes.append("--restart-delay has no effect: nothing is started again without --restart or --max-restarts")
    # --enable-recovery alone lets the other ranks go on, which a group cannot do
    return request._replace(recovery=request.recovery and not group, notes=tuple(notes))
