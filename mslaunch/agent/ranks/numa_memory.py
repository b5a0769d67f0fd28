"""The NUMA memory policy of this process, and of what it starts: MPOL_BIND of set_mempolicy(2).

Two system calls, by number, for libnuma may not be there.  Containers often forbid both; then nothing is changed.
"""

from __future__ import annotations

import errno
import os
from array import array

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DEFAULT, _BIND = 0, 2
_NODES = 1024  # no kernel knows more
_ULONG = array("L").itemsize
#: set_mempolicy and get_mempolicy; architectures that came late share one table (asm-generic/unistd.h)
_CALLS = {
    "x86_64": (238, 239),
    "i686": (276, 275),
    "ppc64le": (261, 260),
    "ppc64": (261, 260),
    "s390x": (270, 269),
    "armv7l": (321, 320),
    "aarch64": (237, 236),
    "riscv64": (237, 236),
    "loongarch64": (237, 236),
}
_SMALL = {"x86_64": "i686", "aarch64": "armv7l"}  # a small Python on a large kernel


def bind(nodes: Sequence[int]) -> Callable[[], None]:
    """Take memory of `nodes` only; raises OSError.  What is returned restores the policy."""
    machine = os.uname().machine
    setting, getting = _CALLS.get(_SMALL.get(machine, machine) if _ULONG == 4 else machine, (0, 0))
    if not setting:
        raise _error(errno.ENOSYS)
    mode, before = array("i", [0]), _mask(())
    _call(getting, mode, before, _NODES, None, 0)
    _call(setting, _BIND, _mask(nodes), _NODES + 1)  # from which the kernel takes one off

    def put_back() -> None:
        try:
            _call(setting, mode[0], *((before, _NODES + 1) if any(before) else (None, 0)))
        except OSError:  # our cgroup has changed meanwhile
            _call(setting, _DEFAULT, None, 0)

    return put_back


def _mask(nodes: Sequence[int]) -> array[int]:
    mask = array("L", bytes(_NODES // 8))
    bits = _ULONG * 8
    for node in nodes:
        if not 0 <= node < _NODES:
            raise _error(errno.EINVAL)
        mask[node // bits] |= 1 << node % bits
    return mask


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _call(number: int, *words: array[int] | int | None) -> None:
    try:
        import ctypes
    except ImportError:
        raise OSError(errno.ENOSYS, "its python3 lacks ctypes") from None
    given = [ctypes.c_void_p(word.buffer_info()[0]) if isinstance(word, array) else word for word in words]
    whole = [ctypes.c_ulong(word) if isinstance(word, int) else word for word in given]
    if ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *whole):
        raise _error(ctypes.get_errno())
