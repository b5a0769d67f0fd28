"""The fields of a JSON object from somebody else, each asked for by its kind and with bounds; and texts made harmless.

A field that is missing counts as null: a later mslaunch may leave one out.  Raises `LaunchError`, with the path of the
field and what should stand there.
"""

from __future__ import annotations

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SECONDS = 1e10  #: no time in a record is larger: 300 years
NUMBER = 2**53  #: nor any count; a float still has each whole number up to here
LINE = 1000  #: characters of a text that is one line
TODO = "give the run.json of a launch; docs/report.md says where it is written"


def visible(text: str, most: int = LINE) -> str:
    """The first characters of a text, with what is invisible or acts on its neighbours written as \\x1b or \\u202e.

    These are control characters, marks of writing direction, surrogates, and white space other than blanks and line
    ends.
    """
    cut = text if len(text) <= most else text[: most - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in cut)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


class Fields:
    """One object; `path` is where it stands, as `attempts[0].ranks[3]`, "" for the whole record."""

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, dict):
            raise wrong(path or "it", value, "an object")
        self._value = value
        self._path = path

    def path(self, name: str) -> str:
        """Where a field stands."""
        return f"{self._path}.{name}" if self._path else name

    def _refuse(self, name: str, wanted: str) -> LaunchError:
        return wrong(self.path(name), self._value[name], wanted)

    def line(self, name: str, most: int = LINE) -> str:
        """A text of one line; "" for null."""
        return self.text(name, most).replace("\n", "\\n")

    def text(self, name: str, most: int) -> str:
        """A text that may have several lines; "" for null."""
        value = self._value.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._refuse(name, "a text")
        return visible(value, most)

    def flag(self, name: str) -> bool:
        """True or false; null is false."""
        value = self._value.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._refuse(name, "true or false")
        return bool(value)

    def number(self, name: str, low: int = 0, high: int = NUMBER) -> int | None:
        """A whole number, or None for null."""
        value = self._value.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._refuse(name, f"a whole number from {low} to {high}")
        return value

    def index(self, name: str, length: int) -> int:
        """A number below `length`, which may not be null."""
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < length:
            raise wrong(self.path(name), value, f"a whole number below {length}")
        return value

    def seconds(self, name: str) -> float | None:
        """A time or duration, or None for null."""
        value = self._value.get(name)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= SECONDS:
            raise self._refuse(name, f"seconds, a number from 0 to {SECONDS:.0f}")
        return float(value)

    def words(self, name: str, most: int, longest: int = LINE) -> tuple[str, ...]:
        """A list of texts of one line each, of which so many characters are kept; empty for null."""
        found = []
        for path, value in self.items(name, most):
            if not isinstance(value, str):
                raise wrong(path, value, "a text")
            found.append(visible(value, longest).replace("\n", "\\n"))
        return tuple(found)

    def counts(self, name: str, most: int) -> tuple[int, ...]:
        """A list of whole numbers; empty for null."""
        found = []
        for path, value in self.items(name, most):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER:
                raise wrong(path, value, f"a whole number from 0 to {NUMBER}")
            found.append(value)
        return tuple(found)

    def objects(self, name: str, most: int) -> Iterator[Fields]:
        """A list of objects; empty for null."""
        return (Fields(value, path) for path, value in self.items(name, most))

    def one(self, name: str) -> Fields | None:
        """An object, or None for null."""
        value = self._value.get(name)
        return None if value is None else Fields(value, self.path(name))

    def items(self, name: str, most: int) -> Iterator[tuple[str, Any]]:
        """A list of at most so many values, each with its path; empty for null."""
        value = self._value.get(name)
        if value is None:
            return iter(())
        if not isinstance(value, list):
            raise self._refuse(name, "a list")
        if len(value) > most:
            raise LaunchError(f"{self.path(name)} has {len(value)} entries, and at most {most} are read")
        return ((f"{self.path(name)}[{at}]", item) for at, item in enumerate(value))

    def facts(self, name: str, most: int) -> dict[str, str]:
        """An object of names and plain values, as texts; what is an object itself is written as JSON."""
        value = self._value.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._refuse(name, "an object")
        if len(value) > most:
            raise LaunchError(f"{self.path(name)} has {len(value)} entries, and at most {most} are read")
        texts = {
            fact: ", ".join(known) if _are_texts(known) else known if isinstance(known, str) else _as_json(known)
            for fact, known in value.items()
            if known is not None
        }
        return {visible(fact, 60).replace("\n", "\\n"): visible(text, 200) for fact, text in texts.items()}


def wrong(path: str, value: Any, wanted: str) -> LaunchError:
    """The error for a value that is not what it should be."""
    if isinstance(value, (dict, list)):
        shown = "an object" if isinstance(value, dict) else "a list"
    else:
        shown = visible(_as_json(value), 60)
    return LaunchError(f"it is no record of a run: {path} is {shown} and should be {wanted}", todo=TODO)


def _as_json(value: Any) -> str:
    """JSON as it was read; of what has too many brackets inside each other only that."""
    import json

    try:
        return json.dumps(value)
    except RecursionError:
        return "…"
