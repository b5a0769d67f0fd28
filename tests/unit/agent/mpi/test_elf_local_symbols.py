"""Variables of ELF files that only .symtab names: in a file that the compiler made, and in broken ones."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.agent.mpi import elf_local_symbols
from mslaunch.agent.mpi.elf_local_symbols import local_variable
from mslaunch.host import elf

SOURCE = """
static volatile char before[100], state[8], filled = 1;
char *used(void) { filled++; return before[0] ? state : before; }
"""


class Built(NamedTuple):
    """A library, and where nm(1) says that its variable is."""

    path: Path
    file: elf.Elf
    place: int


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if not shutil.which("gcc"):
        pytest.skip("NOT TESTED, not installed: gcc")
    path = tmp_path_factory.mktemp("lib") / "lib.so"
    command = ["gcc", "-shared", "-fPIC", "-w", "-xc", "-o", str(path), "-"]
    subprocess.run(command, input=SOURCE, text=True, check=True, timeout=60)
    lines = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True, timeout=60).stdout.split("\n")
    (place,) = [int(line.split()[0], 16) for line in lines if line.endswith(" b state")]
    file = elf.read(str(path))
    assert file
    return Built(path, file, place)


def test_the_first_that_there_is(library: Built) -> None:
    assert local_variable(library.file, (b"none", b"state", b"before")) == library.place


@pytest.mark.parametrize("name", [b"stat", b"used", b"filled"])
def test_what_is_none(library: Built, name: bytes) -> None:
    """The beginning of a name, a function, and what the file fills."""
    assert local_variable(library.file, (name,)) is None


@pytest.mark.parametrize("pieces", [24, 48, 24 * 7])
def test_tables_that_are_read_in_pieces(library: Built, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_local_symbols, "_PIECE", pieces)
    assert local_variable(library.file, (b"state",)) == library.place


def test_a_stripped_file(library: Built, tmp_path: Path) -> None:
    subprocess.run(["strip", "-o", tmp_path / "lib.so", library.path], check=True, timeout=60)
    file = elf.read(str(tmp_path / "lib.so"))
    assert file and local_variable(file, (b"state",)) is None


def test_a_program_at_a_fixed_address(tmp_path: Path) -> None:
    """Counted from where its beginning is mapped, which is not 0."""
    source = "static char state[8]; char shown[8]; int main(void) { return state[0] + shown[0]; }"
    path = tmp_path / "program"
    command = ["gcc", "-no-pie", "-rdynamic", "-O0", "-xc", "-o", str(path), "-"]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    file = elf.read(str(path))
    assert file and file.base > 0
    found, shown = local_variable(file, (b"state",)), elf.variable(file, b"shown")
    assert found is not None and shown is not None
    assert all(file.blank[0] <= place + file.base < file.blank[1] for place in (found, shown[0]))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_broken_files(library: Built, data: st.DataObject) -> None:
    """Bytes of the header and of the table of sections, anything else; the file may end early."""
    whole = bytearray(library.path.read_bytes())
    first = int.from_bytes(whole[40:48], "little")
    places = st.sampled_from([*range(40, 64), *range(first, len(whole))])
    for at, value in data.draw(st.dictionaries(places, st.integers(0, 255), max_size=6)).items():
        whole[at] = value
    broken = library.path.with_name("broken.so")
    broken.write_bytes(whole[: data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))])
    found = local_variable(library.file._replace(path=str(broken)), (b"state",))
    assert found is None or isinstance(found, int)
