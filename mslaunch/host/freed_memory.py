"""What malloc(3) does with memory that this process has freed: keep it, or give it back to the system."""

from __future__ import annotations

import os

#: mallopt(3), of glibc: blocks of 64 KiB and more are mapped alone, and go back when they are freed; so does what is
#: free at the end of the heap, beyond 128 KiB; all threads share one heap
_SETTINGS = ((-3, 1 << 16), (-1, 1 << 17), (-8, 1))


def return_freed_memory() -> bool:
    """Give it back; to be called before the first thread starts.  False where malloc cannot be told (musl).

    glibc keeps what it has once mapped if blocks in use lie among those that are free, in a heap for each thread, and
    it treats blocks of up to 32 MiB so once one of that size has been freed.  The buffers of a link's threads live for
    milliseconds and are of any size; the heaps of a launcher with four hosts grew to five times what was in use.
    """
    try:
        import _ctypes  # the import of ctypes takes ten times as long

        mallopt = _ctypes.dlsym(_ctypes.dlopen(None, os.RTLD_NOW), "mallopt")  # type: ignore[arg-type]
        return bool(min(_ctypes.call_function(mallopt, setting) for setting in _SETTINGS))
    except (ImportError, OSError, AttributeError):
        return False
