"""The state of a launch, as histories: events on the left, the actions and the outcome that follow on the right."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

import pytest
from histories import Restart, exited, failure_of, make_state, tell
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.jobmap import JobMap, Node, Placement
from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.errors import LinkError
from mslaunch.launcher import job_failure
from mslaunch.launcher.job.events import (
    AgentEnding,
    End,
    Exited,
    Forward,
    Interrupted,
    Kill,
    LinkEnded,
    Notify,
    Prepared,
    ReportState,
    Resumed,
    ResumeInput,
    Signalled,
    Spawned,
    Start,
    Started,
    StreamEnded,
    Suspend,
    Suspended,
    TimedOut,
    Trace,
    Traced,
    Unread,
)
from mslaunch.launcher.job.job_state import JobState
from mslaunch.launcher.job_failure import JobFailure
from mslaunch.launcher.messages.failure_text import signal_name
from mslaunch.launcher.mpi.mpi_frames import Aborted, Impossible, Joined, Left, Stranded


def jobmap(*nodes: int) -> JobMap:
    """`nodes`: the node of each rank."""
    hosts = tuple(Node(f"n{number}", 8, "-H") for number in range(max(nodes) + 1))
    rows = tuple(Placement(rank, 0, node, nodes[:rank].count(node)) for rank, node in enumerate(nodes))
    return JobMap(hosts, rows, 8 * len(hosts))


ALL, NOW = End((0, 1)), End((0, 1), now=True)
ALL_HERE = End((0,))


def over(rank: int, code: int | None = 0, signum: int | None = None, node: int | None = None) -> list[Any]:
    """A rank of the map 0 0 1 (or the service) ends, and then its streams; SIGTERM was sent by the launcher."""
    at = node if node is not None else max(0, rank - 1)
    asked = signum == signal.SIGTERM
    return [exited(rank, at, code, signum, asked=asked), StreamEnded(rank), StreamEnded(rank)]


def exits(*ranks: int) -> list[Any]:
    return [event for rank in ranks for event in over(rank)]


def ended(*ranks: int) -> list[Any]:
    """Ranks end with 0, since their agents were told to end them."""
    return [event for rank in ranks for event in (exited(rank, max(0, rank - 1), 0, None, asked=True), *over(rank)[1:])]


class History(NamedTuple):
    events: list[Any]
    actions: list[Any]
    what: str | None = None  # of the failure
    code: int = 0
    reasons: tuple[str, str, str] = ("", "", "")
    finished: bool = True
    abort: bool = True
    recovery: bool = False
    restarts: int = 0
    recovered: bool = False  # the exit code is 0 in spite of the failure


RUN = [Prepared(), *(Started(rank, 100 + rank) for rank in range(3))]
MISSING = exited(0, 0, 127, None, "the program 'x' was not found", "give its path")
SERVE = Started(SERVICE, 99)
SIGSEGV, SIGTERM, SIGKILL = int(signal.SIGSEGV), int(signal.SIGTERM), int(signal.SIGKILL)
TOO_LARGE = JobFailure(job_failure.TOO_LARGE, {"bytes": 3 << 20})
GONE = LinkError("no route", "n1", code=255)
VICTIMS = ("", "ended", "ended")
TRACED = TimedOut(2, traces=True)


def again(rank: int, number: int, limit: int, how: str = "ended with exit code 3") -> Restart:
    return Restart(rank, max(0, rank - 1), how, number, limit)


HISTORIES = {
    "all well": History([*RUN, *exits(0, 1, 2)], [Start()]),
    "nothing has begun": History([], [], finished=False),
    "it runs": History(RUN, [Start()], finished=False),
    "not over before its streams": History(
        [*RUN, *exits(0, 1), exited(2, 1, 0, None), StreamEnded(2)], [Start()], finished=False
    ),
    "streams may end first": History(
        [*RUN, *exits(0, 1), StreamEnded(2), StreamEnded(2), exited(2, 1, 0, None)], [Start()]
    ),
    "the first failure wins, and a rank that was not asked to end has ended by itself": History(
        [*RUN, *over(0, 3), *over(1, 4), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "", "ended"),
    ),
    "a good end before a failure stays one": History(
        [*RUN, *over(0), *over(1, 9), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 1 ended with exit code 9",
        9,
        ("", "", "ended"),
    ),
    "a failure is acted on before its streams end": History(
        [*RUN, exited(0, 0, 3, None)],
        [Start(), ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "not started", "not started"),
        finished=False,
    ),
    "one that was asked, and ends by another signal, has, too": History(
        [*RUN, *over(0, 3), exited(1, 0, None, SIGSEGV, asked=True), *over(1)[1:], *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "", "ended"),
    ),
    "but what its exit code means then is not known": History(
        [*RUN, *over(0, 3), exited(1, 0, 4, None, asked=True), *over(1)[1:], *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "ended", "ended"),
    ),
    "a signal": History(
        [*RUN, *over(2, None, SIGSEGV), *over(0, None, SIGTERM), *ended(1)],
        [Start(), ALL],
        "rank 2 was ended by SIGSEGV (segmentation fault)",
        139,
        ("ended", "ended", ""),
    ),
    "not found: said once by each rank of a host": History(
        [Prepared(), MISSING, MISSING._replace(rank=1), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "the program 'x' was not found",
        127,
        ("not started", "not started", "ended"),
    ),
    "the service ends with the last rank": History(
        [*RUN, SERVE, *exits(0, 1, 2), *over(SERVICE, None, SIGTERM, 0)], [Start(), ALL]
    ),
    "the service is waited for": History([*RUN, SERVE, *exits(0, 1, 2)], [Start(), ALL], finished=False),
    "the service may end well by itself": History(
        [*RUN, SERVE, *over(SERVICE, 0, None, 0), *exits(0, 1, 2)], [Start()]
    ),
    "the service dies": History(
        [*RUN, SERVE, *over(SERVICE, None, SIGKILL, 0), *(e for r in range(3) for e in over(r, None, SIGTERM))],
        [Start(), ALL],
        "the MindSpore scheduler was ended by SIGKILL (killed) while ranks were running",
        1,
        ("ended", "ended", "ended"),
    ),
    "the service never starts": History(
        [*RUN, exited(SERVICE, 0, 127, None), *(e for r in range(3) for e in over(r, None, SIGTERM))],
        [Start(), ALL],
        "the MindSpore scheduler ended with exit code 127 while ranks were running",
        1,
        ("ended", "ended", "ended"),
    ),
    "the service ends badly after all ranks": History(
        [*RUN, SERVE, *exits(0, 1, 2), *over(SERVICE, 1, None, 0)], [Start(), ALL]
    ),
    "a failure, then the service": History(
        [*RUN, SERVE, *over(0, 3), *over(1, None, SIGTERM), *over(2, None, SIGTERM), *over(SERVICE, None, SIGTERM, 0)],
        [Start(), ALL, ALL],
        "rank 0 ended with exit code 3",
        3,
        VICTIMS,
    ),
    "ending, and the last rank is lost with its host: the service must still be ended": History(
        [*RUN, SERVE, Interrupted("SIGINT"), *ended(0, 1), LinkEnded(1), *over(SERVICE, None, SIGTERM, 0)],
        [Start(), ALL, End((0,))],
        "ended by SIGINT",
        1,
        ("ended", "ended", "lost"),
    ),
    "ending, and the last rank never started: the service must still be ended": History(
        [
            *[Prepared(), Started(0, 100), Started(1, 101), SERVE, *over(0, 3), *over(1, None, SIGTERM)],
            *[MISSING._replace(rank=2, node=1), *over(SERVICE, None, SIGTERM, 0)],
        ],
        [Start(), ALL, ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "ended", "not started"),
    ),
    "a link is lost before the start": History(
        [LinkEnded(1, GONE)], [], "no route", 255, ("not started", "not started", "not started")
    ),
    "a link is lost before the start, and nobody knows why": History(
        [LinkEnded(1), Prepared()],
        [],
        "the agent ended before the ranks were started",
        205,
        ("not started", "not started", "not started"),
    ),
    "a link is lost while ranks run": History(
        [*RUN, LinkEnded(1, GONE), *over(0, None, SIGTERM), *over(1, None, SIGTERM)],
        [Start(), End((0,))],
        "the host was lost while ranks ran there",
        205,
        ("ended", "ended", "lost"),
    ),
    "a link is lost with the last words of a rank": History(
        [*RUN, *exits(0, 1), exited(2, 1, 0, None), LinkEnded(1)],
        [Start(), End((0,))],
        "the host was lost while ranks ran there",
        205,
    ),
    "a link is lost that nobody needs": History([*RUN, *exits(2), LinkEnded(1), *exits(0, 1)], [Start()]),
    "a link is lost while ending": History(
        [*RUN, *over(0, 3), LinkEnded(1), *over(1, None, SIGTERM)],
        [Start(), ALL],
        "rank 0 ended with exit code 3",
        3,
        ("", "ended", "lost"),
    ),
    "the service goes with its host": History(
        [*RUN, SERVE, LinkEnded(0), *over(2, None, SIGTERM)],
        [Start(), End((1,))],
        "the host was lost while ranks ran there",
        205,
        ("lost", "lost", "ended"),
    ),
    "timeout": History(
        [*RUN, TimedOut(2.5), *(e for r in range(3) for e in over(r, None, SIGTERM))],
        [Start(), ALL],
        "the job was still running after 2.5 seconds (--timeout)",
        110,
        ("ended", "ended", "ended"),
    ),
    "timeout before the start": History(
        [TimedOut(1), Prepared()],
        [],
        "the job was still running after 1 second (--timeout)",
        110,
        ("not started", "not started", "not started"),
    ),
    "Ctrl-C once": History(
        [*RUN, Interrupted("SIGINT"), *ended(0, 1, 2)],
        [Start(), ALL],
        "ended by SIGINT",
        1,
        ("ended", "ended", "ended"),
    ),
    "Ctrl-C twice": History(
        [*RUN, Interrupted("SIGINT"), Interrupted("SIGINT"), *ended(0, 1, 2)],
        [Start(), ALL, NOW],
        "ended by SIGINT",
        1,
        ("ended", "ended", "ended"),
    ),
    "Ctrl-C while a failure is being ended": History(
        [*RUN, *over(0, 3), Interrupted("SIGINT"), *over(1, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL, NOW],
        "rank 0 ended with exit code 3",
        3,
        VICTIMS,
    ),
    "Ctrl-C before the start": History(
        [Interrupted("SIGINT"), Prepared()],
        [],
        "ended by SIGINT",
        1,
        ("not started", "not started", "not started"),
    ),
    "a failure that need not end the job": History(
        [*RUN, *over(0, 3), *over(1, 4), *over(2)], [Start()], "rank 0 ended with exit code 3", 3, abort=False
    ),
    "but a program that is missing ends it": History(
        [*RUN, MISSING, *over(1, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "the program 'x' was not found",
        127,
        ("not started", "ended", "ended"),
        abort=False,
    ),
    "nor is a signal an exit code": History(
        [*RUN, *over(0, 3), *over(1, None, SIGSEGV), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 1 was ended by SIGSEGV (segmentation fault)",
        139,
        ("", "", "ended"),
        abort=False,
    ),
    "recovery: the others go on, and end well": History(
        [*RUN, *over(0, 3), *over(1, None, SIGKILL), *over(2)],
        [Start()],
        "rank 0 ended with exit code 3",
        3,
        recovery=True,
        recovered=True,
    ),
    "recovery: but nobody ends well": History(
        [*RUN, *over(0, None, SIGKILL), *over(1, 3), *over(2, 3)],
        [Start()],
        "rank 0 was ended by SIGKILL (killed)",
        137,
        recovery=True,
    ),
    "recovery: what is no rank's failure ends the job, and is its cause": History(
        [*RUN, *over(0), *over(1, 3), TimedOut(5), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "the job was still running after 5 seconds (--timeout)",
        110,
        ("", "", "ended"),
        recovery=True,
    ),
    "recovery: a lost host does": History(
        [*RUN, *over(0), *over(1, 3), LinkEnded(1)],
        [Start(), End((0,))],
        "the host was lost while ranks ran there",
        205,
        ("", "", "lost"),
        recovery=True,
    ),
    "recovery: a missing program does": History(
        [Prepared(), *(Started(rank, 9) for rank in (1, 2)), MISSING, *over(1, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "the program 'x' was not found",
        127,
        ("not started", "ended", "ended"),
        recovery=True,
    ),
    "restart: and all is well": History(
        [*RUN, *over(2, 3), Started(2, 200), *exits(0, 1), *over(2)], [Start(), again(2, 1, 1)], restarts=1
    ),
    "restart: not over before it has ended once more": History(
        [*RUN, *over(2, 3), Started(2, 200), *exits(0, 1)], [Start(), again(2, 1, 1)], finished=False, restarts=1
    ),
    "restart: at once, whatever streams are still open": History(
        [*RUN, exited(2, 1, 3, None)], [Start(), again(2, 1, 1)], finished=False, restarts=1
    ),
    "restart: streams that ended before the process": History(
        [*RUN, *exits(0, 1), StreamEnded(2), StreamEnded(2), exited(2, 1, 3, None), Started(2, 200), *over(2)],
        [Start(), again(2, 1, 1)],
        restarts=1,
    ),
    "restart: each time that it fails, and then never more": History(
        [*RUN, *over(2, 3), Started(2, 200), *over(2, None, SIGKILL), Started(2, 201), *over(2, 4), *exits(0, 1)],
        [Start(), again(2, 1, 2), again(2, 2, 2, "was ended by SIGKILL (killed)")],
        "rank 2, started again 2 times, ended with exit code 4",
        4,
        restarts=2,
        recovered=True,
    ),
    "restart: each rank has its own number of times": History(
        [*RUN, *over(0, 3), *over(2, 3), Started(2, 200), Started(0, 201), *exits(0, 1, 2)],
        [Start(), again(0, 1, 1), again(2, 1, 1)],
        restarts=1,
    ),
    "restart: not of a program that is missing": History(
        [Prepared(), *(Started(rank, 9) for rank in (1, 2)), MISSING, *over(1, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "the program 'x' was not found",
        127,
        ("not started", "ended", "ended"),
        restarts=3,
    ),
    "restart: the program is missing by then": History(
        [*RUN, *over(0, 3), MISSING, *exits(1, 2)],
        [Start(), again(0, 1, 2)],
        "rank 0 could not be started again: the program 'x' was not found",
        127,
        restarts=2,
        recovered=True,
    ),
    "restart: not while the job is being ended": History(
        [*RUN, Interrupted("SIGINT"), *over(0, 3), *over(1, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "ended by SIGINT",
        1,
        ("", "ended", "ended"),
        restarts=2,
    ),
    "restart: the order to end overtakes it": History(
        [*RUN, *over(0, 3), Interrupted("SIGINT"), exited(0, 0, None, None, "being ended"), *ended(1, 2)],
        [Start(), again(0, 1, 2), ALL],
        "ended by SIGINT",
        1,
        ("ended", "ended", "ended"),
        restarts=2,
    ),
    "restart: the order to end comes just after it": History(
        [*RUN, *over(0, 3), Interrupted("SIGINT"), Started(0, 200), *over(0, None, SIGTERM), *ended(1, 2)],
        [Start(), again(0, 1, 2), ALL],
        "ended by SIGINT",
        1,
        ("ended", "ended", "ended"),
        restarts=2,
    ),
    "restart: its host is lost instead": History(
        [*RUN, *over(2, 3), LinkEnded(1), *over(0, None, SIGTERM), *over(1, None, SIGTERM)],
        [Start(), again(2, 1, 1), End((0,))],
        "the host was lost while ranks ran there",
        205,
        ("ended", "ended", "lost"),
        restarts=1,
    ),
    "restart: the service is still needed": History(
        [*RUN, SERVE, *exits(0, 1), *over(2, 3), Started(2, 200), *over(2), *over(SERVICE, None, SIGTERM, 0)],
        [Start(), again(2, 1, 1), ALL],
        restarts=1,
    ),
    "MPI: a script may run several programs": History(
        [*RUN, *(event(rank) for rank in (0, 1, 2, 0, 1, 2) for event in (Joined, Left)), *exits(0, 1, 2)], [Start()]
    ),
    "MPI: some ranks of a script need not use it": History([*RUN, *exits(1, 2), *exits(0)], [Start()]),
    "MPI: who did not finalize is waited for": History(
        [*RUN, Joined(1), *over(1), *over(0, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 1, for which the others would wait, ended without MPI_Finalize",
        1,
        ("ended", "", "ended"),
    ),
    "MPI: who never came, known when it ends": History(
        [*RUN, Joined(0), *over(1), *over(0, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 1, for which others wait in MPI, ended without MPI_Init",
        1,
        ("ended", "", "ended"),
    ),
    "MPI: who never came, known when another one does": History(
        [*RUN, *over(1), Joined(0), *over(0, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 1, for which others wait in MPI, ended without MPI_Init",
        1,
        ("ended", "", "ended"),
    ),
    "MPI: how often each is in MPI_Init, is its affair": History(
        [
            *RUN,
            *(event(rank) for rank in (0, 1, 2, 0) for event in (Joined, Left)),
            *exits(1, 2),
            Joined(0),
            Left(0),
            *exits(0),
        ],
        [Start()],
    ),
    "MPI: unless others wait for it there": History(
        [*RUN, Joined(1), Left(1), *over(1), Joined(0), Stranded(1), *over(0, None, 15), *over(2, None, 15)],
        [Start(), ALL],
        "rank 1, for which others wait in MPI, ended after MPI_Finalize",
        1,
        ("ended", "", "ended"),
    ),
    "MPI: a bad end is the cause, whoever waits": History(
        [*RUN, Joined(0), Joined(1), *over(1, None, SIGKILL), Stranded(1), *over(0, None, 15), *over(2, None, 15)],
        [Start(), ALL],
        "rank 1 was ended by SIGKILL (killed)",
        137,
        ("ended", "", "ended"),
    ),
    "MPI: with recovery the others go on without one that did not finalize": History(
        [*RUN, *map(Joined, range(3)), *over(1), Left(0), *over(0), Left(2), *over(2)],
        [Start()],
        "rank 1, for which the others would wait, ended without MPI_Finalize",
        1,
        recovery=True,
        recovered=True,
    ),
    "MPI: with recovery nobody ended well": History(
        [*RUN, *map(Joined, range(3)), *exits(0, 1, 2)],
        [Start()],
        "rank 0, for which the others would wait, ended without MPI_Finalize",
        1,
        recovery=True,
    ),
    "MPI: with recovery they go on until they wait": History(
        [*RUN, Joined(0), Joined(1), *over(1, None, SIGKILL), Stranded(1), *over(0, None, 15), *over(2, None, 15)],
        [Start(), ALL],
        "rank 1, for which others wait in MPI, was ended by SIGKILL (killed)",
        137,
        ("ended", "", "ended"),
        recovery=True,
    ),
    "MPI: an engine may be the one who says that they wait": History(
        [*RUN, Joined(0), Joined(1), *over(1, 3), Aborted(1, 1, "words", True), *over(0, None, 15), *over(2, None, 15)],
        [Start(), ALL],
        "rank 1, for which others wait in MPI, ended with exit code 3",
        3,
        ("ended", "", "ended"),
        abort=False,
    ),
    "MPI: a code that ends nothing, before MPI_Init": History(
        [*RUN, Joined(0), *over(1, 3), *over(0, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), ALL],
        "rank 1, for which others wait in MPI, ended with exit code 3",
        3,
        ("ended", "", "ended"),
        abort=False,
    ),
    "MPI: who was started again has done nothing yet": History(
        [*RUN, *map(Joined, range(3)), Left(2), *over(2, 3), Started(2, 200), *over(2), *ended(0, 1)],
        [Start(), again(2, 1, 1), ALL],
        "rank 2, for which others wait in MPI, ended without MPI_Init",
        1,
        ("ended", "ended", ""),
        restarts=1,
    ),
    "MPI: started again, it comes once more": History(
        [
            *RUN,
            *map(Joined, range(3)),
            Left(2),
            *over(2, 3),
            Started(2, 200),
            Joined(2),
            Left(2),
            *over(2),
            Left(0),
            Left(1),
            *exits(0, 1),
        ],
        [Start(), again(2, 1, 1)],
        restarts=1,
    ),
    "MPI: who dies in the middle is not started again": History(
        [*RUN, *map(Joined, range(3)), *over(2, None, 9), *over(0, None, 15), *over(1, None, 15)],
        [Start(), ALL],
        "rank 2 was ended by SIGKILL (killed)",
        137,
        ("ended", "ended", ""),
        restarts=1,
    ),
    "MPI: what cannot be": History(
        [*RUN, Impossible(TOO_LARGE), *over(0, None, 15), *over(1, None, 15), *over(2, None, 15)],
        [Start(), ALL],
        "the ranks exchange more than 3 MiB with each other in MPI's start-up",
        1,
        ("ended", "ended", "ended"),
    ),
    "stacks: asked for where ranks live, and then the end": History(
        [*RUN, *over(2), TRACED, Traced((0,)), *over(0, None, SIGTERM), *over(1, None, SIGTERM)],
        [Start(), Trace((0,)), ALL],
        "the job was still running after 2 seconds (--timeout)",
        110,
        ("ended", "ended", ""),
    ),
    "stacks: all hosts must have answered": History(
        [*RUN, TRACED, Traced((1,))],
        [Start(), Trace((0, 1))],
        "the job was still running after 2 seconds (--timeout)",
        110,
        finished=False,
    ),
    "stacks: answers that come late, and twice": History(
        [*RUN, TRACED, Traced((1,)), Traced((0, 1)), Traced((0,)), *ended(0, 1, 2)],
        [Start(), Trace((0, 1)), ALL],
        "the job was still running after 2 seconds (--timeout)",
        110,
        ("ended", "ended", "ended"),
    ),
    "stacks: nobody to ask": History(
        [Prepared(), TRACED, *ended(0, 1, 2)],
        [Start(), ALL],
        "the job was still running after 2 seconds (--timeout)",
        110,
        ("ended", "ended", "ended"),
    ),
    "stacks: a failure meanwhile ends the job, and is not its cause": History(
        [*RUN, TRACED, *over(0, 3), *over(1, None, SIGTERM), Traced((0, 1)), *over(2, None, SIGTERM)],
        [Start(), Trace((0, 1)), ALL],
        "the job was still running after 2 seconds (--timeout)",
        110,
        VICTIMS,
    ),
    "stacks: no restart meanwhile": History(
        [*RUN, TRACED, *over(0, 3), Traced((0, 1)), *over(1, None, SIGTERM), *over(2, None, SIGTERM)],
        [Start(), Trace((0, 1)), ALL],
        "the job was still running after 2 seconds (--timeout)",
        110,
        VICTIMS,
        restarts=1,
    ),
    "stacks: the last host to answer goes, and no rank with it": History(
        [*RUN, TRACED, *over(2), Traced((0,)), LinkEnded(1), *over(0, None, SIGTERM), *over(1, None, SIGTERM)],
        [Start(), Trace((0, 1)), End((0,))],
        "the job was still running after 2 seconds (--timeout)",
        110,
        ("ended", "ended", ""),
    ),
    "stacks: all ranks end meanwhile": History(
        [*RUN, TRACED, *ended(0, 1, 2)],
        [Start(), Trace((0, 1))],
        "the job was still running after 2 seconds (--timeout)",
        110,
        recovery=True,
    ),
    "stacks: Ctrl-C is not made to wait": History(
        [*RUN, TRACED, Interrupted("SIGINT"), *ended(0, 1, 2)],
        [Start(), Trace((0, 1)), ALL],
        "the job was still running after 2 seconds (--timeout)",
        110,
        ("ended", "ended", "ended"),
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories_give_their_actions_and_outcome(name: str) -> None:
    history = HISTORIES[name]
    state = make_state(jobmap(0, 0, 1), 2, history.abort, history.recovery, history.restarts)
    actions = tell(state, *history.events)
    assert actions == history.actions
    assert [type(action) for action in actions] == [type(action) for action in history.actions]
    assert state.finished == history.finished
    failure = failure_of(state) if state.failure else None
    assert (failure.what if failure else None, failure.code if failure else 0) == (history.what, history.code)
    assert state.code == (0 if history.recovered else history.code)
    if history.finished:
        assert tuple(status.reason for status in state.table.statuses()) == history.reasons


def test_the_cause_names_rank_and_host() -> None:
    state = make_state(jobmap(0, 0, 1))
    for event in [*RUN, *over(2, 5)]:
        state.on(event)
    assert (failure_of(state).rank, failure_of(state).host) == (2, "n1")
    for event in [*over(0, None, SIGTERM), *over(1)]:
        state.on(event)
    assert [(s.rank, s.host, s.pid, s.code, s.signal, s.status) for s in state.table.statuses()] == [
        (0, "n0", 100, None, SIGTERM, 143),
        (1, "n0", 101, 0, None, 0),
        (2, "n1", 102, 5, None, 5),
    ]


def test_the_service_is_where_rank_0_is() -> None:
    """Rank 0 may be on the second node; the scheduler is lost with that node only."""
    state = make_state(jobmap(1, 0))
    for event in [Prepared(), Started(0, 1), Started(1, 2), Started(SERVICE, 3, 1), *over(0, node=1), *over(1, node=0)]:
        state.on(event)
    assert not state.finished
    state.on(LinkEnded(1))
    assert state.finished


def test_merged_output_has_one_stream() -> None:
    state = make_state(jobmap(0), streams=1)
    for event in [Prepared(), Started(0, 1), exited(0, 0, 0, None)]:
        state.on(event)
    assert not state.finished
    state.on(StreamEnded(0))
    assert state.finished


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_order_ends_with_one_end(data: st.DataObject) -> None:
    """Exits and ends of streams in any order: the job is finished at the last event; the first bad exit decides."""
    size = data.draw(st.integers(1, 5))
    codes = [data.draw(st.sampled_from([0, 0, 0, 1, 7])) for _ in range(size)]
    events: list[Any] = [exited(rank, 0, code, None) for rank, code in enumerate(codes)]
    events += [StreamEnded(rank) for rank in range(size) for _ in range(2)]
    events = data.draw(st.permutations(events))
    state = make_state(jobmap(*[0] * size))
    actions = state.on(Prepared())
    for event in events:
        assert not state.finished
        actions += state.on(event)
    assert state.finished
    bad = [event.status.code for event in events if isinstance(event, Exited) and event.status.code]
    assert [action for action in actions if isinstance(action, End)] == [End((0,))] * bool(bad)
    assert (state.failure.code if state.failure else 0) == (bad[0] if bad else 0)


class Lives:
    """A rank and its agent, as the state sees them: it ends with each of `codes` in turn, one for each start."""

    def __init__(self, rank: int, codes: list[int], streams_first: bool) -> None:
        self.rank = rank
        self.codes = codes
        self.streams_first = streams_first
        self.ending = False
        self.orders = 1  # to begin: the plan, then each Restart
        self.coming: list[Any] = []

    def next(self) -> Any:
        """Its next event, or None if there is none."""
        if not self.coming and self.orders:
            self.orders -= 1
            self.coming = self._life()
        return self.coming.pop(0) if self.coming else None

    def _life(self) -> list[Any]:
        if self.ending:
            return [exited(self.rank, 0, None, None, "the job is being ended")]
        ends = [exited(self.rank, 0, self.codes.pop(0), None), StreamEnded(self.rank), StreamEnded(self.rank)]
        return [Started(self.rank, 1), *(reversed(ends) if self.streams_first else ends)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_restarts_in_any_order_come_to_an_end(data: st.DataObject) -> None:
    """Ranks fail and are restarted, and the user may end the job: it never hangs, and nothing is started afterwards."""
    limit = data.draw(st.integers(1, 3))
    codes = data.draw(st.lists(st.lists(st.sampled_from([0, 0, 5]), min_size=4, max_size=4), min_size=1, max_size=4))
    ranks = [Lives(rank, list(each), data.draw(st.booleans())) for rank, each in enumerate(codes)]
    moment = data.draw(st.integers(0, 40))  # of Ctrl-C
    state = make_state(jobmap(*[0] * len(ranks)), max_restarts=limit)
    state.on(Prepared())
    for step in range(1000):
        able = [rank for rank in ranks if rank.coming or rank.orders]
        assert state.finished == (not able)
        if state.finished:
            break
        event = Interrupted("SIGINT") if step == moment else data.draw(st.sampled_from(able)).next()
        for action in tell(state, event):
            if isinstance(action, Restart):
                assert step < moment
                ranks[action.rank].orders += 1
            else:
                for rank in ranks:
                    rank.ending = True
    lives = [4 - len(rank.codes) for rank in ranks]
    if state.phase != "ending":
        assert lives == [next((n for n, c in enumerate(each[:limit]) if not c), limit) + 1 for each in codes]
        assert state.code == (0 if any(not each[n - 1] for each, n in zip(codes, lives)) else 5)


# --- worlds that MPI_Comm_spawn makes


def spawned(*nodes: int, **how: Any) -> JobState:
    """Rank 0 runs on n0, and the ranks of a second world are about to start on `nodes`."""
    state = make_state(jobmap(0), **how)
    for number in range(1, max(nodes) + 1):
        assert state.table.add_node(f"n{number}") == number
    assert state.on(Prepared()) == [Start()] and state.on(Started(0, 100)) == []
    assert state.table.add_world(nodes) == 1
    return state


def test_a_world_has_started_when_all_of_its_ranks_run() -> None:
    state = spawned(0, 1)
    assert tell(state, Started(2, 9, 1)) == []
    assert tell(state, Started(1, 8)) == [Spawned(2)]
    assert [(status.rank, status.world, status.reason) for status in state.table.statuses()] == [
        (0, 1, "running"),
        (1, 2, "running"),
        (2, 2, "running"),
    ]
    assert state.table.running() == {"n0": 2, "n1": 1}
    assert tell(state, *(event(rank) for rank in (1, 2) for event in (Joined, Left))) == []
    assert tell(state, *over(0), *over(1)) == [] and not state.finished
    assert tell(state, *over(2)) == [] and state.finished and state.code == 0


def test_a_child_that_fails_ends_the_job() -> None:
    state = spawned(0, 1)
    assert tell(state, Started(1, 8), Started(2, 9, 1), exited(2, 1, 5, None)) == [Spawned(2), ALL]
    assert (failure_of(state).what, state.code) == ("rank 1 of world 2 ended with exit code 5", 5)
    assert tell(state, *over(0, None, SIGTERM), *over(1, None, SIGTERM), StreamEnded(2), StreamEnded(2)) == []
    assert state.finished


def test_a_host_that_joined_late_can_be_lost() -> None:
    state = spawned(1)
    assert tell(state, Started(1, 9, 1), LinkEnded(1)) == [Spawned(2), End((0,))]
    assert (failure_of(state).host, state.code) == ("n1", 205)


def test_a_world_that_could_not_be_started_is_killed_silently() -> None:
    """Later events of its ranks are ignored."""
    state = spawned(0, 0, 1)
    missing = MISSING._replace(rank=3, node=1)
    error = "the program 'x' was not found, on n1"
    assert tell(state, Started(1, 8), missing, missing._replace(rank=3)) == [Kill(1, 0), Spawned(2, error)]
    assert tell(state, Started(2, 7)) == [Kill(2, 0)]
    assert tell(state, Joined(1), Aborted(1, 3), *over(1, 3), *over(2, None, SIGKILL)) == []
    assert state.failure is None and not state.finished
    assert tell(state, *over(0)) == [] and state.finished and state.code == 0
    assert [status.reason for status in state.table.statuses()] == ["", "ended", "ended", "not started"]


def test_a_missing_rank_affects_only_its_own_world() -> None:
    state = spawned(0, 0)
    assert tell(state, Started(1, 8), Started(2, 9), Joined(1), Joined(2)) == [Spawned(2)]
    assert tell(state, *over(0)) == [], "it does not use MPI any more than its world does"
    assert tell(state, Left(2), *over(2)) == []
    assert tell(state, *over(1)) == [ALL_HERE]
    assert failure_of(state).what == ("rank 0 of world 2, for which the others would wait, ended without MPI_Finalize")


def test_a_spawned_rank_is_not_started_again() -> None:
    state = spawned(0, max_restarts=3)
    assert tell(state, Started(1, 8), Joined(1), Left(1), *over(1, 3)) == [Spawned(2)]
    assert tell(state, *over(0)) == [] and state.finished and state.recovered
    waited_for = spawned(0, max_restarts=3)
    assert tell(waited_for, Started(1, 8), *over(1, 3)) == [Spawned(2), ALL_HERE]
    assert failure_of(waited_for).what == (
        "rank 0 of world 2, for which those who spawned it wait, ended with exit code 3"
    )


@pytest.mark.parametrize(
    ("code", "exit_code"), [(0, 1), (7, 7), (255, 255), (256, 1), (-1, 255), (1 << 31, 1), (263, 7)]
)
def test_abort_with_any_code_is_a_failure(code: int, exit_code: int) -> None:
    state = make_state(jobmap(0, 0), recovery=True)
    assert tell(state, *RUN[:3], Joined(1), Aborted(1, code, "in\ndetail"), *over(1, code & 0xFF)) == [
        Start(),
        ALL_HERE,
    ]
    assert tell(state, *over(0, None, SIGTERM, 0)) == [] and state.finished
    assert state.code == exit_code and state.failure
    assert (failure_of(state).what, failure_of(state).detail) == (
        f"rank 1 called MPI_Abort with code {code}",
        ("in", "detail"),
    )


def ended_by(code: int | None = None, signum: int | None = None, asked: bool = False) -> Exited:
    return exited(2, 1, code, signum, asked=asked)


NO_FINALIZE = "rank 2, for which the others would wait, ended without MPI_Finalize"


@pytest.mark.parametrize(
    ("late", "what", "code", "reason"),
    [
        ([ended_by(None, SIGKILL)], "rank 2 was ended by SIGKILL (killed)", 137, ""),
        ([ended_by(3)], "rank 2 ended with exit code 3", 3, ""),
        ([ended_by(0)], NO_FINALIZE, 1, ""),
        ([LinkEnded(1, GONE)], "the host was lost while ranks ran there", 205, "lost"),
        ([ended_by(None, SIGKILL, asked=True)], "", 14, "ended"),
        ([Left(2), ended_by(3)], "", 14, ""),
        ([Aborted(2, 14), ended_by(14)], "", 14, ""),
        ([Aborted(2, 14), LinkEnded(1, GONE)], "", 14, "lost"),
        ([LinkEnded(1, GONE, given_up=True)], "", 14, "lost"),
        ([ended_by(None, SIGTERM, asked=True), LinkEnded(1, GONE)], "", 14, "ended"),
    ],
)
def test_the_abort_of_a_victim_may_arrive_first(late: list[Any], what: str, code: int, reason: str) -> None:
    """Its library saw the connection to rank 2 closed.  A rank that aborts itself, or was being ended, is no victim."""
    state = make_state(jobmap(0, 0, 1))
    assert tell(state, *RUN, *map(Joined, range(3)), Aborted(0, 14)) == [Start(), ALL]
    tell(state, *late, StreamEnded(2), StreamEnded(2), *over(0, 14), *over(1, None, SIGTERM))
    assert state.finished and state.code == code
    assert failure_of(state).what == (what or "rank 0 called MPI_Abort with code 14")
    assert state.table.ranks[2].reason == reason


def test_the_host_of_an_aborting_rank_is_not_the_cause() -> None:
    state = make_state(jobmap(0, 1, 1))
    tell(state, *RUN, *map(Joined, range(3)), Aborted(1, 14), *over(1, 14), LinkEnded(1, GONE), *over(0, None, 15, 0))
    assert state.finished and state.code == 14


def test_a_parent_that_aborts_after_a_failed_spawn_is_not_the_cause() -> None:
    """The parent gets an error, and its library aborts."""
    state = spawned(0, 1)
    tell(state, Started(1, 8, 0), MISSING._replace(rank=2, node=1), Joined(0), Aborted(0, 14))
    tell(state, *over(1, None, SIGKILL, 0))
    assert failure_of(state).what == "rank 0 called MPI_Abort with code 14"


def test_a_job_ends_when_its_output_is_not_read() -> None:
    """It is not restarted; ranks that have already ended need no reader."""
    state = make_state(jobmap(0, 0, 1), restart="group")
    assert tell(state, *RUN, *over(0), Unread()) == [Start(), ALL]
    assert failure_of(state).what == "nobody reads standard output any more"
    assert tell(state, Unread(), *over(1, None, SIGTERM), *over(2, None, SIGTERM)) == []
    assert state.finished and state.code == 1 and not state.restartable
    state = make_state(jobmap(0, 0, 1))
    assert tell(state, *RUN, *over(0), *over(1), exited(2, 1, 0, None), Unread(), *over(2)[1:]) == [Start()]
    assert state.finished and state.code == 0


def test_only_an_abort_is_overridden() -> None:
    for cause in ([*over(0, 3)], [Joined(0), Aborted(0, 1, "it said x", True)], [Interrupted("SIGINT")]):
        state = make_state(jobmap(0, 0, 1))
        tell(state, *RUN, *cause)
        failure = state.failure
        tell(state, Aborted(1, 9), *over(2, None, SIGKILL))
        assert state.failure is failure


def test_a_violation_of_pmi_ends_the_job() -> None:
    state = make_state(jobmap(0, 0))
    assert tell(state, *RUN[:3], Joined(1), Aborted(1, 1, "it said x", True)) == [Start(), ALL_HERE]
    assert failure_of(state).detail == ("it said x",)
    assert failure_of(state).what == "rank 1 does not keep to the protocol of MPI's start-up"


def test_the_abort_of_a_spawned_rank_ends_the_job() -> None:
    state = spawned(0)
    assert tell(state, Started(1, 8), Joined(1), Aborted(1, 9)) == [Spawned(2), ALL_HERE]
    assert (failure_of(state).what, state.code) == (
        "rank 0 of world 2 called MPI_Abort with code 9",
        9,
    )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_spawned_worlds_settle_once_and_end(data: st.DataObject) -> None:
    """Ranks start, fail to start, or are killed, in any order over the nodes."""
    size = data.draw(st.integers(1, 4))
    starts = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    state = spawned(*[0] * size)
    lives: dict[int, list[Any]] = {0: [Joined(0), Left(0), *over(0)]}
    for rank, well in enumerate(starts, 1):
        missing = MISSING._replace(rank=rank)
        lives[rank] = [Started(rank, 9), Joined(rank), Left(rank), *over(rank, node=0)] if well else [missing]
    killed: set[int] = set()
    settled: list[Spawned] = []
    while any(lives.values()):
        assert not state.finished
        rank = data.draw(st.sampled_from([rank for rank, coming in lives.items() if coming]))
        for action in tell(state, lives[rank].pop(0)):
            if isinstance(action, Kill):
                assert action.rank not in killed, "once"
                killed.add(action.rank)
                lives[action.rank] = over(action.rank, None, SIGKILL, 0)
            else:
                settled.append(action)
    assert state.finished and state.failure is None
    assert len(settled) == 1 and bool(settled[0].error) == (not all(starts))


@pytest.mark.parametrize(
    ("number", "name"),
    [(11, "SIGSEGV (segmentation fault)"), (9, "SIGKILL (killed)"), (40, "signal 40 (real-time signal 6)")],
)
def test_signals_have_names(number: int, name: str) -> None:
    assert signal_name(number) == name


# --- other requests from outside


def test_signals_are_forwarded_once_ranks_have_started() -> None:
    state = make_state(jobmap(0, 0, 1))
    assert state.on(Signalled(10)) == state.on(Resumed()) == []
    assert state.on(Suspended()) == [Suspend()]
    tell(state, *RUN)
    assert state.on(Signalled(10)) == [Forward(10)]
    assert state.on(Suspended()) == [Forward(int(signal.SIGSTOP)), Suspend()]
    assert state.on(Resumed()) == [Forward(int(signal.SIGCONT)), ResumeInput()]


def notified(state: JobState, event: Any) -> list[Any]:
    return [action for action in state.on(event) if isinstance(action, (Notify, ReportState, End))]


def test_an_interrupt_is_announced() -> None:
    state = make_state(jobmap(0, 0, 1))
    assert notified(state, Interrupted("SIGINT")) == []  # before ranks run, the launch ends with an error of its own
    state = make_state(jobmap(0, 0, 1))
    tell(state, *RUN)
    notice = Notify("interrupted", {"signal": "SIGINT", "again": False})
    assert notified(state, Interrupted("SIGINT")) == [notice, ALL]
    notice = Notify("interrupted", {"signal": "SIGTERM", "again": True})
    assert notified(state, Interrupted("SIGTERM")) == [notice, NOW]


JOB = "Slurm's job 7"


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ([AgentEnding(1)], job_failure.INTERRUPTED),
        ([*over(1, None, SIGTERM)], job_failure.INTERRUPTED),
        ([*over(1, 3)], job_failure.EXITED),
    ],
)
def test_the_end_by_a_resource_manager_may_be_seen_elsewhere_first(first: list[Any], kind: str) -> None:
    """It sends SIGTERM to agents, ranks and the launcher; whoever dies of it first is not the cause."""
    state = make_state(jobmap(0, 0, 1))
    tell(state, *RUN, *first)
    assert notified(state, Interrupted("SIGTERM", JOB)) == []
    assert state.failure and state.failure.kind == kind
    notice = Notify("interrupted", {"signal": "SIGTERM", "again": True, "job": JOB})
    assert notified(state, Interrupted("SIGTERM", JOB)) == [notice, NOW]


def test_the_timeout_report_comes_before_the_end() -> None:
    state = make_state(jobmap(0, 0, 1))
    tell(state, *RUN)
    assert notified(state, TimedOut(2, report=True)) == [ReportState(2), ALL]
    assert notified(state, TimedOut(2, report=True)) == []  # the ranks are being ended
