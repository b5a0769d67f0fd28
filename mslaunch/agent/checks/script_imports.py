"""The script among the words after a Python interpreter, and the modules that its text imports in any case."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONG = "--check-hash-based-pycs"  # the one long option that has a value
_MOST = 64  # names
_LONGEST = 100  # characters of one


def find_script(words: Sequence[str]) -> tuple[str, str]:
    """What the interpreter would run: ("file", PATH), ("module", NAME) or ("text", PROGRAM), as python(1) reads it."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        if word == _LONG:
            del rest[:1]
        elif word[:1] != "-" or word == "-":
            return ("file", word) if word != "-" else ("text", "")
        elif word[:2] != "--":
            for at, letter in enumerate(word[1:], 2):
                if letter in "cmXW":  # the rest of the word is its value, or else the next word
                    value = word[at:] or (rest.pop(0) if rest else "")
                    if letter in "cm":
                        return ("text" if letter == "c" else "module", value)
                    break
    return ("file", rest[0]) if rest else ("text", "")


def imported_names(text: bytes) -> list[str]:
    """The packages that a program imports at its top level, not those that it does without (`try`), in order.

    Empty for what this Python cannot read, and for a program that says by itself where modules are looked for.
    """
    import ast

    if b"sys.path" in text or b"site.addsitedir" in text:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names: dict[str, None] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            names.update(dict.fromkeys(alias.name.partition(".")[0] for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names[node.module.partition(".")[0]] = None
    return [name for name in names if name != "__future__" and name.isidentifier() and len(name) <= _LONGEST][:_MOST]
