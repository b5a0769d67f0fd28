"""The bootstrap: the command lines that make an agent of a bare python3 on a host.

The line must survive any login shell (sh, csh, fish, zsh), so it holds no `$`, no backslash, and single quotes only
around what is Python.  It writes which bytecode its Python has (`protocol.program_request`), reads the size of the
program that fits (`agent_program`), N bytes and not one more, for frames may follow at once.  To ask costs no round
trip: sshd takes no input before the command runs, and what is asked is under way as soon as that.  No file is written:
a read-only home and a noexec /tmp do not matter.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.protocol.program_request import ASKS
from mslaunch.transport.bootstrap.agent_program import kept, modules_of, table_of_both
from mslaunch.transport.token_file import READER

if TYPE_CHECKING:
    from collections.abc import Iterable

_CALLS = {
    "calling": "from mslaunch.agent.call_launcher import call_back_main\ncall_back_main(SOURCES)\n",
    "callingapart": "from mslaunch.agent.call_launcher import call_back_apart\ncall_back_apart(SOURCES)\n",
    "callingby": "from mslaunch.agent.call_launcher import call_back_by\ncall_back_by(TERMS, SOURCES)\n",
}
_SCRIPT = """\
import sys
if sys.version_info < (3, 8):
    sys.exit("mslaunch: python " + sys.version.split()[0] + " is older than 3.8")
import binascii, marshal, zlib
__import__("_signal").alarm(%d)
TERMS = %r
SOURCES = marshal.loads(zlib.decompress(binascii.a2b_base64(%r)))
exec(SOURCES.pop(""))
"""

_LONGEST = 86_400  # seconds, a day

# Python 2 and old Pythons must understand this much, to say that they are too old.  SystemExit prints on stderr.
_STUB = (
    "import sys,os,zlib,marshal;"
    'sys.version_info<(3,8) and sys.exit("mslaunch: python "+sys.version.split()[0]+" is older than 3.8");'
    '__import__("_signal").alarm(%d);'
    "%s;b=bytearray();"
    'all(b.extend(d)or len(b)<n for d in iter(lambda:os.read(0,n-len(b)),b""));'
    'SOURCES=marshal.loads(zlib.decompress(b));exec(SOURCES.pop(""))'
)
_SIZE_IS = "n=%d"
# by its own magic number: `importlib.util`, which has it too, takes milliseconds to import
_ASK = (
    f'os.write(1,bytes(1)+"{ASKS}".encode()+sys.implementation.cache_tag.encode()+b"-"'
    '+__import__("_frozen_importlib_external").MAGIC_NUMBER.hex().encode()+bytes([10]));'
    'n=int(b"".join(iter(lambda:os.read(0,1).strip(),b"")))'
)

#: what `agent.call_launcher` needs of the core
_FIRST = (
    "mslaunch.agent",
    "mslaunch.errors",
    "mslaunch.faststd",
    "mslaunch.host",
    "mslaunch.host.own_addresses",
    "mslaunch.protocol",
    "mslaunch.protocol.keyed_digest",
)


def boot_line(python: str, timeout: float) -> str:
    """The command line that starts an agent; `python` is a program name or path on the host.

    `timeout`: seconds that the launcher waits for HELLO.  The interpreter waits as long for its program, and not for
    ever where the host was cut off.
    """
    return f"exec {quoted(python)} -I -S -c '{_stub(timeout, _ASK)}'"


def boot_argv(python: str, timeout: float) -> list[str]:
    """The same without a shell in between."""
    return [python, "-I", "-S", "-c", _stub(timeout, _ASK)]


def _calling_payload(how: str) -> bytes:
    """The program of an agent that calls back in one of the ways of `_CALLS`, and gets all other modules afterwards."""
    modules = (*modules_of("agent.call_launcher"), *_FIRST)
    return kept(how, (__name__, *modules), lambda: table_of_both(modules, _CALLS[how]))


def calling_argv(python: str, timeout: float) -> tuple[list[str], bytes]:
    """The same for an agent that calls back (`transport.call_back`), and its program.

    It asks for nothing: its standard input has the program, and behind it a line.
    """
    data = _calling_payload("calling")
    return [python, "-I", "-S", "-c", _stub(timeout, _SIZE_IS % len(data))], data


def calling_line(python: str, timeout: float) -> tuple[str, bytes]:
    """The same for a login shell, and for an agent that leaves its session; it prints a line when it begins to read."""
    data = _calling_payload("callingapart")
    stub = f"import sys;print(0);sys.stdout.flush();{_stub(timeout, _SIZE_IS % len(data))}"
    return f"exec {quoted(python)} -I -S -c '{stub}'", data


def calling_script(timeout: float, terms: bytes) -> bytes:
    """A whole Python program in ASCII, which becomes an agent that calls back by these `call_terms`."""
    from binascii import b2a_base64

    data = b2a_base64(_calling_payload("callingby"), newline=False)
    return (_SCRIPT % (_whole(timeout), terms.decode("ascii").strip(), data.decode("ascii"))).encode("ascii")


def file_argv(python: str, timeout: float, directories: Iterable[str], node: str) -> list[str]:
    """Words that run such a program from the file of `token_file`, in the first of these directories that has it."""
    limit = f'__import__("_signal").alarm({_whole(timeout)})\n'
    return [python, "-I", "-S", "-c", limit + READER, node, *directories]


def _whole(timeout: float) -> int:
    return int(min(timeout, _LONGEST)) + 1


def _stub(timeout: float, size: str) -> str:
    """The launcher began to wait earlier, so with a second more it is the first to give up, and says why."""
    return _STUB % (_whole(timeout), size)


def quoted(word: str) -> str:
    """`word` for any login shell; raises UsageError for what no quoting makes safe in all of them."""
    if all(char.isalnum() or char in "/._-+~=@" for char in word):
        return word
    if "'" in word or "\\" in word or "!" in word or "\n" in word:
        raise UsageError(f"{word!r} cannot be quoted for every login shell", "--agent-python", "give a plain path")
    return f"'{word}'"
