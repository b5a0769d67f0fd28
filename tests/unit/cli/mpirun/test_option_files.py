"""Files with options: mca-params.conf, those of --tune and -am, and appfiles; and their precedence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.cli.main import parse
from mslaunch.cli.mpirun.parse import SYSTEM_FILE, USER_FILE
from mslaunch.datamodel.request import AppContext, OutputPolicy, Policy, Request
from mslaunch.errors import LaunchError, UsageError

HOME = {"HOME": "/home/u"}
USER = f"/home/u/{USER_FILE}"


def request(words: str, files: dict[str, str], environ: dict[str, str] = HOME) -> Request:
    def read_text(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return files[path]

    return parse(words.split(), environ, read_text)


def refusal(words: str, files: dict[str, str]) -> UsageError:
    with pytest.raises(UsageError) as caught:
        request(words, files)
    return caught.value


def test_files_of_system_and_user_set_launch_parameters():
    text = "# mine\n\n rmaps_base_mapping_policy =  node \norte_tag_output=1\nbtl = ^openib\n"
    expected = Request((AppContext(("a",)),), Policy(map_by="node"), OutputPolicy(tag="tag"))
    assert request("a", {USER: text}) == expected
    assert request("a", {SYSTEM_FILE: text}) == expected
    assert request("a", {USER: text}, {}).policy == Policy()  # nobody's home


def test_a_value_extends_to_the_end_of_the_line():
    error = refusal("a", {USER: "orte_tag_output = 1 # yes\n"})
    assert (error.where, error.what) == (f"{USER}:1: orte_tag_output", "expected 1 or 0, got '1 # yes'")


def test_the_last_of_two_lines_counts():
    assert request("a", {USER: "orte_tag_output = 0\norte_tag_output = 1\n"}).output.tag == "tag"


def test_a_line_without_meaning_is_skipped_and_reported():
    found = request("a", {USER: "garbage here\n= 3\norte_tag_output = 1\n"})
    assert found.output.tag == "tag"
    assert found.notes == (
        f"{USER}:1: ignored, because it is not KEY = VALUE: 'garbage here'",
        f"{USER}:2: ignored, because it is not KEY = VALUE: '= 3'",
    )


#: sources of a parameter, weakest first
LADDER = ("system", "user", "tune", "environment", "mca", "option")


@pytest.mark.parametrize("strongest", range(1, len(LADDER)))
def test_the_stronger_source_counts(strongest):
    key, policies = "rmaps_base_mapping_policy", ("slot", "node", "core", "socket", "numa", "board")
    values = dict(zip(LADDER[: strongest + 1], policies))
    files = {SYSTEM_FILE: f"{key} = {values['system']}", USER: f"{key} = {values.get('user', values['system'])}"}
    environ = dict(HOME)
    words = ["prog"]
    if "environment" in values:
        environ["OMPI_MCA_" + key] = values["environment"]
    if "tune" in values:
        files["t"] = f"-mca {key} {values['tune']}\n"
        words = ["--tune", "t", *words]
    if "mca" in values:
        words = ["-mca", key, values["mca"], *words]
    if "option" in values:
        words = ["--map-by", values["option"], *words]
    assert request(" ".join(words), files, environ).policy.map_by == policies[strongest]


@pytest.mark.parametrize("option", ["--tune", "-tune", "--am", "-am", "--amca", "-mca mca_base_envar_file_prefix"])
def test_tune_files_set_parameters_and_variables(option):
    text = (
        '# c\n-x A=1 -mca btl "tcp,self" --mca orte_tag_output 1\n\n -gmca foo 2\npml = ucx # all\n-x B\n-mca foo 3\n'
    )
    assert request(f"{option} t a", {"t": text}) == Request(
        (AppContext(("a",), env=(("A", "1"), ("B", None))),),
        output=OutputPolicy(tag="tag"),
        mca=(("btl", "tcp,self"), ("foo", "3"), ("pml", "ucx # all")),
    )


def test_the_command_line_wins_over_several_tune_files():
    files = {"t": "-mca foo 1\n-mca bar 1\n-x A=1", "u": "-mca foo 2"}
    found = request("--tune t,u -mca bar 9 -x A=2 a", files)
    assert dict(found.mca) == {"foo": "2", "bar": "9"}
    assert found.apps[0].env == (("A", "1"), ("A", "2"))  # the last one counts


def test_a_variable_wins_over_a_tune_file_for_ranks():
    files = {"t": "-mca foo 1\n-mca bar 1"}
    assert request("--tune t a", files, {"OMPI_MCA_foo": "2"}).mca == (("bar", "1"),)


def test_the_environment_may_name_a_tune_file():
    found = request("a", {"/t": "orte_tag_output = 1\n"}, {"OMPI_MCA_mca_base_envar_file_prefix": "/t"})
    assert found.output.tag == "tag"


@pytest.mark.parametrize(
    ("text", "where", "phrase"),
    [
        ("\ngarbage here\n", "t:2", "cannot read 'garbage'"),
        ("-np 2\n", "t:1", "cannot read '-np'"),
        ("-mca foo\n", "t:1", "a word is missing after -mca"),
        ("-x\n", "t:1", "a word is missing after -x"),
        ("-x =1\n", "t:1", "VAR or VAR=value"),
        ("-mca foo 'a\n", "t:1", "quot"),
        ("-mca a=b 1\n", "t:1", "-mca KEY VALUE"),
        ("-mca orte_tag_output maybe\n", "t:1: -mca orte_tag_output", "1 or 0"),
        ("rmaps_base_mapping_policy = slto\n", "t:1: rmaps_base_mapping_policy", "did you mean slot?"),
    ],
)
def test_a_bad_line_of_a_tune_file_is_refused(text, where, phrase):
    error = refusal("--tune t a", {"t": text})
    assert error.where == where
    assert phrase in str(error)


def test_a_file_that_cannot_be_read_is_refused():
    error = refusal("--tune t a", {})
    assert (error.where, error.what) == ("--tune", "there is no file t")
    assert refusal("--app t", {}).where == "--app"


APPFILE = "# two programs\n-np 1 -x A=1 ./show 'a b' http://h/x#y\n\n// no\n  -n 2 -H a:2 --wdir /d sh -c x : y # end\n"


def test_an_appfile_has_one_program_a_line_and_no_quotes():
    assert request("--app f", {"f": APPFILE}).apps == (
        AppContext(("./show", "'a", "b'", "http://h/x#y"), 1, (("A", "1"),)),
        AppContext(("sh", "-c", "x", ":", "y"), 2, wdir="/d", hosts=("a:2",)),
    )


def test_options_beside_an_appfile():
    files = {"f": "-x A=f ./a\n--display-map ./b\n"}
    found = request("-np 7 -H h -x A=1 -x B=2 --path /p --oversubscribe -mca foo 1 --app f ./x y", files)
    assert found.apps == (
        AppContext(("./a",), env=(("A", "1"), ("B", "2"), ("A", "f")), path="/p"),
        AppContext(("./b",), env=(("A", "1"), ("B", "2")), path="/p"),
    )
    assert (found.policy, found.mca, found.display_map) == (Policy(oversubscribe=True), (("foo", "1"),), "map")
    assert found.notes == ("without effect beside --app: the program ./x, -np, -H; f has them for each program",)


def test_an_appfile_may_stand_alone():
    assert request("--app f", {"f": "./a\n"}) == Request((AppContext(("./a",)),))


@pytest.mark.parametrize(
    ("text", "where", "phrase"),
    [
        ("", "f", "no program"),
        ("# a\n//\n", "f", "no program"),
        ("a\n-np 1\n", "f:2", "no program was given"),
        ("\n-np x a\n", "f:2: -np", "1 or more"),
        ("--foo a\n", "f:1: --foo", "no such option"),
        ("--app g\n", "f:1", "cannot name another"),
        ("--bynode a\n--map-by slot b\n", "--map-by", "contradicts --bynode"),
    ],
)
def test_a_bad_appfile_is_refused(text, where, phrase):
    error = refusal("--app f", {"f": text})
    assert error.where == where
    assert phrase in str(error)


def test_placement_of_command_line_and_appfile_must_agree():
    assert "contradicts" in refusal("--bynode --app f", {"f": "--map-by slot a\n"}).what


def test_a_launch_without_files_tries_to_open_two_and_reads_none():
    tried = []

    def read_text(path: str) -> str:
        tried.append(path)
        raise FileNotFoundError(2, "", path)

    parse(["-n", "2", "prog"], HOME, read_text)
    assert tried == [SYSTEM_FILE, USER]


def test_an_unreadable_default_file_is_ignored():
    assert request("prog", {}) == Request((AppContext(("prog",)),))


TEXTS = st.text(max_size=30) | st.lists(
    st.sampled_from(["-mca", "-x", "A=1", "foo", "=", "1", "\n", " ", "#", "-np", "2", "prog", "orte_tag_output", "'"]),
    max_size=12,
).map(" ".join)


@given(TEXTS)
def test_any_text_is_read_or_refused(text):
    for words in ("--tune f a", "--app f", "a"):
        try:
            found = request(words, {"f": text, USER: text})
        except LaunchError as error:
            assert error.what
            continue
        assert all(app.argv for app in found.apps)
