"""Readers of the options about restarts and MindSpore's scheduler, and how options of recovery combine.

Shared by the dialects; imported when a command line names one of these options, or for help.
"""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.readers import Expected
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from mslaunch.cli.parser.parsed_line import Settings
    from mslaunch.datamodel.request import Request

    Setting = tuple[str, Any]  # path, value

_OFTEN = 3  # --max-restarts where --restart is given without it
_EXAMPLE = "write it like node1, node1:8118, [fd00::1]:8118, or :8118 for the host of rank 0"


def scheduler(word: str) -> list[Setting]:
    """--scheduler HOST[:PORT]."""
    host, port = word.strip(), ""
    if host[:1] == "[":
        host, bracket, tail = host[1:].partition("]")
        if not bracket or not host or tail[:1] not in ("", ":") or tail == ":":
            raise Expected("HOST, HOST:PORT or :PORT", _EXAMPLE)
        port = tail[1:]
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
        if not port:
            raise Expected("HOST, HOST:PORT or :PORT", _EXAMPLE)
    if not (host or port) or any(char.isspace() or char in "[]," for char in host):
        raise Expected("HOST, HOST:PORT or :PORT", _EXAMPLE)
    return [("cluster.host", host), ("cluster.port", _port(port) if port else 0), ("cluster.first", True)]


def _port(word: str) -> int:
    try:
        number = readers.count(word)
    except Expected:
        number = 0
    if not 0 < number < 65536:
        raise Expected("a port from 1 to 65535 behind the colon", _EXAMPLE)
    return number


def servers(word: str) -> list[Setting]:
    """--server_num; the scheduler is certain to be wanted then."""
    if word and not word.strip("0"):
        return [("cluster.servers", 0)]
    try:
        return [("cluster.servers", readers.count(word)), ("cluster.first", True)]
    except Expected:
        raise Expected("a whole number, 0 or more") from None


def default_restarts(job: Settings) -> list[tuple[str, int]]:
    """How often, if --restart was given without a number; raises `UsageError` if the two contradict each other."""
    how, often = job.last("restart"), job.last("max_restarts")
    if how == "none" and often:
        raise UsageError(f"it contradicts --max-restarts {often}", "--restart none", "leave one of them out")
    if how in ("rank", "group") and often == 0:
        raise UsageError("it contradicts --max-restarts 0", f"--restart {how}", "leave one of them out")
    return [("max_restarts", _OFTEN)] if how in ("rank", "group") and often is None else []


def checked(request: Request) -> Request:
    """The request, with what the options of recovery mean together.  Raises `UsageError` for what makes no sense."""
    notes = list(request.notes)
    group = request.restart == "group"
    if request.min_ranks:
        _check_fewest(request, group)
    if request.restart_delay and not request.max_restarts:
        notes.append("--restart-delay has no effect: nothing is started again without --restart or --max-restarts")
    # --enable-recovery alone lets the other ranks go on, which a group cannot do
    return request._replace(recovery=request.recovery and not group, notes=tuple(notes))


def _check_fewest(request: Request, group: bool) -> None:
    if not group:
        why = "only a group can be started again with fewer ranks"
        raise UsageError(why, "--min-ranks", "add --restart group")
    if len(request.apps) > 1:
        why = "it cannot be told which of several programs gets fewer ranks"
        raise UsageError(why, "--min-ranks", "leave it out, and let spares replace lost hosts")
