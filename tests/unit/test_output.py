"""Where the bytes of ranks go: files as Open MPI lays them out, and terminals, with or without prefixes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import LaunchError
from mslaunch.launcher.output import Logs, Output, open_output
from mslaunch.launcher.terminal import Terminal
from mslaunch.model import SERVICE, OutputPolicy
from mslaunch.wire.frames import STDERR, STDOUT
from mslaunch.wire.loop import Loop


class Screen(Terminal):
    """A terminal that remembers."""

    def __init__(self) -> None:
        self.seen = b""
        self.failed = False
        self.closed = False

    @property
    def pending(self) -> int:
        return 0

    def send(self, data: bytes) -> None:
        self.seen += data

    def close(self) -> None:
        self.closed = True


class Desk:
    """An output on two screens."""

    def __init__(self, policy: OutputPolicy, ranks: int = 1) -> None:
        self.notices: list[str] = []
        self.screens = {STDOUT: Screen(), STDERR: Screen()}
        self.output = Output(policy, ranks, dict(self.screens), self.notices.append)

    def seen(self) -> tuple[bytes, bytes]:
        return self.screens[STDOUT].seen, self.screens[STDERR].seen


def files(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("ranks", "first", "last"),
    [(1, "rank.0", "rank.0"), (9, "rank.0", "rank.8"), (10, "rank.00", "rank.09"), (101, "rank.000", "rank.100")],
)
def test_the_layout(tmp_path: Path, ranks: int, first: str, last: str) -> None:
    logs = Logs(OutputPolicy(str(tmp_path / "out")), ranks, pytest.fail)
    names = sorted(os.listdir(tmp_path / "out" / "1"))
    assert (names[0], names[-1], len(names)) == (first, last, ranks)
    assert sorted(os.listdir(tmp_path / "out" / "1" / last)) == ["stderr", "stdout"]
    assert logs.path(STDERR, ranks - 1) == str(tmp_path / "out" / "1" / last / "stderr")
    assert logs.close()


def test_nojobid_merge_and_the_scheduler(tmp_path: Path) -> None:
    desk = Desk(OutputPolicy(str(tmp_path), jobid=False, merge=True), 2)
    desk.output.write(STDOUT, 0, b"a")
    desk.output.write(STDERR, 0, b"b")
    desk.output.write(STDERR, SERVICE, b"words")
    assert desk.output.close()
    assert files(tmp_path) == {"rank.0/stdout": b"ab", "rank.1/stdout": b"", "scheduler/stdout": b"words"}
    assert desk.output.log_path(0) == str(tmp_path / "rank.0/stdout")
    assert desk.seen() == (b"a", b"b")  # the agent merges; what comes as stderr is shown as such


def test_bytes_go_to_file_and_terminal_unchanged(tmp_path: Path) -> None:
    desk = Desk(OutputPolicy(str(tmp_path)), 2)
    desk.output.write(STDOUT, 1, b"\xff\r half")
    desk.output.write(STDOUT, 1, b" line\n\0")
    desk.output.write(STDERR, 1, b"err")
    desk.output.write(STDOUT, 1, b"")
    assert desk.output.close() and desk.screens[STDOUT].closed
    assert files(tmp_path)["1/rank.1/stdout"] == desk.seen()[0] == b"\xff\r half line\n\0"
    assert files(tmp_path)["1/rank.1/stderr"] == desk.seen()[1] == b"err"


def test_nocopy_and_the_scheduler_stay_off_the_terminal(tmp_path: Path) -> None:
    desk = Desk(OutputPolicy(str(tmp_path), copy=False))
    desk.output.write(STDOUT, 0, b"a")
    assert desk.seen() == (b"", b"") and files(tmp_path)["1/rank.0/stdout"] == b"a"
    desk = Desk(OutputPolicy())
    desk.output.write(STDERR, SERVICE, b"words")
    assert desk.seen() == (b"", b"") and desk.output.tail(SERVICE) == ["words"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"d\ne", b"\n\n", b"\xff"]), max_size=12))
def test_tags_stand_before_lines_however_they_were_cut(chunks: list[bytes]) -> None:
    desk = Desk(OutputPolicy(tag=True), 3)
    for chunk in chunks:
        desk.output.write(STDOUT, 2, chunk)
        assert desk.seen()[0].endswith(b"\n") or not desk.seen()[0], "only whole lines before the end"
    desk.output.write(STDOUT, 2, b"")
    text = b"".join(chunks)
    lines = text.split(b"\n")
    rest = lines.pop()
    expected = b"".join(b"[1,2]<stdout>:" + line + b"\n" for line in lines) + (
        b"[1,2]<stdout>:" + rest if rest else b""
    )
    assert desk.seen()[0] == expected


def test_streams_of_several_ranks_do_not_mix() -> None:
    desk = Desk(OutputPolicy(tag=True), 2)
    for kind, rank, data in (
        (STDOUT, 0, b"a"),
        (STDOUT, 1, b"b"),
        (STDERR, 0, b"c\n"),
        (STDOUT, 0, b"A\n"),
        (STDOUT, 1, b"B\n"),
    ):
        desk.output.write(kind, rank, data)
    assert desk.seen() == (b"[1,0]<stdout>:aA\n[1,1]<stdout>:bB\n", b"[1,0]<stderr>:c\n")


def test_a_line_without_end_is_not_kept_forever() -> None:
    desk = Desk(OutputPolicy(tag=True))
    for _ in range(5):
        desk.output.write(STDOUT, 0, b"x" * 20000)
    assert len(desk.seen()[0]) > 60000


def test_the_time_of_day(tmp_path: Path) -> None:
    desk = Desk(OutputPolicy(str(tmp_path), timestamp=True))
    desk.output.write(STDOUT, 0, b"a\n")
    assert re.fullmatch(rb"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \d{4}<stdout>:a\n", desk.seen()[0])
    assert files(tmp_path)["1/rank.0/stdout"] == desk.seen()[0]


def test_the_last_lines_of_a_rank() -> None:
    desk = Desk(OutputPolicy())
    desk.output.write(STDOUT, 0, b"not this\n")
    for number in range(3000):
        desk.output.write(STDERR, 0, b"line %d\n" % number)
    assert desk.output.tail(0, 2) == ["line 2998", "line 2999"]
    desk.output.write(STDERR, 0, b"\x1b[31mred\tand \xff half")
    assert desk.output.tail(0, 1) == ["?[31mred\tand \ufffd half"]
    assert desk.output.tail(7) == []


# --- files that are not ours


def test_a_link_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "out/1/rank.0"
    folder.mkdir(parents=True)
    (folder / "stdout").symlink_to(victim)
    with Loop() as loop, pytest.raises(LaunchError) as caught:
        open_output(OutputPolicy(str(tmp_path / "out")), 1, loop, {STDOUT: 1}, Screen(), pytest.fail)
    assert "rank.0/stdout" in caught.value.what and caught.value.where == "--output-filename"
    assert victim.read_text() == "precious"


@pytest.mark.root
@pytest.mark.parametrize("whose", ["out/1", "out/1/rank.0"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, whose: str, linked: bool) -> None:
    if os.geteuid():
        pytest.skip("NOT TESTED, needs root")
    place = tmp_path / whose
    place.parent.mkdir(parents=True)
    if linked:
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir()
    os.lchown(place, 65534, 65534)
    with pytest.raises(LaunchError, match="not a directory of yours"):
        Logs(OutputPolicy(str(tmp_path / "out")), 1, pytest.fail)


def test_a_directory_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = len(os.listdir("/proc/self/fd"))
    with Loop() as loop:
        for policy in (OutputPolicy(str(tmp_path / "file")), OutputPolicy(str(tmp_path / "file/below"))):
            with pytest.raises(LaunchError):
                open_output(policy, 1, loop, {STDOUT: 1}, Screen(), pytest.fail)
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_is_left_behind_by_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rank.1").write_text("no directory")
    reader, writer = os.pipe()
    with Loop() as loop:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(LaunchError):
            open_output(OutputPolicy(str(tmp_path)), 2, loop, {STDOUT: writer}, Screen(), pytest.fail)
        assert len(os.listdir("/proc/self/fd")) == before
    os.close(reader)
    os.close(writer)


def test_a_full_disk_is_told_once_and_the_job_goes_on(tmp_path: Path) -> None:
    desk = Desk(OutputPolicy(str(tmp_path)), 2)
    assert desk.output.logs
    os.close(desk.output.logs._open[str(tmp_path / "1/rank.0/stdout")])
    desk.output.logs._open[str(tmp_path / "1/rank.0/stdout")] = os.open("/dev/full", os.O_WRONLY)
    for _ in range(3):
        desk.output.write(STDOUT, 0, b"lost")
        desk.output.write(STDOUT, 1, b"kept")
    assert len(desk.notices) == 1 and "No space left" in desk.notices[0] and "rank.0/stdout" in desk.notices[0]
    assert files(tmp_path)["1/rank.1/stdout"] == b"kept" * 3
    assert desk.seen()[0] == b"lostkept" * 3
    assert not desk.output.close(), "the exit code must tell that output was lost"


@pytest.fixture
def big(tmp_path: Path) -> Iterator[tuple[Desk, Path]]:
    yield Desk(OutputPolicy(str(tmp_path)), 300), tmp_path


def test_300_ranks_do_not_need_600_descriptors(big: tuple[Desk, Path]) -> None:
    desk, top = big
    for turn in range(2):
        for rank in range(300):
            desk.output.write(STDOUT, rank, b"%d.%d\n" % (turn, rank))
    assert desk.output.logs and len(desk.output.logs._open) <= 256
    assert desk.output.close()
    found = files(top)
    assert len(found) == 600
    assert all(found[f"1/rank.{rank:03d}/stdout"] == b"0.%d\n1.%d\n" % (rank, rank) for rank in range(300))


def test_an_unfinished_line_of_a_lost_rank_is_shown(tmp_path: Path) -> None:
    desk = Desk(OutputPolicy(str(tmp_path), tag=True), 1)
    desk.output.write(STDOUT, 0, b"abc")
    desk.output.finish()
    assert (tmp_path / "1" / "rank.0" / "stdout").read_bytes() == b"[1,0]<stdout>:abc"


def test_without_a_jobid_the_named_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    Desk(OutputPolicy(str(tmp_path / "link"), jobid=False), 1)
    assert (tmp_path / "real" / "rank.0" / "stdout").exists()
