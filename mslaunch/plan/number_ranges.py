"""Ranges of numbers as text, `0-2,5` or with strides `0-12/4`, and back."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def ranges(numbers: Iterable[int], separator: str = ",", strides: bool = False) -> str:
    """Rising numbers: 0 1 2 5 is `0-2,5`; with `strides` 0 4 8 12 is `0-12/4`, every fourth."""
    rows = list(numbers)
    parts = []
    at = 0
    while at < len(rows):
        step = rows[at + 1] - rows[at] if strides and at + 1 < len(rows) else 1
        end = at + 1
        while end < len(rows) and rows[end] - rows[end - 1] == step > 0:
            end += 1
        if end - at < (2 if step == 1 else 3):
            end = at + 1
            parts.append(str(rows[at]))
        else:
            parts.append(f"{rows[at]}-{rows[end - 1]}" + (f"/{step}" if step != 1 else ""))
        at = end
    return separator.join(parts)


def bounds(text: str) -> tuple[int, int] | None:
    """The first and the last number of `3` or `2-5`; None for anything else."""
    low, dash, high = (word.strip() for word in text.partition("-"))
    high = high if dash else low
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in (low, high)) or int(high) < int(low):
        return None
    return int(low), int(high)
