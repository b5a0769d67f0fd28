"""The file of a job in the registry: facts in JSON, which count only if each has the shape that it must have.

A file may come from another version, or be half of one after a crash; who reads it must not stumble.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.jobs.private_folder import read_own

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAME = "job"
_NEW = "job.new"
_MOST = 16 << 20  # bytes
_PID = 1 << 31  # of a process, and one more
_SECONDS = 1e11  # more than any time; localtime() fails far above it
_GRACE = 1e300
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < _SECONDS


def _grace(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < _GRACE


def _count(value: object) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value < _PID)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _words(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _process(value: object) -> bool:
    if not isinstance(value, list) or not 3 <= len(value) <= 4:
        return False
    pid, *rest = value
    return isinstance(pid, int) and 0 < pid < _PID and all(map(_text, rest))


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _code(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 256


def _layouts(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, list) and bool(one) and _text(one[0]) and all(map(_text_or_none, one)) for one in value
    )


_REQUIRED: dict[str, Callable[[object], bool]] = {
    "began": _number, "command": _words, "cwd": _text, "grace": _grace, "logs": _text_or_none, "process": _process,
    "ranks": _count,
}  # fmt: skip
_OPTIONAL: dict[str, Callable[[object], bool]] = {
    "running": _number, "ended": _number, "code": _code, "how": _text, "block": _text, "waiting": _text,
    "program": _text, "layouts": _layouts, "whole": _flag,
}  # fmt: skip
_AT_THE_END = {"ended", "how"}  #: facts that come with `code`


def read_facts(folder: int) -> dict[str, Any] | None:
    """What the file says in the folder of this descriptor; None if it is missing, incomplete or senseless."""
    import json

    try:
        facts = json.loads(read_own(NAME, folder, _MOST))
    except (OSError, ValueError, RecursionError):
        return None
    return facts if _is_sound(facts) else None


def _is_sound(facts: object) -> bool:
    if not isinstance(facts, dict) or not set(_REQUIRED) <= set(facts):
        return False
    if "code" in facts and not set(facts) >= _AT_THE_END:
        return False
    shapes = {**_REQUIRED, **_OPTIONAL}
    return all(shapes[name](value) for name, value in facts.items() if name in shapes)


def write_facts(folder: int, facts: dict[str, Any]) -> None:
    """Put them in the place of what the file says.  Raises OSError."""
    import json

    text = json.dumps(facts, indent=1).replace("\x7f", "\\u007f").encode()
    with open(os.open(_NEW, _OPEN_NEW, 0o600, dir_fd=folder), "wb") as file:
        file.write(text)
    os.rename(_NEW, NAME, src_dir_fd=folder, dst_dir_fd=folder)
