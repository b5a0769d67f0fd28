"""Which processes hold accelerators: files of a made /dev, and real processes that have them open."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.agent.ranks import device_holders
from mslaunch.agent.ranks.device_holders import answer, device_files, holders
from mslaunch.errors import WireError
from mslaunch.host.processes import stat_fields
from mslaunch.protocol.codec import pack
from mslaunch.protocol.held_devices import (
    MOST,
    HeldQuestion,
    Holder,
    pack_holders,
    pack_question,
    unpack_holders,
    unpack_question,
)

HOLD = """
import ctypes, sys
held = open(sys.argv[1])
ctypes.CDLL(None).prctl(15, sys.argv[2].encode(), 0, 0, 0)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold() -> Iterator[Callable[..., int]]:
    """Start a process that has a file open, by a name of its own; returns its number."""
    running: list[subprocess.Popen[str]] = []

    def begin(path: Path, name: str = "trainer", **env: str) -> int:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": {**os.environ, **env}}
        running.append(subprocess.Popen([sys.executable, "-c", HOLD, str(path), name], text=True, **pipes))  # type: ignore[call-overload]
        assert running[-1].stdout is not None and running[-1].stdout.readline() == "ready\n"
        return running[-1].pid

    yield begin
    for process in running:
        process.communicate()


def made(root: Path, *names: str) -> str:
    for name in names:
        (root / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "dev" / name).touch()
    return str(root)


ALL = ("nvidia0", "nvidia1", "davinci0", "kfd", "dri/renderD128", "accel0", "accel/accel1")
OTHERS = ("nvidiactl", "nvidia-uvm", "davinci_manager", "dri/card0", "kfd2", "accel/other", "null")


@pytest.mark.parametrize(
    ("environ", "names", "left_out"),
    [
        ({}, (), ()),
        ({"CUDA_VISIBLE_DEVICES": "0"}, (), ()),  # in a job of Slurm it may be another file
        ({"CUDA_VISIBLE_DEVICES": ""}, (), ("nvidia0", "nvidia1")),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, (), ("nvidia0", "nvidia1")),
        ({"ROCR_VISIBLE_DEVICES": ""}, (), ("kfd",)),
        ({"ROCR_VISIBLE_DEVICES": "", "ZE_AFFINITY_MASK": ""}, (), ("kfd", "dri/renderD128")),
        ({}, ("1",), ("nvidia0", "davinci0")),
        ({}, ("0", "1"), ()),
        ({}, ("GPU-1b2c",), ()),
    ],
)
def test_the_files_are_those_that_ranks_may_use(
    environ: dict[str, str], names: tuple[str, ...], left_out: tuple[str, ...], tmp_path: Path
) -> None:
    root = made(tmp_path, *ALL, *OTHERS)
    assert device_files(environ, names, root) == {f"{root}/dev/{name}" for name in set(ALL) - set(left_out)}


def test_a_host_without_devices_has_none_held(tmp_path: Path) -> None:
    assert device_files({}, (), made(tmp_path, *OTHERS)) == set()
    assert unpack_holders(answer(pack_question(HeldQuestion(1e6)), {}, str(tmp_path))) == []


def test_who_holds_a_device_is_named(tmp_path: Path, hold: Callable[..., int]) -> None:
    root = made(tmp_path, "nvidia0", "nvidia1")
    pid = hold(tmp_path / "dev" / "nvidia1")
    hold(made(tmp_path / "else", "nvidia1") and tmp_path / "else" / "dev" / "nvidia1")
    found = unpack_holders(answer(pack_question(HeldQuestion(1e6)), {}, root))
    import pwd

    assert found == [Holder(pid, "trainer", pwd.getpwuid(os.geteuid()).pw_name, f"{root}/dev/nvidia1")]


def test_what_is_older_than_the_job_is_not_waited_for(tmp_path: Path, hold: Callable[..., int]) -> None:
    root = made(tmp_path, "nvidia0")
    pid = hold(tmp_path / "dev" / "nvidia0")
    files = {f"{root}/dev/nvidia0"}
    assert [one.pid for one in holders(files, 60.0)] == [pid]
    assert holders(files, -1.0) == []


def test_another_job_of_ours_is_not_waited_for(tmp_path: Path, hold: Callable[..., int]) -> None:
    """It may have other devices of the host."""
    root = made(tmp_path, "nvidia0")
    hold(tmp_path / "dev" / "nvidia0", MSLAUNCH_JOBID="00ff00ff")
    pid = hold(tmp_path / "dev" / "nvidia0", MSLAUNCH_JOBID="12345678")
    assert [one.pid for one in holders({f"{root}/dev/nvidia0"}, 60.0, "12345678")] == [pid]


def test_what_is_being_killed_counts(tmp_path: Path, hold: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptors are gone while the driver may still free its memory."""
    pid = hold(tmp_path / made(tmp_path, "nvidia0") / "dev" / "nvidia0")
    monkeypatch.setattr(device_holders, "is_exiting", lambda one: one == pid)
    found = holders({"/dev/nvidia0"}, 60.0)
    assert [(one.pid, one.device) for one in found] == [(pid, "")]


def test_a_process_whose_first_thread_has_ended_counts(tmp_path: Path) -> None:
    """As one that was killed while another thread hangs in a driver; and one that waits for its parent does not."""
    root = made(tmp_path, "nvidia0")
    file = f"{root}/dev/nvidia0"
    script = (
        "import ctypes, os, sys, threading\nheld = open(sys.argv[1])\n"
        "threading.Thread(target=os.read, args=(0, 1)).start()\n"
        "print('ready', flush=True)\nctypes.CDLL(None).pthread_exit(None)"
    )
    words = [sys.executable, "-c", script, file]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 30
        while stat_fields(process.pid)[0] != b"Z":
            assert time.monotonic() < deadline
        assert [(one.pid, one.device) for one in holders({file}, 60.0)] == [(process.pid, file)]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert stat_fields(process.pid)[0] == b"Z"
        assert holders({file}, 60.0) == []


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_holders, "_owner", lambda pid: 4_000_000_123)
    assert device_holders._user(1) == "4000000123"


words = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=9)


@given(st.lists(st.builds(Holder, st.integers(1, 1 << 22), words, words, words), max_size=MOST))
def test_an_answer_is_read_as_it_was_written(found: list[Holder]) -> None:
    assert unpack_holders(pack_holders(found)) == found


@given(st.floats(0, 1e9), st.lists(words, max_size=5), words)
def test_a_question_is_read_as_it_was_written(seconds: float, names: list[str], jobid: str) -> None:
    read = unpack_question(pack_question(HeldQuestion(seconds, tuple(names), jobid)))
    assert (read.names, read.jobid) == (tuple(names), jobid) and abs(read.seconds - seconds) <= 0.001


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x",
        pack({"holders": ["1", "a", "b"]}),
        pack({"holders": ["x", "a", "b", "c"]}),
        pack({"holders": ["1" * 99, "a", "b", "c"]}),
        pack({"holders": ["1", "a", "b", "c"] * (MOST + 1)}),
        pack({"holders": ["1", "a", "b", "c"] * 9999}),
        pack({"others": []}),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        unpack_holders(payload)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_refused(payload: bytes) -> None:
    try:
        assert len(unpack_holders(payload)) <= MOST
    except WireError:
        pass
