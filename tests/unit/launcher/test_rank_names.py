"""Ranks of spawned worlds: their names, and the files of their output."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_output import OutputLab, files
from hypothesis import given
from hypothesis import strategies as st

from mslaunch.datamodel.outcome import Failure, Outcome, RankStatus
from mslaunch.datamodel.request import OutputPolicy
from mslaunch.launcher.messages.closing_report import outcome_text
from mslaunch.launcher.rank_names import RankNames
from mslaunch.protocol.frames import STDERR, STDOUT

TWO = [("alpha", 0), ("gamma", 2)]  # where two spawned ranks are


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_every_rank_has_one_name(sizes: list[int]) -> None:
    worlds = RankNames(*sizes)
    assert [worlds.of(rank) for rank in range(sum(sizes))] == [
        (number, own) for number, size in enumerate(sizes, 1) for own in range(size)
    ]
    assert [worlds.size(number) for number in range(1, len(sizes) + 1)] == sizes
    names = [worlds.name(rank) for rank in range(sum(sizes))]
    assert len(set(names)) == worlds.end == sum(sizes)


@given(st.integers(0, 9), st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_a_share_numbers_ranks_as_the_job_does(first: int, sizes: list[int]) -> None:
    """The numbers in frames are the ranks of the job; spawned worlds have ranks from 0 all the same."""
    worlds, later = RankNames(*sizes, first=first), RankNames()
    assert [later.add(size, first) for size in sizes] == [first + sum(sizes[:at]) for at in range(len(sizes))]
    numbers = range(first, first + sum(sizes))
    owns = [(1, first + own) for own in range(sizes[0])]
    owns += [(number, own) for number, size in enumerate(sizes[1:], 2) for own in range(size)]
    for one in (worlds, later):
        assert [one.of(rank) for rank in numbers] == owns
        assert [one.size(number) for number in range(1, len(sizes) + 1)] == sizes
        assert one.end == numbers.stop and one.name(first) == f"rank {first}"
        assert one.names(numbers[: sizes[0]]) == RankNames(99).names(numbers[: sizes[0]])


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([0], "rank 0"),
        ([2, 0, 1], "ranks 0-2"),
        ([4], "rank 1 of world 2"),
        ([3, 4, 6], "ranks 0-1 of world 2 and rank 1 of world 3"),
        ([2, 5], "rank 2 and rank 0 of world 3"),
    ],
)
def test_names_of_several_ranks_are_folded(ranks: list[int], text: str) -> None:
    assert RankNames(3, 2, 4).names(ranks) == text


def test_the_report_tells_worlds_apart() -> None:
    statuses = (
        RankStatus(0, "n0", 1, None, 15, "ended"),
        RankStatus(1, "n0", 2, 5, world=2),
        RankStatus(2, "n0", 3, None, 15, "ended", world=2),
        RankStatus(3, "n0", None, 127, None, "not started", world=3),
    )
    failure = Failure("rank 0 of world 2 ended with exit code 5", "n0", 1, 5)
    assert outcome_text(Outcome(5, statuses, failure, 1.0)) == (
        "mslaunch: rank 0 of world 2 ended with exit code 5 on n0, after 1.0 s\n"
        "  ended by mslaunch: rank 0 and rank 1 of world 2\n"
        "  not started: rank 0 of world 3\n"
    )


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        (OutputPolicy(tag="tag"), b"[1,0]<stdout>:a\n[2,1]<stdout>:b\n"),
        (OutputPolicy(tag="tag", style="5.0"), b"[1,0]<stdout>: a\n[2,1]<stdout>: b\n"),
        (OutputPolicy(prepend="%g %r %p %h|"), b"0 0 0 alpha|a\n1 1 2 gamma|b\n"),
        (OutputPolicy(xml=True), b'<mpirun>\n<stdout rank="0">a&#010;</stdout>\n'
                                 b'<stdout rank="1" world="2">b&#010;</stdout>\n'),
        (OutputPolicy(), b"a\nb\n"),
    ],
    ids=str,
)  # fmt: skip
def test_tags_of_spawned_ranks(policy: OutputPolicy, shown: bytes) -> None:
    lab = OutputLab(policy, 2)
    lab.output.add_world(TWO)
    lab.output.started(3, 99)
    lab.output.write(STDOUT, 0, b"a\n")
    lab.output.write(STDOUT, 3, b"b\n")
    assert lab.seen()[0] == shown


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OutputPolicy("d"), ["d/1/rank.0/stderr", "d/1/rank.0/stdout", "d/2/rank.0/stderr", "d/2/rank.0/stdout",
                             "d/2/rank.1/stderr", "d/2/rank.1/stdout"]),
        (OutputPolicy("d", jobid=False, merge=True), ["d/2/rank.0/stdout", "d/2/rank.1/stdout", "d/rank.0/stdout"]),
        (OutputPolicy(file="f", merge=True), ["f.0.out", "f.2.0.out", "f.2.1.out"]),
        (OutputPolicy(outfile="o.%g.%r"), ["o.0.0", "o.1.0", "o.1.1"]),
    ],
    ids=str,
)  # fmt: skip
def test_files_of_spawned_ranks(
    policy: OutputPolicy, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lab = OutputLab(policy)
    lab.output.add_world(TWO)
    lab.output.write(STDOUT, 2, b"text")
    assert lab.output.close()
    found = files(tmp_path)
    assert sorted(found) == expected
    (last,) = [name for name, text in found.items() if text == b"text"]
    assert "1" in last and last != expected[0]


def test_the_number_of_ranks_of_each_world_pads_its_own(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path / "d")), 10)
    lab.output.add_world(TWO)
    assert tuple(lab.output.log_of(Failure("", rank=rank)) for rank in (9, 10)) == (
        str(tmp_path / "d/1/rank.09/stderr"),
        str(tmp_path / "d/2/rank.0/stderr"),
    )
    lab.output.close()


def test_a_file_that_a_spawned_rank_shares_gets_whole_lines(tmp_path: Path) -> None:
    """As with hydra's %r, which is the same for the two."""
    lab = OutputLab(OutputPolicy(outfile=str(tmp_path / "o.%r")))
    lab.output.write(STDOUT, 0, b"before\n")
    lab.output.add_world(TWO)
    for rank, text in ((0, b"one "), (1, b"two "), (0, b"line\n"), (1, b"lines\n")):
        lab.output.write(STDOUT, rank, text)
    lab.output.finish()
    assert lab.output.close()
    assert (tmp_path / "o.0").read_bytes() == b"before\none line\ntwo lines\n"


def test_files_that_cannot_be_made_do_not_end_the_job(tmp_path: Path) -> None:
    lab = OutputLab(OutputPolicy(str(tmp_path / "d")))
    (tmp_path / "d" / "2").write_text("in the way")
    lab.output.add_world(TWO)
    lab.output.write(STDERR, 1, b"x\n")
    assert len(lab.notices) == 1 and "not kept" in lab.notices[0]
    assert lab.seen() == (b"", b"x\n")
    assert not lab.output.close(), "the exit code tells"
