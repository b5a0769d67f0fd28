"""What the state of a launch is told, and what it answers: events in, actions out, as records.

The conductor makes events of frames, timers and signals, and carries actions out; the state (`launcher.job.job_state`)
lies between them.  Nothing here does anything.  The surprising thing: there is no event for a rank that was started
again; it starts and ends as any other, after the streams of its forerunner have ended.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mslaunch.errors import LaunchError

# --- events


class Prepared(NamedTuple):
    """Addresses and ports are known; `services` are to be started before the ranks: number and node of each."""

    services: tuple[tuple[int, int], ...] = ()


class Serves(NamedTuple):
    """A service is ready for ranks: it listens, or will be started when one of them knocks."""

    service: int


class Unserved(NamedTuple):
    """Not all services are ready, and ranks have waited for them long enough."""


class Started(NamedTuple):
    """A rank or a service runs."""

    rank: int
    pid: int
    node: int = 0


class Exited(NamedTuple):
    """A process ended, or (with `error`) never started."""

    rank: int
    node: int
    code: int | None
    signal: int | None
    error: str = ""
    todo: str = ""
    asked: bool = False  # to end, before it was on its way out


class StreamEnded(NamedTuple):
    """One of the two streams of a rank or a service has said its last."""

    rank: int


class LinkEnded(NamedTuple):
    """The link to `node` is gone; `error` says why if anybody knows."""

    node: int
    error: LaunchError | None = None
    given_up: bool = False  # by us, at the end of the job: its ranks would not end


class TimedOut(NamedTuple):
    """--timeout was reached."""

    seconds: float
    source: str = "--timeout"  # who set the limit: the option, or MPIEXEC_TIMEOUT
    traces: bool = False  # the stacks of the ranks are to be looked at before they are ended
    report: bool = False  # say first how each rank is


class Traced(NamedTuple):
    """The stacks of the ranks on `nodes` have come, or will not come any more."""

    nodes: tuple[int, ...]


class Joined(NamedTuple):
    """A rank has begun to become a member of its MPI_COMM_WORLD: it is in MPI_Init."""

    rank: int


class Left(NamedTuple):
    """A rank has called MPI_Finalize."""

    rank: int


class Aborted(NamedTuple):
    """A rank called MPI_Abort, or (`broken`) does not keep to the protocol of the start-up, as `text` says."""

    rank: int
    code: int
    text: str = ""
    broken: bool = False


class CameAlone(NamedTuple):
    """A rank runs an MPI library that nobody serves, and so it takes itself for the only one."""

    rank: int
    library: str
    family: str
    offered: str


class Stranded(NamedTuple):
    """Others wait in a collective for a rank that has ended."""

    rank: int


class Impossible(NamedTuple):
    """Ranks want something that cannot be done, and wait for it."""

    what: str
    todo: str


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
    """What a rank has printed is lost, for nobody reads or keeps it."""


# --- actions


class Serve(NamedTuple):
    """Tell the agents on `nodes` the plans of the services there; `Serves` must follow for each, or `Unserved`."""

    nodes: tuple[int, ...]


class Start(NamedTuple):
    """Tell all agents their plans."""


class End(NamedTuple):
    """TERM, grace, KILL for all that runs on `nodes`; `now`: KILL."""

    nodes: tuple[int, ...]
    now: bool = False


class Idle(NamedTuple):
    """Our ranks have ended, those of other launchers may not: services on `nodes` end when nobody is connected."""

    nodes: tuple[int, ...]


class Restart(NamedTuple):
    """Start `rank` (or a service), which ended as `how` says, on its node again: the `number`th time of `limit`."""

    rank: int
    node: int
    how: str
    number: int
    limit: int


class Kill(NamedTuple):
    """KILL for one rank, of a world that could not be spawned as a whole."""

    rank: int
    node: int


class Spawned(NamedTuple):
    """All ranks of a world that was spawned run; or, with `error`, they do not."""

    world: int
    error: str = ""


class Trace(NamedTuple):
    """Ask for the stacks of all ranks on `nodes`; `StackTrace` must follow, however long that takes."""

    nodes: tuple[int, ...]


class Notice(NamedTuple):
    """Tell the user that a signal ends the ranks, or (`kill`) kills them."""

    signal: str
    kill: bool


class Forward(NamedTuple):
    """Send a signal to all ranks."""

    signum: int


class Suspend(NamedTuple):
    """Stop the launcher, once all frames are out."""


class ResumeInput(NamedTuple):
    """Read standard input again, after the shell had it."""


class ReportState(NamedTuple):
    """Tell the user how each rank is, after so many seconds."""

    seconds: float


class DropOutput(NamedTuple):
    """From some seconds after the end of the ranks on, wait no longer for whoever does not read the output."""

    tracing: bool = False  # stacks are looked at first
