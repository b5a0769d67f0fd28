"""Host lists: ranges to names, names to ranges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mslaunch.errors import LaunchError
from mslaunch.plan.hosts.host_ranges import MAX_NAMES, expand, fold, quoted, split

FEW = settings(max_examples=50, deadline=None)  # a file is done within two seconds, on a busy machine too


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("", [""]),
        ("node[1-3]", ["node1", "node2", "node3"]),
        ("node[01-03,7]-ib", ["node01-ib", "node02-ib", "node03-ib", "node7-ib"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[099-101]", ["n099", "n100", "n101"]),
        ("n[0]", ["n0"]),
        ("[1-2]", ["1", "2"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("a,b[1-2],c", ["a", "b1", "b2", "c"]),
        ("[fd00::1]", ["[fd00::1]"]),
        ("[fd00::1],n[1-2]", ["[fd00::1]", "n1", "n2"]),
    ],
)
def test_ranges_are_expanded(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[3-1]", "runs backwards"),
        ("n[1-2", "no ]"),
        ("n1-2]", "no ["),
        ("n[]", "hold numbers"),
        ("n[a-c]", "hold numbers"),
        ("n[1-2-3]", "hold numbers"),
        ("n[-3]", "hold numbers"),
        ("n[1,,2]", "hold numbers"),
        ("n[[1]]", "hold numbers"),
        ("n[1-010]", "padded differently"),
        ("n[¹-²]", "hold numbers"),  # digits to str.isdigit, not to a resolver
        ("n[1-" + "9" * 5000 + "]", "hold numbers"),
        (f"n[0-{MAX_NAMES}]", "more than"),
        ("n[1-600][1-600]", "more than"),
        ("n[1-200000],m[1-200000]", "more than"),
        ("n" + "[0-9]" * 400, "more than"),
    ],
)
def test_malformed_ranges_are_refused(text: str, why: str) -> None:
    with pytest.raises(LaunchError) as caught:
        expand(text)
    assert why in caught.value.what
    assert "node[01-16]" in caught.value.todo


def test_the_largest_range_is_taken() -> None:
    assert len(expand(f"n[1-{MAX_NAMES}]")) == MAX_NAMES


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["node01", "node02", "node03"], "node[01-03]"),
        (["node01-ib", "node02-ib", "node7-ib"], "node[01-02,7]-ib"),
        (["n9", "n10", "n12"], "n[9-10,12]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n3", "n2", "n1"], "n[3,2,1]"),
        (["n10", "n11"], "n[10-11]"),
        (["n11", "n21"], "n[11,21]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["a", "b", "c1", "c2"], "a,b,c[1-2]"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["fd00::1", "fd00::2"], "fd00::1,fd00::2"),
        (["a1", "a1"], "a[1,1]"),
    ],
)
def test_names_are_folded_to_ranges(names: list[str], text: str) -> None:
    assert fold(names) == text


NAMES = st.lists(
    st.one_of(
        st.from_regex(r"[a-c]{0,2}[0-9]{1,3}(-ib[0-2]?)?", fullmatch=True),
        st.from_regex(r"[a-z0-9._-]{1,8}", fullmatch=True),
    ),
    max_size=12,
)


@FEW
@given(NAMES)
def test_fold_and_expand_are_inverse(names: list[str]) -> None:
    assert expand(fold(names)) == (names or [""])


@FEW
@given(st.integers(0, 1200), st.integers(2, 40), st.integers(0, 4))
def test_a_run_of_numbers_folds_to_one_range(first: int, count: int, width: int) -> None:
    names = [f"n{number:0{width}}x" for number in range(first, first + count)]
    folded = fold(names)
    assert expand(folded) == names
    assert "," not in folded


@FEW
@given(st.text("an019[]-,:", max_size=20))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        names = expand(text)
    except LaunchError:
        return
    assert 1 <= len(names) <= MAX_NAMES


class _NeverCopied(list):
    """A list of which no more than two are looked at together."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        assert not isinstance(at, slice) or len(found) <= 2
        return found


def test_names_that_have_nothing_in_common_are_looked_at_once() -> None:
    names = [f"{'abcdefghij'[number % 10] * (number % 7 + 1)}{number}" for number in range(500)]
    assert fold(_NeverCopied(names)) == ",".join(names)


def test_commas_in_brackets_do_not_separate() -> None:
    assert split("a,n[1,3-4]:2,[fd00::1]:2,") == ["a", "n[1,3-4]:2", "[fd00::1]:2", ""]


def test_quoted_text_is_short_and_printable() -> None:
    assert quoted("a\x00\tb") == '"a\\x00\\tb"'
    assert len(quoted("x" * 1000)) == 62
    assert quoted("\ud800é") == '"\\ud800é"'
