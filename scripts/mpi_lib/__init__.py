"""What scripts/mpi4py-suite, scripts/bench and tests/mpi share: MPI libraries, their launchers, and places to run in.

It knows how each library's launcher is called, and nothing of what is run.
"""


class MpiError(Exception):
    """One sentence for the user."""
