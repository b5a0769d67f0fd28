"""Fields: named lists of strings, as bytes; the payload of most control frames.

A word that execve can carry holds no NUL, so NUL separates: `name, count, value, ...`, over and over.  One
`bytes.split` decodes that; importing json cost 10 ms of a launch that takes 40, on every host.  Bytes that are no
UTF-8 pass unharmed, as in `os.environ` (PEP 383).
"""

from __future__ import annotations

from mslaunch.errors import WireError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar

    T = TypeVar("T")


def pack(fields: Mapping[str, Iterable[str]]) -> bytes:
    """The bytes of `fields`; raises `ValueError` for a word that holds a NUL."""
    words: list[str] = []
    for name, values in fields.items():
        listed = list(values)
        words += (name, str(len(listed)))
        words += listed
    text = "\0".join(words)
    if text.count("\0") != max(len(words) - 1, 0):
        raise ValueError("a NUL character cannot be part of an argument or a variable")
    return text.encode("utf-8", "surrogateescape")


def checked(what: str, read: Callable[[], T]) -> T:
    """What `read` returns; every way in which a message can be malformed becomes the one error that says so."""
    try:
        return read()
    except (KeyError, ValueError, IndexError, TypeError, OverflowError):
        raise WireError(f"it sent what is no message of ours ({what})") from None


def strict(unpacker: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """An unpacker that is `checked`."""
    return lambda payload: checked(unpacker.__name__, lambda: unpacker(payload))


def integer(word: str) -> int:
    """The number that a word says; raises ValueError.  int() alone takes minutes for some megabytes of digits."""
    if len(word) > 64:
        raise ValueError("too long for a number")
    return int(word)


MANY = 1 << 18  #: words of a frame; a word takes 20 times the memory of the NUL that ends it


def unpack(payload: bytes, most: int = MANY) -> dict[str, list[str]]:
    """What `pack` was given; raises `WireError` for anything else, and for more than `most` words."""
    if not payload:
        return {}
    if payload.count(b"\0") >= most:
        raise WireError(f"a control frame has more than {most} words")
    words = payload.decode("utf-8", "surrogateescape").split("\0")
    fields: dict[str, list[str]] = {}
    at, size = 0, len(words)
    while at < size:
        try:
            start, end = at + 2, at + 2 + integer(words[at + 1])
        except (IndexError, ValueError):
            raise WireError("a control frame is garbled") from None
        if end < start or end > size:
            raise WireError("a control frame is cut short")
        fields[words[at]] = words[start:end]
        at = end
    return fields
