"""Host ranges: `node[01-03,7]-ib` to names, and names back to such a text for messages.

Brackets that contain a colon are an IPv6 address, and stay as they are.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_NAMES = 1 << 18  #: more names than this are a typing error
_DIGITS = frozenset("0123456789")
_MAX_WIDTH = 18  # digits of one number


def split(text: str) -> list[str]:
    """The entries of a comma list; commas inside brackets do not part.  Empty entries are kept."""
    entries: list[list[str]] = []
    depth = 0
    for piece in text.split(","):
        if depth > 0:
            entries[-1].append(piece)
        else:
            entries.append([piece])
        depth += piece.count("[") - piece.count("]")
    return [",".join(pieces) for pieces in entries]


def expand(text: str) -> list[str]:
    """The names that a host list stands for, in order; zero padding is kept, `a,b[1-2]` are three names.

    Several brackets in one name count like the digits of an odometer, the last one fastest.  Raises LaunchError for
    brackets that do not pair, numbers that are none, ranges that run backwards, and for more than MAX_NAMES names.
    """
    names: list[str] = []
    for entry in split(text):
        made = [""]
        for piece in _pieces(entry, text):
            if len(names) + len(made) * len(piece) > MAX_NAMES:
                raise _refusal(text, f"it stands for more than {MAX_NAMES} names")
            made = [head + tail for head in made for tail in piece]
        names += made
    return names


def _pieces(entry: str, text: str) -> Iterator[Sequence[str]]:
    """The parts of one entry, each as the texts that it may be: `a[1-2]b` is (a), (1, 2), (b)."""
    bracket = "["
    while bracket:
        plain, bracket, rest = entry.partition("[")
        if "]" in plain:
            raise _refusal(text, "a ] has no [ before it")
        yield (plain,)
        inside, end, entry = rest.partition("]")
        if bracket and not end:
            raise _refusal(text, "a [ has no ] after it")
        if bracket:
            yield (f"[{inside}]",) if ":" in inside else _numbers(inside, text)


def _numbers(inside: str, text: str) -> list[str]:
    """`01-03,7` to 01 02 03 7."""
    numbers: list[str] = []
    for item in inside.split(","):
        low, dash, high = item.partition("-")
        high = high if dash else low
        if not all(0 < len(number) <= _MAX_WIDTH and _DIGITS.issuperset(number) for number in (low, high)):
            raise _refusal(text, f"brackets hold numbers and ranges of numbers, not {quoted(item)}")
        first, last = int(low), int(high)
        if last < first:
            raise _refusal(text, f"the range {item} runs backwards")
        if high[0] == "0" and len(high) != len(low):
            raise _refusal(text, f"the two ends of {item} are padded differently")
        if last - first >= MAX_NAMES - len(numbers):
            raise _refusal(text, f"it stands for more than {MAX_NAMES} names")
        width = len(low) if low[0] == "0" else 0
        numbers += [str(number).zfill(width) for number in range(first, last + 1)]
    return numbers


def _refusal(text: str, why: str) -> LaunchError:
    what = f"{why}, in the host list {quoted(text)}"
    return LaunchError(what, todo="write it like node[01-16] or gpu[1,3-5]-ib")


def quoted(text: str, limit: int = 60) -> str:
    """A text as a message may show it: cut, and with all that is not printable escaped."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    return f'"{shown}"'


def fold(names: Sequence[str]) -> str:
    """The inverse of `expand`, for messages: neighbours that differ in one number become `node[01-03,07]`.

    The order is kept; nothing is sorted.  Names with a colon (addresses) are left as they are.
    """
    folded: list[str] = []
    at = 0
    while at < len(names):
        prefix, suffix, numbers = _group(names, at)
        folded.append(f"{prefix}[{','.join(_runs(numbers))}]{suffix}" if len(numbers) > 1 else names[at])
        at += max(1, len(numbers))
    return ",".join(folded)


def _group(names: Sequence[str], at: int) -> tuple[str, str, list[str]]:
    """What the names from `at` on share on both sides of one number, and those numbers; none if they share nothing."""
    if at + 1 == len(names) or not (_foldable(names[at]) and _foldable(names[at + 1])):
        return "", "", []
    pair = names[at : at + 2]
    prefix = _shared(pair)
    head = len(prefix)
    suffix = _shared([name[head:][::-1] for name in pair])[::-1]
    numbers = []
    for place in range(at, min(len(names), at + MAX_NAMES)):  # no slice: there may be as many groups as names
        name = names[place]
        number = name[head : len(name) - len(suffix)]
        fits = len(name) > head + len(suffix) and name.startswith(prefix) and name.endswith(suffix)
        if not (fits and _foldable(name) and _DIGITS.issuperset(number) and len(number) <= _MAX_WIDTH):
            break
        numbers.append(number)
    return prefix, suffix, numbers


def _shared(names: Sequence[str]) -> str:
    """The characters that all names begin with, up to the last one that is no digit."""
    return os.path.commonprefix(names).rstrip("0123456789")  # noqa: RUF071 (of characters, not of parts of paths)


def _foldable(name: str) -> bool:
    return not any(char in name for char in "[]:,")


def _runs(numbers: Sequence[str]) -> list[str]:
    """01 02 03 7 to 01-03 7."""
    runs: list[list[str]] = []
    for number in numbers:
        low, high = runs[-1] if runs else ("", "")
        if low and number == str(int(high) + 1).zfill(len(low) if low[0] == "0" else 0):
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [low if low == high else f"{low}-{high}" for low, high in runs]
