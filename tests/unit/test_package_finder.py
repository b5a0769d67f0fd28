"""`package_finder`: it finds what Python's own finder finds, and leaves the rest to it."""

from __future__ import annotations

import importlib.util
import os
import py_compile
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
        assert isinstance(ours.loader, type(theirs.loader))
        assert (ours.loader.name, ours.loader.path) == (theirs.loader.name, theirs.loader.path)


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


@pytest.fixture
def module(tmp_path):
    """Imports `made.one`, whose source is in `tmp_path`, afresh."""
    tail = "." + importlib.util.cache_from_source("one.py").rpartition("/one.")[2]
    finder = package_finder.PackageFinder("made", str(tmp_path), tail)

    def load():
        spec = finder.find_spec("made.one")
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def write(path: Path, text: str, seconds: int) -> None:
    path.write_text(text)
    os.utime(path, (seconds, seconds))


def test_a_compiled_file_that_fits_its_source_is_all_that_is_read(tmp_path, module, monkeypatch):
    write(tmp_path / "one.py", "value = 1", 1000)
    py_compile.compile(str(tmp_path / "one.py"))
    monkeypatch.setattr(importlib.machinery.SourceFileLoader, "get_data", None)
    monkeypatch.setattr(importlib.machinery.SourceFileLoader, "path_stats", None)
    loaded = module()
    assert loaded.value == 1
    assert loaded.__cached__ == importlib.util.cache_from_source(str(tmp_path / "one.py"))
    assert loaded.__loader__.get_code("made.one").co_filename == str(tmp_path / "one.py")


@pytest.mark.parametrize(("text", "seconds"), [("value = 2", 1001), ("value = 22", 1000)])
def test_a_source_that_has_changed_is_compiled_again(tmp_path, module, text, seconds):
    write(tmp_path / "one.py", "value = 1", 1000)
    assert module().value == 1  # compiled and written
    write(tmp_path / "one.py", text, seconds)
    assert module().value == int(text.split()[-1])
    assert module().value == int(text.split()[-1])


@pytest.mark.parametrize("mode", [py_compile.PycInvalidationMode.CHECKED_HASH, None])
def test_other_compiled_files_are_left_to_python(tmp_path, module, mode):
    """One that is checked by the hash of its source, and one of another Python."""
    write(tmp_path / "one.py", "value = 1", 1000)
    compiled = Path(py_compile.compile(str(tmp_path / "one.py"), invalidation_mode=mode))
    if mode is None:
        compiled.write_bytes(b"\0\0\r\n" + compiled.read_bytes()[4:])
    write(tmp_path / "one.py", "value = 2", 1000)
    assert module().value == 2
