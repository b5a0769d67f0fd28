"""---report-pid and --report-uri: streams, files, and files that cannot be written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mslaunch.datamodel.request import AppContext, Request
from mslaunch.errors import LaunchError
from mslaunch.launcher.report_pid import announce
from mslaunch.runtime.loop import Loop

PID, URI = f"{os.getpid()}\n", f"4660.0;mslaunch://{os.uname().nodename}/{os.getpid()}\n"


def speak(request: Request, cwd: Path, stdout: int, say: Callable[[str], None]) -> None:
    with Loop() as loop:
        announce(request, str(cwd), stdout, say, "1234", loop, loop.run)


def reported(cwd: Path, **channels: str) -> tuple[str, str]:
    """What came on standard output and standard error."""
    reader, writer = os.pipe()
    said: list[str] = []
    speak(Request((AppContext(("x",)),), **channels), cwd, writer, said.append)  # type: ignore[arg-type]
    os.close(writer)
    with open(reader) as file:
        return file.read(), "".join(said)


def test_pid_and_uri_go_to_the_named_stream(tmp_path: Path) -> None:
    assert reported(tmp_path, report_pid="-", report_uri="+") == (PID, URI)
    assert reported(tmp_path, report_pid="+", report_uri="-") == (URI, PID)
    assert reported(tmp_path) == ("", "")


def test_files_are_in_the_directory_of_the_launch_and_hold_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("something longer than a number\n")
    assert reported(tmp_path, report_pid="pid", report_uri=str(tmp_path / "uri")) == ("", "")
    assert ((tmp_path / "pid").read_text(), (tmp_path / "uri").read_text()) == (PID, URI)


@pytest.mark.parametrize("option", ["report_pid", "report_uri"])
def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path, option: str) -> None:
    with pytest.raises(LaunchError) as caught:
        reported(tmp_path, **{option: "no/such/place"})
    assert caught.value.where == "--" + option.replace("_", "-")
    assert str(tmp_path / "no/such/place") in str(caught.value) and "No such file or directory" in str(caught.value)
    assert caught.value.code == 1


def test_a_closed_standard_output_is_an_error(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(LaunchError, match="standard output"):
        speak(Request((AppContext(("x",)),), report_pid="-"), tmp_path, writer, lambda text: None)
    os.close(reader)


def test_the_wait_for_the_reader_of_a_fifo_can_be_interrupted(tmp_path: Path) -> None:
    """Opening a FIFO waits as a shell's `> FIFO` does, but Ctrl-C must work."""
    os.mkfifo(tmp_path / "fifo")
    readers: list[int] = []

    def stop(until: Callable[[], bool]) -> None:
        raise LaunchError("ended by SIGINT")

    request = Request((AppContext(("x",)),), report_pid="fifo")
    with Loop() as loop:
        with pytest.raises(LaunchError, match="ended by SIGINT"):
            announce(request, str(tmp_path), 1, pytest.fail, "1234", loop, stop)
        loop.after(0.02, lambda: readers.append(os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)))
        announce(request, str(tmp_path), 1, pytest.fail, "1234", loop, loop.run)
    assert os.read(readers[0], 99) == PID.encode()
    os.close(readers[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a FIFO of another user")
@pytest.mark.parametrize("option", ["report_pid", "report_uri"])
def test_the_fifo_of_another_user_is_not_waited_for(tmp_path: Path, option: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    os.chown(tmp_path / "fifo", 64321, 64321)
    request = Request((AppContext(("x",)),), **{option: "fifo"})  # type: ignore[arg-type]
    with Loop() as loop, pytest.raises(LaunchError, match="it belongs to another user"):
        announce(request, str(tmp_path), 1, pytest.fail, "1234", loop, lambda until: pytest.fail("it waits"))
