"""Hostfiles and -H: their text to `HostLine`s.

The grammar is that of Open MPI 4.1's mpirun (found by experiment; docs/hostfile.md lists it), with ranges, ports, IPv6
addresses, `host:N`, underscores and DOS line ends on top.  A host on three lines stays three lines; `allocation` merges
them.

-H entries that only mean something next to other hosts, `+n1`, `+e:2` and `^node3`, become hosts of that very name,
which no host can have; `host_names` replaces them.  As in mpirun bare words after the host are ignored (`aa bb
slots=2` is `aa slots=2`), except `spare`, which is ours; a word that looks like a misspelt key is refused.

Comments, also in rankfiles, are `#`, `//` and `/* */`, next to a word or not.  A comment of several lines does not end
the line that it begins on: `aa /*` and `*/ slots=2` on the next are one line, with the number of the first.
"""

from __future__ import annotations

from mslaunch.datamodel.jobmap import HostLine
from mslaunch.errors import HostfileError, LaunchError, UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.hosts.host_ranges import MAX_NAMES, expand, quoted, split

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SLOTS = 65536  #: of one host

_SLOTS = ("slots", "cpu", "count")
_KEYS = {
    **dict.fromkeys(_SLOTS, "slots"),
    **{f"max{mark}{key}": "max_slots" for key in _SLOTS for mark in "-_"},
    **{f"{key}{mark}max": "max_slots" for key in _SLOTS for mark in "-_"},
    **dict.fromkeys(("username", "user-name", "user_name"), "username"),
    "port": "port",
}
_MISTAKES = {
    **dict.fromkeys(("slot", "cpus", "counts", "core", "cores", "np", "ppn", "nproc", "procs", "process"), "slots"),
    **dict.fromkeys(("maxslots", "max_slot", "max-slot", "slotsmax", "max"), "max_slots"),
    **dict.fromkeys(("user", "login", "usr"), "username"),
    **dict.fromkeys(("ports", "sshport", "ssh_port", "ssh-port"), "port"),
}
_SPARE = "spare"
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_NAME = _LETTERS | frozenset("._-")
_USER = _NAME | frozenset("+$\\")
_WORD = _LETTERS | frozenset("_-")
_RANGED = _NAME | frozenset("[],")
_LONGEST = 253  # characters of a name (RFC 1035, 2.3.4)
_EXAMPLE = {"slots": "4", "max_slots": "8", "username": "joe", "port": "2222"}
_ONE_A_LINE = "name a host like node1, one on a line of a hostfile, with commas in -H"
_ONLY_OPTION = ("only -H takes {}", "write the name of the host, or give -H {} together with this hostfile")


def parse(text: str, name: str) -> tuple[HostLine, ...]:
    """The hosts of a hostfile, one record for each mention; `name` is what messages and `source` call the file.

    Raises HostfileError, whatever the text, with `where` = NAME:LINE.
    """
    found: list[HostLine] = []
    seats: set[str] = set()
    for number, line in lines_of(text, name):
        words = line.replace("=", " = ").split() if "=" in line else line.split()
        try:
            if words[0].lower() == "rank" and words[2:3] == ["="] and words[1].isdigit():
                found.append(_seat(words, f"{name}:{number}", seats))
            else:
                found += _entry(words, f"{name}:{number}")
        except LaunchError as bad:
            raise HostfileError(
                f"cannot read {quoted(line.strip())}: {bad.what}", f"{name}:{number}", bad.todo
            ) from None
        if len(found) > MAX_NAMES:
            raise HostfileError(f"more than {MAX_NAMES} hosts are named", f"{name}:{number}", "use fewer hosts")
    return tuple(found)


def parse_hosts(text: str, where: str = "-H") -> tuple[HostLine, ...]:
    """The hosts of one -H, or of the option `where`: `a,b:4,user@c,[fd00::1]:2,node[01-03]:8`; 1 slot a mention.

    `a:*`, `a:auto` and `a:-1` ask for as many slots as the host has cores: `slots` is None.  `+n1` (node 1 of the
    hostfile, from 0), `+e` and `+e:2` (all empty nodes, or two) and `^a` (not a) keep their first letter in `name`; the
    2 of `+e:2` is in `slots`.  Empty entries are skipped.  Raises UsageError.
    """
    found: list[HostLine] = []
    for entry in split(text):
        if not entry.strip():
            continue
        try:
            found += _relative(entry.strip()) if entry.strip()[0] in "+^" else _mention(entry.strip())
        except LaunchError as bad:
            raise UsageError(f"cannot read {quoted(entry.strip())}: {bad.what}", where, bad.todo) from None
        if len(found) > MAX_NAMES:
            raise UsageError(f"more than {MAX_NAMES} hosts are named", where, "use fewer hosts")
    return tuple(found)


def _bad(why: str, todo: str = "") -> LaunchError:
    """What is wrong with an entry; it is raised again with the file and the line, or with the option."""
    return LaunchError(why, todo=todo)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7


def _relative(entry: str) -> list[HostLine]:
    """What begins with + or ^."""
    kind, colon, count = entry.lower().partition(":")
    if kind == "+e" and (_is_count(count) or not colon):
        return [HostLine("+e", int(count) if count else None, source="-H")]
    if kind[:2] == "+n" and _is_count(kind[2:]) and not colon:
        return [HostLine(f"+n{int(kind[2:])}", source="-H")]
    if entry[0] == "+":
        raise _bad("this is no relative host", "write +n0 for the first host, +e for all empty ones, +e:2 for two")
    if entry[1:2] in ("", "+", "^"):
        raise _bad("no host to leave out is named", "write it like ^node3")
    user, host, slots = _host(entry[1:])
    if user is not None or slots is not None:
        raise _bad("a host to leave out has neither user nor slots", "write it like ^node3")
    return [HostLine(f"^{one}", source="-H") for one in _expand(host)]


def _mention(entry: str) -> list[HostLine]:
    user, host, count = _host(entry)
    slots = None if count in ("*", "auto", "-1") else 1 if count is None else _slots(count)
    return [HostLine(one, slots, user=user, source="-H") for one in _expand(host)]


# -------------------------------------------------------------------------------------------------- one line


def _seat(words: list[str], source: str, seats: set[str]) -> HostLine:
    """A line of a rankfile: mpirun takes it for a slot on its host; `seats` are the hosts of those before."""
    user, host, _ = _host(words[3]) if len(words) > 3 and words[3] != "=" else (None, "", None)
    if words[4:6] not in ([], ["slot", "="]) or len(_expand(host)) != 1 or not host:
        raise _bad("this is a line neither of a hostfile nor of a rankfile", "write it like node1 slots=2")
    line = HostLine(host, None if host in seats else 1, user=user, source=source)
    seats.add(host)
    return line


def _entry(words: list[str], source: str) -> list[HostLine]:
    """The hosts of one line: one, or as many as its range has names."""
    if "=" in words[:2]:
        raise _bad("a line begins with a host", "write it like node1 slots=4")
    user, host, count = _host(words[0])
    slots = None if count is None else _slots(count)
    maximum = port = None
    spare = False
    given = {"slots"} if count is not None else set()
    for key, value in _pairs(words[1:]):
        if key in given and key not in ("username", _SPARE):
            raise _bad(f"{key} is given twice", f"keep one {key}=")
        given.add(key)
        if key == "slots":
            slots = _slots(value)
            maximum = max(maximum, slots) if maximum is not None else None  # 4.1.4: a later slots= lifts the maximum
        elif key == "max_slots":
            maximum = _number(value, "max_slots", 0, MAX_SLOTS)
        elif key == "port":
            port = _number(value, "port", 1, 65535)
        elif key == _SPARE:
            spare = True
        else:
            user = user if user is not None else _user(value)
    if maximum is not None and slots is not None and maximum < slots:
        raise _bad(f"max_slots={maximum} is below slots={slots}", "raise max_slots or lower slots")
    return [HostLine(name, slots, maximum, user, port, source, spare) for name in _expand(host)]


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    """The `key = value` of a line, the key by its first spelling, and `spare`; other bare words are skipped."""
    at = 0
    while at < len(words):
        word = words[at]
        if words[at + 1 : at + 2] == ["="]:
            key = _KEYS.get(word)
            if key is None:
                raise _bad(f"{quoted(word)} is no key of a hostfile", _nearest(word, "".join(words[at + 1 : at + 3])))
            value = words[at + 2] if at + 2 < len(words) else "="
            if value == "=":
                raise _bad(f"{word}= has no value", f"write it like {word}={_EXAMPLE[key]}")
            yield key, value
            at += 3
            continue
        if word.lower() in _KEYS or word.lower() in _MISTAKES:
            follows = words[at + 1] if at + 1 < len(words) else ""
            raise _bad(f"{quoted(word)} has no = behind it", _nearest(word, f"={follows or 'N'}"))
        if word == _SPARE:
            yield word, ""
        elif word.lower() in (_SPARE, f"{_SPARE}s"):
            raise _bad(f"{quoted(word)} is no word of a hostfile", f"did you mean {_SPARE}?")
        elif not _WORD.issuperset(word):
            raise _bad(f"{quoted(word)} is neither key=value nor a word", "write one host a line, like node1 slots=4")
        at += 1


def _nearest(word: str, tail: str) -> str:
    """What to do about a key that is none."""
    low = word.lower()
    if low == _SPARE:
        return f"write the word alone, as in node4 slots=8 {_SPARE}"
    key = low if low in _KEYS else _MISTAKES.get(low, "")
    if not key and len(low) < 20:
        from difflib import get_close_matches

        key = "".join(get_close_matches(low, _KEYS, 1))
    if not key:
        return "the keys are slots, max_slots, username and port"
    return f"did you mean {key}{tail if len(tail) < 40 else '='}?"


# -------------------------------------------------------------------------------------------------- hosts, numbers


def _host(text: str) -> tuple[str | None, str, str | None]:
    """`user@name:count` in parts; the name may hold ranges, and is without the brackets of an address."""
    if text[0] in "^+":
        raise _bad(*(sentence.format(text) for sentence in _ONLY_OPTION))
    user, at, host = text.partition("@")
    if not at:
        user, host = "", text
    elif "@" in host:
        raise _bad("there is more than one @ in it", "write user@host")
    count: str | None = None
    if host.count(":") > 1:
        host, count = _address(host)
    else:
        host, colon, rest = host.partition(":")
        count = rest if colon else None
        _check_name(host)
    return (_user(user) if at else None), host, count


def _address(text: str) -> tuple[str, str | None]:
    """`fd00::1`, `[fd00::1]` or `[fd00::1]:4` to the address and the count."""
    address, count = text, None
    if text[0] == "[":
        address, bracket, tail = text[1:].partition("]")
        if not bracket or tail[:1] not in ("", ":"):
            raise _bad(f"{quoted(text)} is no address in brackets", "write it like [fd00::1] or [fd00::1]:4")
        count = tail[1:] if tail else None
    if "%" in address:
        raise _bad("an address with a scope (%) is not taken", "give it a name, as HostName in ~/.ssh/config")
    from ipaddress import IPv6Address  # 4 ms, for those who use such addresses

    try:
        IPv6Address(address)
    except ValueError:
        raise _bad(
            f"{quoted(address)} is no IPv6 address", "write it like fd00::1 or, with slots, [fd00::1]:4"
        ) from None
    return address, count


def is_host_name(text: str) -> bool:
    """Whether a text can be the name or address of one host; no program takes it for an option (RFC 1123, 2.1)."""
    if ":" in text:
        try:
            return _address(text) == (text, None)
        except LaunchError:
            return False
    return 0 < len(text) <= _LONGEST and _NAME.issuperset(text) and text[0] not in "-."


def _check_name(name: str) -> None:
    ranged = "[" in name or "]" in name
    if not name:
        raise _bad("the name of the host is missing", "write it like user@node1:4")
    if len(split(name)) > 1:
        raise _bad('a host name cannot hold ","', _ONE_A_LINE)
    if not (_NAME.issuperset(name) or (ranged and _RANGED.issuperset(name))):
        odd = next(char for char in name if char not in _RANGED)
        raise _bad(f"a host name cannot hold {quoted(odd)}", _ONE_A_LINE)
    if name[0] in "-.":
        raise _bad(f"a host name cannot begin with {name[0]}", "write it like node1")
    if len(name) > _LONGEST and not ranged:
        raise _bad(f"a host name has at most {_LONGEST} characters", "write a shorter name")


def _expand(host: str) -> list[str]:
    """The names of a host with ranges."""
    return expand(host) if "[" in host or "]" in host else [host]


def _user(text: str) -> str:
    if not text or text[0] == "-" or not _USER.issuperset(text):
        raise _bad(f"{quoted(text)} is no user name", "write user@host or username=user")
    return text


def _slots(text: str) -> int:
    return _number(text, "slots", 0, MAX_SLOTS)


def _number(text: str, key: str, low: int, high: int) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not low <= number <= high:
        raise _bad(
            f"{key} is a whole number from {low} to {high}, not {quoted(text)}", f"write it like {key}={_EXAMPLE[key]}"
        )
    return number


# -------------------------------------------------------------------------------------------------- lines


def lines_of(text: str, name: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty.  Raises HostfileError for a comment that never ends and for what is not text."""
    nul = text.find("\0")
    if nul >= 0:
        where = f"{name}:{text.count(chr(10), 0, nul) + 1}"
        raise HostfileError("this is no text file: it holds a NUL character", where, "name a file of lines")
    text = text.removeprefix("\ufeff").removeprefix("ï»¿")  # the same mark, read as Latin-1
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    opened = 0  # line of the open /*
    parts: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        plain, is_open = _uncomment(line, bool(opened))
        opened = (opened or number) if is_open else 0
        parts.append(plain)
        if not opened:
            entry = " ".join(parts)
            if entry.strip():
                yield number - len(parts) + 1, entry
            parts.clear()
    if opened:
        raise HostfileError("the comment that begins here never ends", f"{name}:{opened}", "end it with */")


def _uncomment(line: str, inside: bool) -> tuple[str, bool]:
    """The line without its comments, and whether a `/*` is open at its end; `inside`: one was at its beginning."""
    if not inside and "#" not in line and "/" not in line:
        return line, False
    parts: list[str] = []
    at, mark = 0, line.find("#")
    while True:
        if inside:
            end = line.find("*/", at)
            if end < 0:
                return " ".join(parts), True
            at = end + 2
        if 0 <= mark < at:
            mark = line.find("#", at)
        slash = line.find("/", at)
        while slash >= 0 and line[slash + 1 : slash + 2] not in ("/", "*"):
            slash = line.find("/", slash + 1)
        if slash < 0 or 0 <= mark < slash:
            parts.append(line[at:mark] if mark >= 0 else line[at:])
            return " ".join(parts), False
        parts.append(line[at:slash])
        if line[slash + 1] == "/":
            return " ".join(parts), False
        at = slash + 2
        inside = True
