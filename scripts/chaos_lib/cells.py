"""The matrix: who has the fault, when, and what it is; and why some combinations make no sense."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from typing import NamedTuple

SIGNALS = ("TERM", "KILL", "SEGV", "STOP", "STOP10")
CUTS = ("cut", "cut5", "cut20", "cut-to", "cut-from", "power")
LIMITS = ("descriptors", "memory", "processes")

WHO = {
    "launcher": "the launcher",
    "detached": "the launcher of a detached job",
    "local-guard": "the guard on the launching host",
    "local-agent": "the agent on the launching host",
    "local-both": "both at once",
    "guard": "the guard on another host",
    "agent": "the agent there",
    "both": "both at once",
    "sshd": "the sshd of the session there",
    "rank": "a rank",
    "child": "its child",
    "grandchild": "its grandchild, with a session of its own",
    "scheduler": "MindSpore's scheduler",
    "host": "a host",
    "head": "the launching host",
    "network": "the network",
}
WHEN = {
    "connecting": "while another host has not answered yet (for sshd, host: this one)",
    "files": "while files are sent",
    "addresses": "while addresses are probed",
    "services": "while the scheduler starts",
    "starting": "when the first ranks have started, and others have not",
    "running": "while all ranks run",
    "fence": "while ranks wait in a fence of MPI",
    "spawn": "while MPI_Comm_spawn connects a host",
    "between": "between two attempts",
    "ending": "after a rank has failed, in the grace of the others",
}
WHAT = {
    "TERM": "SIGTERM",
    "KILL": "SIGKILL",
    "SEGV": "a segmentation fault",
    "STOP": "SIGSTOP",
    "STOP10": "SIGSTOP, and SIGCONT after 10 s",
    "cut": "its link is cut without a notice",
    "cut5": "the same, healed after 5 s",
    "cut20": "the same, healed after 20 s",
    "cut-to": "nothing reaches it any more",
    "cut-from": "nothing that it sends arrives any more",
    "power": "power off",
    "delay": "2 s on each way",
    "loss": "20 % of the frames are lost",
    "clock": "its clock goes forward by an hour",
    "disk": "the disk of the logs is full",
    "descriptors": "no more descriptors",
    "memory": "no more memory",
    "processes": "no more processes",
}

_PROCESSES = tuple(WHO)[:13]
_LIMITED = ("launcher", "local-guard", "local-agent", "guard", "agent")
_BEFORE_RANKS = ("connecting", "files", "addresses", "services")


class Cell(NamedTuple):
    """One fault."""

    who: str
    when: str
    what: str

    def __str__(self) -> str:
        return f"{self.who}/{self.when}/{self.what}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Of WHO/WHEN/WHAT.  Raises ValueError."""
        words = text.split("/")
        if len(words) != 3 or words[0] not in WHO or words[1] not in WHEN or words[2] not in WHAT:
            raise ValueError(f"{text!r} is no cell; a cell is WHO/WHEN/WHAT, such as agent/running/KILL")
        return cls(*words)


def what_for(who: str) -> tuple[str, ...]:
    """The faults that this victim can have at all."""
    if who == "network":
        return ("delay", "loss")
    if who in ("host", "head"):
        return (*CUTS, "clock")
    limits = LIMITS if who in _LIMITED else ()
    return (*SIGNALS, *limits, *(("disk",) if who == "launcher" else ()))


def no_sense(cell: Cell) -> str:
    """Why this cell does not exist; "" if it does."""
    who, when, what = cell
    if when == "between" and who not in ("launcher", "detached", "host", "head", "network"):
        return "all links are closed between two attempts, and nothing of the job runs"
    if who == "rank" and when in _BEFORE_RANKS:
        return "no rank runs yet"
    if who in ("child", "grandchild") and when in (*_BEFORE_RANKS, "starting"):
        return "no rank has children yet"
    if who == "scheduler" and when in _BEFORE_RANKS[:3]:
        return "it is started later"
    if who == "scheduler" and when == "ending":
        return "it has been ended: its host has no ranks that could need it"
    if what == "disk" and when in (*_BEFORE_RANKS, "between"):
        return "no rank prints anything"
    if what in LIMITS and when in ("between", "services"):
        return "the same as connecting and starting"
    if what == "processes" and (who not in ("launcher", "agent") or when in ("ending", "fence")):
        return "it starts no process then"
    if who == "head" and what == "clock" and when == "between":
        return "the same as running"
    return ""


def all_cells() -> list[Cell]:
    """Every cell that makes sense, in the order of the table."""
    found = [Cell(who, when, what) for who in WHO for when in WHEN for what in what_for(who)]
    return [cell for cell in found if not no_sense(cell)]


def chosen(
    who: Collection[str] = (), when: Collection[str] = (), what: Collection[str] = (), cells: Iterable[Cell] = ()
) -> list[Cell]:
    """Those that are named; nothing named of an axis: all of it."""
    given = list(cells) or all_cells()
    return [
        cell
        for cell in given
        if (not who or cell.who in who) and (not when or cell.when in when) and (not what or cell.what in what)
    ]


def sample(cells: list[Cell], count: int, seed: str) -> list[Cell]:
    """`count` of them, drawn by `seed`."""
    return random.Random(seed).sample(cells, min(count, len(cells)))


def is_long(cell: Cell) -> bool:
    """Whether it has to wait for more than some seconds."""
    return cell.what in ("STOP10", "cut5", "cut20", "delay", "loss")
