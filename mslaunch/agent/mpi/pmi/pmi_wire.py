"""The wire format of PMI: bytes from a rank's socket become messages, and answers become bytes.

PMI-1 consists of lines (`cmd=put kvsname=0 key=a value=b`), except for spawn, which is sent in blocks of lines.  PMI-2
has six characters of length and then `cmd=kvs-put;key=a;value=b;`.  The first line of a rank names the version that
follows, and is PMI-1 in both cases.  After its finalize a rank may send such a line again.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LINE = 1 << 16  #: bytes of a line, at most
SPAWN = 1 << 22  #: bytes of all the blocks of one spawn: arguments may be long
WORDS = 1 << 16  #: of a message, at most: each costs more memory than it has bytes
_END = b"\nendcmd\n"
_FRAME = 999_999  # what six digits can say
_SEMICOLON = "\udc01"  # stands for ";;" while a frame is cut: no bytes decode to it


class Garbled(ValueError):  # noqa: N818  (what it is, not that it is one)
    """A rank has sent something that is not PMI; the text says what was wrong, and what was sent."""


class Refused(ValueError):  # noqa: N818
    """A command cannot be carried out; the text is the word for the answer."""


class Message(NamedTuple):
    """One command of a rank."""

    version: int  # of PMI: 1 or 2
    command: str
    words: Mapping[str, str] = {}
    pairs: tuple[tuple[str, str], ...] = ()  # the same in their order, which matters for spawn

    def need(self, key: str) -> str:
        """The value of `key`; raises `Refused` when there is none."""
        if key not in self.words:
            raise Refused(f"no_{key}")
        return self.words[key]


class SpawnProgram(NamedTuple):
    """A program that a rank wants spawned."""

    argv: tuple[str, ...]
    processes: int
    info: tuple[str, ...]  # key, value, key, value, …


def number(text: str, limit: int = 1 << 24) -> int:
    """A number that is not negative; raises `Refused` for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= limit):
        raise Refused("not_a_number")
    return int(text)


def shown(data: bytes | bytearray) -> str:
    """The beginning of what a rank sent, in printable characters."""
    return repr(bytes(data[:60]))[1:] + ("…" if len(data) > 60 else "")


class Reader:
    """Splits the bytes from one rank into messages, in whatever pieces they arrive."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._seen = 0  # bytes that were searched for the end of the line or block
        self.framed = False  # PMI-2; set from outside, after init and finalize
        self._spawn: list[tuple[str, str]] = []  # of the blocks before the last one
        self._size = 0  # of these blocks

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now; raises `Garbled` at what is no message."""
        self._held += data
        while True:
            unit = self._frame() if self.framed else self._block() if self._held[:5] == b"mcmd=" else self._line()
            if unit is None:
                return
            message = self._message(unit)
            if message is not None:
                yield message

    def _line(self) -> bytes | None:
        end = self._held.find(b"\n", self._seen)
        if end > LINE or (end < 0 and len(self._held) > LINE):
            raise Garbled(f"a line of more than {LINE} bytes, which begins with {shown(self._held)}")
        self._seen = len(self._held)
        return None if end < 0 else self._take(end, end + 1)

    def _block(self) -> bytes | None:
        end = self._held.find(_END, max(0, self._seen - len(_END)))
        if self._size + (len(self._held) if end < 0 else end) > SPAWN:
            raise Garbled(f"a spawn of more than {SPAWN} bytes, which begins with {shown(self._held)}")
        self._seen = len(self._held)
        return None if end < 0 else self._take(end, end + len(_END))

    def _frame(self) -> bytes | None:
        if len(self._held) < 6:
            return None
        digits = bytes(self._held[:6]).strip(b" ")
        if not digits.isdigit():
            raise Garbled(f"a message whose length is no number: {shown(self._held[:6])}")
        end = 6 + int(digits)
        return self._take(end, end)[6:] if len(self._held) >= end else None

    def _take(self, end: int, after: int) -> bytes:
        unit = bytes(self._held[:end])
        del self._held[:after]
        self._seen = 0
        return unit

    def _message(self, unit: bytes) -> Message | None:
        """The message in `unit`; None: that was one of several blocks."""
        block = not self.framed and unit.startswith(b"mcmd=")
        if b"\0" in unit.rstrip(b"\0\n") or (self._spawn and not block):
            raise Garbled(shown(unit))
        words = unit.count(b";" if self.framed else b"\n" if block else b" ")
        if words + len(self._spawn) > WORDS:
            raise Garbled(f"a message of more than {WORDS} words, which begins with {shown(unit)}")
        text = (unit.rstrip(b"\0\n") if self.framed else unit).decode("utf-8", "surrogateescape")
        pairs = _framed_pairs(text) if self.framed else _pairs(text, "\n" if block else " ")
        head, command = pairs[0] if pairs else ("", "")
        if head != ("mcmd" if block else "cmd") or not _plain(command):
            raise Garbled(shown(unit))
        if block:
            return self._more(unit, command, pairs)
        return Message(2 if self.framed else 1, command, dict(pairs[1:]), tuple(pairs[1:]))

    def _more(self, unit: bytes, command: str, pairs: list[tuple[str, str]]) -> Message | None:
        words = dict(pairs)
        try:
            last = number(words.get("spawnssofar", "")) >= number(words.get("totspawns", ""))
        except Refused:
            raise Garbled(f"a spawn that does not say which of how many it is: {shown(unit)}") from None
        self._spawn += pairs
        self._size += len(unit)
        if not last:
            return None
        whole = Message(1, command, words, tuple(self._spawn))
        self._spawn, self._size = [], 0
        return whole


def _plain(word: str) -> bool:
    return len(word) <= 64 and word.isascii() and word.replace("_", "").replace("-", "").replace("/", "").isalnum()


def _pairs(text: str, separator: str) -> list[tuple[str, str]]:
    """Keys and values.  A piece without a key belongs to the value before it: names and texts may have spaces."""
    pairs: list[tuple[str, list[str]]] = []
    for piece in text.split(separator):
        key, equals, value = piece.partition("=")
        if equals and _plain(key):
            pairs.append((key, [value]))
        elif pairs:
            pairs[-1][1].append(piece)
        elif piece:
            return []
    return [(key, separator.join(pieces).rstrip(separator)) for key, pieces in pairs]


def _framed_pairs(text: str) -> list[tuple[str, str]]:
    pieces = [piece.partition("=") for piece in text.replace(";;", _SEMICOLON).split(";")]
    return [(key, value.replace(_SEMICOLON, ";")) for key, _, value in pieces if key]


def programs(message: Message) -> tuple[list[SpawnProgram], list[str]]:
    """The programs of a spawn, and what it puts into the new world in advance: key, value, …"""
    first = "mcmd" if message.version == 1 else "subcmd"
    found: list[dict[str, str]] = [{}]  # first what holds for all of them
    for key, value in message.pairs:
        if key == first:
            found.append({})
        found[-1].setdefault(key, value)
    common = found[1] if message.version == 1 and len(found) > 1 else found[0]
    name, count = ("preput_%s_%d", "preput_num") if message.version == 1 else ("pp%s%d", "preputcount")
    preput = _counted(common, count, name)
    wanted = [_program(words, message.version) for words in found[1:]]
    if not wanted or not all(program.argv[0] and program.processes for program in wanted):
        raise Refused("nothing_to_spawn")
    return wanted, preput


#: version -> how it names the file, the processes, the number of arguments and each of them (from 0 or 1), and infos
_SPAWN_KEYS = {
    1: ("execname", "nprocs", "argcnt", "arg%d", 1, "info_num", "info_%s_%d"),
    2: ("subcmd", "maxprocs", "argc", "argv%d", 0, "infokeycount", "info%s%d"),
}


def _program(words: Mapping[str, str], version: int) -> SpawnProgram:
    file, processes, count, arg, first, infos, info = _SPAWN_KEYS[version]
    args = [words.get(arg % (first + index), "") for index in range(_count(words, count))]
    named = tuple(_counted(words, infos, info))
    return SpawnProgram((words.get(file, ""), *args), number(words.get(processes, "")), named)


def _count(words: Mapping[str, str], key: str) -> int:
    """A count, which is at most the number of words: else it could ask for lists of any length."""
    return number(words.get(key) or "0", len(words))


def _counted(words: Mapping[str, str], count: str, name: str) -> list[str]:
    return [words.get(name % (part, at), "") for at in range(_count(words, count)) for part in ("key", "val")]


def line(command: str, pairs: Iterable[tuple[str, object]]) -> bytes:
    """A message of PMI-1."""
    text = "".join(f" {key}={value}" for key, value in pairs).replace("\n", " ")
    return f"cmd={command}{text}\n".encode("utf-8", "surrogateescape")


def framed(command: str, pairs: Iterable[tuple[str, object]]) -> bytes:
    """A message of PMI-2."""
    text = "".join(f"{key}={str(value).replace(';', ';;')};" for key, value in pairs)
    body = f"cmd={command};{text}".encode("utf-8", "surrogateescape")
    return b"%6d" % len(body) + body
