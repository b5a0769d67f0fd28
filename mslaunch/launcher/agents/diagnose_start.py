"""Why no agent answered on a link: what shells, ssh and Python print instead, as one error with something to do.

Their words come before the agent's magic on the stream itself (a login shell that echoes), or on standard error.
"""

from __future__ import annotations

from mslaunch.errors import LinkError, printable, quoted_lines
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.transport.fork import LIMITS

if TYPE_CHECKING:
    from mslaunch.transport.base import Link

_LONGEST = 200  # letters of a line that a host has said
_TRACEBACK = 60  # lines


class NoAgentError(LinkError):
    """A host cannot run the agent, for a reason that is known."""

    check = "connection"  #: as --check names what has failed


def explain(link: Link, printed: bytes) -> LinkError:
    """The error for a link that ended before HELLO; `printed`: what came instead of the magic."""
    host = link.node.name
    failure = link.failure()  # first: it may wait for the end of what carried the link, and so for its last output
    said = _readable(printed + link.noise())
    status = link.exit_status
    small = said.lower()
    for words, what, todo, check in _KNOWN if link.here else (*_USED_UP, *_KNOWN):
        if any(word in small for word in words) or (status == 127 and words is _MISSING):
            error = NoAgentError(what, host, "\n".join(filter(None, [_quoted(said), todo])))
            error.check = check
            return error
    if failure is not None:
        failure.todo = "\n".join(filter(None, [failure.todo, _quoted(said)]))
        return failure
    if link.here:  # nobody has logged in
        *before, last = said.splitlines() or [""]
        what = f"no agent could be started here{': ' * bool(last)}{last[:_LONGEST]}"
        todo = LIMITS if "(ulimit" in last or "(pids.max" in last else ""  # the limit that `errors.limit_of` names
        return LinkError(what, host, "\n".join(filter(None, [_quoted("\n".join(before)), todo])))
    if said:
        return LinkError("it answered, but no agent started there", host, _quoted(said))
    ended = f" (its shell ended with status {status})" if status is not None else ""
    todo = "a start-up file of its login shell may end the shell, or read what was meant for the agent"
    return LinkError(f"it accepted the login, but no agent started there{ended}", host, todo)


def fault(text: str, host: str) -> LinkError:
    """The error for an agent that cannot go on (FAULT): it has sent a traceback, or a sentence."""
    if not text.startswith("Traceback"):
        return LinkError(text, host)
    what = "internal error in the agent (please report this)"
    return LinkError(what, host, "\n".join(quoted_lines(text, _TRACEBACK)))


def unanswered(link: Link, printed: bytes) -> str:
    """What to do about a host whose agent has not answered in time; `printed` as for `explain`."""
    todo = "does its login shell wait for input?  --connect-timeout gives it more time"
    return "\n".join(filter(None, [todo, _quoted(_readable(printed + link.noise()))]))


_MISSING = ("command not found", ": not found", "unknown command", "python3: no such file", "python: no such file")
#: the system's words for limits, of which the agent, if it came as far, also prints the value
_USED_UP = (
    (
        ("too many open files", "error 24"),  # the second is of ld.so(8)
        "it allows too few open files to start an agent",
        "raise ulimit -n there, for logins that start no shell as well",
        "limits",
    ),
    (
        ("resource temporarily unavailable", "cannot fork"),
        "it allows too few processes to start an agent",
        "raise ulimit -u there, or pids.max of its control group",
        "limits",
    ),
)
_KNOWN = (
    (
        ("somebody in between has changed it",),  # `protocol.sealed_records`, of a program that was refused
        "its agent was sent another program than mslaunch's: somebody in between has changed it",
        "docs/security.md says who can be in between, and how to use SSH instead",
        "connection",
    ),
    (
        ("mslaunch: python 2", "mslaunch: python 3"),  # the stub's own message
        "its Python is too old for the agent, which needs 3.8",
        "name a newer one with --agent-python",
        "python3",
    ),
    (
        _MISSING,
        "it has no Python that the agent could run with",
        "install python3 there, or name one with --agent-python PATH; nothing else is needed",
        "python3",
    ),
    (
        ("this account is currently not available", "nologin"),
        "its account allows no commands",
        "use another user: user@host in the hostfile",
        "login",
    ),
)


def _readable(data: bytes) -> str:
    return printable(data.decode("utf-8", "replace").replace("\r", "")).strip("\n? ")


def _quoted(said: str, lines: int = 6) -> str:
    kept = [line for line in said.splitlines() if line.strip()][-lines:]
    return "it printed:\n" + "\n".join(f"  | {line[:_LONGEST]}" for line in kept) if kept else ""


# --- links of agents that have answered


def given_up(seconds: int, host: str) -> LinkError:
    """The error for an agent that has heard nothing from the launcher for `seconds`."""
    what = f"its agent heard nothing from mslaunch for {seconds} s, and has ended its part"
    todo = "Was mslaunch stopped, or this host suspended or cut off?  --lease S allows for longer silence."
    return LinkError(what, host, todo)


def unread(size: int, seconds: float, host: str) -> LinkError:
    """The error for an agent that has read none of the waiting `size` bytes for `seconds`."""
    what = f"it has read nothing for {seconds:.3g} s of the {size >> 20} MiB that wait for it"
    return LinkError(what, host, "is its network up, and is its agent stopped?  --lease S allows for more time.")
