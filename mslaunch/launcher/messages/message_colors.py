"""Colours of the launcher's own messages: whether a device gets any, and which parts of a message have one.

The variables are those that other programs obey: NO_COLOR (no-color.org), CLICOLOR and CLICOLOR_FORCE
(bixense.com/clicolors), FORCE_COLOR (force-color.org), and TERM.  If they contradict each other, the order is that of
Python 3.13: NO_COLOR is the strongest.  Only the sixteen colours and intensities of a terminal's own palette are used,
which its user has made readable.  What ranks print has none of them.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    #: kind of message ("error", "notice", "detail"), text -> the text with colours
    Paint = Callable[[str, str], str]

#: variables that ask for colours where there is no terminal
_FORCING = ("CLICOLOR_FORCE", "FORCE_COLOR")
#: how the first line of each kind looks: "mslaunch:", and the rest of it
_FIRST = {"error": ("1;31", "31"), "notice": ("33", ""), "detail": ("2", "2")}
_REST = "2"  # of the lines that follow: dim
_NAME = "mslaunch:"
_RANKS = r"\branks? \d+(?:-\d+)?(?:, \d+(?:-\d+)?)*(?: of world \d+)?"


def wants_colors(choice: str, environ: Mapping[str, str], fd: int) -> bool:
    """Whether messages to `fd` have colours; `choice` is that of --color: yes, no, or auto."""
    if choice != "auto":
        return choice == "yes"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0").lower() not in ("", "0", "false") for name in _FORCING):
        return True
    plain = environ.get("CLICOLOR") == "0" or environ.get("TERM", "dumb") == "dumb"
    return not plain and os.isatty(fd)


def painter(choice: str, environ: Mapping[str, str], fd: int) -> Paint | None:
    """The function that colours messages to `fd`; None: they have no colours."""
    return painted if wants_colors(choice, environ, fd) else None


def choice_of(argv: Sequence[str]) -> str:
    """What a command line says of colours that could not be read as a whole."""
    for word, following in zip(argv, [*argv[1:], ""]):
        name, equals, value = word.partition("=")
        value = value if equals else following
        if name in ("-color", "--color") and value in ("auto", "yes", "no"):
            return value
    return "auto"


def painted(kind: str, text: str) -> str:
    """`text`, which has no control characters, with colours: its first line by its kind, those below it dim."""
    first, *rest = text.split("\n")
    name, style = _FIRST[kind]
    if first.startswith(_NAME):
        first = _styled(name, _NAME) + _styled(style, _with_ranks(first[len(_NAME) :], style))
    else:
        first = _styled(style, first)
    return "\n".join([first, *(_styled(_REST, line) for line in rest)])


def _with_ranks(text: str, style: str) -> str:
    """Ranks are bold."""
    import re

    again = f"\x1b[0;{style}m" if style else "\x1b[0m"
    return re.sub(_RANKS, lambda found: f"\x1b[1m{found[0]}{again}", text)


def _styled(style: str, text: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text
