"""Slurm's notations for many nodes and many numbers: `n[01-16,20]`, `rack[1-2]n[1-4]`, `4(x2),1`.

Grammar and order are those of `scontrol show hostnames` (slurm src/common/hostlist.c): separators within brackets do
not split; a number is padded with zeros to the width of the first of its range; of several groups in a name the last
runs fastest, and of those before it the first.  A suffix behind the last group is accepted, as by Slurm 23.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 1 << 18  #: nodes in a list, as in Slurm (MAX_RANGES)
_DIGITS = 15  #: of a number, at most


def expand(text: str) -> list[str]:
    """The names in the list, repeats kept.  Raises ValueError, with what is wrong, for anything else."""
    names: list[str] = []
    for token in _tokens(text):
        names += _names(token)
        if len(names) > MOST:
            raise ValueError(f"it names more than {MOST} nodes")
    return names


def _tokens(text: str) -> Iterator[str]:
    """The list cut at commas and blanks outside of brackets."""
    token, inside = "", False
    for char in text:
        if char in "[]":
            if inside == (char == "["):
                raise ValueError(f"a {char} too many")
            inside = not inside
        if not inside and char in ", \t\n":
            if token:
                yield token
            token = ""
        else:
            token += char
    if inside:
        raise ValueError("a ] is missing")
    if token:
        yield token


def _names(token: str) -> list[str]:
    first, *rest = token.split("[")
    groups, texts, total = [], [], 1
    for piece in rest:
        body, _, text = piece.partition("]")
        groups.append(_numbers(body))
        texts.append(text)
        total *= len(groups[-1])
        if total > MOST:
            raise ValueError(f"it names more than {MOST} nodes")
    if not groups:
        return [token]
    return [first + "".join(map("".join, zip(chosen, texts))) for chosen in _products(groups)]


def _products(groups: list[list[str]]) -> Iterator[tuple[str, ...]]:
    """A number of each group: the last group runs fastest, then the first, then the second …"""
    from itertools import product

    *front, last = groups
    for chosen in product(*reversed(front), last):
        yield (*reversed(chosen[:-1]), chosen[-1])


def _numbers(body: str) -> list[str]:
    found: list[str] = []
    for part in body.split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        if not (_is_number(low) and _is_number(high)):
            raise ValueError(f"[{body}] is not a list of numbers")
        if not 0 <= int(high) - int(low) < MOST:
            raise ValueError(f"{part} is not a range")
        found += (str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def counts(text: str) -> list[int]:
    """The numbers in `2(x3),1`: 2, 2, 2, 1.  Raises ValueError."""
    found: list[int] = []
    for part in text.split(","):
        number, repeated, rest = part.partition("(x")
        times = rest[:-1] if repeated and rest.endswith(")") else "" if repeated else "1"
        if not (_is_number(number) and _is_number(times)):
            raise ValueError(f"{part!r} is not a number of tasks")
        found += [int(number)] * min(int(times), MOST + 1)
        if len(found) > MOST:
            raise ValueError(f"it has more than {MOST} numbers")
    return found
