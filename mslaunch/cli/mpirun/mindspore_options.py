"""The options of MindSpore's cluster: where its scheduler runs, and its parameter servers."""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.options import Option
from mslaunch.cli.parser.readers import Expected
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.cli.parser.readers import Pairs

CLUSTER = "MindSpore's cluster"
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


MINDSPORE_OPTIONS = (
    Option(("scheduler",), "HOST[:PORT]", "host of the scheduler of MindSpore's Dynamic Cluster, which is then started "
           "before the ranks; that host need not have ranks; :PORT is a port of the host of rank 0", CLUSTER,
           read=scheduler, default="with rank 0, at a free port, once it is needed"),
    Option(("server_num", "server-num"), "N", "parameter servers (MS_PSERVER) beside the scheduler, for the Parameter "
           "Server mode", CLUSTER, read=servers, default="0"),
    Option(("scheduler-runs",), "light|ranks|auto", "what the scheduler runs: light: only MindSpore's library; ranks: "
           "the program of the ranks, as with msrun; auto: that program if it configures the scheduler "
           "(set_ps_context), else light", CLUSTER, "cluster.program",
           readers.choice("light", "ranks", "auto"), "auto"),
)  # fmt: skip
