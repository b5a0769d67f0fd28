"""Faults on real hosts, and what must be true after each: the parts of `scripts/chaos`."""


class ChaosError(Exception):
    """A cell cannot be tried: what is missing, or what went wrong before the fault."""
