"""The hosts and ranks of a large world in few words, for frames: every node gets them, so they must not grow with it.

`protocol.control.unpack_plan` has the inverse.  Neighbours whose names differ by one number, and whose ranks are
shifted alike, become one word.  Loaded for jobs with several nodes.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WIDEST = 18  # digits of a number that is counted


def folded_names(names: Iterable[str]) -> list[str]:
    """`node08`, `node09`, `node10` as `node/08/3/`; names that do not go on with the one before stay as they are."""
    groups: list[list[str]] = []
    expected, at = "", ("", "", "")  # the name that would continue the last group; the parts of the last name
    for name in names:
        if expected and name == expected:
            groups[-1].append(name)
            at = (at[0], _next(at[1]), at[2])
        else:
            groups.append([name])
            at = _parts(name)
        expected = f"{at[0]}{_next(at[1])}{at[2]}" if at[1] else ""
    return [_folded_group(group) for group in groups]


def _folded_group(group: Sequence[str]) -> str:
    prefix, number, suffix = _parts(group[0])
    return group[0] if len(group) == 1 else f"{prefix}/{number}/{len(group)}/{suffix}"


def _parts(name: str) -> tuple[str, str, str]:
    """What is before its last number, that number, and what is behind it; "" if there is none."""
    head = name.rstrip("0123456789") if name[-1:].isdigit() else ""
    if head or name.isdigit():
        prefix, number, suffix = head, name[len(head) :], ""
    else:
        end = max((at + 1 for at, char in enumerate(name) if char.isdigit()), default=0)
        prefix = name[:end].rstrip("0123456789")
        number, suffix = name[len(prefix) : end], name[end:]
    fits = number.isascii() and 0 < len(number) <= _WIDEST and "/" not in name
    return (prefix, number, suffix) if fits else (name, "", "")


def _next(number: str) -> str:
    return f"{int(number) + 1:0{len(number)}}" if number else ""


def folded_rows(rows: Iterable[Sequence[int]]) -> list[str]:
    """The ranks of each node; nodes alike, each shifted by the same from the one before, are one word."""
    words: list[str] = []
    first: Sequence[int] = ()  # the row that the last word begins with
    shape: list[int] = []  # its ranks, counted from the first of them
    count = stride = 0
    for row in rows:
        same = bool(count and row) and [rank - row[0] for rank in row] == shape
        step = row[0] - first[0] if same else 0
        if same and step > 0 and (count == 1 or step == count * stride):
            stride = step if count == 1 else stride
            count += 1
            continue
        if count:
            words.append(_folded_row(first, count, stride))
        first, shape, count, stride = row, [rank - row[0] for rank in row], 1, 0
    return [*words, _folded_row(first, count, stride)] if count else words


def _folded_row(first: Sequence[int], count: int, stride: int) -> str:
    return f"{pack_runs(first)}/{count}/{stride}"


def pack_runs(numbers: Iterable[int]) -> str:
    """Ascending numbers in short: runs of one step, `first:count:step` with blanks between."""
    runs: list[list[int]] = []
    for number in numbers:
        run = runs[-1] if runs else None
        if run and run[1] == 1:
            run[1:] = [2, number - run[0]]
        elif run and number == run[0] + run[1] * run[2]:
            run[1] += 1
        else:
            runs.append([number, 1, 1])
    return " ".join(":".join(map(str, run)) for run in runs)
