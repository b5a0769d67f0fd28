"""Failures in words: a sentence for each kind of `JobFailure` with the details below it, and how a process ended."""

from __future__ import annotations

from mslaunch.datamodel.outcome import Failure
from mslaunch.errors import counted, printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.horovod import HOROVOD
from mslaunch.frameworks.table import service_info
from mslaunch.launcher import job_failure
from mslaunch.launcher.rank_names import ranks_text
from mslaunch.plan.hosts.host_ranges import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.node_report import ExitStatus
    from mslaunch.datamodel.outcome import RankStatus
    from mslaunch.errors import LaunchError
    from mslaunch.launcher.job_failure import JobFailure
    from mslaunch.launcher.rank_names import RankNames

    Facts = Mapping[str, Any]
    Details = tuple[str, ...]

_MOST_ERRORS = 8  #: different errors of hosts that are listed below the first
_MOST_WORDS, _LONGEST = 20, 400  # lines of a rank's last words, and their characters
OURS = ("not started again: ", "not reached again: ")  #: lines among the details of a rank that it has not said
_SAYS_NOTHING = ("", "abort")  # messages of MPI_Abort that libraries pass if they have none
_WHO_WAITS = {"others": "the others would wait", "parent": "those who spawned it wait", "mpi": "others wait in MPI"}
_IN_MPI = "not started again: it was between MPI_Init and MPI_Finalize, and the others would not know a new one"


def failure_of(cause: JobFailure, names: RankNames, hosts: Sequence[str]) -> Failure:
    """The record for the outcome, with its sentences."""
    facts = cause.facts
    host = "" if cause.node is None else hosts[cause.node]
    if cause.kind in _OF_RANK:
        text, details = _OF_RANK[cause.kind](facts)
        return Failure(names.name(facts.get("rank", cause.rank)) + text, host, cause.rank, cause.code, details)
    if cause.kind == job_failure.NOT_STARTED:
        return _not_started(cause, hosts)
    what, details = _OTHERS[cause.kind](facts)
    return Failure(what, host, cause.rank, cause.code, details)


def of_rank(line: str) -> str:
    """A line of a rank, which never begins as one of `OURS` does."""
    return f" {line}" if line.startswith(OURS) else line


def _words(text: str) -> Details:
    """Lines that a rank, or its host, has said."""
    return tuple(of_rank(line[:_LONGEST]) for line in printable(text).splitlines()[:_MOST_WORDS])


# --- of one rank: predicates, which follow its name


def _exited(facts: Facts) -> tuple[str, Details]:
    return f"{_again(facts)} {ending(facts['status'])}", (_IN_MPI,) * facts["in_mpi"]


def _missing(facts: Facts) -> tuple[str, Details]:
    if facts["status"].shell_code:
        how = ending(facts["status"])
    elif facts["in_mpi"]:
        how = "ended without MPI_Finalize"
    else:
        how = "ended after MPI_Finalize" if facts["used_mpi"] else "ended without MPI_Init"
    return f", for which {_WHO_WAITS[facts['who']]}, {how}", ()


def _aborted(facts: Facts) -> tuple[str, Details]:
    text = facts["text"]
    return f" called MPI_Abort with code {facts['mpi_code']}", () if text in _SAYS_NOTHING else _words(text)


def _protocol(facts: Facts) -> tuple[str, Details]:
    return " does not keep to the protocol of MPI's start-up", _words(facts["text"])


def _singleton(facts: Facts) -> tuple[str, Details]:
    family = facts["family"]
    return f" came up alone, as rank 0 of 1, with {family} ({facts['library']})", (advice(family, facts["offered"]),)


def _not_restarted(facts: Facts) -> tuple[str, Details]:
    return f" could not be started again: {facts['error']}", ()


def _not_ready(facts: Facts) -> tuple[str, Details]:
    port, why = f"port {facts['port']}", facts["why"]
    if why == "late":
        seconds = counted(facts["seconds"], "second")
        return f" did not listen at {port} within {seconds} (--ready-timeout)", ()
    if why == "mpi":
        what = f" is in MPI_Init, where all ranks meet, and others are not started before it listens at {port}"
        return what, ("let MPI_Init be called after that, or give --mpi none for ranks that are no job of MPI",)
    status = facts["status"]
    stay = "is it a program that goes on in the background? Let it stay: ray start needs --block"
    return f", for whose {port} the next program waits, {ending(status)}", (stay,) * (status.code == 0)


def _not_spawned(facts: Facts) -> tuple[str, Details]:
    waiting = "Open MPI 4.1 tells only this rank of it, and the others would wait for ever"
    return f" {spawn_text(facts)}", (waiting,)


def spawn_text(facts: Facts) -> str:
    """Why MPI_Comm_spawn failed, as a predicate."""
    what = f"{counted(facts['ranks'], 'rank')} of {facts['program']}" + (" and others" if facts["more"] else "")
    text = f"could not spawn {what}: {facts['error']}" + (f" ({facts['todo']})" if facts["todo"] else "")
    return text + ("; more failures of this host are not shown" if facts.get("last") else "")


def _again(facts: Facts) -> str:
    times = f" {facts['restarts']} times" if facts["restarts"] > 1 else ""
    return f", started again{times}," if facts["restarts"] else ""


# --- of hosts, services and the whole job


def _not_started(cause: JobFailure, hosts: Sequence[str]) -> Failure:
    """The same error is said once with all its hosts, other errors below."""
    (first, nodes), *others = _alike(cause.facts["errors"]).items()
    more = [f"{_folded(nodes, hosts)}: {error}" for error, nodes in others[:_MOST_ERRORS]]
    if len(others) > _MOST_ERRORS:
        more.append(f"and {counted(len(others) - _MOST_ERRORS, 'other error')}")
    return Failure(first, _folded(nodes, hosts), None, cause.code, (*cause.facts["todo"].splitlines(), *more))


def _alike(errors: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Errors that differ by the number of a rank alone, as one with the numbers of all: `ranks 3-56`."""
    import re

    groups: dict[str, tuple[list[int], dict[int, None]]] = {}
    for error, nodes in errors.items():
        numbers, on = groups.setdefault(re.sub(r"\brank \d+", "rank N", error), ([], {}))
        numbers += map(int, re.findall(r"\brank (\d+)", error)[:1])
        on.update(dict.fromkeys(nodes))
    return {
        text.replace("rank N", ranks_text(sorted(set(numbers)))) if numbers else text: tuple(on)
        for text, (numbers, on) in groups.items()
    }


def _folded(nodes: Sequence[int], hosts: Sequence[str]) -> str:
    return fold(sorted(hosts[node] for node in nodes)) if len(nodes) > 1 else hosts[nodes[0]]


def _intruded(facts: Facts) -> tuple[str, Details]:
    return f"another user (uid {facts['user']}) tried to join the job as one of its MPI ranks", (
        "the connection was refused, but that user knew the name of MPI_COMM_WORLD, which is a secret of the job",
    )


def _no_ports(facts: Facts) -> tuple[str, Details]:
    return facts["error"], tuple(facts["todo"].splitlines())


def _service_ended(facts: Facts) -> tuple[str, Details]:
    info, status = service_info(facts["number"]), facts["status"]
    if status.error:
        what = f"{info.title} could not be started again: {status.error}" if facts["restarts"] else status.error
        return what, tuple(status.todo.splitlines())
    when = "while ranks were running"
    if not facts["begun"]:
        when = "before it listened" if info.listens else "before the ranks were started"
    return f"{info.title}{_again(facts)} {ending(status)} {when}", ()


def _service_lost(facts: Facts) -> tuple[str, Details]:
    names = " and ".join(service_info(number).title for number in facts["numbers"])
    were = "was" if len(facts["numbers"]) == 1 else "were"
    return f"{names} {were} lost with the host while ranks were running", _why(facts["error"])


def _agent_lost(facts: Facts) -> tuple[str, Details]:
    error = facts["error"]
    return (
        (error.what, tuple(error.todo.splitlines())) if error else ("the agent ended before the ranks were started", ())
    )


def _host_lost(facts: Facts) -> tuple[str, Details]:
    when = "while ranks ran there" if facts.get("here", True) else "before its ranks were started"
    return f"the host was lost {when}", _why(facts["error"])


def _why(error: LaunchError | None) -> Details:
    return (error.what, *error.todo.splitlines()) if error else ("its agent ended, or was killed",)


def _too_large(facts: Facts) -> tuple[str, Details]:
    what = f"the ranks exchange more than {facts['bytes'] >> 20} MiB with each other in MPI's start-up"
    return what, ("it is for addresses, and takes no more at once; does a program put data into it?",)


def _timed_out(facts: Facts) -> tuple[str, Details]:
    return timeout_text(facts["seconds"], facts["source"]), ()


def interrupted_text(signal: str, job: str) -> str:
    """`job`: of a resource manager, which sends SIGTERM when it ends it, and does not say why."""
    return f"ended by {signal}" + (f": {job} was cancelled, preempted or is out of time" if job else "")


def timeout_text(seconds: float, source: str) -> str:
    """--timeout, while ranks run."""
    return f"the job was still running after {counted(seconds, 'second')} ({source})"


def _hung(facts: Facts) -> tuple[str, Details]:
    text = facts["text"]
    return hung_text(facts["seconds"], facts["file"], facts["missing"]) + " (--hang-timeout)", (text,) if text else ()


def hung_text(seconds: float, file: str, missing: bool = False) -> str:
    """--hang-timeout; `file` is that of --progress-file."""
    shown = printable(file)
    changed = f", and there is no {shown} (--progress-file)" if missing else f", and {shown} has not changed"
    changed = changed if file else ""
    return f"no rank has printed anything for {seconds:g} {'second' if seconds == 1 else 'seconds'}{changed}"


_OF_RANK: dict[str, Callable[[Facts], tuple[str, Details]]] = {
    job_failure.EXITED: _exited,
    job_failure.MISSING: _missing,
    job_failure.ABORTED: _aborted,
    job_failure.PROTOCOL: _protocol,
    job_failure.SINGLETON: _singleton,
    job_failure.NOT_RESTARTED: _not_restarted,
    job_failure.SPAWN_FAILED: _not_spawned,
    job_failure.NOT_READY: _not_ready,
}
_OTHERS: dict[str, Callable[[Facts], tuple[str, Details]]] = {
    job_failure.INTRUDED: _intruded,
    job_failure.NO_PORTS: _no_ports,
    job_failure.SERVICE_ENDED: _service_ended,
    job_failure.SERVICE_LOST: _service_lost,
    job_failure.AGENT_LOST: _agent_lost,
    job_failure.HOST_LOST: _host_lost,
    job_failure.AGENT_TERMINATED: lambda facts: (
        "the agent was told to end by SIGTERM, and has ended its ranks",
        ("does that host shut down, or did somebody kill processes there?",),
    ),
    job_failure.TIMED_OUT: _timed_out,
    job_failure.HUNG: _hung,
    job_failure.INTERRUPTED: lambda facts: (interrupted_text(facts["signal"], facts.get("job", "")), ()),
    job_failure.UNREAD: lambda facts: (
        "nobody reads standard output any more",
        ("with --output-filename ranks would go on, and their files be whole",),
    ),
    job_failure.TOO_LARGE: _too_large,
    job_failure.ELSEWHERE: lambda facts: (f"the job has failed on {facts['host']}: {facts['why']}", ()),
}


# --- how a process ended, and advice


def advice(family: str, offered: str) -> str:
    """Advice for a rank that runs as a singleton of MPI or Horovod; `offered`: what it could have used, pmi or pmix."""
    if family == HOROVOD.name:
        return "this Horovod has no MPI: give --horovod gloo, or --mpi none if each rank is to run alone"
    if family == "Open MPI" and offered != "pmix":
        return "start it with --mpi pmix: mslaunch did not see that the program uses Open MPI"
    if family != "Open MPI" and offered == "pmix":
        return "start it with --mpi pmi1: mslaunch took the program for one of Open MPI"
    return "its library was built for another launcher: try --mpi pmi1, --mpi pmi2 or --mpi pmix, or its own launcher"


def ending(status: ExitStatus | RankStatus) -> str:
    """How a process ended, as a predicate."""
    return f"was ended by {signal_name(status.signal)}" if status.signal else f"ended with exit code {status.code}"


def signal_name(signum: int) -> str:
    """SIGSEGV (segmentation fault)."""
    from signal import Signals, strsignal  # late: takes 5 ms

    try:
        name = Signals(signum).name
    except ValueError:
        name = f"signal {signum}"
    meaning = (strsignal(signum) or "").lower()
    return f"{name} ({meaning})" if meaning else name
