"""What is said of a word that begins with a dash, or with what looks like one, and is no option of the dialect at hand.

Only imported once such a word is refused.  It compares the word with all tables: it may be a slip of the pen, a value
glued to its option, or a word of another launcher.  The surprising thing is the last: which dialect is spoken need not
be known, since a word of its own table would not have come here.
"""

from __future__ import annotations

from mslaunch.cli.parser.options import REFUSED, spelled
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.cli.parser.options import Option

#: hyphen, non-breaking hyphen, figure dash, en dash, em dash, bar, minus
LONG_DASHES = tuple("\u2010\u2011\u2012\u2013\u2014\u2015\u2212")


def refusal(index: Mapping[str, Option], written: str, bare: str) -> UsageError:
    """The error for the option `written`, which is `bare` without its dashes and not in `index`."""
    letters = bare.rstrip("0123456789")
    if letters != bare and _takes_value(index, letters):
        return _glued(written, bare, len(letters))
    said = _of_another(bare)
    if said:
        why, todo = said
        return UsageError(f"mslaunch does not have this option here: {why}", written, todo)
    one_letter = written[:2] != "--" and _takes_value(index, bare[:1]) and not bare[:2].islower()
    near = _nearest(index, bare, 0.9 if one_letter else 0.6)
    if one_letter and not near:
        return _glued(written, bare, 1)  # -xPATH, -Hnode1; not -foo
    todo = f"did you mean {spelled(near)}?\n" if near else ""
    return UsageError("mslaunch has no such option", written, todo + "--help lists them all")


def lookalike(word: str) -> UsageError:
    """The error for a word that begins with a long dash, as typesetting makes of two."""
    bare = word.lstrip("".join(LONG_DASHES))
    return UsageError(f"it begins with {word[0]!r}, which looks like '-' and is not", word, f"write {spelled(bare)}")


def _takes_value(index: Mapping[str, Option], name: str) -> bool:
    option = index.get(name)
    return option is not None and bool(option.metavar)


def _glued(written: str, bare: str, length: int) -> UsageError:
    dashes = written[: len(written) - len(bare)]
    todo = f"write {dashes}{bare[:length]} {bare[length:]}"
    return UsageError("a value stands apart from its option", written, todo)


def _of_another(bare: str) -> tuple[str, str] | None:
    """(why, what to do) of a word of another launcher, or of one that must stand first."""
    from mslaunch.cli.dialects import NAMES, VERBS
    from mslaunch.cli.help import catalog

    if any(bare in row.names for row in VERBS):
        return "it must be the first word", f"write mslaunch --{bare}"
    for name in NAMES:
        about = catalog.dialect(name)
        if any(bare in row.names for row in about.table):
            first = f", or with --{bare}" if name == "msrun" and "_" in bare else ""
            return f"it is a word of {about.whose}", f"to use its words, begin with --dialect {name}{first}"
    return None


def _nearest(index: Mapping[str, Option], bare: str, likeness: float) -> str:
    """The name most like this one, in any case; "" if none is like it enough (0 to 1)."""
    import difflib

    known = {name.lower(): name for name, option in index.items() if option.status != REFUSED}
    if "_" in bare:  # with such a first word msrun's dialect would have been chosen, had it been written well
        from mslaunch.cli.msrun.options import TABLE

        known.update((name, name) for row in TABLE for name in row.names if "_" in name)
    near = difflib.get_close_matches(bare.lower(), known, 1, likeness)
    return known[near[0]] if near else ""
