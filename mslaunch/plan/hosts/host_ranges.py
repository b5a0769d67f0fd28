"""Host ranges: `node[01-03,7]-ib` to names, and names back to such a text for messages.

Brackets that contain a colon are an IPv6 address, and stay as they are.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_NAMES = 65536  #: more names than this are a typing error
_DIGITS = frozenset("0123456789")
_MAX_WIDTH = 18  # digits of one number


def split(text: str) -> list[str]:
    """The entries of a comma list; commas inside brackets do not part.  Empty entries are kept."""
    if "[" not in text:
        return text.split(",")
    entries = []
    depth = start = 0
    for at, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth <= 0:
            entries.append(text[start:at])
            start = at + 1
    entries.append(text[start:])
    return entries


def expand(text: str) -> list[str]:
    """The names that a host list stands for, in order; zero padding is kept, `a,b[1-2]` are three names.

    Several brackets in one name count like the digits of an odometer, the last one fastest.  Raises LaunchError for
    brackets that do not pair, numbers that are none, ranges that run backwards, and for more than 65536 names.
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
    at = 0
    while True:
        begin = entry.find("[", at)
        plain = entry[at:] if begin < 0 else entry[at:begin]
        if "]" in plain:
            raise _refusal(text, "a ] has no [ before it")
        yield (plain,)
        if begin < 0:
            return
        end = entry.find("]", begin)
        if end < 0:
            raise _refusal(text, "a [ has no ] after it")
        inside = entry[begin + 1 : end]
        yield (f"[{inside}]",) if ":" in inside else _numbers(inside, text)
        at = end + 1


def _numbers(inside: str, text: str) -> list[str]:
    """`01-03,7` to 01 02 03 7."""
    numbers: list[str] = []
    for item in inside.split(","):
        low, dash, high = item.partition("-")
        high = high if dash else low
        for number in (low, high):
            if not number or not _DIGITS.issuperset(number) or len(number) > _MAX_WIDTH:
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
    folded = []
    at = 0
    while at < len(names):
        prefix, suffix, numbers = _group(names, at)
        if len(numbers) > 1:
            folded.append(f"{prefix}[{','.join(_runs(numbers))}]{suffix}")
        else:
            folded.append(names[at])
        at += max(1, len(numbers))
    return ",".join(folded)


def _group(names: Sequence[str], at: int) -> tuple[str, str, list[str]]:
    """What the names from `at` on share on both sides of one number, and those numbers; none if they share nothing."""
    if at + 1 == len(names) or not (_foldable(names[at]) and _foldable(names[at + 1])):
        return "", "", []
    one, two = names[at], names[at + 1]
    limit = min(len(one), len(two))
    head = next((i for i in range(limit) if one[i] != two[i]), limit)
    while head and one[head - 1] in _DIGITS:
        head -= 1
    tail = next((i for i in range(limit - head) if one[-1 - i] != two[-1 - i]), limit - head)
    while tail and one[-tail] in _DIGITS:
        tail -= 1
    prefix, suffix = one[:head], one[len(one) - tail :]
    numbers = []
    for name in names[at : at + MAX_NAMES]:
        number = name[head : len(name) - tail]
        fits = len(name) > head + tail and name.startswith(prefix) and name.endswith(suffix)
        if not (fits and _foldable(name) and _DIGITS.issuperset(number) and len(number) <= _MAX_WIDTH):
            break
        numbers.append(number)
    return prefix, suffix, numbers


def _foldable(name: str) -> bool:
    return not any(char in name for char in "[]:,")


def _runs(numbers: Sequence[str]) -> list[str]:
    """01 02 03 7 to 01-03 7."""
    runs = []
    low = high = numbers[0]
    for number in numbers[1:]:
        if number == str(int(high) + 1).zfill(len(low) if low[0] == "0" else 0):
            high = number
            continue
        runs.append(low if low == high else f"{low}-{high}")
        low = high = number
    runs.append(low if low == high else f"{low}-{high}")
    return runs
