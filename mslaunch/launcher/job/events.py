"""Events and actions of the job's state: the records that `JobState` takes in, and those that it returns.

The controller makes events of frames, signals and timers, and carries actions out.  There is no event for a rank that
is restarted: it starts and ends as any other, after the streams of its process before have ended.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mslaunch.errors import LaunchError

# --- events


class Began(NamedTuple):
    """The agents have been asked for addresses and ports."""


class Prepared(NamedTuple):
    """Addresses and ports are known; `services` start before the ranks: number and node of each."""

    services: tuple[tuple[int, int], ...] = ()


class Serves(NamedTuple):
    """A service is ready for ranks: it listens, or will be started when one of them connects."""

    service: int


class Started(NamedTuple):
    """A rank or a service runs."""

    rank: int
    pid: int
    node: int = 0


class Exited(NamedTuple):
    """A process ended, or never started."""

    rank: int
    node: int
    status: ExitStatus


class StreamEnded(NamedTuple):
    """One of the streams of a rank or a service has ended."""

    rank: int


class LinkEnded(NamedTuple):
    """The connection to `node` has ended; `error` is the reason if it is known."""

    node: int
    error: LaunchError | None = None
    given_up: bool = False  # by us: its ranks do not end when they are killed


class TimedOut(NamedTuple):
    """--timeout was reached."""

    seconds: float
    source: str = "--timeout"  # what set the limit: the option, or MPIEXEC_TIMEOUT
    traces: bool = False  # the stacks of the ranks are wanted before they are ended
    report: bool = False  # so is the state of each rank


class Traced(NamedTuple):
    """The stacks of the ranks on `nodes` have come, or will not come any more."""

    nodes: tuple[int, ...]


class Interrupted(NamedTuple):
    """The launcher is to end the job; a second time: at once."""

    signal: str


class Signalled(NamedTuple):
    """The launcher got a signal that is meant for the ranks."""

    signum: int


class Suspended(NamedTuple):
    """Ctrl-Z: ranks and launcher stop until `Resumed`."""


class Resumed(NamedTuple):
    """The launcher runs again, perhaps in the foreground of its terminal."""


class Unread(NamedTuple):
    """Output of a rank is lost, for nobody reads or keeps it."""


class Paused(NamedTuple):
    """Agents pause what their ranks print (`on`), or go on: ends of streams may wait behind it."""

    on: bool


class TimerFired(NamedTuple):
    """The time of a timer (`SetTimer`) is over."""

    timer: str


# --- actions


class SetTimer(NamedTuple):
    """`TimerFired` must follow in `seconds`, unless `CancelTimer` comes first."""

    timer: str
    seconds: float


class CancelTimer(NamedTuple):
    """The timer is not wanted any more."""

    timer: str


class GiveUpPreparing(NamedTuple):
    """`LinkEnded` must follow, for a node whose answer about addresses and ports is missing."""


class Serve(NamedTuple):
    """Send the agents on `nodes` the plans of the services there; `Serves` must follow for each."""

    nodes: tuple[int, ...]


class Start(NamedTuple):
    """Send all agents their plans."""


class End(NamedTuple):
    """TERM, grace, KILL for all that runs on `nodes`; `now`: KILL."""

    nodes: tuple[int, ...]
    now: bool = False


class Idle(NamedTuple):
    """Our ranks have ended, those of other launchers may not: services on `nodes` end when nobody is connected."""

    nodes: tuple[int, ...]


class Restart(NamedTuple):
    """Start `rank` (or a service) on its node again, for the `number`th time."""

    rank: int
    node: int
    number: int


class Kill(NamedTuple):
    """KILL for one rank, of a world that could not be spawned as a whole."""

    rank: int
    node: int


class Forward(NamedTuple):
    """Send a signal to all ranks."""

    signum: int


class Suspend(NamedTuple):
    """Stop the launcher, once all frames are out."""


class ResumeInput(NamedTuple):
    """Read standard input again, after the shell had it."""


class Spawned(NamedTuple):
    """All ranks of a world that was spawned run; or, with `error`, they do not."""

    world: int
    error: str = ""


class Trace(NamedTuple):
    """Ask for the stacks of all ranks on `nodes`; `Traced` must follow."""

    nodes: tuple[int, ...]


class ReportState(NamedTuple):
    """Tell the user how each rank is, after so many seconds."""

    seconds: float


class GiveUp(NamedTuple):
    """`LinkEnded` must follow for each of `nodes`: their ranks do not end when they are killed."""

    nodes: tuple[int, ...]


class DropOutput(NamedTuple):
    """Wait no longer for a terminal that nobody reads."""


class Notify(NamedTuple):
    """Tell the user what has been decided; `messages.notices` has the kinds and their facts."""

    kind: str
    facts: Mapping[str, Any]
