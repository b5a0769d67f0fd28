"""The reader of run.json, schema 1 (docs/run.schema.json): from bytes that may come from somebody else to a record.

The writer is another layer's, and perhaps another version; only the format connects them.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.reports.record_fields import LINE, TODO, Fields, visible
from mslaunch.reports.recorded_run import (
    RecordedAttempt,
    RecordedCause,
    RecordedHang,
    RecordedHost,
    RecordedOutput,
    RecordedRank,
    RecordedRestart,
    RecordedRun,
    last_time,
)

if TYPE_CHECKING:
    from typing import Any

SCHEMA = 1
STATES = ("running", "ended")
MOST_BYTES = 128 << 20  #: of a file; 4,096 ranks take about 1 MB for each attempt
MOST_HOSTS = 300_000
MOST_RANKS = 500_000  #: of all attempts together
MOST_ATTEMPTS = 10_000
MOST_EVENTS = 100_000
_MOST_BRACKETS = 2 * MOST_RANKS
_MOST_WORDS = 50_000
_MOST_FACTS = 60
_NAME = 255  # characters of a host or a rank
_PATH = 4096
_REPORT = 50_000  # characters of the closing block
_DIGITS = 30  # of a whole number; Python needs long for thousands of them


def read_record(data: bytes) -> RecordedRun:
    """The record.  Raises `LaunchError`, whose `where` is for the caller to set, if it is wrong."""
    fields = Fields(decoded(data))
    _require_schema(fields)
    state = fields.line("state")
    if state not in STATES:
        raise LaunchError(f'it is no record of a run: its state is "{state}", not running or ended', todo=TODO)
    hosts = tuple(map(_host, fields.objects("hosts", MOST_HOSTS)))
    attempts = []
    left = MOST_RANKS
    for at, each in enumerate(fields.objects("attempts", MOST_ATTEMPTS)):
        attempts.append(_attempt(each, at + 1, len(hosts), left))
        left -= len(attempts[-1].ranks)
    output = fields.one("output")
    run = RecordedRun(
        fields.line("mslaunch"), fields.line("python"), fields.line("job"),
        fields.words("command", _MOST_WORDS, MOST_BYTES), fields.line("cwd", _PATH),
        fields.line("host"), fields.number("pid"), fields.line("began"), fields.line("ended"),
        fields.seconds("seconds"), state == "running", fields.number("code", -255, 255), fields.number("signal"),
        _cause(fields.one("cause")), fields.text("report", _REPORT), fields.words("environment", _MOST_WORDS),
        fields.words("exported", _MOST_WORDS), hosts, _output(output), tuple(attempts),
        tuple(map(_restart, fields.objects("restarts", MOST_EVENTS))),
        tuple(
            RecordedHang(each.seconds("seconds") or 0.0, each.text("text", 10 * LINE))
            for each in fields.objects("hangs", MOST_EVENTS)
        ),
    )  # fmt: skip
    return run._replace(horizon=last_time(run))


def decoded(data: bytes) -> Any:
    """What JSON the file has.  Raises `LaunchError` without a `where`."""
    import json

    if not data.strip():
        raise LaunchError("the file is empty", todo=TODO)
    if data.count(b"{") + data.count(b"[") > _MOST_BRACKETS:  # each costs some hundred bytes of memory
        raise LaunchError("it is no record of a run: it has too many objects", todo=TODO)
    try:
        return json.loads(data, parse_int=_whole, parse_constant=_constant)
    except RecursionError:
        raise LaunchError("it is no record of a run: it has too many brackets inside each other", todo=TODO) from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are such
        position = (
            f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else visible(str(error))
        )
        raise LaunchError(f"it is not JSON ({position})", todo=TODO) from None


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _require_schema(fields: Fields) -> None:
    schema = fields.number("schema")
    if schema is None:
        raise LaunchError('it is no record of a run: it has no "schema"', todo=TODO)
    if schema != SCHEMA:
        writer = fields.line("mslaunch")
        raise LaunchError(
            f"its format is number {schema}, and this mslaunch reads number {SCHEMA}",
            todo=f"use the mslaunch that wrote it{f', {writer},' if writer else ''} or a newer one",
        )


def _host(fields: Fields) -> RecordedHost:
    return RecordedHost(
        fields.line("name", _NAME),
        fields.flag("local"),
        fields.number("slots"),
        fields.facts("facts", _MOST_FACTS),
        fields.seconds("connected"),
    )


def _cause(fields: Fields | None) -> RecordedCause | None:
    if fields is None:
        return None
    fields.number("code", -255, 255)
    return RecordedCause(fields.line("kind"), fields.text("text", 4 * LINE), fields.number("rank"), fields.line("host"))


def _output(fields: Fields | None) -> RecordedOutput:
    if fields is None:
        return RecordedOutput(1.0, ())
    return RecordedOutput(fields.seconds("interval") or 1.0, fields.counts("bytes", MOST_EVENTS))


def _restart(fields: Fields) -> RecordedRestart:
    return RecordedRestart(
        fields.seconds("seconds") or 0.0, fields.number("attempt"), fields.number("rank"), fields.text("text", 4 * LINE)
    )


def _attempt(fields: Fields, position: int, hosts: int, most: int) -> RecordedAttempt:
    number = fields.number("number")
    return RecordedAttempt(
        position if number is None else number,
        fields.seconds("began") or 0.0,
        fields.seconds("connected"),
        fields.seconds("staged"),
        fields.seconds("started"),
        fields.seconds("all_started"),
        fields.seconds("failed"),
        fields.seconds("ended"),
        _cause(fields.one("cause")),
        tuple(_rank(each, at, hosts) for at, each in enumerate(fields.objects("ranks", most))),
    )


def _rank(fields: Fields, position: int, hosts: int) -> RecordedRank:
    rank = fields.number("rank")
    rank = position if rank is None else rank
    return RecordedRank(
        rank,
        fields.line("name", _NAME) or f"rank {rank}",
        fields.index("host", hosts),
        fields.number("local_rank") or 0,
        fields.number("app") or 0,
        fields.line("cpus", _NAME),
        fields.number("pid"),
        fields.seconds("started"),
        fields.seconds("ended"),
        fields.number("code", -255, 2**32),
        fields.number("signal", 0, 255),
        fields.flag("lost"),
        fields.flag("by_mslaunch"),
        fields.number("bytes"),
        fields.seconds("first_output"),
        fields.seconds("last_output"),
        fields.seconds("silence"),
        fields.number("starts") or 0,
    )
