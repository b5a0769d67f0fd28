"""Events as JSON: which there are, and that no value of -x is in one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.datamodel.outcome import Failure, Outcome
from mslaunch.errors import LaunchError
from mslaunch.launcher import observers
from mslaunch.launcher.monitoring.event_texts import EVENTS, EventTexts, SecretValues, json_text, time_text

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[4] / "docs" / "events.schema.json").read_text(encoding="utf-8"))
)
#: values that are words of the format, too
FORMAT = ("failed", "event", "output", "begin", "1970", "null", "1a2b3c4d", "mslaunch", "rank 1", "seconds")


def valid(text: str) -> Any:
    """An event that is one line, and as the schema has it."""
    assert "\n" not in text
    made = json.loads(text)
    SCHEMA.validate(made)
    return made


def event(record: Any, *secrets: str) -> Any:
    made = EventTexts("1a2b3c4d", 1000.0, SecretValues(zip(secrets, secrets))).of(record)
    assert made
    return valid(made[1])


def test_a_time_has_milliseconds_and_is_that_of_utc() -> None:
    assert time_text(1.0625) == "1970-01-01T00:00:01.062Z"


def test_every_record_has_an_event() -> None:
    records = {
        value
        for value in vars(observers).values()
        if isinstance(value, type) and issubclass(value, tuple) and "time" in getattr(value, "_fields", ())
    }
    assert set(EVENTS) == records


def test_nothing_follows_the_end() -> None:
    texts = EventTexts("1a2b3c4d", 0.0, SecretValues(()))
    first = texts.of(observers.LaunchEnded(1.0, Outcome(0, ())))
    assert first and first[0] == "end" and json.loads(first[1])["code"] == 0
    assert texts.of(observers.LaunchRefused(2.0, LaunchError("no"))) is None


def test_the_end_of_a_refused_launch_says_why() -> None:
    said = event(observers.LaunchRefused(0.5, LaunchError("it is not there", "n01", code=127)))
    assert (said["event"], said["code"], said["cause"]["text"]) == ("end", 127, "n01: it is not there")


def test_a_rank_has_its_number_and_a_service_has_none() -> None:
    assert event(observers.RankStarted(0.1, "rank 3", "n01", 77, 3))["rank"] == 3
    assert event(observers.RankStarted(0.1, "the MindSpore scheduler", "n01", 77, -2))["rank"] is None


@settings(deadline=None)
@given(
    st.lists(st.text(min_size=4, max_size=12) | st.sampled_from(FORMAT), min_size=1, max_size=4), st.text(max_size=40)
)
def test_no_value_of_x_is_in_an_event_and_all_are_events_still(values: list[str], text: str) -> None:
    failure = Failure(text + values[0] + text, values[-1], 1, 1, (values[0],))
    secrets = SecretValues((f"V{at}", value) for at, value in enumerate(["…", None, *values]))
    texts, plain = EventTexts("1a2b3c4d", 1000.0, secrets), EventTexts("1a2b3c4d", 1000.0, SecretValues(()))
    blanked = [part for part in values if part.strip("…")]
    told = {"mslaunch": "1", "cwd": values[0], "host": "n01", "pid": 1, "command": ["mslaunch", *values]}
    begin = valid(texts.begin(**told))
    assert (begin["event"], begin["cwd"]) == ("begin", values[0])
    for record in (
        observers.Connected(0.0, (values[0],)),
        observers.AttemptStarted(0.0, 1, 2),
        observers.RankStarted(0.5, values[0], values[-1], 7, 1),
        observers.Waiting(0.6, text + values[0]),
        observers.HangFound(0.7, values[-1] + text),
        observers.JobFailed(0.8, 1, failure),
        observers.RankEnded(0.9, values[0], values[-1], 1, None, False, 1),
        observers.AttemptEnded(1.0, 1, failure),
        observers.Restarting(1.1, 2, failure, text + values[0]),
        observers.LaunchEnded(1.2, Outcome(1, (), failure)),
    ):
        made, bare = texts.of(record), plain.of(record)
        assert made and bare
        event, before = valid(made[1]), valid(bare[1])
        said = [
            *([event["cause"]["text"]] if event.get("cause") else []),
            event.get("text", ""),
            event.get("changed", ""),
        ]
        assert not [value for value in blanked for each in said if value in each]
        for facts in (event, before, event.get("cause") or {}, before.get("cause") or {}):
            for name in ("text", "changed", "cause"):
                facts.pop(name, None)
        assert event == before, "all but sentences is as it was"


def test_hosts_that_are_connected_are_told_of_when_more_have_answered() -> None:
    texts = EventTexts("1a2b3c4d", 1000.0, SecretValues(()))
    records = [(0, False), (0, False), (1, False), (1, False), (1, True), (0, False)]
    told = [texts.of(observers.Connecting(float(at), answered, 2, over)) for at, (answered, over) in enumerate(records)]
    assert [event is not None for event in told] == [True, False, True, False, True, True]


VALUES = st.recursive(
    st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(VALUES)
def test_json_has_the_value_and_nothing_that_acts_on_a_terminal(value: Any) -> None:
    for indent in (None, 1):
        text = json_text(value, indent)
        assert json.loads(text.encode("utf-8")) == value
        assert all(char.isprintable() or (indent and char == "\n") for char in text)


@pytest.mark.parametrize("char", ["\x7f", "\x80", "\x9b", "\x9d", "\u202e", "\u2028", "\u200b", "\ud800", "\U000e0001"])
def test_what_is_not_printable_is_escaped(char: str) -> None:
    text = json_text({"text": f"é{char}"})
    assert text.isprintable() and text.startswith('{"text": "é\\u')
    assert json.loads(text) == {"text": f"é{char}"}


def test_many_odd_characters_take_no_long_time() -> None:
    text = "".join(map(chr, range(0x80, 0x11_0000))) * 2
    began = time.process_time()
    json_text([text])
    assert time.process_time() - began < 20, "two on a machine that is not slow"
