"""How the command reads the files that a command line names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mslaunch.cli import main
from mslaunch.host import files


@pytest.mark.parametrize(
    "data",
    [b"", b"a\n", b"a\r\nb\rc\n\n", b"\xff\xc3\xa4\n", b"\xef\xbb\xbfa", b"x" * (1 << 16), b"a\0b"],
)
def test_a_small_file_is_read_as_any_other(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert main._read_text(str(path)) == files.read_text(str(path))


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/etc/passwd/file", "/", "/dev/zero"])
def test_it_is_refused_as_any_other(path: str) -> None:
    with pytest.raises(OSError) as theirs:
        files.read_text(path)
    with pytest.raises(OSError) as ours:
        main._read_text(path)
    assert (type(ours.value), ours.value.errno) == (type(theirs.value), theirs.value.errno)


def test_a_pipe_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a\n")
    os.close(writer)
    try:
        assert main._read_text(f"/dev/fd/{reader}") == "a\n"
    finally:
        os.close(reader)
