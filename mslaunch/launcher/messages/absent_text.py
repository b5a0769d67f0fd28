"""What is said of ranks that other commands are to start, and that do not come: who is here, what to type where."""

from __future__ import annotations

from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.own_addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.datamodel.request import Share

_SHOWN = 8  # hosts


def absent_text(share: Share, local: int, others: int, hosts: Sequence[str], own: str) -> str:
    """`local` ranks here and `others` of `hosts` have come; `own` is an address of this host, the best it has."""
    missing, here = share.size - local - others, local + others
    torch = not share.port
    word, who = ("rank", "they wait") if torch else ("worker", "MindSpore waits")
    named = [host for host in hosts if not is_loopback(host)]
    also = f", some of them on {', '.join(named[:_SHOWN])}" if named else ""
    port = share.meeting if torch else share.port
    head = f"{here} of {counted(share.size, word)} {'is' if here == 1 else 'are'} here{also}; {who} for {missing} more"
    lines = [f"{head} at {share.address}, port {port}"]
    if share.by_operator:
        lines.append("other pods have to start them: kubectl get pods shows whether they run")
    elif is_loopback(share.address):
        lines.append(f"only commands on this host reach {share.address}; for several hosts end this, and type the same")
        lines.append(f"line on each with {_words(torch, own, port)} and its own {_number(share, local, torch, True)}")
    else:
        where = "on the other host" if share.size == 2 * local else "on each host that is missing"
        rank = _number(share, local, torch, False)
        lines.append(f"type the same line {where} with {_words(torch, share.address, port)}{rank and f' and {rank}'}")
    if not share.by_operator:
        lines.append("or name all hosts in one command: -H HOST1,HOST2")
    return "\n  ".join(lines)


def unanswered_text(share: Share, why: str) -> str:
    """The scheduler is to run on another host, and cannot be reached there."""
    todo = "start the command with --node_rank=0 there; if it runs, look for a firewall between the hosts"
    if share.by_operator:
        todo = "kubectl get pods shows whether the pod of the scheduler runs"
    what = f"MindSpore's scheduler is not found at {share.address}, port {share.port}: {why}"
    return f"{what}; the workers here wait for it\n  {todo}"


def _words(torch: bool, address: str, port: int) -> str:
    names = ("--master-addr", "--master-port") if torch else ("--master_addr", "--master_port")
    return f"{names[0]}={address} {names[1]}={port}"


def _number(share: Share, local: int, torch: bool, first: bool) -> str:
    """Which numbers the other hosts have; with the `first`, where it has to start again."""
    option = "--node-rank" if torch else "--node_rank"
    if share.first is None and not first:
        return ""
    nodes = share.size // local if share.size % local == 0 else 0
    if nodes == 2 and not first:
        return f"{option}={1 - (share.first or 0) // local}"
    there = {0: "", 2: ", 1 there"}.get(nodes, f", up to {nodes - 1}")
    return f"{option} (0 here{there})" if first else f"its own {option}"
