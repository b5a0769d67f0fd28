"""Memory of the buffers that output passes through: used again, and every few seconds what is free goes to the system.

To give each buffer back at once costs a page fault for each 4 KiB that ranks print: three quarters of the time that the
kernel spent on the launcher, and as much on an agent (400 MB of two local ranks took 1.6 times as long).  To keep them
all lets either grow for hours: blocks in use lie among those that are free, in a heap for each thread.
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.runtime.loop import Loop

#: mallopt(3), of glibc: only blocks of 32 MiB and more are mapped alone, 128 MiB may stay free at the end of the heap,
#: all threads share one heap
_SETTINGS = ((-3, 1 << 25), (-1, 1 << 27), (-8, 1))
_SECONDS = 10.0  #: between two times at which memory is given back


def reuse_freed_memory() -> Callable[[Loop], None] | None:
    """To be called before the first thread starts; what is returned has a loop give memory back (malloc_trim(3)).

    None where malloc cannot be told (musl).
    """
    try:
        import _ctypes  # the import of ctypes takes ten times as long

        libc = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]
        mallopt, trim = (_ctypes.dlsym(libc, name) for name in ("mallopt", "malloc_trim"))
        if not min(_ctypes.call_function(mallopt, setting) for setting in _SETTINGS):
            return None
    except (ImportError, OSError, AttributeError):
        return None

    def begin(loop: Loop) -> None:
        def give_back() -> None:
            _ctypes.call_function(trim, (0,))
            loop.after(_SECONDS, give_back)

        loop.after(_SECONDS, give_back)

    return begin
