"""Completion in the real shells, and the man page under the real man."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from launching import ROOT

from mslaunch.cli import completion, help_text, manpage
from mslaunch.cli.dialects import ACTIONS, SHELLS
from mslaunch.cli.parser.options import REFUSED

ROWS = [row for row in help_text.documentation("mpirun").table if row.status != REFUSED]

#: a line up to the cursor -> some of what must be offered, and what must not
CASES = [
    ("mslaunch --outp", {"--output-filename"}, {"--np"}),
    ("mpirun -n 4 --display-m", {"--display-map"}, {"--np"}),
    ("mslaunch -n 4 --display-m", {"--display-map"}, set()),
    ("mslaunch --mca btl tcp --display-m", {"--display-map"}, set()),
    ("mslaunch --pty ", {"auto", "yes", "no"}, {"maybe"}),
    ("mslaunch --map-by so", {"socket"}, {"node"}),
    ("mslaunch --bind-to no", {"none"}, {"core"}),
    ("mslaunch --dialect h", {"hydra"}, {"msrun"}),
    ("mslaunch --help pla", {"placement"}, {"hosts"}),
    ("mslaunch --worker_n", {"--worker_num"}, {"--worker_log_name"}),
    ("mslaunch --worker_num=2 --join T", {"True"}, {"False"}),
    ("mslaunch -n 4 myprog --outp", set(), {"--output-filename"}),
    ("mslaunch -n 4 myprog : --outp", {"--output-filename"}, set()),
    ("mslaunch -H a:2,b --hostfile=x --display-m", {"--display-map"}, set()),
    ("mslaunch -n 2 mypro", {"myprog"}, {"other"}),
    ("mslaunch --hostfile my", {"myhosts"}, set()),
]


@pytest.fixture
def shell(need, tmp_path):
    """`shell(name, options, script, words…)` runs a script in a directory that has our completion as a file."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "myprog").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "myprog").chmod(0o755)
    (tmp_path / "myhosts").write_text("")
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "LANG": "C.UTF-8", "TERM": "dumb"}

    def call(name, options, script, *words):
        path = need(name)
        (tmp_path / "completion").write_text(completion.script(name))
        done = subprocess.run(
            [path, *options, "-c", script, *words], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return call


BASH = """\
. ./completion
line=$1
read -ra COMP_WORDS <<<"$line"
[[ $line == *' ' ]] && COMP_WORDS+=("")
COMP_LINE=$line COMP_POINT=${#line} COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_mslaunch mslaunch "${COMP_WORDS[COMP_CWORD]}" ""
printf '%s\\n' "${COMPREPLY[@]}"
complete -p "${COMP_WORDS[0]}"
"""


@pytest.mark.parametrize(("line", "offered", "hidden"), CASES, ids=[case[0] for case in CASES])
def test_bash(shell, line, offered, hidden):
    *found, registered = shell("bash", ["--norc"], BASH, "bash", line).splitlines()
    assert registered == f"complete -o bashdefault -o default -F _mslaunch {line.split()[0]}"
    if "myhosts" in offered:
        assert found == [""], "files are left to bash, which the last line asked for"
    else:
        assert offered <= set(found) and not hidden & set(found)


def test_bash_takes_a_value_behind_an_equals_sign_and_one_dash(shell):
    assert shell("bash", ["--norc"], BASH, "bash", "mslaunch --pty=a").splitlines()[:-1] == ["auto"]
    assert "-output-filename" in shell("bash", ["--norc"], BASH, "bash", "mslaunch -outp").splitlines()


@pytest.mark.parametrize(("line", "offered", "hidden"), CASES, ids=[case[0] for case in CASES])
def test_fish(shell, line, offered, hidden):
    script = ". ./completion; complete -C $argv[1]"
    found = {row.partition("\t")[0] for row in shell("fish", ["--no-config"], script, line).splitlines()}
    assert offered <= found and not hidden & found


#: a shell in a terminal of its own, since zsh completes nowhere else; it lists what there is and leaves
ZSH = """\
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT=; stty cols 500 rows 500; autoload -Uz compinit; compinit -u -D; . ./completion'
zpty -w shell 'show() { print -r -- "<$BUFFER>"; }; zle -N show; bindkey "^X" show'
zpty -w shell 'print -r -- be''gin'
zpty -r -m shell text '*begin*'
zpty -w -n shell "$1"$'\\t\\t\\x18'
zpty -r -m shell text "*$2*" && print found
"""


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("mslaunch --outp", "output-filename"),
        ("mpirun -n 4 --display-m", "display-map"),
        ("mslaunch -n 4 --display-m", "display-map"),
        ("mslaunch --mca btl tcp --display-al", "display-allocation"),
        ("mslaunch --pty ", "auto"),
        ("mslaunch --map-by so", "socket"),
        ("mslaunch --help pla", "placement"),
        ("mslaunch -n 2 mypro", "myprog"),
        ("mslaunch --hostfile my", "myhosts"),
    ],
)
@pytest.mark.limit(60)
def test_zsh(shell, line, word):
    assert shell("zsh", ["-f"], ZSH, "zsh", line, word) == "found\n"


@pytest.mark.parametrize("name", SHELLS)
def test_every_option_is_in_every_script(name, need):
    text = completion.script(name)
    for row in ROWS:
        for one in row.names:
            assert one in text
    subprocess.run([need(name), "-n"], input=text, text=True, check=True, timeout=60)


def test_the_command_prints_them():
    for words, text in ((["--completion", "fish"], completion.script("fish")), (["--man"], manpage.page())):
        done = subprocess.run(
            [sys.executable, "-m", "mslaunch", *words], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            timeout=60, check=True,
        )  # fmt: skip
        assert done.stdout.rstrip("\n") == text.rstrip("\n")


# --- the man page


def test_the_man_page_has_every_option():
    page = manpage.page().replace("\\-", "-")
    for row in (*ROWS, *ACTIONS):
        for one in row.names:
            assert f"-{one}" in page
    for variable in help_text.documentation("mpirun").variables:
        assert variable.name in page


@pytest.mark.parametrize(
    "command",
    [["man", "-l", "--warnings=all", "-E", "UTF-8"], ["groff", "-ww", "-man", "-K", "utf8", "-Tutf8"]],
    ids=["man", "groff"],
)
def test_the_man_page_is_shown_without_a_warning(need, tmp_path, command):
    need(command[0])
    (tmp_path / "mslaunch.1").write_text(manpage.page(), encoding="utf-8")
    done = subprocess.run(
        [*command, "mslaunch.1"], cwd=tmp_path, env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    shown = done.stdout.split()
    assert "--output-filename" in {word.strip(",") for word in shown} or "--output-filename" in done.stdout


@pytest.mark.parametrize("text", [".so /etc/passwd", "'ab", "a\\fB\n.b", "--np"])
def test_roff_sees_no_request_in_a_text(text):
    made = manpage._text(text)
    assert not any(line[:1] in (".", "'") for line in made.splitlines())
    assert made.replace("\\&", "").replace("\\(aq", "'").replace("\\-", "-").replace("\\e", "\\") == text
