"""--hang-timeout, --on-hang and --stacks-on: values, and dialects and backends that take them or refuse them."""

from __future__ import annotations

import pytest
from command_lines import parse, parse_msrun

from mslaunch.backends.openmpi.translate_options import refuse
from mslaunch.cli.parser.readers import Expected
from mslaunch.datamodel.request import HangPolicy
from mslaunch.errors import UsageError


@pytest.mark.parametrize(
    ("line", "hang", "stacks_on"),
    [
        ("", HangPolicy(), ("hang",)),
        ("--hang-timeout 90", HangPolicy(90.0), ("hang",)),
        ("--hang-timeout 0.5 --on-hang Report", HangPolicy(0.5, "report"), ("hang",)),
        ("--on-hang restart --hang-timeout 1", HangPolicy(1.0, "restart"), ("hang",)),
        ("--stacks-on failure", HangPolicy(), ("failure",)),
        ("--stacks-on hang,failure,timeout", HangPolicy(), ("timeout", "failure", "hang")),
        ("--stacks-on none", HangPolicy(), ()),
    ],
)
def test_values(line, hang, stacks_on):
    request = parse([*line.split(), "a"], {})
    assert (request.hang, request.stacks_on) == (hang, stacks_on)


@pytest.mark.parametrize(
    "line",
    ["--hang-timeout 0", "--hang-timeout -1", "--hang-timeout x", "--on-hang kill", "--stacks-on x",
     "--stacks-on none,hang", "--stacks-on ,"],
)  # fmt: skip
def test_what_is_no_value(line):
    with pytest.raises((UsageError, Expected)):
        parse([*line.split(), "a"], {})


def test_msrun_takes_them():
    request = parse_msrun(["--worker_num=2", "--hang-timeout", "60", "--stacks-on", "failure", "net.py"], {})
    assert (request.hang.seconds, request.stacks_on) == (60.0, ("failure",))


@pytest.mark.parametrize("line", ["--hang-timeout 5", "--on-hang report", "--stacks-on failure", "--stacks-on none"])
def test_the_backend_refuses_them(line):
    request = parse([*line.split(), "a"], {})
    with pytest.raises(UsageError) as error:
        refuse(request)
    assert error.value.where == line.split()[0]


def test_a_file_of_progress_is_of_use_to_a_watch_alone():
    assert parse(["--progress-file", "p", "--hang-timeout", "5", "a"], {}).notes == ()
    (note,) = parse(["--progress-file", "p", "a"], {}).notes
    assert note == "--progress-file has no effect: it is for --restart group, or for --hang-timeout"
