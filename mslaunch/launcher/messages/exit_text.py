"""How a process ended, in words, and advice for a rank whose MPI library found no launcher."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRACEBACK = "Traceback (most recent call last):"
_LONGEST = 120  #: characters of an exception in a headline


def advice(family: str, offered: str) -> str:
    """Advice for a rank that runs as an MPI singleton; `offered`: what it could have used, pmi or pmix."""
    if family == "Open MPI" and offered != "pmix":
        return "start it with --mpi pmix: mslaunch did not see that the program uses Open MPI"
    if family != "Open MPI" and offered == "pmix":
        return "start it with --mpi pmi1: mslaunch took the program for one of Open MPI"
    return "its library was built for another launcher: try --mpi pmi1, --mpi pmi2 or --mpi pmix, or its own launcher"


def ending(code: int | None, signum: int | None) -> str:
    """How a process ended, as a predicate."""
    return f"was ended by {signal_name(signum)}" if signum else f"ended with exit code {code}"


def exception(lines: Sequence[str]) -> str:
    """`ValueError: boom`, if `lines` end with a Python traceback; else "".

    That is the first line after the last traceback that is not indented, if it begins with the name of a class, in
    capitals.
    """
    heads = [at for at, line in enumerate(lines) if line == _TRACEBACK]
    if not heads:
        return ""
    said = next((line for line in lines[heads[-1] + 1 :] if line and not line[0].isspace()), "")
    name, colon, text = said.partition(":")
    words = name.split(".")
    if not (all(word.isidentifier() for word in words) and words[-1][0].isupper() and (text[:1] == " " or not colon)):
        return ""
    said = said.rstrip()
    return said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"


def signal_name(signum: int | None) -> str:
    """SIGSEGV (segmentation fault)."""
    from signal import Signals, strsignal  # late: takes 5 ms

    assert signum is not None
    try:
        name = Signals(signum).name
    except ValueError:
        name = f"signal {signum}"
    meaning = (strsignal(signum) or "").lower()
    return f"{name} ({meaning})" if meaning else name
