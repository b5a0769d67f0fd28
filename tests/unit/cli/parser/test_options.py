"""The parser that all dialects share, with a small table of the tests."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.cli import unknown_options
from mslaunch.cli.parser import options, readers
from mslaunch.cli.parser.options import (
    REFUSED,
    Index,
    Option,
    ParsedLine,
    Program,
    UnknownOptionError,
    Variable,
    assemble,
)
from mslaunch.cli.parser.readers import Expected
from mslaunch.datamodel.request import AppContext, Policy, Request
from mslaunch.errors import LaunchError, UsageError

TABLE = (
    Option(("n", "np"), "N", "ranks", "run", "app.np", readers.count),
    Option(("H", "host"), "LIST", "hosts", "run", "app.hosts+", readers.texts),
    Option(("f", "file"), "FILE", "a file", "run", "app.hostfile", readers.text, once=True),
    Option(("w", "wait"), "SECONDS", "a time", "run", "timeout", readers.limit),
    Option(("pair",), "KEY VALUE", "two words", "run", "mca+", lambda key, value: ((key, value),)),
    Option(("q", "quiet"), "", "hush", "say", "quiet", readers.on),
    Option(("v",), "", "talk", "say", "verbose", readers.on),
    Option(("by-node",), "", "two fields", "say", "", lambda: [("policy.map_by", "node"), ("policy.pe", 1)]),
    Option(("old", "o"), "", "nothing needs it; use --new", "later", status=REFUSED),
)
INDEX = Index(TABLE)


def scan(words: list[str], index: Index = INDEX) -> ParsedLine:
    return options.parse_line(index, [words])


def argv(words: list[str], index: Index = INDEX) -> tuple[str, ...]:
    (program,) = scan(words, index).programs
    return program.argv


def settings(line: str) -> dict[str, list[object]]:
    """The value of each field, of the job and of its program."""
    found = scan(line.split())
    (program,) = found.programs
    return {path: [one.value for one in given] for path, given in {**found.job, **program.settings}.items()}


def refusal(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        scan(list(words))
    return unknown_options.refusal(caught.value) if isinstance(caught.value, UnknownOptionError) else caught.value


@pytest.mark.parametrize("line", ["-n 2", "--n 2", "-np 2", "--np 2", "-n=2", "--np=2"])
def test_a_name_takes_one_dash_or_two_and_a_blank_or_an_equals_sign(line):
    assert settings(line) == {"app.np": [2]}


def test_options_end_at_the_first_word_that_is_no_option():
    line = scan(["-q", "prog", "-n", "2"])
    assert line.programs == [Program(("prog", "-n", "2"), {})] and list(line.job) == ["quiet"]


def test_each_setting_is_known_by_the_option_as_it_was_written():
    line = scan(["--by-node", "-qv", "-np", "2"])
    sources = {path: [one.source for one in given] for path, given in line.job.items()}
    assert sources == {"policy.map_by": ["--by-node"], "policy.pe": ["--by-node"], "quiet": ["-q"], "verbose": ["-v"]}
    assert line.programs[0].settings["app.np"][0].source == "-np"


def test_rare_rows_are_loaded_once_and_on_demand():
    fetched = []

    def more():
        fetched.append(1)
        return TABLE[1:]

    index = Index(TABLE[:1], more)
    assert argv(["-n", "1", "prog"], index) == ("prog",)
    assert argv(["-np", "1", "--", "-q"], index) == ("-q",)
    assert fetched == []
    assert list(scan(["-qv", "-n", "1"], index).job) == ["quiet", "verbose"]
    with pytest.raises(UsageError, match="no such option"):
        scan(["--none"], index)
    assert fetched == [1]
    assert set(index) == set(INDEX)


@pytest.mark.parametrize(
    ("word", "todo"),
    [
        ("-Hnode1", "write -H node1"),
        ("-HNode1", "write -H Node1"),
        ("-H/x", "write -H /x"),
        ("--HNode", None),
        ("-qX", None),
        ("-qPATH", None),
    ],
)
def test_a_value_glued_to_a_letter_is_recognised(word, todo):
    error = refusal(word, "prog")
    assert (error.todo == todo) if todo else error.what == "mslaunch has no such option"


@pytest.mark.parametrize(("word", "near"), [("-NP", "--np"), ("--Quiet", "--quiet"), ("--HOST", "--host")])
def test_the_nearest_name_is_found_in_any_case(word, near):
    assert refusal(word).todo.startswith(f"did you mean {near}?")


@pytest.mark.parametrize("dash", ["\u2013", "\u2014", "\u2212"])
def test_a_typographic_dash_is_reported(dash):
    error = refusal(f"{dash}np", "4", "prog")
    assert error.where == f"{dash}np" and error.todo == "write --np"
    assert argv(["--", f"{dash}np"]) == (f"{dash}np",)
    assert argv(["é"]) == ("é",)


@pytest.mark.parametrize(
    ("word", "why", "todo"),
    [
        ("-iface", "mpiexec.hydra", "--dialect hydra"),
        ("--worker_num", "msrun", "--dialect msrun"),
        ("--bind-to", "mpirun", "--dialect mpirun"),
        ("--man", "first word", "write mslaunch --man"),
    ],
)
def test_an_option_of_another_launcher_is_recognised(word, why, todo):
    error = refusal(word, "prog")
    assert why in error.what and todo in error.todo


def test_a_long_help_is_not_quoted_in_a_refusal():
    row = Option(("long",), "WORD", "x" * 200, "run", "stdin", readers.text)
    with pytest.raises(UsageError) as caught:
        scan(["--long"], Index([row]))
    assert caught.value.todo == "write --long WORD"


def test_options_end_at_two_dashes():
    assert argv(["-q", "--", "-n", "--", "2"]) == ("-n", "--", "2")


def test_flags_of_one_letter_share_a_dash():
    assert settings("-qv") == {"quiet": [True], "verbose": [True]}


@pytest.mark.parametrize("word", ["-", "---q", "-qx", "-qn", "-qo", "--qv", "-Q", "--=x", "-=", "--quie"])
def test_an_unknown_option_is_refused(word):
    assert refusal(word, "prog").where == word.partition("=")[0]


def test_the_nearest_option_is_suggested():
    assert "did you mean --quiet?" in refusal("--qiet").todo


def test_a_refused_option_is_never_suggested():
    assert "old" not in refusal("--odl").todo


@pytest.mark.parametrize(("word", "better"), [("-n2", "-n 2"), ("-np16", "-np 16"), ("--np4", "--np 4")])
def test_a_glued_value_is_refused_with_the_way_to_write_it(word, better):
    assert refusal(word, "prog").todo == f"write {better}"


def test_a_refused_option_says_what_to_do():
    error = refusal("--old", "prog")
    assert (error.where, error.what) == ("--old", "mslaunch does not have this option: nothing needs it")
    assert error.todo == "use --new"


@pytest.mark.parametrize("words", [("-n",), ("-n", "-q"), ("-n", "--"), ("--pair",), ("--pair", "a")])
def test_a_missing_value_is_named_with_its_option(words):
    error = refusal(*words)
    assert error.where == words[0]
    assert "is missing" in error.what


def test_a_value_after_an_equals_sign_may_look_like_an_option():
    assert settings("--host=-q") == {"app.hosts+": [("-q",)]}


def test_a_value_that_is_no_option_may_begin_with_a_dash():
    assert settings("-w -1") == {"timeout": [None]}


@pytest.mark.parametrize("words", [("-q=1",), ("--pair=a", "b")])
def test_an_equals_sign_is_for_options_of_one_value(words):
    assert refusal(*words).where == words[0].partition("=")[0]


def test_errors_of_readers_name_option_word_and_expectation():
    error = refusal("--np", "3.5", "prog")
    assert error.where == "--np"
    assert error.what == "expected a whole number, 1 or more, got '3.5'"


def test_an_option_allowed_once_counts_under_all_its_names():
    assert refusal("-f", "a", "--file", "b").where == "--file"


def test_settings_without_a_path_come_from_the_reader():
    assert settings("--by-node") == {"policy.map_by": ["node"], "policy.pe": [1]}


def test_the_last_setting_of_a_field_counts_and_those_that_collect_are_joined():
    weaker = ParsedLine([("a", 1), ("b+", (1,)), ("own.c", 3)])
    line = ParsedLine([("a", 2), ("b+", (2, 3))]).over(weaker)
    assert line.job.records() == {"": {"a": 2, "b": (1, 2, 3)}, "own": {"c": 3}}
    assert weaker.job.records()[""] == {"a": 1, "b": (1,)}, "the weaker line is as it was"


def test_programs_are_divided_at_lone_colons_and_empty_ones_dropped():
    parts = options.split_at_colons([":", "-n", "1", "a:b", ": ", ":", ":", "b", ":"])
    assert [program.argv for program in options.parse_line(INDEX, parts).programs] == [("a:b", ": "), ("b",)]


@pytest.mark.parametrize("words", [[], [":"], ["--"], ["-q"], ["-n", "2", "--"], ["a", ":", "-n", "1"]])
def test_no_program_is_an_error_with_an_example(words):
    with pytest.raises(UsageError, match="no program was given") as caught:
        options.require_programs(options.parse_line(INDEX, options.split_at_colons(words)).programs, ":" in words)
    assert "mslaunch -n 4" in caught.value.todo


def test_settings_of_apps_and_job_override_weaker_ones():
    line = options.parse_line(INDEX, [["-n", "1", "-q", "a"], ["-H", "x", "-H", "y", "-w", "3", "b"]])
    weaker = ParsedLine([("timeout", 9.0), ("policy.oversubscribe", True), ("app.np", 7)])
    assert assemble(line.over(weaker)) == Request(
        (AppContext(("a",), 1), AppContext(("b",), 7, hosts=("x", "y"))),
        Policy(oversubscribe=True),
        timeout=3.0,
        quiet=True,
    )


def test_records_of_the_table_are_plain_tuples():
    assert Variable("A", "b", readers.text, "c")[0] == "A"


@pytest.mark.parametrize(
    ("read", "word", "value"),
    [
        (readers.count, "1", 1),
        (readers.count, "007", 7),
        (readers.count, "999999999", 999999999),
        (readers.limit, "1.5", 1.5),
        (readers.limit, "0", None),
        (readers.limit, "-3", None),
        (readers.span, "0", 0.0),
        (readers.wait, "1e-3", 0.001),
        (readers.yes_no, "TRUE", True),
        (readers.yes_no, "0", False),
        (readers.choice("a", "b"), "B", "b"),
        (readers.shell_words, "", ()),
        (readers.shell_words, " ssh  -p 22 ", ("ssh", "-p", "22")),
        (readers.shell_words, "ssh -o 'A B' \"\" c\\ d", ("ssh", "-o", "A B", "", "c d")),
        (readers.shell_words, "a #b;$c", ("a", "#b;$c")),
    ],
)
def test_readers_accept(read, word, value):
    assert read(word) == value


@pytest.mark.parametrize(
    ("read", "word"),
    [
        *(
            (readers.count, word)
            for word in ["", "0", "-1", "+1", "1.0", "x", " 1", "1_0", "²", "٣", "1" * 10, "9" * 5000]
        ),
        *((readers.number, word) for word in ["", "x", "nan", "inf", "-inf", "1e9", "1_0", "1s", "٣", "1e999"]),
        (readers.span, "-1"),
        (readers.wait, "0"),
        (readers.yes_no, ""),
        (readers.yes_no, "2"),
        (readers.choice("a", "b"), ""),
        (readers.text, ""),
        (readers.texts, ""),
        (readers.shell_words, "'a"),
        (readers.shell_words, "a\\"),
    ],
)
def test_readers_refuse_bad_values(read, word):
    with pytest.raises(Expected):
        read(word)


@given(st.lists(st.text()))
def test_shell_words_undoes_the_shell_s_quoting(words):
    assert readers.shell_words(" ".join(map(shlex.quote, words))) == tuple(words)


WORDS = st.one_of(
    st.sampled_from([f"{dash}{name}" for name in INDEX for dash in ("-", "--")] + [":", "--", "1", "x", "-qv", "-n2"]),
    st.text(max_size=6),
    st.text(max_size=6).map("-".__add__),
)


@given(st.lists(WORDS, max_size=12))
def test_any_arguments_are_read_or_refused_and_programs_unchanged(words):
    try:
        line = options.parse_line(INDEX, options.split_at_colons(words))
    except LaunchError as error:
        assert error.what
        return
    parts = shlex.join(words)
    for program in line.programs:
        assert shlex.join(program.argv) in parts
