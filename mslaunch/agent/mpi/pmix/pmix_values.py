"""The values of PMIx: their layout in C, their form in Python, and their bytes on the link.

The layouts are those of libpmix's public headers, and the same from 3.2 to 6.1.  A value that was read is a copy.  One
that is written for the library lies in a `Memory` and lives as long as that.
"""

from __future__ import annotations

import ctypes

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

BOOL, STRING, SIZE, STATUS, UINT16, UINT32 = 1, 3, 4, 20, 13, 14
PROC, INFO, BYTE_OBJECT, DATA_ARRAY, RANK = 22, 24, 27, 39, 40
WILDCARD = 0xFFFFFFFE  #: as a rank: all of them

#: code of a type -> the member of the union that holds it, where that is a number
_NUMBERS = {
    BOOL: "flag", 2: "uint8", SIZE: "size", 5: "int32", 6: "int32", 7: "int8", 8: "int16", 9: "int32", 10: "int64",
    11: "uint32", 12: "uint8", UINT16: "uint16", UINT32: "uint32", 15: "uint64", 16: "float", 17: "double",
    19: "int64", STATUS: "int32", 30: "uint8", 32: "uint8", 33: "uint8", 37: "uint8", RANK: "uint32",
}  # fmt: skip
_REALS = (16, 17)


class Typed(NamedTuple):
    """A value and its type.

    Numbers and strings are Python's; a byte object is bytes, a process (namespace, rank), an array a list of processes
    or `Item`s.  A value of any other kind is None.
    """

    kind: int
    value: Any


class Item(NamedTuple):
    """A value with its key."""

    key: str
    kind: int
    value: Any


# --- layouts


class Proc(ctypes.Structure):
    """pmix_proc_t."""

    _fields_ = [("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]


class Bytes(ctypes.Structure):
    """pmix_byte_object_t."""

    _fields_ = [("bytes", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Array(ctypes.Structure):
    """pmix_data_array_t."""

    _fields_ = [("kind", ctypes.c_uint16), ("size", ctypes.c_size_t), ("array", ctypes.c_void_p)]


class _Data(ctypes.Union):
    _fields_ = [
        ("flag", ctypes.c_bool), ("int8", ctypes.c_int8), ("uint8", ctypes.c_uint8), ("int16", ctypes.c_int16),
        ("uint16", ctypes.c_uint16), ("int32", ctypes.c_int32), ("uint32", ctypes.c_uint32),
        ("int64", ctypes.c_int64), ("uint64", ctypes.c_uint64), ("size", ctypes.c_size_t), ("float", ctypes.c_float),
        ("double", ctypes.c_double), ("pointer", ctypes.c_void_p), ("bytes", Bytes),
        ("all", ctypes.c_uint64 * 3),  # the largest member, an envar, is of this size
    ]  # fmt: skip


class Value(ctypes.Structure):
    """pmix_value_t."""

    _fields_ = [("kind", ctypes.c_uint16), ("data", _Data)]


class Info(ctypes.Structure):
    """pmix_info_t."""

    _fields_ = [("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", Value)]


class Found(ctypes.Structure):
    """pmix_pdata_t."""

    _fields_ = [("proc", Proc), ("key", ctypes.c_char * 512), ("value", Value)]


class App(ctypes.Structure):
    """pmix_app_t."""

    _fields_ = [
        ("command", ctypes.c_char_p), ("argv", ctypes.POINTER(ctypes.c_char_p)),
        ("env", ctypes.POINTER(ctypes.c_char_p)), ("wdir", ctypes.c_char_p), ("number", ctypes.c_int),
        ("infos", ctypes.POINTER(Info)), ("size", ctypes.c_size_t),
    ]  # fmt: skip


# --- reading: copies of what C holds


def text(data: bytes | None) -> str:
    """The text of a C string."""
    return (data or b"").decode("utf-8", "surrogateescape")


def raw(words: str) -> bytes:
    """The bytes of a text for C."""
    return words.encode("utf-8", "surrogateescape")


def read_proc(proc: Proc) -> tuple[str, int]:
    """(namespace, rank)."""
    return text(proc.namespace), int(proc.rank)


def read_procs(procs: Any, size: int) -> list[tuple[str, int]]:
    """As many processes as `size`, from a pointer to the first."""
    return [read_proc(procs[index]) for index in range(size)]


def read_strings(strings: Any) -> list[str]:
    """The strings of a char ** that ends with NULL, or is NULL."""
    found: list[str] = []
    while strings and strings[len(found)] is not None:
        found.append(text(strings[len(found)]))
    return found


def read_items(infos: Any, size: int) -> list[Item]:
    """As many items as `size`, from a pointer to the first pmix_info_t, or NULL."""
    return [Item(text(info.key), *read_value(info.value)) for info in (infos[:size] if infos else ())]


def read_value(value: Value) -> Typed:
    """A copy of a value in C memory."""
    kind, data = value.kind, value.data
    if kind in _NUMBERS:
        return Typed(kind, getattr(data, _NUMBERS[kind]))
    if kind == STRING:
        return Typed(kind, text(ctypes.string_at(data.pointer) if data.pointer else b""))
    if kind == BYTE_OBJECT:
        return Typed(kind, ctypes.string_at(data.bytes.bytes, data.bytes.size) if data.bytes.size else b"")
    if kind == PROC and data.pointer:
        return Typed(kind, read_proc(Proc.from_address(data.pointer)))
    if kind == DATA_ARRAY and data.pointer:
        return Typed(kind, _read_array(Array.from_address(data.pointer)))
    return Typed(kind, None)


def _read_array(array: Array) -> list[Any] | None:
    if array.kind == PROC:
        return read_procs(ctypes.cast(array.array, ctypes.POINTER(Proc)), array.size)
    if array.kind == INFO:
        return list(read_items(ctypes.cast(array.array, ctypes.POINTER(Info)), array.size))
    return None


# --- writing


class Memory:
    """Structures for the library to read, valid until `release`.

    `allocate` returns the address of a copy of bytes.  It is malloc's where the library frees byte objects itself.
    """

    def __init__(self, allocate: Callable[[bytes], int] | None = None) -> None:
        self._kept: list[object] = []
        self._allocate = allocate or self._place

    def release(self) -> None:
        """The library has read everything."""
        self._kept.clear()

    def _place(self, data: bytes) -> int:
        buffer = ctypes.create_string_buffer(data, len(data) + 1)
        self._kept.append(buffer)
        return ctypes.addressof(buffer)

    def infos(self, items: Sequence[Item]) -> Any:
        """An array of pmix_info_t, never an empty one."""
        array = (Info * max(1, len(items)))()
        self._kept.append(array)
        for slot, item in zip(array, items):
            slot.key = raw(item.key)
            self._write(slot.value, item.kind, item.value)
        return array

    def found(self, answers: Sequence[tuple[str, int, str, Typed]]) -> Any:
        """An array of pmix_pdata_t, of (namespace, rank, key, value)."""
        array = (Found * max(1, len(answers)))()
        self._kept.append(array)
        for slot, (namespace, rank, key, typed) in zip(array, answers):
            slot.proc = Proc(raw(namespace), rank)
            slot.key = raw(key)
            self._write(slot.value, typed.kind, typed.value)
        return array

    def _write(self, slot: Value, kind: int, value: Any) -> None:
        slot.kind = kind
        if kind in _NUMBERS:
            setattr(slot.data, _NUMBERS[kind], value)
        elif kind == STRING:
            slot.data.pointer = self._place(raw(value))
        elif kind == BYTE_OBJECT:
            slot.data.bytes = Bytes(self._allocate(value) if value else None, len(value))
        elif kind == PROC:
            slot.data.pointer = self._hold(Proc(raw(value[0]), value[1]))
        elif kind == DATA_ARRAY:
            slot.data.pointer = self._hold(self._array(value))
        else:
            raise ValueError(f"values of kind {kind} are not written")

    def _array(self, values: Sequence[Any]) -> Array:
        if values and isinstance(values[0], Item):
            return Array(INFO, len(values), ctypes.addressof(self.infos(values)))
        procs = (Proc * max(1, len(values)))(*(Proc(raw(namespace), rank) for namespace, rank in values))
        return Array(PROC, len(values), self._hold(procs))

    def _hold(self, what: Any) -> int:
        self._kept.append(what)
        return ctypes.addressof(what)


# --- for the link


def pack_typed(typed: Typed) -> bytes:
    """The bytes of a value; raises `ValueError` for arrays and other kinds that are not published."""
    kind, value = typed
    if kind in _NUMBERS:
        return b"%d %s" % (kind, repr(float(value) if kind in _REALS else int(value)).encode())
    if kind == STRING:
        return b"%d %s" % (kind, raw(value))
    if kind == BYTE_OBJECT:
        return b"%d %s" % (kind, value)
    if kind == PROC and value:
        return b"%d %d %s" % (kind, value[1], raw(value[0]))
    raise ValueError(f"values of kind {kind} are not sent")


def unpack_typed(data: bytes) -> Typed:
    """The inverse of `pack_typed`; raises `ValueError` for other bytes."""
    head, blank, rest = data.partition(b" ")
    kind = int(head)
    if not blank:
        raise ValueError("no value of ours")
    if kind in _NUMBERS:
        return Typed(kind, float(rest) if kind in _REALS else bool(int(rest)) if kind == BOOL else int(rest))
    if kind == STRING:
        return Typed(kind, text(rest))
    if kind == BYTE_OBJECT:
        return Typed(kind, rest)
    if kind == PROC:
        rank, _, namespace = rest.partition(b" ")
        return Typed(kind, (text(namespace), int(rank)))
    raise ValueError(f"values of kind {kind} are not sent")


def first(items: Iterable[Item], key: str) -> Any:
    """The value of the first item with this key; None if there is none."""
    return next((item.value for item in items if item.key == key), None)
