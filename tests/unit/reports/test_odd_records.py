"""Records that somebody has made up: whatever they say, there is a page or one refusal, soon and in little memory."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from typing import Any

import example_runs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mslaunch.errors import LaunchError
from mslaunch.reports import page
from mslaunch.reports.read_record import read_record

# --- no record ends in a traceback

TEXTS = st.one_of(
    st.sampled_from(["", "x", "0-3", "0-99999", "5000-9999", "0-1023", "rank 1", "\x1b[2J", "\u202e", "\ud800", "…"]),
    st.text(max_size=12),
)  # fmt: skip
WHOLE = st.one_of(st.integers(0, 5), st.sampled_from([0, 1, 255, 2**31, 2**53]), st.integers(0, 2**53))
TIMES = st.one_of(st.sampled_from([0, 0.0, 5e-324, 1e-9, 1.0, 1e10]), st.floats(0, 1e10), st.integers(0, 10**10))
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
FLAGS = st.booleans()


def object_of(required: dict[str, Any], optional: dict[str, Any]) -> Any:
    """An object with any of its fields, or null in their places."""
    return st.fixed_dictionaries(required, optional={name: each | st.none() for name, each in optional.items()})


def listed(each: Any, most: int = 4) -> Any:
    return st.lists(each, max_size=most)


CAUSE = object_of({}, {"kind": TEXTS, "text": TEXTS, "rank": WHOLE, "host": TEXTS, "code": st.integers(-255, 255)})
FACTS = st.dictionaries(st.sampled_from(["cpus", "memory", "\n", ""]) | TEXTS, st.sampled_from(["0", "4", "x"]) | JUNK)
HOST = object_of({}, {"name": TEXTS, "local": FLAGS, "slots": WHOLE, "facts": FACTS, "connected": TIMES})
RANK = object_of(
    {"host": st.integers(0, 1)},
    {
        "rank": WHOLE, "name": TEXTS, "local_rank": WHOLE, "app": WHOLE, "cpus": TEXTS, "pid": WHOLE, "lost": FLAGS,
        **dict.fromkeys(("started", "ended", "first_output", "last_output", "silence"), TIMES), "bytes": WHOLE,
        "code": st.integers(-255, 2**32), "signal": st.integers(0, 255), "by_mslaunch": FLAGS, "starts": WHOLE,
    },
)  # fmt: skip
ATTEMPT = object_of(
    {"ranks": listed(RANK) | st.builds(lambda rank, count: [rank] * count, RANK, st.integers(60, 200))},
    {
        "number": WHOLE, "began": TIMES, "cause": CAUSE,
        **dict.fromkeys(("connected", "staged", "started", "all_started", "failed", "ended"), TIMES),
    },
)  # fmt: skip
RECORD = object_of(
    {
        "schema": st.just(1), "state": st.sampled_from(["running", "ended"]),
        "hosts": st.lists(HOST, min_size=2, max_size=3), "attempts": listed(ATTEMPT, 3),
    },
    {
        **dict.fromkeys(("mslaunch", "python", "job", "cwd", "host", "began", "ended", "report"), TEXTS),
        "pid": WHOLE, "seconds": TIMES, "code": st.integers(-255, 255), "signal": WHOLE, "cause": CAUSE,
        **{name: listed(TEXTS) for name in ("command", "environment", "exported")},
        "output": object_of({}, {"interval": TIMES, "bytes": listed(WHOLE)}),
        "restarts": listed(object_of({}, {"seconds": TIMES, "attempt": WHOLE, "rank": WHOLE, "text": TEXTS})),
        "hangs": listed(object_of({}, {"seconds": TIMES, "text": TEXTS})),
    },
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """(list or object, index or key) of all values below one."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [found for key, each in items for found in ((value, key), *places(each))]


def shown(record: Any) -> str:
    """The page; "" if the record is refused."""
    try:
        return page.render(read_record(json.dumps(record).encode()))
    except LaunchError as error:
        assert error.what and "\n" not in error.what
        return ""


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(RECORD)
def test_what_fits_the_schema_has_a_page(record: Any) -> None:
    assert shown(record)


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(RECORD, st.data())
def test_what_is_half_valid_has_a_page_or_is_refused(record: Any, data: Any) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        where, key = data.draw(st.sampled_from(places(record)))
        where[key] = data.draw(JUNK)
    shown(record)


def test_cpus_that_are_none_on_a_host_that_says_nothing() -> None:
    record = {
        "schema": 1, "state": "ended", "hosts": [{"name": "h"}], "attempts": [{"ranks": [{"host": 0, "cpus": "x"}]}],
    }  # fmt: skip
    assert "0: x" in shown(record)


@pytest.mark.parametrize("field", ["pid", "facts"])
@pytest.mark.parametrize("depth", range(900, 1000, 9))
def test_brackets_inside_each_other(field: str, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    value = nested if field == "pid" else f'[{{"name": "h", "facts": {{"a": {nested}}}}}]'
    name = field if field == "pid" else "hosts"
    text = f'{{"schema": 1, "state": "ended", "{name}": {value}}}'
    try:
        page.render(read_record(text.encode()))
    except LaunchError as error:
        assert len(error.what) < 300


# --- the command is shown whole, since --rerun would run it


def command_of(text: str) -> str:
    return html.unescape(text.partition('aria-label="command">')[2].partition("</pre>")[0])


@pytest.mark.parametrize(
    "words",
    [
        ["mslaunch", "-n", "1", "true", *[":", "-n", "1", "true"] * 4000, "--mark", *["true"] * 4000],
        ["mslaunch", "-n", "1", "sh", "-c", "x" * 30_000 + "--mark" + "x" * 60_000],
        ["mslaunch", "sh", "-c", "x" * 2000 + " --mark"],
    ],
)
def test_a_long_command_is_shown_whole(words: list[str]) -> None:
    text = shown({**example_runs.example(), "command": words})
    assert "--mark" in command_of(text)
    assert "is cut" not in text


def test_a_command_beyond_all_bounds_is_said_to_be_cut() -> None:
    words = ["mslaunch", "x" * page.MOST_COMMAND, "--mark"]
    text = shown({**example_runs.example(), "command": words})
    assert "--mark" not in command_of(text)
    assert "its last 16 characters are not shown" in text


# --- memory and time, which grow as the record does

_PEAK = """
import json, sys
from mslaunch.reports import page
from mslaunch.reports.read_record import read_record
text = page.render(read_record(sys.stdin.buffer.read()))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps([int(status["VmHWM"].split()[0]) >> 10, len(text)]))
"""


def ranks(count: int, **fields: Any) -> dict[str, Any]:
    return {
        "schema": 1, "state": "ended", "hosts": [{"name": "h", "facts": {"cpus": 1024}}],
        "attempts": [{"ranks": [{"host": 0, **fields}] * count}],
    }  # fmt: skip


LARGE = {
    "ranks that say nothing": lambda: ranks(200_000),
    "ranks with all cpus": lambda: ranks(60_000, cpus="0-1023"),
    "ranks with cpus in many words": lambda: ranks(15_000, cpus=",".join(f"{at}-1023" for at in range(30))),
    "ranks with all that there is": lambda: ranks(60_000, cpus="0-999999999"),
    "hosts with facts of their own": lambda: {
        "schema": 1, "state": "ended", "hosts": [{"name": f"h{at}", "facts": {f"f{at}": 1}} for at in range(90_000)],
    },
    "hosts of the same name": lambda: {
        "schema": 1, "state": "ended", "hosts": [{"name": "a1"}] * 100_000,
        "attempts": [{"ranks": [{"host": at} for at in range(100_000)]}],
    },
    "restarts of few ranks": lambda: {
        **ranks(60), "restarts": [{"seconds": at, "rank": at % 60} for at in range(90_000)],
    },
    "attempts without ranks": lambda: {"schema": 1, "state": "ended", "attempts": [{"ended": 1e9}] * 10_000},
    "attempts of few ranks": lambda: {
        "schema": 1, "state": "ended", "hosts": [{"name": "h"}], "attempts": [{"ranks": [{"host": 0}] * 20}] * 10_000,
    },
    "a command of short words": lambda: {**ranks(1), "command": ["'"] * 50_000},
    "one long word": lambda: {**ranks(1), "command": ["'" * 4_000_000]},
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_a_record_of_4_mb_costs_little(kind: str) -> None:
    data = json.dumps(LARGE[kind]()).encode()
    assert len(data) < 4_500_000
    done = subprocess.run([sys.executable, "-c", _PEAK], input=data, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    peak, size = json.loads(done.stdout)
    assert peak < 150 and size < 14_000_000
