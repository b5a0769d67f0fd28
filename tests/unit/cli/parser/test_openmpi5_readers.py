"""Options of Open MPI 5.0 that take lists of words: --output, --display, --runtime-options."""

from __future__ import annotations

import pytest
from command_lines import parse
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.cli.parser import openmpi5_readers, readers
from mslaunch.cli.parser.readers import Expected
from mslaunch.datamodel.request import AppContext, OutputPolicy, Request
from mslaunch.errors import UsageError

PROG = AppContext(("prog",))


def job(**fields: object) -> Request:
    return Request((PROG,), **fields)


def refusal(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse([*words, "prog"], {})
    assert caught.value.where == words[0]
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("tag", OutputPolicy(tag="tag")),
        ("TAG-D", OutputPolicy(tag="detailed")),
        ("tag-fullname,timestamp", OutputPolicy(tag="fullname", timestamp=True)),
        ("rank", OutputPolicy(tag="rank")),
        ("xml", OutputPolicy(xml=True)),
        ("merge,raw", OutputPolicy(merge=True)),
        ("dir=a/b:nocopy", OutputPolicy(directory="a/b", copy=False)),
        ("dir=a:copy", OutputPolicy(directory="a")),
        ("tag,file=o:copy,nojobid", OutputPolicy(tag="tag", file="o", jobid=False)),
    ],
)
def test_output_is_read(word, expected):
    assert parse(["--output", word, "prog"], {}) == job(output=expected._replace(style="5.0"))


@pytest.mark.parametrize(
    ("word", "phrase"),
    [
        ("", "names among tag"),
        ("tg", "did you mean tag?"),
        ("t", "names among tag"),  # tag or timestamp
        ("dir", "--output dir=PATH"),
        ("dir=", "not empty"),
        ("tag=1", "tag without a value"),
        ("file=o:pattern", "without a pattern"),
    ],
)
def test_output_refuses_bad_words(word, phrase):
    assert phrase in refusal("--output", word)


@pytest.mark.parametrize(
    ("word", "request_"),
    [
        ("map", job(display_map="map")),
        ("MAP-D,map", job(display_map="devel")),
        ("map:parseable", job(display_map="diffable")),
        ("all,bind,topo", job(display_allocation=True, report_bindings=True, display_topology=True)),
    ],
)
def test_display_is_read(word, request_):
    assert parse(["--display", word, "prog"], {}) == request_


@pytest.mark.parametrize(
    ("word", "phrase"),
    [
        ("mpa", "did you mean map?"),
        ("parseable", "map:parseable"),
        ("topo=a;b", "every host"),
        ("proctable", "map"),
    ],
)
def test_display_refuses_bad_words(word, phrase):
    assert phrase in refusal("--display", word)


@pytest.mark.parametrize(
    ("word", "request_"),
    [
        ("error-nonzero-status=0", job(abort_on_failure=False)),
        ("ERROR-NONZERO=F,donot", None),
        ("abort-nonzero", job()),
        ("donotlaunch", job(do_not_launch=True)),
        ("show-progress", job(verbose=True)),
        ("recoverable", job(recovery=True)),
        ("continuous,recover=0", job()),
        ("autorestart,max-restarts=2", job(recovery=True, max_restarts=2)),
        (
            "timeout=9,report-state,get-stack",
            job(timeout=9.0, timeout_from="--runtime-options timeout", state_on_timeout=True, stack_traces=True),
        ),
        ("report-child,aggregate=no", job()),
        ("fwd-env", Request((PROG._replace(env=(("*", None),)),))),
        ("fwd-environment=0", job()),
        ("timeout=01:02:03", job(timeout=3723.0, timeout_from="--runtime-options timeout")),
        ("timeout=2:0:0:0", job(timeout=172800.0, timeout_from="--runtime-options timeout")),
        ("spawn-timeout=7", job(link=job().link._replace(timeout=7.0))),
    ],
)
def test_runtime_options_are_read(word, request_):
    words = ["--runtime-options", word, "prog"]
    if request_ is None:  # donotlaunch or donotspawn
        with pytest.raises(UsageError):
            parse(words, {})
    else:
        assert parse(words, {}) == request_


@pytest.mark.parametrize(
    ("word", "phrase"),
    [
        ("recovreable", "did you mean recoverable?"),
        ("recoverable=maybe", "1 or 0"),
        ("max-restarts", "max-restarts=N"),
        ("timeout=1:2:3:4:5", "DAYS:HOURS"),
        ("timeout=soon", "seconds"),
        *((name, instead) for name, instead in openmpi5_readers._NOT_HERE.items()),
    ],
)
def test_runtime_options_refuses_bad_words(word, phrase):
    assert phrase in refusal("--runtime-options", word)


@given(
    st.text(max_size=12)
    | st.lists(st.sampled_from(["tag", "map", "dir", "time", "out", "=", ",", ":", "1", "x", "-"]), max_size=6).map(
        "".join
    )
)
def test_any_text_is_read_or_refused(word):
    for read in (
        openmpi5_readers.output,
        openmpi5_readers.display,
        openmpi5_readers.runtime_options,
        openmpi5_readers.xterm,
        openmpi5_readers.signals,
        readers.count_or_zero,
    ):
        try:
            read(word)
        except Expected as error:
            assert error.what
