"""Which file is executed, or why none can be."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.node_plan import AppPlan, RankPlan
from mslaunch.errors import LaunchError
from mslaunch.host.programs import (
    check_script,
    check_wdir,
    command,
    explain_spawn,
    find_program,
    is_python,
    script_of,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, mode in {
        "one/tool": 0o755,
        "two/tool": 0o755,
        "one/data": 0o644,
        "two/data": 0o755,
        "one/only": 0o644,
        "here/tool": 0o755,
        "here/mine": 0o755,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "one" / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tool", "one/tool"),  # the first of the PATH
        ("data", "two/data"),  # what cannot be executed is passed over
        ("mine", "here/mine"),  # the working directory comes last
    ],
)
def test_programs_are_found(place: Path, name: str, found: str) -> None:
    assert find_program(name, f"{place}/one:{place}/two", str(place / "here")) == f"{place}/{found}"


@pytest.mark.parametrize("name", ["./tool", "../two/tool"])
def test_a_path_is_taken_from_the_working_directory_and_stays_as_it_is(place: Path, name: str) -> None:
    assert find_program(name, "", str(place / "here")) == name
    with pytest.raises(LaunchError, match="does not exist"):
        find_program(name, "", "/")


def test_directories_of_path_option_come_first(place: Path) -> None:
    """Relative directories of --path count from the working directory of the ranks."""
    app = AppPlan(("tool", "word"), "/", path="two:/nowhere")
    path = str(place / "one")
    assert command(app, RankPlan(3, 0, ()), False, path, str(place))[0] == f"{place}/two/tool"
    assert command(app._replace(path="none"), RankPlan(3, 0, ()), False, path, str(place))[0] == f"{place}/one/tool"
    with pytest.raises(LaunchError) as caught:
        command(app._replace(argv=("nothing",)), RankPlan(3, 0, ()), False, path, "/")
    assert "two:/nowhere:" in caught.value.todo


def test_a_placeholder_in_the_name_is_the_rank(place: Path) -> None:
    app = AppPlan(("tool", "word"), "/")
    assert command(app, RankPlan(12, 0, ()), True, f"{place}/one", "/") == (f"{place}/one/tool", ["tool-12", "word"])


def test_a_program_in_an_xterm(place: Path) -> None:
    rank = RankPlan(3, 0, (), wrapper=("tool", "-e"))
    made = command(AppPlan(("mine", "a b"), "/"), rank, True, f"{place}/one", str(place / "here"))
    assert made == (f"{place}/one/tool", ["tool", "-e", f"{place}/here/mine", "a b"])
    with pytest.raises(LaunchError, match="'xterm' was not found"):
        command(AppPlan(("mine",), "/"), rank._replace(wrapper=("xterm",)), False, "", str(place / "here"))


def test_an_absolute_path_is_taken_as_it_is(place: Path) -> None:
    assert find_program(f"{place}/one/tool", "", "/") == f"{place}/one/tool"


def test_relative_entries_of_path_count_from_the_working_directory(place: Path) -> None:
    assert find_program("tool", "one", str(place)) == f"{place}/one/tool"
    assert os.path.samefile(find_program("mine", ":/nowhere", str(place / "here")), place / "here/mine")


@pytest.mark.parametrize(
    ("name", "code", "what", "todo"),
    [
        ("nothing", 127, "'nothing' was not found", "the PATH of the ranks there is"),
        ("folder", 127, "'folder' was not found", "-x PATH"),
        ("only", 126, "'only' is not executable", "python only"),
        ("./nothing", 127, "'./nothing' does not exist", "looked at"),
        ("../one", 126, "'../one' is a directory, not a program", "looked at"),
        ("../one/only", 126, "'../one/only' is not executable", "chmod +x"),
        ("", 127, "'' was not found", ""),
    ],
)
def test_errors_name_the_reason(place: Path, name: str, code: int, what: str, todo: str) -> None:
    with pytest.raises(LaunchError) as caught:
        find_program(name, f"{place}/one:{place}/two", str(place / "here"))
    assert caught.value.code == code and what in caught.value.what and todo in caught.value.todo


def test_a_rank_without_path_is_refused(place: Path) -> None:
    with pytest.raises(LaunchError, match="have no PATH"):
        find_program("nothing", "", str(place))


def test_working_directories_are_checked(place: Path) -> None:
    check_wdir(str(place))
    for name, problem in (("gone", "does not exist"), ("one/tool", "is not a directory")):
        with pytest.raises(LaunchError, match=problem) as caught:
            check_wdir(str(place / name))
        assert caught.value.code == 126


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOEXEC, "#!"),
        (errno.ENOENT, "interpreter"),
        (errno.E2BIG, "too long"),
        (errno.EAGAIN, "too few processes"),
    ],
)
def test_errors_of_exec_are_explained(number: int, words: str) -> None:
    error = explain_spawn("x", OSError(number, os.strerror(number)))
    assert words in error.what and "'x'" in error.what and error.code == 126


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("python3.12", b"\x7fELF", True),
        ("pypy3", b"", True),
        ("train", b"#!/usr/bin/env python3\nprint()", True),
        ("train", b"#!/bin/sh\n# python\n", False),
        ("train", b"\x7fELF python", False),
        ("train", b"", False),
        ("train", None, False),
    ],
)
def test_python_interpreters_are_recognised(tmp_path: Path, name: str, text: bytes | None, expected: bool) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text)
    assert is_python(str(tmp_path / name)) == expected


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python net.py", "net.py"),
        ("/usr/bin/python3.11 -u net.py -c x", "net.py"),
        ("python -uB -O -W ignore -X dev net.py", "net.py"),
        ("python -Wignore -Xdev net.py", "net.py"),
        ("pypy3 dir", "dir"),
        ("python -m net", ""),
        ("python -um net net.py", ""),
        ("python -c pass net.py", ""),
        ("python - net.py", ""),
        ("python --help-all net.py", ""),
        ("python -V net.py", ""),
        ("python", ""),
        ("python -W", ""),
        ("python-config net.py", ""),
        ("sh net.py", ""),
    ],
)
def test_the_script_of_a_command_line(line: str, script: str) -> None:
    assert script_of(line.split()) == script


@given(st.lists(st.sampled_from(["-u", "-B", "-OO", "-s", "-I", "-Wd", "-X dev", "-W ignore", "-q"]), max_size=5))
def test_options_of_python_do_not_hide_its_script(options: list[str]) -> None:
    words = [word for option in options for word in option.split()]
    assert script_of(["python", *words, "net.py", "-m", "more"]) == "net.py"


def test_python_takes_the_same_word_for_its_script(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import sys; print(sys.argv)")
    words = ["-uB", "-O", "-W", "ignore", "-Xdev", "-qsI", "net.py", "-c", "x"]
    said = subprocess.run([sys.executable, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said == "['net.py', '-c', 'x']\n" and script_of(["python", *words]) == "net.py"


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=f"there is no file {tmp_path}/sub/net.py for python3") as caught:
        check_script(["python3", "sub/net.py"], str(tmp_path))
    assert caught.value.code == 127 and "--preload-files" in caught.value.todo
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "net.py").touch()
    check_script(["python3", "sub/net.py"], str(tmp_path))
    check_script(["python3", f"{tmp_path}/sub"], "/")  # a directory may have a __main__.py
    check_script(["sh", "sub/gone.py"], str(tmp_path))
