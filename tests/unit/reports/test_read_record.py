"""The reader of run.json: what it takes, what it refuses and how, and that its schema file says the same."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import example_runs
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import LaunchError
from mslaunch.reports.read_record import MOST_ATTEMPTS, read_record
from mslaunch.reports.record_fields import visible
from mslaunch.reports.recorded_run import PHASES, RecordedAttempt

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "run.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = {
    "eight ranks": example_runs.example(),
    "all well": example_runs.example(failing=None),
    "restarts": example_runs.example(12, 3, restarts=2),
    "running": example_runs.running(),
    "begun": example_runs.begun(),
    "hostile": example_runs.hostile(),
}


def read(record: Any) -> Any:
    return read_record(json.dumps(record).encode())


def refused(data: bytes) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        read_record(data)
    return caught.value


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_fit_the_schema_and_are_read(name: str) -> None:
    VALIDATOR.validate(EXAMPLES[name])
    run = read(EXAMPLES[name])
    assert len(run.attempts) == len(EXAMPLES[name]["attempts"])
    assert run.running == (EXAMPLES[name]["state"] == "running")


def test_values_arrive_where_they_belong() -> None:
    record = example_runs.example()
    run = read(record)
    rank, written = run.attempts[0].ranks[6], record["attempts"][0]["ranks"][6]
    assert {name: getattr(rank, name) for name in rank._fields} == written
    assert run.hosts[1].facts["cpus"] == "8"
    assert run.horizon == max(run.seconds, *(each.ended for each in run.attempts[0].ranks))
    assert run.cause.rank == 5 and run.attempts[0].cause == run.cause


def test_what_is_missing_counts_as_null() -> None:
    run = read_record(
        b'{"schema": 1, "state": "running", "hosts": [{"name": "a"}], "attempts": [{"ranks": [{"host": 0}]}]}'
    )
    assert run.attempts[0].ranks[0].name == "rank 0"
    assert (run.code, run.attempts[0].number, run.horizon) == (None, 1, 0.0)


def test_fields_of_later_versions_are_passed_over() -> None:
    record = {**example_runs.example(), "later": {"a": [1]}}
    VALIDATOR.validate(record)
    assert read(record) == read(example_runs.example())


REFUSALS = {
    b"": "the file is empty",
    b"\n ": "the file is empty",
    b"<html>": "it is not JSON (line 1: Expecting value)",
    b'{"schema": 1,\n"a"}': "it is not JSON (line 2: Expecting ':' delimiter)",
    b"\xff\xfe{": "it is not JSON",
    b"[" * 100_000: "too many brackets",
    b"[" + b"{}," * 1_000_000 + b"{}]": "too many objects",
    b"[]": "it is a list and should be an object",
    b"{}": 'it has no "schema"',
    b'{"schema": "1"}': 'schema is "1" and should be a whole number',
    b'{"schema": true}': "schema is true and should be a whole number",
    b'{"schema": 1}': 'its state is "", not running or ended',
    b'{"schema": 1, "state": "x\\u001b"}': 'its state is "x\\x1b"',
    b'{"schema": 1, "state": "ended", "seconds": NaN}': "NaN is no number",
    b'{"schema": 1, "state": "ended", "seconds": 1e999}': "seconds is Infinity and should be seconds",
    b'{"schema": 1, "state": "ended", "pid": 1' + b"0" * 40 + b"}": "a number of 41 digits",
    b'{"schema": 1, "state": "ended", "pid": -1}': "pid is -1 and should be a whole number from 0",
    b'{"schema": 1, "state": "ended", "command": "a"}': 'command is "a" and should be a list',
    b'{"schema": 1, "state": "ended", "command": ["a", 1]}': "command[1] is 1 and should be a text",
    b'{"schema": 1, "state": "ended", "cause": []}': "cause is a list and should be an object",
    b'{"schema": 1, "state": "ended", "attempts": [{"ranks": [{"host": 0}]}]}': "attempts[0].ranks[0].host is 0",
    b'{"schema": 1, "state": "ended", "output": {"bytes": [1.5]}}': "output.bytes[0] is 1.5",
    b'{"schema": 1, "state": "ended", "hosts": [{"facts": 1}]}': "hosts[0].facts is 1 and should be an object",
    b'{"schema": 1, "state": "ended", "attempts": [' + b"{}," * MOST_ATTEMPTS + b"{}]}": "attempts has 10001 entries",
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSALS, ids=lambda data: data[:60].decode("latin-1"))
def test_a_wrong_file_gets_one_message(data: bytes) -> None:
    error = refused(data)
    assert REFUSALS[data] in error.what and "\n" not in error.what and len(error.what) < 300


def test_an_unknown_schema_is_refused_with_what_to_do() -> None:
    error = refused(b'{"schema": 2, "mslaunch": "7.1"}')
    assert error.what == "its format is number 2, and this mslaunch reads number 1"
    assert error.todo == "use the mslaunch that wrote it, 7.1, or a newer one"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all fields and entries of a record, but those of facts, which may be anything."""
    if path[-1:] == ("facts",):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in items for found in ((*path, key), *places(each, (*path, key)))]


FULL = example_runs.example(3, 2, restarts=1)
FULL["hangs"] = [{"seconds": 3.0, "text": "rank 1"}]
WRONG: tuple[Any, ...] = ("x", -1, -300, 1.5, True, [], {}, 2e10 + 0.5, 2**60, [None], {"a": None}, [[]])


@settings(deadline=None)
@given(st.sampled_from(places(FULL)), st.sampled_from(WRONG))
def test_what_the_schema_refuses_is_refused_and_nothing_else(path: tuple[Any, ...], value: Any) -> None:
    record = copy.deepcopy(FULL)
    inside = record
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    missing = any(found.validator == "required" for found in VALIDATOR.iter_errors(record))
    errors = [found for found in VALIDATOR.iter_errors(record) if found.validator != "required"]
    try:
        read(record)
    except LaunchError as error:
        index = path[-1] in ("host", "hosts") or "hosts" in path  # more than a schema can say: an index of the list
        assert errors or missing or index, error
    else:
        assert all(found.validator == "exclusiveMinimum" or (found.validator == "type" and found.instance is None)
                   for found in errors), errors  # fmt: skip


@settings(deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(SCHEMA["properties"])), inner),
    max_leaves=20,
))  # fmt: skip
def test_any_json_is_read_or_refused(value: Any) -> None:
    record = {**value, "schema": 1, "state": "ended"} if isinstance(value, dict) else value
    try:
        read_record(json.dumps(record).encode())
    except LaunchError as error:
        assert str(error)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert refused(data).what


# --- texts


@given(st.text(max_size=80), st.integers(1, 60))
def test_texts_become_visible_and_short(text: str, most: int) -> None:
    shown = visible(text, most)
    assert all(char.isprintable() or char == "\n" for char in shown)
    shown.encode()
    assert len(shown) <= 10 * most
    if text.isprintable() and len(text) <= most:
        assert shown == text


def test_marks_of_direction_and_control_characters_are_written_out() -> None:
    assert visible("a\x1b[31m\u202eb\u2066\x00\ud800") == "a\\x1b[31m\\u202eb\\u2066\\x00\\ud800"
    run = read(example_runs.hostile())
    texts = [run.job, run.cwd, run.hosts[0].name, run.cause.text, *run.command, *run.hosts[0].facts]
    for text in texts:
        assert text.isprintable(), text


# --- phases

TIMES = st.none() | st.floats(0, 100)


@given(st.floats(0, 50), st.lists(TIMES, min_size=6, max_size=6), st.floats(0, 200))
def test_phases_are_adjacent_and_cover_the_attempt(began: float, times: list[float | None], horizon: float) -> None:
    attempt = RecordedAttempt(1, began, *times, None, ())  # type: ignore[arg-type]
    phases = attempt.phases(horizon)
    end = attempt.end(horizon)
    assert [name for name, _, _ in phases] == [name for name in PHASES if name in {phase for phase, _, _ in phases}]
    assert all(low < high for _, low, high in phases)
    assert all(before[2] == after[1] for before, after in zip(phases, phases[1:]))
    if end > began:
        assert (phases[0][1], phases[-1][2]) == (began, end)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((0.4, None, 0.5, 0.6, None, 9.0), ["connect", "start", "run"]),
        ((0.4, 0.45, 0.5, 0.6, 8.0, 9.0), ["connect", "stage", "start", "run", "end"]),
        ((None, None, None, None, 5.0, 5.5), ["connect", "end"]),
        ((0.4, None, None, None, None, None), ["connect", "start"]),
        ((0.4, None, 0.5, None, 0.7, 0.9), ["connect", "start", "run", "end"]),
    ],
)
def test_phases_of_attempts(times: tuple[float | None, ...], expected: list[str]) -> None:
    assert [name for name, _, _ in RecordedAttempt(1, 0.0, *times, None, ()).phases(10.0)] == expected  # type: ignore[arg-type]
