"""Events and actions of a job: the records that `JobState` takes in and those that it returns; and the job's timers.

The controller makes events of frames, signals and timers, and carries actions out.  There is no event for a rank that
is restarted: it starts and ends as any other, after the streams of its process before have ended.
"""

from __future__ import annotations

from mslaunch.datamodel.node_report import ExitStatus
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from mslaunch.errors import LaunchError

# --- events


PREPARE_SECONDS = 10.0  #: at least so long addresses and ports are waited for


class Began(NamedTuple):
    """The agents have been asked for addresses and ports, and have so many seconds for their answers."""

    seconds: float = PREPARE_SECONDS


class Prepared(NamedTuple):
    """Addresses and ports are known; `services` start before the ranks: number and node of each."""

    services: tuple[tuple[int, int], ...] = ()
    meeting: int = 0  # the port at which ranks meet


class Serves(NamedTuple):
    """A service is ready for ranks: it listens, or will be started when one of them connects."""

    service: int


class PortOpened(NamedTuple):
    """A rank listens at the port for which ranks of other programs wait (`AwaitPort`)."""

    rank: int


class Started(NamedTuple):
    """A rank or a service runs."""

    rank: int
    pid: int
    node: int = 0
    at: float = 0.0  # seconds, by a clock that goes steadily


class Exited(NamedTuple):
    """A process ended, or never started."""

    rank: int
    node: int
    status: ExitStatus
    at: float = 0.0  # by the clock of `Started`


class StreamEnded(NamedTuple):
    """One of the streams of a rank or a service has ended."""

    rank: int


class LinkEnded(NamedTuple):
    """The connection to `node` has ended; `error` is the reason if it is known."""

    node: int
    error: LaunchError | None = None
    given_up: bool = False  # by us: its ranks do not end when they are killed


class AgentEnding(NamedTuple):
    """The agent of `node` was told to end by somebody else than us, and ends its ranks in order."""

    node: int


class TimedOut(NamedTuple):
    """--timeout was reached."""

    seconds: float
    source: str = "--timeout"  # what set the limit: the option, or MPIEXEC_TIMEOUT
    traces: bool = False  # the stacks of the ranks are wanted before they are ended
    report: bool = False  # so is the state of each rank


class Hung(NamedTuple):
    """--hang-timeout: no rank has printed anything for so many seconds."""

    seconds: float
    then: str = "end"  # --on-hang
    stacks: bool = True  # those of the ranks are wanted
    file: str = ""  # --progress-file, which has not changed either
    missing: bool = False  # it is not there


class StacksAsked(NamedTuple):
    """Somebody wants to see the stacks of all ranks; nothing is ended."""


class Traced(NamedTuple):
    """The stacks of the ranks on `nodes` have come, or will not come any more."""

    nodes: tuple[int, ...]


class StacksShown(NamedTuple):
    """The user has been told what the ranks do, `why` as in `ShowStacks`."""

    why: tuple[str, ...]
    text: str  # what all of them do, in one sentence
    odd: tuple[int, ...] = ()  # the fewest ranks that do the same, while others do something else


class Interrupted(NamedTuple):
    """The launcher is to end the job; a second time: at once.  `job`: that of a resource manager that asks for it."""

    signal: str
    job: str = ""


class Signalled(NamedTuple):
    """The launcher got a signal that is meant for the ranks."""

    signum: int


class Warned(NamedTuple):
    """--warn: --timeout will be reached in `seconds`."""

    signum: int
    seconds: float


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


#: the time limits of a job, and all that is about the stacks of its ranks, but `Traced`
ABOUT_STACKS = (TimedOut, Hung, StacksAsked, StacksShown)


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
    """Send all agents their plans, or with --ready what they start at this step."""

    step: int = 0


class AwaitPort(NamedTuple):
    """`PortOpened` must follow once the process `pid` of a rank, or one that it has started, listens at `port`."""

    rank: int
    node: int
    pid: int
    port: int


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


class Warn(NamedTuple):
    """Send a signal to whom SIGTERM would go (--term-to), and tell the user: in `seconds` comes --timeout."""

    signum: int
    seconds: float


class Suspend(NamedTuple):
    """Stop the launcher, once all frames are out."""


class ResumeInput(NamedTuple):
    """Read standard input again, after the shell had it."""


class Spawned(NamedTuple):
    """All ranks of a world that was spawned run; or, with `error`, they do not."""

    world: int
    error: str = ""


class Trace(NamedTuple):
    """Ask for the stacks of all ranks on `nodes`, which have so many seconds; `Traced` must follow."""

    nodes: tuple[int, ...]
    seconds: float = 10.0


class ShowStacks(NamedTuple):
    """Tell the user, or who has asked, what the ranks do; `StacksShown` must follow."""

    why: tuple[str, ...]  # ON_TIMEOUT, ON_FAILURE, ON_HANG, ASKED
    missing: tuple[int, ...] = ()  # nodes that have not answered
    hung: Hung | None = None


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


# --- timers

PREPARE = "prepare"  #: for addresses and ports, on all hosts together
SERVE, SERVE_SECONDS = "serve", 30.0  #: for services that start before the ranks
READY = "ready"  #: for the port of a rank that ranks of other programs wait for (--ready-timeout)
TRACES = "traces"  #: for the stacks of ranks, on all hosts at once
ON_TIMEOUT, ON_FAILURE, ON_HANG, ASKED = "timeout", "failure", "hang", "asked"  #: why they are wanted
KILL, KILL_NOW, NOT_ENDING = "kill", "kill now", 10.0  #: after SIGKILL, when a host counts as impossible to end
DRAIN_INTERRUPTED, DRAIN_TIMED_OUT = "drain interrupted", "drain timed out"
STUCK = 3.0  #: for a terminal that nobody reads, once a signal or --timeout has ended the job


class JobTimers:
    """The timers of one job; methods return the actions that set or cancel them."""

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._restarts: dict[str, Restart] = {}

    def set(self, timer: str, seconds: float) -> list[Any]:
        """A timer that runs already is left alone."""
        if timer in self._running:
            return []
        self._running.add(timer)
        return [SetTimer(timer, seconds)]

    def cancel(self, timer: str) -> list[Any]:
        """A timer that does not run is left alone."""
        if timer not in self._running:
            return []
        self._running.discard(timer)
        return [CancelTimer(timer)]

    def fired(self, timer: str) -> list[Any]:
        """The time of a timer is over; the restart that waited for it."""
        self._running.discard(timer)
        return [self._restarts.pop(timer)] if timer in self._restarts else []

    def delay(self, order: Restart, seconds: float) -> list[Any]:
        """Order a restart later."""
        timer = f"restart {order.rank}"
        self._restarts[timer] = order
        return self.set(timer, seconds)

    def flush(self, nodes: Collection[int]) -> list[Any]:
        """The job ends: restarts on `nodes` are ordered now, for it is the agent that refuses them then."""
        actions: list[Any] = []
        for timer, order in self._restarts.items():
            actions += self.cancel(timer)
            if order.node in nodes:
                actions.append(order)
        self._restarts.clear()
        return actions
