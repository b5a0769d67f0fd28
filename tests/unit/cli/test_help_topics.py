"""--help: the screen, topics, single options, and words that are neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_lines import parse
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.cli import help_text, help_topics
from mslaunch.cli.dialects import ACTIONS, NAMES, by_name
from mslaunch.cli.help_topics import TOPICS, members
from mslaunch.cli.parser.options import REFUSED, Show, spelled
from mslaunch.errors import UsageError

ROOT = Path(__file__).parents[3]
ABOUT = {name: by_name(name).load().describe() for name in NAMES}
#: what mpirun 4.1.4 calls categories, in its --help
CATEGORIES = [
    "general",
    "debug",
    "output",
    "input",
    "mapping",
    "ranking",
    "binding",
    "devel",
    "compatibility",
    "launch",
    "dvm",
    "unsupported",
    "all",
]


def shown(*words, dialect="mpirun", called="mslaunch"):
    with pytest.raises(Show) as caught:
        parse(["--dialect", dialect, *words], {}, called)
    assert caught.value.code == 0
    return caught.value.text


@pytest.mark.parametrize("dialect", NAMES)
def test_without_a_topic_it_is_a_screen(dialect):
    text = shown("--help", dialect=dialect)
    lines = text.splitlines()
    assert text == shown("-h", dialect=dialect)
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert lines[0].startswith("Usage: ") and "--help TOPIC" in text
    assert set(help_topics.words()) <= set(text.partition("Topics:")[2].replace(",", " ").split())
    assert 10 <= len(ABOUT[dialect].everyday) <= 14
    assert not any(line.endswith("…") for line in lines) or dialect == "hydra"
    for _, command in ABOUT[dialect].examples[:1]:
        assert f"  {command}" in lines


@pytest.mark.parametrize("dialect", NAMES)
def test_all_is_the_whole_text(dialect):
    assert shown("--help", "all", dialect=dialect) == help_text.help_text(help_text.documentation(dialect), 80)


@pytest.mark.parametrize("name", [topic.name for topic in TOPICS])
def test_a_topic_has_its_options_and_a_page(name):
    topic = next(topic for topic in TOPICS if topic.name == name)
    text = shown("--help", name)
    rows = members(ABOUT["mpirun"], topic, True)
    assert rows or topic.parameters or topic.variables
    squeezed = " ".join(text.split())
    for row in rows:
        assert help_text.names_of(row) in squeezed and " ".join(row.help.split()) in squeezed
    assert (ROOT / "docs" / topic.page).is_file() and text.endswith(f"More: docs/{topic.page}")
    assert max(map(len, text.splitlines())) <= 80
    for alias in topic.aliases.split():
        assert shown("--help", alias) == text


@pytest.mark.parametrize("dialect", NAMES)
def test_every_option_belongs_to_a_topic(dialect):
    about = ABOUT[dialect]
    own = dialect == "mpirun"
    found = {row.names for topic in TOPICS for row in members(about, topic, own)}
    missing = {row.names for row in (*about.table, *(ACTIONS if own else ())) if row.status != REFUSED} - found
    assert missing == set()


def test_names_in_topics_exist_and_words_are_unambiguous():
    names = {row.names[0] for about in ABOUT.values() for row in about.table} | {row.names[0] for row in ACTIONS}
    groups = {row.group for about in ABOUT.values() for row in about.table}
    for topic in TOPICS:
        assert set(topic.options.split()) <= names, topic.name
        assert set(topic.groups) <= groups, topic.name
    words = [word for topic in TOPICS for word in (topic.name, *topic.aliases.split())]
    assert len(words) == len(set(words)) and not set(words) & {*NAMES, "all"}


def test_what_shows_a_job_is_found_from_the_screen():
    screen, jobs = shown("--help"), shown("--help", "jobs")
    assert all(f"--{name}" in screen for name in ("check", "top", "logs", "report"))
    for name in ("detach", "status", "stop", "top", "stacks", "logs", "rerun"):
        assert f"\n  --{name}" in jobs
    assert "\n  --report" in shown("--help", "monitoring")


@pytest.mark.parametrize("word", CATEGORIES)
def test_the_categories_of_mpirun_are_topics(word):
    assert len(shown("--help", word, called="mpirun").splitlines()) > 5


@pytest.mark.parametrize("dialect", NAMES)
def test_every_option_can_be_asked_for(dialect):
    for row in ABOUT[dialect].table:
        for name in row.names:
            text = " ".join(shown("--help", spelled(name), dialect=dialect).split())
            if row.status == REFUSED:
                assert row.help.partition("; ")[0] in text
            else:
                assert help_text.names_of(row) in text and " ".join(row.help.split()) in text


def test_a_refused_option_says_what_to_use_instead():
    text = shown("--help", "launch-agent")
    assert "mslaunch does not have it" in text and "--agent-python" in text


def test_parameters_variables_actions_and_other_dialects_are_known():
    assert "MSLAUNCH_GRACE" in shown("--help", "MSLAUNCH_GRACE")
    name = ABOUT["mpirun"].parameters[0].name
    assert name in shown("--help", name)
    assert "--install-shims DIR" in shown("--help", "install-shims")
    assert "It is an option of msrun." in shown("--help", "worker_num")
    assert shown("--help", "torchrun") == shown("--help", dialect="torchrun")


@pytest.mark.parametrize(
    ("words", "like"),
    [
        (["--help=map-by"], ["--help", "map-by"]),
        (["-help", "map-by"], ["--help", "map-by"]),
        (["-h", "map-by"], ["--help", "map-by"]),
        (["-qh", "map-by"], ["--help", "map-by"]),
        (["--help", "--map-by"], ["--help", "map-by"]),
        (["--help", "-n", "4", "python"], ["--help"]),
        (["-q", "-h", "--foo"], ["--help"]),
        (["--help", "hosts", "-n", "4"], ["--help", "hosts"]),
        (["-n", "4", "--help", "hosts"], ["--help", "hosts"]),
    ],
)
def test_the_topic_is_the_next_word(words, like):
    assert shown(*words) == shown(*like)


def test_where_topic_and_option_have_one_name_dashes_mean_the_option():
    assert shown("--help", "output") != shown("--help", "--output")
    assert shown("--help", "--output").startswith("  --output LIST")
    assert "docs/output.md" in shown("--help", "output")


@pytest.mark.parametrize("called", ["mslaunch", "mpirun", "mpiexec.hydra", "msrun", "torchrun"])
def test_an_unknown_topic_is_told_all_topics_once(called):
    with pytest.raises(UsageError) as caught:
        parse(["--help", "placment"], {}, called)
    text = str(caught.value)
    assert text.splitlines()[:2] == [
        "--help: there is no topic and no option 'placment'", "  did you mean placement?"
    ]  # fmt: skip
    assert caught.value.code == 1
    assert all(word in text.partition("the topics are")[2] for word in help_topics.words())
    assert max(map(len, text.splitlines())) <= 80


@given(st.text(max_size=12), st.sampled_from(NAMES))
def test_any_word_gives_a_text_or_one_refusal(word, dialect):
    try:
        assert help_topics.text(dialect, word)
    except UsageError as error:
        assert error.where == "--help" and error.todo
