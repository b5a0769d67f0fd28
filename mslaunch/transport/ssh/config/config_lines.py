"""The lines of ssh_config(5) files: words, quotes and patterns exactly as ssh reads them; who may write them.

The functions follow OpenSSH's own (misc.c: strdelim, argv_split; match.c), because a line that both read differently
would be a way around the configuration.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from mslaunch.errors import LinkError
from mslaunch.host.files import read_bytes
from mslaunch.host.system_files import who_else

WAY_OUT = "Or let the ssh program do it: --rsh-agent ssh"
BLANKS = " \t\r\n"
OTHERS_CAN_WRITE = "Bad owner or permissions on"  #: as ssh says it


class ConfigLine(NamedTuple):
    """One directive."""

    key: str  # lower case
    rest: str  # the text after it
    where: str  # file:line, or the option


def lowered(text: str) -> str:
    """Lower case as in C: ASCII letters only, since Python's finds a `k` in a Kelvin sign."""
    return text.encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")


def next_token(text: str) -> tuple[str | None, str | None]:
    """The first word of `text`, and the text after it: at blanks or one `=`, double quotes hold together.

    None as the word: a quote is open.  None as the rest: nothing is left.
    """
    found = re.search(r'[ \t\r\n"=]', text)
    if not found:
        return text, None
    at = found.start()
    if found[0] == '"':
        end = text.find('"', at + 1)
        return (None, None) if end < 0 else (text[:at] + text[at + 1 : end], text[end + 1 :].lstrip(BLANKS))
    rest = text[at + 1 :].lstrip(BLANKS)
    if found[0] != "=" and rest.startswith("="):
        rest = rest[1:].lstrip(BLANKS)
    return text[:at], rest


def words(text: str) -> list[str]:
    """The arguments of a directive; # begins a comment at the beginning of a word.  Raises ValueError."""
    found: list[str] = []
    at, size = 0, len(text)
    while at < size:
        if text[at] in " \t":
            at += 1
            continue
        if text[at] == "#":
            break
        word, at = _word(text, at)
        found.append(word)
    return found


def _word(text: str, at: int) -> tuple[str, int]:
    """The word that begins at `at`, without its quotes and escapes, and where it ends."""
    word, quote, size = "", "", len(text)
    while at < size:
        char, after = text[at], text[at + 1 : at + 2]
        if char == "\\" and after and (after in "'\"\\" or (not quote and after == " ")):
            word += after
            at += 1
        elif not quote and char in " \t":
            break
        elif not quote and char in "'\"":
            quote = char
        elif char == quote:
            quote = ""
        else:
            word += char
        at += 1
    if quote:
        raise ValueError("invalid quotes")
    return word, at


def lines_of(text: str, source: str) -> list[ConfigLine]:
    """The directives of one file; only a newline ends a line.  Raises LinkError."""
    lines = (line_of(raw, f"{source}:{number}") for number, raw in enumerate(text.split("\n"), 1))
    return [line for line in lines if line]


def line_of(raw: str, where: str) -> ConfigLine | None:
    """One directive; None for a comment and an empty line."""
    raw = raw.partition("\0")[0].rstrip(BLANKS + "\f")
    keyword, rest = next_token(raw)
    if keyword == "" and rest:
        keyword, rest = next_token(rest)
    if not keyword or keyword.startswith("#"):
        return None
    rest = (rest or "").lstrip(BLANKS)
    if not rest:
        raise LinkError(f'no argument after keyword "{keyword}"', where)
    return ConfigLine(lowered(keyword), rest, where)


def pattern_matches(patterns: Sequence[str], text: str) -> bool:
    """Patterns of * and ?; one with ! in front rules out (ssh_config(5), PATTERNS).  Case counts."""
    found = [one for one in patterns if _pattern(one[1:] if one.startswith("!") else one).fullmatch(text)]
    return bool(found) and not any(pattern.startswith("!") for pattern in found)


@functools.lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    """Only * and ? are special; [ is the beginning of [host]:port in known_hosts, which rules fnmatch out.

    What stands between two stars matches where it first can, and is not tried elsewhere: the time stays short.
    """
    first, *others = (re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", text))
    if not others:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?=(.*?{part}))\\{number}" for number, part in enumerate(others[:-1], 1))
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)


def read_config(path: str, guarded: bool) -> str:
    """The text of a file; `guarded`: refuse one that somebody else could have written.  Raises OSError, LinkError."""

    def check(status: os.stat_result) -> None:
        if status.st_uid not in (0, os.geteuid()):
            todo = f"It belongs to user {status.st_uid}, who could name a command to run as you."
            raise LinkError(f"{OTHERS_CAN_WRITE} {path}", "", todo)
        if who_else(status):
            todo = f"Others can write it, and could name a command to run as you: chmod go-w {path}"
            raise LinkError(f"{OTHERS_CAN_WRITE} {path}", "", todo)

    return read_bytes(path, check=check if guarded else None).decode("utf-8", "surrogateescape")
