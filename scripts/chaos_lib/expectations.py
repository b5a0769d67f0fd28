"""What is right for each cell: how the launch ends, what it says, and when."""

from __future__ import annotations

from typing import NamedTuple

from chaos_lib.cells import LIMITS, Cell
from chaos_lib.victims import VICTIM, VICTIM_RANK

ENDS, GOES_ON, EITHER, KILLED = "ends", "goes on", "either", "killed"
LEASE, DEFAULT_LEASE, HEARTBEAT, GRACE = 3.0, 15.0, 5.0, 2.0
SLACK = 5.0  #: for a busy machine
BUSY_LEASES = 4  #: while processes are started, since a file system may let them wait (docs/reliability.md)
CLOSING = 5.0  #: for which the launcher waits for a host that does not let go
LOST, UNREACHED, TIMED_OUT = 205, 255, 110
DOCUMENTED = (0, 1, 110, 126, 127, 205, 255)
_QUICK = ("--heartbeat", "0.5", "--lease", f"{LEASE:g}")
_LEASED = ("cut", "cut-to", "cut-from", "power")
_EARLY = ("connecting", "files", "addresses", "services", "between")
_NUMBERS = {"TERM": 15, "KILL": 9, "SEGV": 11}


class Expected(NamedTuple):
    """What must be true after a fault; times in seconds."""

    fate: str
    codes: tuple[int, ...] = (0,)
    cause: str = ""  # a regular expression for the one line that tells it
    bound: float = GRACE + SLACK  # from the fault, or from the order to finish, to the end of the launcher
    rest: float = 2.0  # from then on, until nothing is left
    options: tuple[str, ...] = ()


def expected(cell: Cell) -> Expected:
    """The rules, by victim."""
    found = _by_victim(cell)
    if cell.what in ("STOP", *_LEASED):
        found = found._replace(options=(*_QUICK, "--connect-timeout", "6", *found.options))
    if cell.when == "ending" and found.fate not in (KILLED, EITHER) and not _waits_for_launcher(cell):
        cause = r"^mslaunch: rank 0 .*ended with exit code 7 .*on n01"
        return found._replace(fate=ENDS, codes=(7,), cause=cause, bound=max(found.bound, GRACE + SLACK))
    return found


def _waits_for_launcher(cell: Cell) -> bool:
    return cell.who in ("launcher", "detached") and cell.what == "STOP"


def _by_victim(cell: Cell) -> Expected:
    who, what = cell.who, cell.what
    if what in (*LIMITS, "disk"):
        return Expected(EITHER, (*DOCUMENTED, *((7,) if cell.when == "ending" else ())), bound=2 * DEFAULT_LEASE)
    if what == "clock":
        return Expected(GOES_ON)
    if who in ("launcher", "detached"):
        return _of_launcher(cell)
    if who in ("host", "head", "network"):
        return _of_hosts(cell)
    if who in ("rank", "child", "grandchild"):
        return _of_rank(cell)
    if who == "scheduler":
        if what in ("STOP", "STOP10") and cell.when == "services":
            return Expected(GOES_ON, bound=45.0)  # ranks are started without it after 30 s, with a warning
        if what in ("STOP", "STOP10"):
            return Expected(GOES_ON, bound=DEFAULT_LEASE)  # it has no link: nobody can tell that from much work
        cause = rf"^mslaunch: the MindSpore scheduler .*SIG{what}.* on n04"
        return Expected(ENDS, (1,), cause)
    return _of_agent(cell)


def _of_launcher(cell: Cell) -> Expected:
    what = cell.what
    if what == "STOP10":
        return Expected(GOES_ON, bound=DEFAULT_LEASE)
    if what == "STOP" and cell.when == "between":  # it has no agents then
        return Expected(GOES_ON, bound=DEFAULT_LEASE)
    if what == "STOP":
        cause = r"^mslaunch: (.*\b(n0[12]|head|rank 0)\b.*, after [0-9.]+ s$|.* hosts could not be used|(n0[12]|head):)"
        return Expected(ENDS, (1, 7, LOST, UNREACHED), cause, LEASE + GRACE + SLACK)
    if what == "TERM":
        return Expected(ENDS, (1,), r"^mslaunch: .*ended by SIGTERM")
    codes = (137, 1) if cell.who == "detached" else (-_NUMBERS[what],)
    return Expected(KILLED, codes, rest=GRACE + 2.0)


def _of_agent(cell: Cell) -> Expected:
    who, what = cell.who, cell.what
    host = "head" if "local" in who else VICTIM
    if what == "STOP10" or (what == "STOP" and who in ("guard", "local-guard")):
        return Expected(GOES_ON, bound=DEFAULT_LEASE)
    bound = (_silence(cell) if what == "STOP" else 0.0) + GRACE + SLACK
    return _lost(cell, host, bound)


def _silence(cell: Cell) -> float:
    """Seconds until a silent host is given up.  An agent that is stopped is killed by its guard after one lease."""
    return LEASE * (BUSY_LEASES if cell.when == "starting" and cell.who in ("both", "sshd", "host", "head") else 1)


def _lost(cell: Cell, host: str, bound: float) -> Expected:
    cause = rf"^mslaunch: .*\b{host}\b"
    if cell.when == "between":  # the failure of the first attempt stays the cause, and the host is told below it
        cause = r"^mslaunch: rank 0 ended with exit code 7 on n01, after"
        return Expected(ENDS, (7,), cause, bound)
    if cell.when in _EARLY:
        return Expected(ENDS, (UNREACHED, LOST), cause, bound)
    return Expected(ENDS, (LOST, UNREACHED) if cell.when == "starting" else (LOST,), cause, bound)


def _of_rank(cell: Cell) -> Expected:
    who, what = cell.who, cell.what
    if who != "rank" or what == "STOP10":
        return Expected(GOES_ON, bound=DEFAULT_LEASE)
    if what == "STOP":
        return Expected(ENDS, (TIMED_OUT,), r"^mslaunch: .*\(--timeout\)", 20.0, options=("--timeout", "6"))
    rank = r"\d+" if cell.when == "starting" else VICTIM_RANK
    return Expected(ENDS, (128 + _NUMBERS[what],), rf"^mslaunch: rank {rank} .*SIG{what}.* on {VICTIM}")


def _of_hosts(cell: Cell) -> Expected:
    who, what = cell.who, cell.what
    if who == "network":
        bound = 100.0 if cell.when == "between" else 60.0  # all connections are made anew, ten round trips each
        return Expected(GOES_ON, bound=bound, rest=15.0, options=("--connect-timeout", "60"))
    if what == "cut5":
        return Expected(GOES_ON, bound=25.0, rest=15.0)
    if what == "power" and who == "head":
        return Expected(KILLED, (-_NUMBERS["KILL"],), rest=15.0)
    connecting = cell.when in ("connecting", "between")
    lease = DEFAULT_LEASE + HEARTBEAT if what == "cut20" else 6.0 if connecting else _silence(cell)
    lease += SLACK if cell.when == "between" else 0.0  # the connections of the first attempt are closed as well
    host = VICTIM if who == "host" else "(n0[123]|hosts)"
    found = _lost(cell, host, lease + GRACE + SLACK + CLOSING)._replace(rest=15.0)
    if what == "cut20" and cell.when in ("connecting", "between", "addresses", "spawn"):  # another limit may be as long
        return found._replace(fate=EITHER, codes=(0, 7, 9, UNREACHED, LOST), cause="", bound=60.0)
    return found
