"""The callbacks of pmix_server_module_t, which `libpmix` registers: their C types, arguments and answers.

The arguments of a call are copied into an `Upcall`.  Most upcalls are answered later, through a C function that the
library has given for each; some are answered by what the callback returns, without an upcall.
"""

from __future__ import annotations

import ctypes

from mslaunch.agent.mpi.pmix.pmix_values import (
    App,
    Found,
    Info,
    Memory,
    Proc,
    raw,
    read_items,
    read_proc,
    read_procs,
    text,
)
from mslaunch.agent.mpi.pmix.pmix_values import read_strings as strings
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mslaunch.agent.mpi.pmix.pmix_values import Item, Typed


SUCCESS, ERROR, EXISTS, BAD_PARAM, OUT_OF_RESOURCE = 0, -1, -11, -27, -29
NOT_FOUND, NOT_SUPPORTED, DONE = -46, -47, -157  # the last: done already, there will be no answer

VOID, COUNT, INT, TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p
PROCS, INFOS, TEXTS = ctypes.POINTER(Proc), ctypes.POINTER(Info), ctypes.POINTER(ctypes.c_char_p)
_END = (VOID, VOID)  # how to answer: a function and its argument

#: the functions that take an answer
PLAIN = ctypes.CFUNCTYPE(None, INT, VOID)
BLOB = ctypes.CFUNCTYPE(None, INT, VOID, COUNT, VOID, VOID, VOID)
FOUND = ctypes.CFUNCTYPE(None, INT, ctypes.POINTER(Found), COUNT, VOID)
SPAWNED = ctypes.CFUNCTYPE(None, INT, TEXT, VOID)
ITEMS = ctypes.CFUNCTYPE(None, INT, INFOS, COUNT, VOID, VOID, VOID)
FETCHED = ctypes.CFUNCTYPE(None, INT, VOID, COUNT, VOID)


class Upcall(NamedTuple):
    """A call of the library, with copies of its arguments; `handle` is for the answer."""

    name: str
    arguments: tuple[Any, ...]
    handle: tuple[int, int]


class Launched(NamedTuple):
    """An app of PMIx_Spawn."""

    argv: list[str]
    env: list[str]
    wdir: str
    number: int
    items: list[Item]


class Slot(NamedTuple):
    """One function of pmix_server_module_t: its name here, its arguments, what is copied of them, what is returned."""

    name: str
    takes: tuple[Any, ...]
    copy: Callable[..., tuple[Any, ...] | None]  # None: there is no upcall
    returns: int | None = SUCCESS  # SUCCESS: the answer will come; None: the function is void


def _spawn(proc: Any, infos: Any, size: int, apps: Any, number: int) -> tuple[Any, ...]:
    launched = [
        Launched(
            [text(app.command), *strings(app.argv)[1:]],
            strings(app.env),
            text(app.wdir),
            app.number,
            read_items(app.infos, app.size),
        )
        for app in apps[:number]
    ]
    return read_proc(proc[0]), read_items(infos, size), launched


def _members(procs: Any, number: int, infos: Any, size: int) -> tuple[Any, ...]:
    return read_procs(procs, number), read_items(infos, size)


def _keys(proc: Any, keys: Any, infos: Any, size: int) -> tuple[Any, ...]:
    return read_proc(proc[0]), strings(keys), read_items(infos, size)


def _items(proc: Any, infos: Any, size: int, *_: Any) -> tuple[Any, ...]:
    return read_proc(proc[0]), read_items(infos, size)


def _group(operation: int, name: bytes, procs: Any, number: int, infos: Any, size: int) -> tuple[Any, ...] | None:
    items = read_items(infos, size)
    if any(item.key == "pmix.grp.lcl" for item in items):
        return None  # all are here: 5.0 does it by itself, and asks twice unless the answer is DONE
    return operation, text(name), read_procs(procs, number), items


#: place in pmix_server_module_t -> the function
SLOTS = {
    0: Slot("connected", (PROCS, VOID, *_END), lambda proc, _: (read_proc(proc[0]),), DONE),
    1: Slot("finalized", (PROCS, VOID, *_END), lambda proc, _: (read_proc(proc[0]),), DONE),
    2: Slot(
        "abort", (PROCS, VOID, INT, TEXT, PROCS, COUNT, *_END),
        lambda proc, _, code, why, procs, size: (read_proc(proc[0]), code, text(why), read_procs(procs, size)),
    ),
    3: Slot("fence", (PROCS, COUNT, INFOS, COUNT, VOID, COUNT, *_END), _members),  # with data: see _fence
    4: Slot("modex", (PROCS, INFOS, COUNT, *_END), _items),
    5: Slot("publish", (PROCS, INFOS, COUNT, *_END), _items),
    6: Slot("lookup", (PROCS, TEXTS, INFOS, COUNT, *_END), _keys),
    7: Slot("unpublish", (PROCS, TEXTS, INFOS, COUNT, *_END), _keys),
    8: Slot("spawn", (PROCS, INFOS, COUNT, ctypes.POINTER(App), COUNT, *_END), _spawn),
    9: Slot("connect", (PROCS, COUNT, INFOS, COUNT, *_END), _members),
    10: Slot("disconnect", (PROCS, COUNT, INFOS, COUNT, *_END), _members),
    # events are between ranks of a node and their library; we have none of our own
    11: Slot("events", (VOID, COUNT, INFOS, COUNT, *_END), lambda *_: None, DONE),
    12: Slot("no events", (VOID, COUNT, *_END), lambda *_: None, DONE),
    14: Slot("event", (INT, PROCS, ctypes.c_uint8, INFOS, COUNT, *_END), lambda *_: None, DONE),
    15: Slot("query", (PROCS, VOID, COUNT, *_END), lambda *_: None, NOT_SUPPORTED),
    17: Slot("log", (PROCS, INFOS, COUNT, INFOS, COUNT, *_END), _items, None),
    # it must be there for the library to note which files of ranks it shall remove after them, and does that by itself
    19: Slot("control", (PROCS, PROCS, COUNT, INFOS, COUNT, *_END), lambda *_: None, NOT_SUPPORTED),
    25: Slot("group", (INT, TEXT, PROCS, COUNT, INFOS, COUNT, *_END), _group),
}  # fmt: skip
#: what takes the answer, where it is not PLAIN, and its arguments before and after `data` when there is only a status
_EMPTY: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "fence": (BLOB, (None, 0), (None, None)),
    "modex": (BLOB, (None, 0), (None, None)),
    "lookup": (FOUND, (None, 0), ()),
    "spawn": (SPAWNED, (None,), ()),
    "group": (ITEMS, (None, 0), (None, None)),
}


class PmixAnswers:
    """One method for each kind of answer.  A `Memory` that is returned must be held: the library reads it later."""

    def __init__(self, libc: Any) -> None:
        self._libc = libc
        self._free = ctypes.cast(libc.free, VOID).value

    def done(self, upcall: Upcall, status: int = SUCCESS) -> None:
        """A status without anything else; also how any upcall is refused."""
        function, data = upcall.handle
        kind, before, after = _EMPTY.get(upcall.name, (PLAIN, (), ()))
        if function:
            kind(function)(status, *before, data, *after)

    def blob(self, upcall: Upcall, blob: bytes) -> None:
        """The data of a fence or a modex, which the library frees with C's free."""
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
        """The address of a copy of `data` that C's free can free."""
        place = self._libc.malloc(len(data))
        if not place:
            raise MemoryError
        ctypes.memmove(place, data, len(data))
        return int(place)
