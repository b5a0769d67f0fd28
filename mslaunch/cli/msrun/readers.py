"""Readers of the msrun dialect: the values of its options' words, as msrun 2.10 takes them, and `true` and `yes` too.

Each raises `Expected` for a word that it cannot take.  --cluster_time_out may be negative, which means for ever.
"""

from __future__ import annotations

from mslaunch.cli.parser import readers
from mslaunch.cli.parser.readers import Expected


def workers_here(word: str) -> int:
    """--local_worker_num; to msrun 0 means the scheduler alone."""
    try:
        return readers.count(word)
    except Expected as error:
        zero = word and not word.strip("0")
        todo = "to have the scheduler on a host without workers: mslaunch -n N -H … --scheduler HOST python SCRIPT"
        raise Expected(error.what, todo if zero else "") from None


def whole(word: str) -> int:
    """A whole number of any sign."""
    number = word[1:] if word[:1] in ("-", "+") else word
    if not readers.is_number(number):
        raise Expected("a whole number")
    return int(word)


def truth(word: str) -> bool:
    """True or False, or another word for yes or no."""
    try:
        return readers.yes_no(word)
    except Expected:
        raise Expected("True or False") from None


def address(word: str) -> str:
    """A name or an address, with or without brackets."""
    word = word.strip()
    return readers.text(word[1:-1] if word[:1] == "[" and word[-1:] == "]" else word)


def pattern(word: str) -> str:
    """A path or name as a pattern has it; {ip} and {hostname} in it are replaced later."""
    return word.replace("%", "%%")


def tail(word: str) -> tuple[int, ...] | None:
    """Ranks with commas between; -1 or nothing means all of them."""
    if word.strip() in ("", "-1", "all"):
        return None
    numbers = [part.strip() for part in word.split(",")]
    if not all(map(readers.is_number, numbers)):
        raise Expected("numbers of workers with commas between, as 0,1, or -1 for all")
    return tuple(dict.fromkeys(map(int, numbers)))


def level(word: str) -> int:
    """--sim_level: how far MindSpore goes in a dry run."""
    return int(readers.choice("0", "1", "2", "3")(word.strip()))


def simulated_rank(word: str) -> int:
    """--sim_rank_id; -1: all that run here."""
    number = whole(word)
    if number < -1:
        raise Expected("the number of a rank, or -1 for all that run here")
    return number


def binding(word: str) -> str | bool:
    """True, False, or a text for `core_binding`: JSON, or for --bind_numa a file of it."""
    if word.strip().lower() in ("true", "false"):
        return word.strip().lower() == "true"
    return readers.text(word)
