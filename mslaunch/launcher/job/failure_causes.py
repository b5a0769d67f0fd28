"""Blame: the failure that each thing which goes wrong is told as: words, host, rank, exit code.

It decides nothing; `state` says which of them ends the job.  The surprising thing: an exit code of 0 can be a failure,
where others wait in MPI for the rank that ended with it, and so can MPI_Abort with 0; the job's code is 1 then.
"""

from __future__ import annotations

from mslaunch.datamodel.outcome import Failure
from mslaunch.errors import EXIT_LOST, EXIT_TIMEOUT, EXIT_USAGE
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.job.service_state import title
from mslaunch.launcher.messages.exit_text import advice, ending, exception
from mslaunch.plan.hosts.host_ranges import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.errors import LaunchError
    from mslaunch.launcher.job import events
    from mslaunch.launcher.job.rank_state import RankState
    from mslaunch.launcher.rank_names import RankNames

_MANY = 400  # lines that are searched for an exception
_SHOWN = 20  # lines that are quoted
_SAYS_NOTHING = ("", "abort")  # what libraries tell us with MPI_Abort that says no more than that


class FailureCauses:
    """Failures of one launch; `hosts` and `worlds` are the state's, and grow."""

    def __init__(self, hosts: Sequence[str], worlds: RankNames) -> None:
        self._hosts = hosts
        self._worlds = worlds
        self._unstarted: dict[str, list[str]] = {}  # why ranks were not started -> hosts

    def _rank(self, rank: RankState, what: str, code: int, detail: tuple[str, ...] = ()) -> Failure:
        return Failure(self._worlds.name(rank.rank) + what, self._hosts[rank.node], rank.rank, code, detail)

    # --- ranks

    def failed(self, rank: RankState) -> Failure:
        """Its process ended badly."""
        return self._rank(rank, f"{_again(rank)} {ending(rank.code, rank.signal)}", rank.status)

    def missing(self, rank: RankState, who: str = "others wait in MPI") -> Failure:
        """It has ended, and `who`, for it."""
        return self._rank(rank, f", for which {who}, {rank.exit_text}", rank.status or EXIT_USAGE)

    def aborted(self, rank: RankState, event: events.Aborted) -> Failure:
        """It called MPI_Abort, or breaks the protocol."""
        if event.broken:
            what = " does not keep to the protocol of MPI's start-up"
            return self._rank(rank, what, event.code or EXIT_USAGE, (event.text,))
        said = tuple(event.text.splitlines()) if event.text not in _SAYS_NOTHING else ()
        return self._rank(rank, f" called MPI_Abort with code {event.code}", event.code & 0xFF or EXIT_USAGE, said)

    def singleton(self, rank: RankState, event: events.CameAlone) -> Failure:
        """It takes itself for the only one."""
        what = f" came up alone, as rank 0 of 1, with {event.family} ({event.library})"
        return self._rank(rank, what, EXIT_USAGE, (advice(event.family, event.offered),))._replace(rank=None)

    def not_again(self, rank: RankState, error: str) -> Failure:
        """It could not be started again."""
        return self._rank(rank, f" could not be started again: {error}", rank.status)

    # --- others

    def not_started(self, event: events.Exited) -> Failure:
        """A program cannot be started on a host."""
        host = self._hosts[event.node]
        said = self._unstarted.setdefault(event.error, [])
        if host not in said:
            said.append(host)
        return Failure(event.error, host, None, event.code or EXIT_USAGE, tuple(event.todo.splitlines()))

    def merge_not_started(self, event: events.Exited, failure: Failure) -> Failure:
        """`failure`, with what is wrong on one more host: the same words are said once, others below."""
        host = self._hosts[event.node]
        said = self._unstarted.setdefault(event.error, [])
        if host in said:
            return failure
        said.append(host)
        first = next(iter(self._unstarted))
        if event.error != first:
            return failure._replace(detail=(*failure.detail, f"{host}: {event.error}"))
        return failure._replace(host=fold(sorted(said))) if len(said) > 1 and failure.what == first else failure

    def service(self, member: RankState, event: events.Exited, begun: bool) -> Failure:
        """A service ended while it was needed, or before ranks were there to need it."""
        name, host = title(member.rank), self._hosts[member.node]
        if event.error:
            what = f"{name} could not be started again: {event.error}" if member.restarts else event.error
            number = None if member.pid is None else member.rank  # no process, no last words
            return Failure(what, host, number, EXIT_USAGE, tuple(event.todo.splitlines()))
        when = "while ranks were running"
        if not begun:
            when = "before it listened" if service_info(member.rank).listens else "before the ranks were started"
        return Failure(f"{name}{_again(member)} {ending(event.code, event.signal)} {when}", host, member.rank)

    def service_lost(self, numbers: Sequence[int], node: int, error: LaunchError | None) -> Failure:
        """A link ended, and there are ranks elsewhere that need what ran there."""
        names = " and ".join(map(title, numbers))
        what = f"{names} {'was' if len(numbers) == 1 else 'were'} lost with the host while ranks were running"
        return Failure(what, self._hosts[node], None, EXIT_LOST, _why(error))

    def ports_failed(self, event: events.Exited) -> Failure:
        """No port could be held."""
        return Failure(event.error, self._hosts[event.node], detail=tuple(event.todo.splitlines()))

    def agent_lost_early(self, node: int, error: LaunchError | None) -> Failure:
        """A link ended before ranks ran."""
        what, code, todo = "the agent ended before the ranks were started", EXIT_LOST, ""
        if error:
            what, code, todo = error.what, error.code, error.todo
        return Failure(what, self._hosts[node], None, code, tuple(todo.splitlines()))

    def lost(self, node: int, error: LaunchError | None) -> Failure:
        """A link ended while ranks ran."""
        return Failure("the host was lost while ranks ran there", self._hosts[node], None, EXIT_LOST, _why(error))


def _again(member: RankState) -> str:
    times = f" {member.restarts} times" if member.restarts > 1 else ""
    return f", started again{times}," if member.restarts else ""


def _why(error: LaunchError | None) -> tuple[str, ...]:
    return (error.what, *error.todo.splitlines()) if error else ("its agent ended, or was killed",)


def with_last_words(failure: Failure, tail: Callable[[int, int], Sequence[str]]) -> Failure:
    """`failure` with what the rank or service that failed said last: `tail(rank, lines)`.

    The exception that ended a Python program is named in the headline, but only with exit code 1, which is Python's for
    it: who has logged a traceback and ends with a code of its own may have another reason.
    """
    if failure.rank is None:
        return failure
    words = list(tail(failure.rank, _MANY))
    said = [line for line in failure.detail if not any(line in other for other in words)]  # MPI_Abort says it twice
    what = failure.what
    if failure.code == 1 and what.endswith(" ended with exit code 1"):
        raised = exception(words)
        what += f" ({raised})" if raised else ""
    return failure._replace(what=what, detail=(*said, *words[-_SHOWN:]))


def unread() -> Failure:
    """A program that writes into a broken pipe is ended by SIGPIPE; a job, like this."""
    what = "nobody reads standard output any more"
    return Failure(
        what, code=EXIT_USAGE, detail=("with --output-filename ranks would go on, and their files be whole",)
    )


def overdue(event: events.TimedOut) -> Failure:
    """--timeout."""
    unit = "second" if event.seconds == 1 else "seconds"
    what = f"the job was still running after {event.seconds:g} {unit} ({event.source})"
    return Failure(what, code=EXIT_TIMEOUT)
