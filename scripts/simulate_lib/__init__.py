"""The launcher against hosts that one process plays: the parts of `scripts/simulate`."""


class SimulateError(Exception):
    """The simulation cannot be run, or did not do what it was to do."""
