"""The bootstrap: the agent's modules as bytes, and the command line that runs them on a host with a bare python3.

The line must survive any login shell (sh, csh, fish, zsh), so it holds no `$`, no backslash, and single quotes only
around what is Python.  It reads N bytes and not one more, for frames may follow at once; they are a table of sources
compiled only when imported.  No file is written: a read-only home and a noexec /tmp do not matter.
"""

from __future__ import annotations

import os

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.call_proof import bytecode
from mslaunch.transport.base import Boot
from mslaunch.transport.manifest import CORE, PARTS
from mslaunch.transport.token_file import READER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType

_LOADER = """\
import sys
class Loader:
    sources = SOURCES
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            from importlib.machinery import ModuleSpec
            return ModuleSpec(name, self, is_package=SOURCES[name][0])
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(%s, module.__dict__)
sys.meta_path.insert(0, Loader())
"""
_COMPILE = 'compile(SOURCES[name][1], "<mslaunch>/" + name, "exec")'
_COMPILE_SOURCE = f"{_COMPILE} if isinstance(SOURCES[name][1], str) else SOURCES[name][1]"
_ENTRY = "from mslaunch.agent.main import remote_main\nremote_main()\n"
_CALLING = "from mslaunch.agent.call_launcher import call_back_main\ncall_back_main(SOURCES)\n"
_CALLING_APART = "from mslaunch.agent.call_launcher import call_back_apart\ncall_back_apart(SOURCES)\n"
_CALLING_BY = "from mslaunch.agent.call_launcher import call_back_by\ncall_back_by(TERMS, SOURCES)\n"
_SCRIPT = """\
import sys
if sys.version_info < (3, 8):
    sys.exit("mslaunch: python " + sys.version.split()[0] + " is older than 3.8")
import binascii, zlib
__import__("_signal").alarm(%d)
TERMS = %r
exec(zlib.decompress(binascii.a2b_base64(%r)))
"""

_LONGEST = 86_400  # seconds, a day

# Python 2 and old Pythons must understand this much, to say that they are too old.  SystemExit prints on stderr.
_STUB = (
    "import sys,os,zlib;"
    'sys.version_info<(3,8) and sys.exit(\\"mslaunch: python \\"+sys.version.split()[0]+\\" is older than 3.8\\");'
    '__import__(\\"_signal\\").alarm(%d);'
    "n=%d;b=bytearray();"
    'all(b.extend(d)or len(b)<n for d in iter(lambda:os.read(0,n-len(b)),b\\"\\"));'
    "exec(zlib.decompress(b))"
)

#: what `agent.call_launcher` needs of the core
_FIRST = ("mslaunch.agent", "mslaunch.faststd", "mslaunch.protocol")
_QUOTES = '"' * 3
_TYPES = "if TYPE_CHECKING:"


def _file(name: str) -> tuple[bool, str]:
    """Whether it is a package, and the file of its source."""
    import mslaunch

    base = os.path.join(os.path.dirname(mslaunch.__file__), *name.split(".")[1:])
    package = os.path.isdir(base)
    return package, os.path.join(base, "__init__.py") if package else base + ".py"


def _source(name: str) -> tuple[bool, str]:
    package, path = _file(name)
    with open(path, encoding="utf-8") as file:
        return package, bare(file.read())


def _module(name: str) -> tuple[bool, CodeType | str]:
    """Compiled, by Python's own loader, which reads the compiled file if that is of this source."""
    from _frozen_importlib_external import SourceFileLoader

    package, path = _file(name)
    code = None if package else SourceFileLoader(name, path).get_code(name)
    return package, code or ""


def _is_compiled() -> bool:
    """Whether there is a compiled file of a module that launchers import: not with PYTHONDONTWRITEBYTECODE."""
    from _frozen_importlib_external import cache_from_source

    return os.path.exists(cache_from_source(_file("mslaunch.faststd")[1]))


def bare(text: str) -> str:
    """Our own source without comments, docstrings, and what only type checkers see; every line keeps its number.

    It relies on the style of this package: three quotation marks at the beginning of a line begin a docstring,
    elsewhere a text that is needed; a comment behind code follows two blanks; the type of a function's result is the
    end of its line.  A comment that has quotation marks stays, for it may be within a text.  (`ast` would be sure, and
    cost more than it saves; the tests use it.)
    """
    lines = []
    kept = inside = typing = False
    for line in text.split("\n"):
        code = line.lstrip()
        typing = typing and line[:1] in ("", " ")
        if typing or line == _TYPES:
            lines.append("" if typing else _TYPES + ' ""')
            typing = True
            continue
        ends = line.count(_QUOTES) % 2 == 1  # begins or ends a text that has several lines
        if inside:
            lines.append(line if kept else "")
        elif code[-1:] == ":" and ") -> " in line and code[0] in "d)":
            lines.append(line.rpartition(") -> ")[0] + "):")
        elif "  # " in line and code[0] != "#" and not ends:
            before, _, words = line.rpartition("  # ")
            lines.append(line if '"' in words or "'" in words else before)
        else:
            kept = not code.startswith(_QUOTES)
            lines.append((line if code[:1] != "#" else "") if kept else line[: len(line) - len(code)] + '""')
        if not (inside and kept):
            lines[-1] = _narrow(lines[-1])
        inside = inside != ends
    return "\n".join(lines)


def _narrow(line: str) -> str:
    """A line of code that is indented by single blanks, which makes the payload smaller by a thirtieth."""
    depth = (len(line) - len(line.lstrip(" "))) // 4
    return line[3 * depth :]


def payload(names: Iterable[str] = CORE, entry: str = _ENTRY) -> bytes:
    """The first bytes for the stub: zlib of a Python program that holds every travelling module's code, and `entry`."""
    import zlib

    sources = {name: _source(name) for name in names}
    sources["mslaunch"] = (True, "")
    program = f"SOURCES={sources!r}\n{_LOADER % (_COMPILE if entry == _ENTRY else _COMPILE_SOURCE)}{entry}".encode()
    return zlib.compress(program, 6)


def _calling_payload(entry: str) -> bytes:
    """The same for an agent that calls back, which gets all other modules on its connection."""
    return payload((*part("agent.call_launcher"), *_FIRST), entry)


def modules_for(kind: str) -> bytes:
    """The first bytes on the connection of an agent that has called back: a size, and a table of its modules.

    They are compiled where the agent's Python has the same bytecode as this one (`call_proof.bytecode`), and this one
    has compiled files: an agent takes 40 ms of processor time to compile the sources, which are a third of the size.
    """
    import marshal
    import zlib

    compiled = kind == bytecode() and _is_compiled()
    table = {name: _module(name) if compiled else _source(name) for name in CORE}
    data = zlib.compress(marshal.dumps(table, 4 if compiled else 2), 1 if compiled else 6)
    return b"%d\n" % len(data) + data


def part(name: str) -> dict[str, str]:
    """The sources of a part by the names of its modules, "" for packages; raises KeyError if there is no such part."""
    return {module: _source(module)[1] for module in PARTS[name]}


def make_boot(python: str, timeout: float) -> Boot:
    """The command line and payload that start an agent; `python` is a program name or path on the host.

    `timeout`: seconds that the launcher waits for HELLO.  The interpreter waits as long for its payload, and not for
    ever where the host was cut off.
    """
    data = payload()
    return Boot(f"exec {quoted(python)} -I -S -c '{_stub(timeout, len(data))}'", data)


def boot_argv(python: str, timeout: float) -> tuple[list[str], bytes]:
    """The same without a shell in between: argv and payload."""
    data = payload()
    return [python, "-I", "-S", "-c", _stub(timeout, len(data))], data


def calling_argv(python: str, timeout: float) -> tuple[list[str], bytes]:
    """The same for an agent that calls back (`transport.call_back`), whose standard input has a line behind these."""
    data = _calling_payload(_CALLING)
    return [python, "-I", "-S", "-c", _stub(timeout, len(data))], data


def calling_boot(python: str, timeout: float) -> Boot:
    """The same for a login shell, and for an agent that leaves its session; it prints a line when it begins to read."""
    data = _calling_payload(_CALLING_APART)
    stub = f"import sys;print(0);sys.stdout.flush();{_stub(timeout, len(data))}"
    return Boot(f"exec {quoted(python)} -I -S -c '{stub}'", data)


def calling_script(timeout: float, terms: bytes) -> bytes:
    """A whole Python program in ASCII, which becomes an agent that calls back by these `call_terms`."""
    from binascii import b2a_base64

    data = b2a_base64(_calling_payload(_CALLING_BY), newline=False)
    return (_SCRIPT % (_whole(timeout), terms.decode("ascii").strip(), data.decode("ascii"))).encode("ascii")


def file_argv(python: str, timeout: float, directories: Iterable[str], node: str) -> list[str]:
    """Words that run such a program from the file of `token_file`, in the first of these directories that has it."""
    limit = f'__import__("_signal").alarm({_whole(timeout)})\n'
    return [python, "-I", "-S", "-c", limit + READER, node, *directories]


def _whole(timeout: float) -> int:
    return int(min(timeout, _LONGEST)) + 1


def _stub(timeout: float, size: int) -> str:
    """The launcher began to wait earlier, so with a second more it is the first to give up, and says why."""
    return (_STUB % (_whole(timeout), size)).replace("\\", "")


def quoted(word: str) -> str:
    """`word` for any login shell; raises UsageError for what no quoting makes safe in all of them."""
    if all(char.isalnum() or char in "/._-+~=@" for char in word):
        return word
    if "'" in word or "\\" in word or "!" in word or "\n" in word:
        raise UsageError(f"{word!r} cannot be quoted for every login shell", "--agent-python", "give a plain path")
    return f"'{word}'"
