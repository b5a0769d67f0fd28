"""ELF files and the search of the dynamic linker: with files that the tests make, and with real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import elf_files
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mslaunch.host import dynamic_linker as loader
from mslaunch.host import elf
from mslaunch.host.dynamic_linker import Cache, Loader
from mslaunch.host.system_files import head_of

QUICK = 2.0  #: seconds of the processor that reading one file may take; a busy machine may stop for as long


@pytest.fixture(autouse=True)
def bare_system(monkeypatch):
    """No cache and no default directories, so that only what a test makes is found."""
    monkeypatch.setattr(loader, "_cache", Cache(b""))
    monkeypatch.setattr(loader, "_default_folders", lambda machine: ())


def walk(path, env=(), wdir="/"):
    loader = Loader(dict(env), str(wdir))
    start = loader.read(str(path))
    return [one.path for one in loader.walk(start)] if start else None


def test_fields_of_an_elf_file(tmp_path):
    path = elf_files.write(
        tmp_path / "lib.so",
        elf_files.elf("libb.so.1", "liba.so.2", soname="lib.so.1", runpath="$ORIGIN/x:/y", symbols=("one", "two")),
    )
    found = elf.read(str(path))
    assert found is not None
    assert (found.machine, found.soname, found.needed) == (62, "lib.so.1", ("libb.so.1", "liba.so.2"))
    assert (found.rpath, found.runpath) == ((), (f"{tmp_path}/x", "/y"))
    assert {b"one", b"two"} <= set(elf.strings(found).split(b"\0"))
    assert elf.variable(found, b"two") == (0x10008, 8)
    assert elf.variable(found, b"on") is None


@pytest.mark.parametrize("text, folders", [
    ("${ORIGIN}/../lib", ("{}/../lib",)), ("/a:$ORIGIN", ("/a", "{}")), ("/opt/$LIB", ("/opt/lib64", "/opt/lib")),
])  # fmt: skip
def test_variables_in_paths_are_expanded(tmp_path, text, folders):
    found = elf.read(str(elf_files.write(tmp_path / "a", elf_files.elf(rpath=text))))
    assert found is not None and found.rpath == tuple(folder.format(tmp_path) for folder in folders)


def test_origin_is_the_folder_of_the_file_not_of_its_link(tmp_path):
    library = elf_files.write(tmp_path / "lib/libx.so", elf_files.elf(soname="libx.so"))
    elf_files.write(tmp_path / "bin/real", elf_files.elf("libx.so", runpath="$ORIGIN/../lib"))
    (tmp_path / "link").symlink_to(tmp_path / "bin/real")
    assert [os.path.realpath(path) for path in walk(tmp_path / "link")][1:] == [str(library)]


# --- where libraries are found


def test_libraries_are_walked_breadth_first_and_once(tmp_path):
    main = elf_files.write(tmp_path / "main", elf_files.elf("a", "b", runpath=str(tmp_path)))
    for name, needed in (("a", ("c", "b")), ("b", ("c", "nowhere")), ("c", ("a",))):
        elf_files.write(tmp_path / name, elf_files.elf(*needed, soname=name, runpath=str(tmp_path)))
    assert walk(main)[1:] == [f"{tmp_path}/{name}" for name in ("a", "b", "c")]


def test_search_paths_have_an_order(tmp_path):
    """RPATH, LD_LIBRARY_PATH, then the cache; RUNPATH comes after LD_LIBRARY_PATH, and disables RPATH."""
    for place in ("rpath", "variable", "runpath", "cached"):
        elf_files.write(tmp_path / place / "libx.so", elf_files.elf(soname="libx.so"))
    main = tmp_path / "main"

    def found(rpath="", runpath="", variable=""):
        elf_files.write(main, elf_files.elf("libx.so", rpath=rpath, runpath=runpath))
        paths = walk(main, {"LD_LIBRARY_PATH": variable})
        return os.path.basename(os.path.dirname(paths[1])) if len(paths) > 1 else ""

    rpath, variable, runpath = (str(tmp_path / place) for place in ("rpath", "variable", "runpath"))
    assert found() == ""
    assert found(rpath, "", variable) == "rpath"
    assert found("", runpath, variable) == "variable"
    assert found("", runpath, "/nowhere") == "runpath"
    assert found("", "/nowhere", f"/nowhere;{variable}") == "variable"
    loader._cache = Cache(elf_files.cache(("libx.so", str(tmp_path / "cached/libx.so"))))
    assert found("", "/nowhere") == "cached"


def test_rpath_is_inherited_and_runpath_is_not(tmp_path):
    elf_files.write(tmp_path / "libs/b", elf_files.elf(soname="b"))
    elf_files.write(tmp_path / "libs/a", elf_files.elf("b", soname="a"))
    rpath = elf_files.write(tmp_path / "one", elf_files.elf("a", rpath=str(tmp_path / "libs")))
    runpath = elf_files.write(tmp_path / "two", elf_files.elf("a", runpath=str(tmp_path / "libs")))
    assert len(walk(rpath)) == 3
    assert len(walk(runpath)) == 2


def test_relative_paths_count_from_the_directory_of_the_rank(tmp_path):
    elf_files.write(tmp_path / "libs/a", elf_files.elf(soname="a"))
    elf_files.write(tmp_path / "main", elf_files.elf("a"))
    assert walk("main", {"LD_LIBRARY_PATH": "libs"}, tmp_path) == [f"{tmp_path}/main", f"{tmp_path}/libs/a"]


def test_libraries_of_another_machine_are_skipped(tmp_path):
    elf_files.write(tmp_path / "arm/a", elf_files.elf(soname="a", machine=elf_files.ARM))
    right = elf_files.write(tmp_path / "x86/a", elf_files.elf(soname="a"))
    main = elf_files.write(tmp_path / "main", elf_files.elf("a", runpath=f"{tmp_path}/arm:{tmp_path}/x86"))
    assert walk(main)[1:] == [str(right)]


def test_a_name_with_a_slash_is_a_path(tmp_path):
    library = elf_files.write(tmp_path / "a.so", elf_files.elf())
    main = elf_files.write(tmp_path / "main", elf_files.elf(str(library)))
    assert walk(main)[1:] == [str(library)]


# --- the cache


def test_the_cache_is_read():
    data = elf_files.cache(
        ("libz.so.1", "/lib/libz.so.1"), ("libz.so.1", "/usr/lib/libz.so.1"), ("z.so.1", "/lib/libz.so.1"),
        ("liba.so", "/opt/liba.so.1.2"),
    )  # fmt: skip
    found = Cache(data)
    assert found.paths("libz.so.1") == ["/lib/libz.so.1", "/usr/lib/libz.so.1"]
    assert found.paths("liba.so") == ["/opt/liba.so.1.2"]
    assert found.paths("liba.so.1.2") == found.paths("ibz.so.1") == found.paths("") == []


def test_the_new_cache_format_may_follow_the_old(tmp_path, monkeypatch):
    path = elf_files.write(tmp_path / "cache", elf_files.cache(("liba", "/x/liba"), old=b"ld.so-1.7.0\0" + bytes(52)))
    monkeypatch.setattr(loader, "CACHE", str(path))
    assert Cache(loader._read_cache()).paths("liba") == ["/x/liba"]
    monkeypatch.setattr(loader, "CACHE", str(tmp_path / "none"))
    assert Cache(loader._read_cache()).paths("liba") == []


@given(st.binary(max_size=400), st.text(max_size=3), st.integers(0, 2**32 - 1))
def test_a_broken_cache_is_ignored(rest, name, count):
    for data in (rest, b"glibc-ld.so.cache1.1" + count.to_bytes(4, "little") + rest):
        assert all(path.startswith("/") for path in Cache(data).paths(name))


def test_the_cache_agrees_with_ldconfig():
    """Compared with the output of `ldconfig -p`."""
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin")
    if not ldconfig or not os.path.exists(loader.CACHE):
        pytest.skip("NOT TESTED, not installed: ldconfig")
    said = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    rows = [line.split(" => ") for line in said if " => " in line]
    ours = Cache(loader._read_cache())
    assert rows and all(path in ours.paths(name.split()[0]) for name, path in rows)


# --- what is broken


def read_all(path):
    """Whatever can be read of a file, in time."""
    begun = time.process_time()
    found = elf.read(str(path))
    if found:
        elf.strings(found)
        elf.variable(found, b"environ")
        assert len(list(Loader({}, "/").walk(found))) >= 1
    assert time.process_time() - begun < QUICK
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_error(tmp_path, data):
    for head in (b"", b"\x7fELF", elf_files.elf("a")[:64], elf_files.elf("a")[:176]):
        read_all(elf_files.write(tmp_path / "file", head + data))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, 600), st.binary(min_size=1, max_size=8)), max_size=4), st.integers(0, 600))
def test_changed_files_are_read_without_error(tmp_path, changes, end):
    data = bytearray(
        elf_files.elf("liba.so", "libb.so", soname="x", rpath="/a:$ORIGIN", runpath="/b", symbols=("environ",))
    )
    for at, change in changes:
        data[at : at + len(change)] = change
    read_all(elf_files.write(tmp_path / "file", bytes(data[:end] if end else data)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=16)), min_size=1, max_size=6))
def test_changed_real_files_are_read_without_error(tmp_path, real, changes):
    head, dynamic = real
    data = bytearray(head)
    for at, change in changes:
        spots = (at % 1024, dynamic + at % 512, at)  # the headers, the table of needs, anywhere
        data[spots[at % 3] : spots[at % 3] + len(change)] = change
    read_all(elf_files.write(tmp_path / "file", bytes(data)))


@pytest.fixture(scope="module")
def real():
    """A real program, and about where its table of needs is."""
    with open(shutil.which("ls") or sys.executable, "rb") as file:
        data = file.read(1 << 20)
    return data, max(0, data.find(b".dynamic") - 0x600)


@pytest.mark.parametrize("machine", [3, 8, 40, 0])
def test_files_for_other_machines_are_refused(tmp_path, machine):
    assert elf.read(str(elf_files.write(tmp_path / "a", elf_files.elf(machine=machine)))) is None


@pytest.mark.parametrize("spot, byte", [(4, 1), (5, 2), (0, 0), (54, 8)])  # 32 bits, big end first, no magic, odd table
def test_files_of_other_kinds_are_refused(tmp_path, spot, byte):
    data = bytearray(elf_files.elf())
    data[spot] = byte
    assert elf.read(str(elf_files.write(tmp_path / "a", bytes(data)))) is None


def test_paths_without_a_regular_file_are_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "none", "/dev/null", "/dev/zero", "a\0b"):
        assert elf.read(str(path)) is None
        assert head_of(str(path), 4).strip(b"\0") == b""


def test_a_fifo_is_not_opened(tmp_path):
    """`python fifo.py` reads it once; opening it for a look would end the writer with SIGPIPE."""
    os.mkfifo(tmp_path / "fifo.py")
    writer = subprocess.Popen(["sh", "-c", "echo text > fifo.py"], cwd=tmp_path)
    commands = ["sh", "-c", "read go; cat fifo.py"]
    reader = subprocess.Popen(commands, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert not any(head_of(str(tmp_path / "fifo.py"), 100) for _ in range(3000))  # until the writer waits in open
    assert reader.communicate(b"go\n", timeout=30)[0] == b"text\n"
    assert writer.wait(30) == 0


def test_the_linker_agrees_about_our_interpreter():
    """The libraries that the search finds are those that the real dynamic linker has mapped."""
    loader._cache = None
    with open("/proc/self/maps") as file:
        mapped = {line.split(None, 5)[5].strip() for line in file if "/" in line}
    ours = Loader(os.environ, "/")
    start = ours.read(os.path.realpath(sys.executable))
    assert start is not None
    assert {os.path.realpath(one.path) for one in ours.walk(start)} <= {os.path.realpath(one) for one in mapped}


def test_the_walk_of_libraries_is_bounded(tmp_path):
    for number in range(700):
        elf_files.write(tmp_path / f"l{number}", elf_files.elf(f"l{number + 1}", soname=f"l{number}"))
    main = elf_files.write(tmp_path / "main", elf_files.elf("l0", rpath=str(tmp_path)))
    assert len(walk(main)) == 512


def test_undecodable_paths_are_kept(tmp_path: Path):
    """Names that are not UTF-8 are returned as they are."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(folder)
    with open(f"{folder}/a", "wb") as file:
        file.write(elf_files.elf(soname="a"))
    assert Loader({"LD_LIBRARY_PATH": folder}, "/").find("a", elf_files.X86) is not None
