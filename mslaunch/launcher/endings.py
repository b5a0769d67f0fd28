"""Endings, in words: how a process ended, and what to do about a rank that came up alone.

It knows no job.  The surprising thing: the name of a signal is looked up late, since `signal` costs 5 ms to import.
"""

from __future__ import annotations


def advice(family: str, offered: str) -> str:
    """What to do about a rank that came up alone; `offered` is what it could have had: pmi, pmix."""
    if family == "Open MPI" and offered != "pmix":
        return "start it with --mpi pmix: mslaunch did not see that the program uses Open MPI"
    if family != "Open MPI" and offered == "pmix":
        return "start it with --mpi pmi1: mslaunch took the program for one of Open MPI"
    return "its library was built for another launcher: try --mpi pmi1, --mpi pmi2 or --mpi pmix, or its own launcher"


def ending(code: int | None, signum: int | None) -> str:
    """How a process ended, as a predicate."""
    return f"was ended by {signal_name(signum)}" if signum else f"ended with exit code {code}"


def signal_name(signum: int | None) -> str:
    """SIGSEGV (segmentation fault), as a person knows it."""
    from signal import Signals, strsignal

    assert signum is not None
    try:
        name = Signals(signum).name
    except ValueError:
        name = f"signal {signum}"
    meaning = (strsignal(signum) or "").lower()
    return f"{name} ({meaning})" if meaning else name
