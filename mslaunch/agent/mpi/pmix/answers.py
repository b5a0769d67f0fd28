"""The answers to upcalls of libpmix: C functions that the library has given for each, called with the result."""

from __future__ import annotations

import ctypes

from mslaunch.agent.mpi.pmix.callbacks import ANSWERS, BLOB, FOUND, ITEMS, PLAIN, SPAWNED, SUCCESS, TEXT, VOID, Upcall
from mslaunch.agent.mpi.pmix.pmix_values import Memory, raw
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mslaunch.agent.mpi.pmix.pmix_values import Item, Typed


class PmixAnswers:
    """One method for each kind.  A `Memory` that is returned must be held: the library reads it later."""

    def __init__(self, libc: Any) -> None:
        self._libc = libc
        self._free = ctypes.cast(libc.free, VOID).value

    def done(self, upcall: Upcall, status: int = SUCCESS) -> None:
        """Without anything else; also how any upcall is refused."""
        function, data = upcall.handle
        kind = ANSWERS.get(upcall.name, PLAIN)
        if not function:
            return
        if kind is PLAIN:
            PLAIN(function)(status, data)
        elif kind is FOUND:
            FOUND(function)(status, None, 0, data)
        elif kind is SPAWNED:
            SPAWNED(function)(status, None, data)
        else:
            kind(function)(status, None, 0, data, None, None)

    def blob(self, upcall: Upcall, blob: bytes) -> None:
        """The data of a fence or a modex; the library gives them back to C's free."""
        function, data = upcall.handle
        place = self._allocate(blob) if blob else None
        BLOB(function)(SUCCESS, place, len(blob), data, self._free if place else None, place)

    def found(self, upcall: Upcall, answers: Sequence[tuple[str, int, str, Typed]]) -> Memory:
        """Answers to a lookup: (namespace, rank, key, value)."""
        memory = Memory()
        FOUND(upcall.handle[0])(SUCCESS, memory.found(answers), len(answers), upcall.handle[1])
        return memory

    def items(self, upcall: Upcall, items: Sequence[Item]) -> Memory:
        """The answer to a group."""
        memory = Memory(self._allocate)  # 5.0 frees the bytes of byte objects, and no other part
        ITEMS(upcall.handle[0])(SUCCESS, memory.infos(items), len(items), upcall.handle[1], None, None)
        return memory

    def spawned(self, upcall: Upcall, namespace: str) -> None:
        """The answer to a spawn."""
        name = ctypes.create_string_buffer(raw(namespace), 256)  # the library may copy all that a namespace can be
        SPAWNED(upcall.handle[0])(SUCCESS, ctypes.cast(name, TEXT), upcall.handle[1])

    def _allocate(self, data: bytes) -> int:
        """Put `data` where C's free can take it from."""
        place = self._libc.malloc(len(data))
        if not place:
            raise MemoryError
        ctypes.memmove(place, data, len(data))
        return int(place)
