"""`package_finder`: it finds what Python's own finder finds, and leaves the rest to it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import mslaunch
from mslaunch import package_finder

FOLDER = Path(mslaunch.__file__).parent
NAMES = sorted(
    ".".join(("mslaunch", *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__")
    for path in FOLDER.rglob("*.py")
)
NAMES.remove("mslaunch")


@pytest.fixture
def finder(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    package_finder.install(mslaunch)
    assert type(sys.meta_path[0]) is package_finder.PackageFinder
    return sys.meta_path[0]


@pytest.mark.parametrize("name", NAMES)
def test_it_finds_what_pythons_own_finder_finds(finder, name):
    """Name, file and kind; for modules also the loader, the compiled file and what `reload` and `inspect` read."""
    parent = name.rpartition(".")[0].replace(".", "/")
    theirs = PathFinder.find_spec(name, [str(FOLDER.parent / parent)])
    ours = finder.find_spec(name)
    same = ("name", "origin", "has_location", "submodule_search_locations", "parent", "cached")
    assert {key: getattr(ours, key) for key in same} == {key: getattr(theirs, key) for key in same}
    if theirs.submodule_search_locations is None:
        assert (type(ours.loader), ours.loader.path) == (type(theirs.loader), theirs.loader.path)


def test_other_names_are_left_to_the_next_finder(finder):
    assert finder.find_spec("mslaunch") is None
    assert finder.find_spec("mslaunching.cli") is None
    assert finder.find_spec("mslaunch.cli.no_such_module") is None
    with pytest.raises(ModuleNotFoundError, match=r"mslaunch\.no_such_module"):
        __import__("mslaunch.no_such_module")


def test_a_package_that_came_in_a_zip_file_is_left_to_python(tmp_path):
    """The launch is as slow as Python's own finder then, and works."""
    program = (
        "import sys, zipfile; from pathlib import Path; archive = sys.argv[1]\n"
        "with zipfile.ZipFile(archive, 'w') as made:\n"
        f"    for path in Path({str(FOLDER)!r}).rglob('*.py'):\n"
        f"        made.write(path, path.relative_to({str(FOLDER.parent)!r}))\n"
        "sys.path.insert(0, archive); sys.argv[1:] = ['--version']\n"
        "from mslaunch.__main__ import main\n"
        "main()\n"
    )
    words = [sys.executable, "-I", "-S", "-c", program, str(tmp_path / "all.zip")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert mslaunch.__version__ in done.stdout


def test_a_compiled_file_is_written_and_used(tmp_path):
    """The next start finds the compiled file, as with Python's own finder."""
    program = (
        "import mslaunch; from mslaunch import package_finder\npackage_finder.install(mslaunch)\n"
        "import mslaunch.errors as found\nprint(found.__cached__, found.__file__)"
    )
    words = [sys.executable, "-X", f"pycache_prefix={tmp_path}", "-c", program]
    done = subprocess.run(
        words, cwd=FOLDER.parent, env={}, capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    assert Path(done[0]).is_file()
    assert Path(done[0]).is_relative_to(tmp_path)
    assert done[1] == str(FOLDER / "errors.py")
