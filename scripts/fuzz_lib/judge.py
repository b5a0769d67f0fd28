"""One input: does the decoder end as it documents, within a second and 64 MB?"""

from __future__ import annotations

import gc
import resource
import time

from fuzz_lib.targets import TARGETS, errors_of

SECONDS = 1.0  #: of the processor
MEMORY = 64 << 10  #: KiB by which the process may grow


class TooMuchError(Exception):
    """An input takes too much; whatever else a decoder raises is a finding as it is."""


class Judge:
    """Of one decoder."""

    def __init__(self, name: str, factor: float = 1.0) -> None:
        """`factor`: how much longer it may take, because its code is watched."""
        self._decode = TARGETS[name].decode
        self._errors = errors_of(name)
        self._seconds = SECONDS * factor

    def __call__(self, data: bytes) -> None:
        """Raises what is a finding."""
        gc.freeze()  # the garbage collector goes through what the decoder makes, not through all that a test run has
        began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            self._decode(data)
        except self._errors:
            pass
        finally:
            gc.unfreeze()
        took = time.process_time() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if took > self._seconds:
            raise TooMuchError(f"{len(data)} bytes took {took:.1f} s")
        if grown > MEMORY:
            raise TooMuchError(f"{len(data)} bytes took {grown >> 10} MB")
