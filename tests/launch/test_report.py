"""A real launch, its record, and the page that shows it."""

from __future__ import annotations

import json

import jsonschema
import pytest
from launching import ROOT

PROGRAM = "echo $MSLAUNCH_ATTEMPT; test $OMPI_COMM_WORLD_RANK = 1 && exit 3; exec sleep 1000"
SCHEMA = json.loads((ROOT / "docs" / "run.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["rank 1 ended with exit code 3", "exit code 3", "Where ranks ran"]),
        (["--restart", "group", "--max-restarts", "1"], ["Attempt 2", "Restarts", "rank 1 ended with exit code 3"]),
    ],
)
def test_the_record_of_a_launch_fits_its_schema_and_has_a_page(run, tmp_path, options, words):
    done = run(["-n", "2", "--record", str(tmp_path / "record"), *options, "sh", "-c", PROGRAM])
    assert done.code == 3, done
    record = tmp_path / "record" / "run.json"
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(record.read_text()))
    shown = run(["--report", str(record)])
    assert (shown.code, shown.err) == (0, ""), shown
    page = (tmp_path / "record" / "run.html").read_text()
    for word in words:
        assert word in page


def test_a_launch_that_was_refused_has_a_record_and_a_page(run, tmp_path):
    done = run(["-n", "2", "--record", str(tmp_path / "record"), "-H", "localhost:1", "true"])
    assert done.code != 0
    record = tmp_path / "record" / "run.json"
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(record.read_text()))
    shown = run(["--report", str(record), "-o", "-"])
    assert (shown.code, shown.err) == (0, ""), shown
    assert b"slots" in shown.out and b"The record knows of no attempt" in shown.out
