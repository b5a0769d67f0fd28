"""The few parts of the standard library that every launch needs, without the wrappers around them; and `load`.

`typing`, `signal`, `socket` and `json` cost 13, 5, 9 and 10 ms to import (`scripts/bench imports` prints today's
figures), and a launch of four ranks is done in about 40.  Each name below is the C core of a well-known module, or the
same thing written small.  Type checkers see the real `typing` and `signal`, since they take `TYPE_CHECKING` for true;
at run time neither is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import heapq
    import signal
    import struct
    from functools import partial
    from socket import socket
    from typing import Any, NamedTuple
else:
    try:
        import _signal as signal
        from _collections import _tuplegetter as field_of
        from _functools import partial
    except ImportError:  # an interpreter without one of these C cores
        import signal
        from functools import partial

        def field_of(index: int, doc: object) -> property:
            return property(lambda record: record[index])

    def __getattr__(name: str) -> Any:
        """What commands that launch nothing do not need is imported when it is first asked for."""
        if name not in ("heapq", "socket", "struct"):
            raise AttributeError(name)
        try:
            found = __import__("_" + name)
        except ImportError:
            found = __import__(name)
        found = found.socket if name == "socket" else found
        globals()[name] = found
        return found

    class _RecordType(type):
        """Makes a class whose annotations name its fields; the values given to them are the defaults."""

        def __new__(mcls, name: str, bases: tuple, namespace: dict) -> Any:
            if not bases:
                return type.__new__(mcls, name, (tuple,), namespace)
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace[field] for field in fields if field in namespace}
            for index, field in enumerate(fields):
                namespace[field] = field_of(index, None)
            namespace.update(__slots__=(), _fields=fields, _field_defaults=defaults)
            return type.__new__(mcls, name, bases, namespace)

    class NamedTuple(metaclass=_RecordType):
        """`typing.NamedTuple` as far as this package uses it."""

        __slots__ = ()
        _make = classmethod(tuple.__new__)

        def __new__(cls, *args: Any, **named: Any) -> Any:
            """A record, its fields given by place or by name."""
            fields, defaults = cls._fields, cls._field_defaults
            if len(args) > len(fields):
                raise TypeError(f"{cls.__name__} has {len(fields)} fields, {len(args)} values were given")
            values = list(args)
            for field in fields[len(args) :]:
                if field in named:
                    values.append(named.pop(field))
                elif field in defaults:
                    values.append(defaults[field])
                else:
                    raise TypeError(f"{cls.__name__} needs a value for {field!r}")
            if named:
                raise TypeError(f"{cls.__name__} has no field {sorted(named)}, or it was given twice")
            return cls._make(values)

        def _replace(self, **named: Any) -> Any:
            made = self._make(map(named.pop, self._fields, self))
            if named:
                raise TypeError(f"{type(self).__name__} has no field {sorted(named)}")
            return made

        def _asdict(self) -> dict:
            return dict(zip(self._fields, self))

        def __repr__(self) -> str:
            inside = ", ".join(f"{field}={value!r}" for field, value in zip(self._fields, self))
            return f"{type(self).__name__}({inside})"

        def __reduce__(self) -> Any:
            return type(self), tuple(self)


def load(row: str) -> Any:
    """What a row of a table names, as `plan.mapping.ppr:map_by_pattern`; its module is imported only now."""
    module, _, name = row.partition(":")
    return getattr(__import__(f"mslaunch.{module}", fromlist=(name,)), name)


__all__ = ["TYPE_CHECKING", "NamedTuple", "heapq", "load", "partial", "signal", "socket", "struct"]
