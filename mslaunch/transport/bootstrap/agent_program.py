"""The agent's program, as bytes: its modules as code where a host's Python has our bytecode, and as source elsewhere.

An agent takes some 35 ms of processor time to compile its sources, and 5 ms to load the same as code, which is twice as
large.  Either is made once, in some 40 ms, and kept beside the compiled files that Python keeps; where it cannot be
written, each launch makes it.
"""

from __future__ import annotations

import os
import sys

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.call_proof import bytecode
from mslaunch.protocol.codec import pack
from mslaunch.transport.bootstrap.bare_source import bare
from mslaunch.transport.bootstrap.manifest import CORE, FIRST, PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import CodeType

#: the first entry of the table: installs a finder for the others.  Garbage collection takes a twentieth of the start,
#: partly by page faults after forking, so it is disabled until `agent_main` enables it
LOADER = """\
import gc, sys
gc.disable()
class Loader:
    sources = SOURCES
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            from _frozen_importlib import ModuleSpec
            return ModuleSpec(name, self, is_package=SOURCES[name][0])
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        code = SOURCES[name][1]
        exec(compile(code, "<mslaunch>/" + name, "exec") if isinstance(code, str) else code, module.__dict__)
sys.meta_path.insert(0, Loader())
"""
#: follows it in a table that was sent before the launcher could learn the kind of this Python's bytecode
_SELECT_CODE = """\
import marshal
from _frozen_importlib_external import MAGIC_NUMBER
code = SOURCES.pop("code")
if sys.implementation.cache_tag + "-" + MAGIC_NUMBER.hex() == %r:
    SOURCES.update(marshal.loads(code))
"""
_ENTRY = "from mslaunch.agent.main import remote_main\nremote_main(%d, globals().get('SEALS'))\n"
_MAKERS = ("mslaunch.transport.bootstrap.agent_program", "mslaunch.transport.bootstrap.bare_source")
_made: dict[bool, bytes] = {}  # by whether it is compiled
_CODE, _NO_COLUMNS, _NO_LINE = 0x80, 13, 15  # CPython's Objects/locations.md


def program_for(kind: str) -> bytes:
    """A size, and so many bytes, the modules with which an agent says HELLO; the others follow them.

    That is what `bootstrap`'s stub takes, or an agent that has called back.  `kind` is that of the host's Python, as
    `call_proof.bytecode` says.
    """
    compiled = kind == bytecode()
    if compiled not in _made:
        _made[compiled] = kept("code" if compiled else "source", CORE, lambda: _in_two(compiled))
    return _made[compiled]


def _in_two(compiled: bool) -> bytes:
    rest = table_of([name for name in CORE if name not in FIRST], "", compiled)
    first = table_of(FIRST, LOADER + _ENTRY % len(rest), compiled)
    return b"%d\n%s%s" % (len(first), first, rest)


def table_of(names: Iterable[str], entry: str, compiled: bool) -> bytes:
    """zlib of a marshalled table: the name of each module -> whether it is a package, and its code; "" -> `entry`.

    As source it is for every Python (version 2 of marshal is what the oldest of them reads).
    """
    table: dict[str, object] = {name: _module(name, compiled) for name in names}
    if entry:
        table.update({"mslaunch": (True, ""), "": entry})
    return _packed(table, compiled)


def table_of_both(names: Iterable[str], entry: str) -> bytes:
    """The same as source, with the code beside it for Pythons that have our bytecode."""
    import marshal

    table: dict[str, object] = {name: _module(name, compiled=False) for name in names}
    code = {name: _module(name, compiled=True) for name in names}
    loader = LOADER + _SELECT_CODE % bytecode()
    table.update({"mslaunch": (True, ""), "code": marshal.dumps(code, 4), "": loader + entry})
    return _packed(table, compiled=False)


def _packed(table: dict[str, object], compiled: bool) -> bytes:
    import marshal
    import zlib

    return zlib.compress(marshal.dumps(table, 4 if compiled else 2), 9)


def modules_of(name: str) -> tuple[str, ...]:
    """The names of the modules of a part; raises KeyError if there is no such part."""
    return PARTS[name]


def part(name: str) -> dict[str, str]:
    """The sources of a part by the names of its modules, "" for packages; raises KeyError if there is no such part."""
    return {module: source_of(module)[1] for module in modules_of(name)}


def pack_part(sources: Mapping[str, str]) -> bytes:
    """The payload of PART, which `protocol.mpi.unpack_part` reads."""
    return pack({name: [source] for name, source in sources.items()})


def part_frame(name: str) -> bytes:
    """The frame PART of what an agent needs for one task.  Sent before a question, it saves the agent's own (NEED)."""
    from mslaunch.protocol import frames

    return frames.encode(frames.PART, payload=pack_part(part(name)))


def _file(name: str) -> tuple[bool, str]:
    """Whether it is a package, and the file of its source."""
    import mslaunch

    base = os.path.join(os.path.dirname(mslaunch.__file__), *name.split(".")[1:])
    package = os.path.isdir(base)
    return package, os.path.join(base, "__init__.py") if package else base + ".py"


def source_of(name: str) -> tuple[bool, str]:
    """Whether a module is a package, and its source as it travels."""
    package, path = _file(name)
    with open(path, encoding="utf-8") as file:
        return package, bare(file.read())


def _module(name: str, compiled: bool) -> tuple[bool, CodeType | str]:
    package, source = source_of(name)
    if package or not compiled:
        return package, source
    code = compile(source, "<mslaunch>/" + name, "exec", dont_inherit=True, optimize=2)
    return package, without_columns(code)


def without_columns(code: CodeType) -> CodeType:
    """The same code, in whose tracebacks lines have no columns, as by -X no_debug_ranges: a third of the bytes less."""
    if not hasattr(code, "co_positions"):  # before 3.11 there are none
        return code
    table, last = bytearray(), code.co_firstlineno
    for start, end, line in code.co_lines():
        for at in range(start, end, 16):
            head = _CODE | (min(end - at, 16) // 2 - 1)
            if line is None:
                table.append(head | _NO_LINE << 3)
            else:
                table.append(head | _NO_COLUMNS << 3)
                table += _signed(line - last)
                last = line
    inner = (without_columns(const) if hasattr(const, "co_code") else const for const in code.co_consts)
    return code.replace(co_linetable=bytes(table), co_consts=tuple(inner))


def _signed(number: int) -> bytes:
    """Six bits a byte, the lowest first; the lowest of all is the sign."""
    rest = -number << 1 | 1 if number < 0 else number << 1
    found = bytearray()
    while rest >= 64:
        found.append(64 | rest & 63)
        rest >>= 6
    found.append(rest)
    return bytes(found)


# --- what is kept


def kept(name: str, modules: Iterable[str], make: Callable[[], bytes]) -> bytes:
    """What was made before, under this name, of the files of the modules as they are, or `make()`, which is kept then.

    `name`: letters.
    """
    from _frozen_importlib_external import cache_from_source

    path = cache_from_source(_file("mslaunch.transport.bootstrap.manifest")[1], optimization=name)
    state = _state(modules)
    try:
        with open(path, "rb") as file:
            found = file.read()
        if found.startswith(state) and int(found[len(state) : len(state) + 8]) == len(found) - len(state) - 8:
            return found[len(state) + 8 :]
    except (OSError, ValueError):
        pass
    data = make()
    if not sys.dont_write_bytecode:
        _write(path, b"%s%8d%s" % (state, len(data), data))
    return data


def _state(names: Iterable[str]) -> bytes:
    """What changes with the sources: when each file was written, and its size, as in Python's own compiled files."""
    files = (os.stat(_file(name)[1]) for name in (*_MAKERS, *names))
    return repr((bytecode(), [(file.st_mtime_ns, file.st_size) for file in files])).encode() + b"\n"


def _write(path: str, data: bytes) -> None:
    """As Python writes compiled files: whole or not at all, and not where it may not."""
    from _frozen_importlib_external import _write_atomic  # type: ignore[attr-defined]

    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write_atomic(path, data)
    except OSError:
        pass
