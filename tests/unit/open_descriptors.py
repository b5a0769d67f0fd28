"""The descriptors of this process, for tests of what is left open."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> list[str]:
    """Those that are open once the garbage of earlier tests has been collected.

    Else it may be collected before a test counts for the second time: a loop that nobody has closed has a descriptor.
    """
    gc.collect()
    return os.listdir("/proc/self/fd")
