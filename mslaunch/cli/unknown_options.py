"""The refusal of an option that the dialect does not have: a misspelling, a glued value, or another launcher's option.

Imported only for such a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from mslaunch.cli import help_text
from mslaunch.cli.dialects import ACTIONS, DIALECTS
from mslaunch.cli.parser.options import REFUSED, Option, UnknownOptionError, spelled
from mslaunch.errors import UsageError

_OF_OWN_NAME = "output-filename"  # an option that only mpirun's dialect has, which is that of our own name


def refusal(unknown: UnknownOptionError) -> UsageError:
    """The error with what the user may have meant."""
    index, written, bare, where = unknown.index, unknown.written, unknown.bare, unknown.where
    dashes = written[: len(written) - len(bare)]

    def glued(length: int) -> UsageError:
        return UsageError(
            "a value stands apart from its option", where, f"write {dashes}{bare[:length]} {bare[length:]}"
        )

    letters = bare.rstrip("0123456789")
    if letters != bare and _takes_value(index, letters):
        return glued(len(letters))
    other = _of_another(index, bare)
    if other:
        return UsageError(f"mslaunch does not have this option here: {other[0]}", where, other[1])
    one_letter = dashes != "--" and _takes_value(index, bare[:1]) and not bare[:2].islower()
    near = _nearest(index, bare, 0.9 if one_letter else 0.6)
    if one_letter and not near:
        return glued(1)  # -xPATH, -Hnode1; not -foo
    likely = spelled(near) if near else ""
    if dashes == "--":
        first = _nearest_action(bare, near)
        likely = f"--{first}, as the first word" if first else likely
    return UsageError(unknown.what, where, (f"did you mean {likely}?\n" if likely else "") + unknown.todo)


def _nearest_action(bare: str, near: str) -> str:
    """The first word that is more like it than the option `near` is; "" if none is."""
    names = [name for row in ACTIONS for name in row.names]
    found = get_close_matches(bare.lower(), [*names, *([near] if near else [])], 1, 0.7)
    return found[0] if found and found[0] in names else ""


def _takes_value(index: Mapping[str, Option], name: str) -> bool:
    return bool(getattr(index.get(name), "metavar", ""))


def _of_another(index: Mapping[str, Option], bare: str) -> tuple[str, str] | None:
    """(why, what to do) for an option of another launcher, or one that must stand first."""
    dashed = bare.replace("_", "-")
    if any(bare in row.names for row in ACTIONS):
        return "it must be the first word", f"write mslaunch --{bare}"
    for row in DIALECTS:
        about = help_text.documentation(row.name)
        if any(bare in option.names for option in about.table):
            marked = (row.mark and row.mark in bare) or dashed in row.firsts
            begin = f"begin with --dialect {row.name}" + (f", or with --{bare}" if marked else "")
            if dashed in about.instead and _OF_OWN_NAME in index:
                return (
                    f"it is a word of {about.whose}",
                    f"write {about.instead[dashed]}\nor to use its options, {begin}",
                )
            return f"it is an option of {about.whose}", f"to use its options, {begin}"
    return None


def _nearest(index: Mapping[str, Option], bare: str, likeness: float) -> str:
    """The most similar name, in any case; "" if none is similar enough (0 to 1)."""
    known = {name.lower(): name for name, option in index.items() if option.status != REFUSED}
    for row in DIALECTS:
        if row.mark and row.mark in bare:  # spelled well, it would have selected this dialect
            names = (name for option in row.load().describe().own for name in option.names)
            known.update((name, name) for name in names if row.mark in name)
    near = get_close_matches(bare.lower(), known, 1, likeness)
    return known[near[0]] if near else ""
