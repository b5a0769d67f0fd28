"""MPI libraries, their launchers and places to run in; used by scripts/mpi4py-suite, scripts/bench and tests/mpi."""


class MpiError(Exception):
    """One sentence for the user."""
