"""The script of an interpreter's command line, and what it imports."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.agent.checks.script_imports import find_script, imported_names


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("train.py --lr 3", ("file", "train.py")),
        ("-u train.py", ("file", "train.py")),
        ("-m pkg.train -x", ("module", "pkg.train")),
        ("-um pkg", ("module", "pkg")),
        ("-mpkg", ("module", "pkg")),
        ("-c import_this", ("text", "import_this")),
        ("-X dev -W ignore a.py", ("file", "a.py")),
        ("-Xdev a.py", ("file", "a.py")),
        ("-uX dev a.py", ("file", "a.py")),
        ("-BuW ignore -Xdev a.py", ("file", "a.py")),
        ("-uXdev a.py", ("file", "a.py")),
        ("-Wc a.py", ("file", "a.py")),
        ("--check-hash-based-pycs always a.py", ("file", "a.py")),
        ("-- a.py", ("file", "a.py")),
        ("-", ("text", "")),
        ("", ("text", "")),
        ("-m", ("module", "")),
    ],
)
def test_the_script_is_found(words: str, found: tuple[str, str]) -> None:
    assert find_script(words.split()) == found


@pytest.mark.parametrize(
    "words",
    ["-u {}", "-X dev {}", "-uX dev {}", "-BIW ignore {}", "-Wignore {}", "-BIu {} -c x", "-W ignore -- {} -m y"],
)
def test_python_runs_the_same(words: str, tmp_path: object) -> None:
    path = f"{tmp_path}/script.py"
    with open(path, "w") as file:
        file.write("import sys; print(sys.argv[0])")
    line = words.format(path).split()
    done = subprocess.run([sys.executable, *line], capture_output=True, text=True, check=True)
    assert find_script(line) == ("file", done.stdout.strip())


def test_names() -> None:
    text = b"""
from __future__ import annotations
import os.path, numpy as np
from torch.nn import Module
from . import mine
try:
    import apex
except ImportError:
    apex = None
if True:
    import hidden
def f():
    import lazy
"""
    assert imported_names(text) == ["os", "numpy", "torch"]


def test_programs_that_change_the_path_are_left_alone() -> None:
    assert imported_names(b"import sys\nsys.path.insert(0, 'lib')\nimport mine") == []


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes(text: bytes) -> None:
    assert all(name.isidentifier() for name in imported_names(text))


@given(st.lists(st.sampled_from(["-u", "-m", "-c", "-X", "-W", "--", "-", "a.py", "-mc", "--help", ""]), max_size=6))
def test_any_words(words: list[str]) -> None:
    assert find_script(words)[0] in ("file", "module", "text")
