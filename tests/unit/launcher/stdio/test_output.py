"""Output of ranks: the bytes on each terminal and in each file, with and without tags."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_output import FakeOutput, OutputLab, files, jobmap_of
from hypothesis import given, settings
from hypothesis import strategies as st
from open_descriptors import open_descriptors

from mslaunch.datamodel.node_plan import SERVICE_BASE as SERVICE
from mslaunch.datamodel.outcome import Failure
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.errors import LaunchError
from mslaunch.launcher.stdio.file_patterns import PatternValues
from mslaunch.launcher.stdio.line_prefix import LONGEST
from mslaunch.launcher.stdio.output import AttemptInfo, Output, open_output
from mslaunch.launcher.stdio.terminal import Console, OutputFd
from mslaunch.protocol.frames import STDERR, STDOUT
from mslaunch.runtime.loop import Loop

FIRST_SERVER = SERVICE - 1

PRINTED = st.lists(
    st.tuples(st.sampled_from([STDOUT, STDERR]), st.integers(0, 2), st.binary(max_size=6) | st.sampled_from([b"\n"])),
    max_size=24,
)


def write_all(lab: OutputLab, printed: list[tuple[int, int, bytes]]) -> None:
    for kind, rank, data in printed:
        if data:
            lab.output.write(kind, rank, data)
    lab.output.finish()


def of(printed: list[tuple[int, int, bytes]], kind: int, rank: int | None = None) -> bytes:
    return b"".join(data for a, b, data in printed if a == kind and rank in (None, b))


@settings(max_examples=40, deadline=None)
@given(PRINTED)
def test_without_options_bytes_pass_unchanged(printed: list[tuple[int, int, bytes]]) -> None:
    lab = OutputLab(OutputPolicy(), 3)
    write_all(lab, printed)
    assert lab.seen() == (of(printed, STDOUT), of(printed, STDERR))


@settings(max_examples=40, deadline=None)
@given(printed=PRINTED)
def test_files_hold_exactly_the_bytes_of_their_rank(
    printed: list[tuple[int, int, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("logs")
    lab = OutputLab(OutputPolicy(str(top)), 3)
    write_all(lab, printed)
    assert lab.output.close()
    assert files(top) == {
        f"1/rank.{rank}/{name}": of(printed, kind, rank)
        for rank in range(3)
        for kind, name in ((STDOUT, "stdout"), (STDERR, "stderr"))
    }
    assert lab.seen() == (of(printed, STDOUT), of(printed, STDERR))


def test_merged_files_of_ranks_and_scheduler(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path), jobid=False, merge=True), 2)
    lab.output.write(STDOUT, 0, b"a")
    lab.output.write(STDERR, 0, b"b")
    lab.output.write(STDERR, SERVICE, b"words")
    assert lab.output.close() and not lab.terminals[STDOUT].closed
    assert files(tmp_path) == {"rank.0/stdout": b"ab", "rank.1/stdout": b"", "scheduler/stdout": b"words"}
    assert lab.output.log_of(Failure("", rank=0)) == str(tmp_path / "rank.0/stdout")
    assert lab.seen() == (b"a", b"b")  # the agent merges the streams; what arrives as stderr is shown as stderr


def test_nocopy_and_the_scheduler_stay_off_the_terminal(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path), copy=False))
    lab.output.write(STDOUT, 0, b"a")
    assert lab.seen() == (b"", b"") and files(tmp_path)["1/rank.0/stdout"] == b"a"
    lab = OutputLab(OutputPolicy())
    lab.output.write(STDERR, SERVICE, b"words")
    assert lab.seen() == (b"", b"") and lab.output.tail(SERVICE) == ["words"]


def test_hydra_shows_only_the_stream_that_has_no_pattern(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(outfile=str(tmp_path / "o.%r")), 2)
    lab.output.write(STDOUT, 1, b"out")
    lab.output.write(STDERR, 1, b"err")
    assert lab.seen() == (b"", b"err") and files(tmp_path) == {"o.0": b"", "o.1": b"out"}
    lab = OutputLab(OutputPolicy(errfile=str(tmp_path / "e.%r")), 2)
    lab.output.write(STDOUT, 1, b"out")
    lab.output.write(STDERR, 1, b"err")
    assert lab.seen() == (b"out", b"") and files(tmp_path)["e.1"] == b"err"


def test_tags_are_in_the_files_too(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path), tag="tag"), 1)
    lab.output.write(STDOUT, 0, b"a\nb")
    lab.output.finish()
    assert files(tmp_path)["1/rank.0/stdout"] == lab.seen()[0] == b"[1,0]<stdout>:a\n[1,0]<stdout>:b"


def test_a_tag_begins_a_line_even_after_an_unfinished_one(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path), tag="rank"), 2)
    for rank in (0, 1, 1):
        lab.output.write(STDOUT, rank, b"no end")
        lab.output.write(STDOUT, rank, b"")
    assert lab.seen()[0] == b"[0] no end\n[1] no end[1] no end"
    assert files(tmp_path)["1/rank.0/stdout"] == b"[0] no end", "the line end is the terminal's alone"


def test_lines_of_two_ranks_in_one_file_are_whole(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(outfile=str(tmp_path / "all")), 2)
    for rank, data in ((0, b"a"), (1, b"b"), (0, b"A\nrest"), (1, b"B\n"), (0, b""), (1, b"after\n")):
        lab.output.write(STDOUT, rank, data)
    lab.output.finish()
    assert files(tmp_path) == {"all": b"aA\nbB\nrest\nafter\n"}


@settings(max_examples=40, deadline=None)
@given(printed=PRINTED)
def test_a_shared_file_has_the_lines_of_each_stream_in_order(
    printed: list[tuple[int, int, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("logs")
    whole = [(kind, rank, b"%d.%d-%s\n" % (kind, rank, data.replace(b"\n", b""))) for kind, rank, data in printed]
    lab = OutputLab(OutputPolicy(outfile=str(top / "all"), errfile=str(top / "all")), 3)
    for kind, rank, line in whole:
        lab.output.write(kind, rank, line[:3])
        lab.output.write(kind, rank, line[3:-1])
        lab.output.write(kind, rank, line[-1:])
    lab.output.finish()
    assert files(top)["all"] == b"".join(line for _, _, line in whole)


# --- the end of a stream is not the end of a rank


@pytest.mark.parametrize("tag", ["", "tag"])
def test_a_restarted_rank_appends_to_its_files(tmp_path: Path, tag: str) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path), tag=tag), 1)
    for life in (b"first", b"second"):
        lab.output.started(0, 1)
        lab.output.write(STDOUT, 0, life)
        lab.output.write(STDOUT, 0, b" life\n")
        lab.output.write(STDERR, 0, life + b" words")
        lab.output.write(STDERR, 0, b"")
        lab.output.write(STDOUT, 0, b"")
    lab.output.finish()
    out, err = (b"[1,0]<stdout>:", b"[1,0]<stderr>:") if tag else (b"", b"")
    assert files(tmp_path)["1/rank.0/stdout"] == out + b"first life\n" + out + b"second life\n"
    assert files(tmp_path)["1/rank.0/stderr"] == err + b"first words" + err + b"second words"
    assert lab.output.tail(0) == ["second words"], "not those of the one before"


def test_an_unfinished_line_of_a_lost_rank_is_shown(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path), tag="tag"), 1)
    lab.output.write(STDOUT, 0, b"abc")
    lab.output.finish()
    assert (tmp_path / "1" / "rank.0" / "stdout").read_bytes() == b"[1,0]<stdout>:abc"


def test_the_last_lines_of_a_rank_are_kept() -> None:
    lab = OutputLab(OutputPolicy())
    lab.output.write(STDOUT, 0, b"not this\n")
    for number in range(3000):
        lab.output.write(STDERR, 0, b"line %d\n" % number)
    assert lab.output.tail(0, 2) == ["line 2998", "line 2999"]
    lab.output.write(STDERR, 0, b"red\tand \xff half")
    assert lab.output.tail(0, 1) == ["red\tand \ufffd half"]
    assert lab.output.tail(7) == []


# --- XML


@settings(max_examples=60, deadline=None)
@given(PRINTED)
def test_xml_is_one_document_with_all_the_bytes(printed: list[tuple[int, int, bytes]]) -> None:
    lab = OutputLab(OutputPolicy(xml=True), 3)
    write_all(lab, printed)
    seen, err = lab.seen()
    assert err == b""
    root = ElementTree.fromstring(seen)
    assert root.tag == "mpirun"
    for kind, name in ((STDOUT, "stdout"), (STDERR, "stderr")):
        for rank in range(3):
            text = "".join(element.text or "" for element in root.iter(name) if element.get("rank") == str(rank))
            assert bytes(code - 0x2400 if code >= 0x2400 else code for code in map(ord, text)) == of(
                printed, kind, rank
            )


def test_xml_with_files_only_is_an_empty_document(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path), copy=False, xml=True))
    lab.output.write(STDOUT, 0, b"a\n")
    lab.output.finish()
    assert lab.seen() == (b"<mpirun>\n</mpirun>\n", b"")
    assert files(tmp_path)["1/rank.0/stdout"] == b'<stdout rank="0">a&#010;</stdout>\n'


@pytest.mark.parametrize(("style", "shown"), [("4.1", False), ("5.0", True)])
def test_time_stamps_in_xml_are_of_5_0(style: str, shown: bool) -> None:
    lab = OutputLab(OutputPolicy(xml=True, timestamp=True, tag="tag", style=style))
    lab.output.write(STDOUT, 0, b"a\n")
    assert (b" timestamp=" in lab.seen()[0]) is shown and b"[1,0]" not in lab.seen()[0]


def test_the_map_is_inside_the_document() -> None:
    lab = OutputLab(OutputPolicy(xml=True), 3)
    lab.output.show_map(jobmap_of(3))
    lab.output.finish()
    hosts = ElementTree.fromstring(lab.seen()[0]).findall("map/host")
    assert [host.get("name") for host in hosts] == ["alpha", "beta"]


def test_an_xml_file_leaves_the_terminals_alone(tmp_path: Path) -> None:
    before = len(open_descriptors())
    reader, writer = os.pipe()
    terminal = FakeOutput()
    with Loop() as loop:
        policy = OutputPolicy(xml_file=str(tmp_path / "below/x.xml"))
        stdout = OutputFd(loop, writer, "standard output", pytest.fail)
        output = open_output(policy, jobmap_of(2), loop, {STDOUT: stdout, STDERR: terminal}, pytest.fail)
        output.write(STDOUT, 0, b"a\n")
        output.write(STDERR, 1, b"b\n")
        output.abandon()  # that is for terminals
        output.finish()
        assert output.close()
        stdout.close()
    os.close(writer)
    assert os.read(reader, 9) == terminal.seen == b""
    os.close(reader)
    assert (tmp_path / "below/x.xml").read_text().splitlines() == [
        "<mpirun>",
        '<stdout rank="0">a&#010;</stdout>',
        '<stderr rank="1">b&#010;</stderr>',
        "</mpirun>",
    ]
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_xml_file_on_a_full_disk_is_reported() -> None:
    notices: list[str] = []
    with Loop() as loop:
        terminals = {STDOUT: FakeOutput(), STDERR: FakeOutput()}
        output = open_output(OutputPolicy(xml_file="/dev/full"), jobmap_of(1), loop, terminals, notices.append)
        output.finish()
        assert not output.close()
    assert notices == ["/dev/full: No space left on device; further output is lost"]


# --- selected ranks, and attempts


@pytest.mark.parametrize("looks", [{}, {"tag": "rank"}, {"xml": True}])
def test_only_the_chosen_ranks_are_shown_and_files_have_all(tmp_path: Path, looks: dict[str, object]) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path), merge=True, shown=(1,), **looks), 3)  # type: ignore[arg-type]
    for rank in range(3):
        lab.output.write(STDOUT, rank, b"words of %d\n" % rank)
    seen = lab.seen()[0]
    assert b"words of 1" in seen and b"words of 0" not in seen and b"words of 2" not in seen
    assert all(b"words of %d" % rank in files(tmp_path)[f"1/rank.{rank}/stdout"] for rank in range(3))


def test_merged_streams_with_tags_are_whole_lines() -> None:
    lab = OutputLab(OutputPolicy(merge=True, tag="tag"), 2)
    for rank, data in ((0, b"ab"), (1, b"x"), (0, b"c\nd"), (1, b"y\n"), (0, b"e\n")):
        lab.output.write(STDOUT, rank, data)
    assert lab.seen()[0] == b"[1,0]<stdout>:abc\n[1,1]<stdout>:xy\n[1,0]<stdout>:de\n"


@pytest.mark.parametrize("same", [True, False])
def test_where_both_streams_are_one_device_a_torn_line_is_ended_before_another(same: bool) -> None:
    with Loop() as loop, open(os.pipe()[1], "wb") as elsewhere:
        reader, writer = os.pipe()
        console = Console(loop, writer, quiet=False, verbose=False)
        stdout = console.open_stdout(writer if same else elsewhere.fileno())
        assert (stdout is console.stderr) is same
        terminals = {STDOUT: stdout, STDERR: console.stderr}
        output = Output(OutputPolicy(tag="rank"), PatternValues([("n", 0)]), terminals, pytest.fail)
        output.write(STDOUT, 0, b"x" * (LONGEST + 1))
        output.write(STDERR, 0, b"error\n")
        read: list[bytes] = []
        loop.reader(reader, lambda: read.append(os.read(reader, 1 << 20)))
        loop.run(lambda: b"".join(read).endswith(b"error\n"))
        assert b"".join(read).endswith(b"x\n[0] error\n" if same else b"[0] error\n")
        assert (b"x" in b"".join(read)) is same
        for fd in (reader, writer):
            os.close(fd)


def test_the_last_lines_of_a_parameter_server_are_kept() -> None:
    lab = OutputLab(OutputPolicy())
    lab.output.started(SERVICE - 1, 7)
    lab.output.write(STDOUT, SERVICE - 1, b"out\n")
    lab.output.write(STDERR, SERVICE - 1, b"err\n")
    assert lab.output.tail(SERVICE - 1) == ["out", "err"] and lab.seen() == (b"", b"")


def attempts(policy: OutputPolicy, printed: list[bytes], more: bool) -> bytes:
    """The bytes on standard output, a pipe, when rank 0 prints these in successive attempts."""
    before = len(open_descriptors())
    reader, writer = os.pipe()
    with Loop() as loop:
        terminals = {STDOUT: OutputFd(loop, writer, "standard output", pytest.fail), STDERR: FakeOutput()}
        for number, data in enumerate(printed, 1):
            last = not more or number == len(printed)
            info = AttemptInfo(number, more)
            output = open_output(policy, jobmap_of(2), loop, terminals, pytest.fail, info=info)
            if data:
                output.write(STDOUT, 0, data)
            output.finish()
            if last:
                output.end()
            loop.run(lambda: not output.pending)  # noqa: B023
            assert output.close()
        terminals[STDOUT].close()
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read()
    assert len(os.listdir("/proc/self/fd")) == before
    return text


def test_attempts_print_one_after_another_on_the_same_terminal() -> None:
    assert attempts(OutputPolicy(), [b"one\n", b"two\n"], more=False) == b"one\ntwo\n"
    assert attempts(OutputPolicy(tag="rank"), [b"one\n", b"two\n"], more=True) == b"[0] one\n[0] two\n"


@pytest.mark.parametrize("printed", [[b"one\n", b"two\n"], [b"", b"two\n"], [b"one\n", b""], [b"", b"", b""], [b"a\n"]])
def test_attempts_are_one_document(printed: list[bytes]) -> None:
    root = ElementTree.fromstring(attempts(OutputPolicy(xml=True), printed, more=True))
    assert [element.text for element in root] == [data.decode() for data in printed if data]


def test_in_files_each_attempt_is_a_document_and_earlier_ones_are_kept(tmp_path: Path) -> None:
    policy = OutputPolicy(xml_file=str(tmp_path / "x.xml"), keep=True)
    for _ in range(2):
        assert attempts(policy, [b"one\n", b"two\n"], more=True) == b""
    assert sorted(files(tmp_path)) == ["x.attempt-2.xml", "x.attempt-2.xml.1", "x.xml", "x.xml.1"]
    for name, text in (("x.xml", "one\n"), ("x.attempt-2.xml.1", "two\n")):
        assert [element.text for element in ElementTree.parse(tmp_path / name).getroot()] == [text]


def test_files_are_named_for_addresses_of_hosts(tmp_path: Path) -> None:
    policy = OutputPolicy(outfile=str(tmp_path / "w_%a_%r.log"), merge=True)
    addresses = {0: "10.0.0.1", 1: "10.0.0.2"}.__getitem__
    with Loop() as loop:
        terminals = {STDOUT: FakeOutput(), STDERR: FakeOutput()}
        output = open_output(policy, jobmap_of(2), loop, terminals, pytest.fail, addresses)
        output.started(SERVICE, 1)
        assert output.close()
    assert sorted(files(tmp_path)) == ["scheduler.log", "w_10.0.0.1_0.log", "w_10.0.0.2_1.log"]


# --- refusals


def test_a_refusal_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rank.1").write_text("no directory")
    (tmp_path / "file").write_text("")
    bad = [
        OutputPolicy(str(tmp_path)),
        OutputPolicy(str(tmp_path / "file")),
        OutputPolicy(str(tmp_path / "file/below")),
        OutputPolicy(str(tmp_path / "fine"), prepend="%q"),
        OutputPolicy(outfile=str(tmp_path / "%z")),
        OutputPolicy(xml_file=str(tmp_path / "file/x")),
        OutputPolicy(xml_file=str(tmp_path / "x"), outfile=str(tmp_path / "file/x")),
    ]
    with Loop() as loop:
        before = len(open_descriptors())
        for policy in bad:
            with pytest.raises(LaunchError):
                open_output(policy, jobmap_of(2), loop, {STDOUT: FakeOutput(), STDERR: FakeOutput()}, pytest.fail)
        assert len(os.listdir("/proc/self/fd")) == before
