"""Readers of the hydra dialect: the values of its options' words.

They take the words that mpiexec.hydra 5.0.2 takes, but refuse numbers such as `2x` and `x`, which hydra reads as 2 and
1, and a count of 0, by which it divides.
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import Expected, count, meant, text
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.cli.parser.readers import Pairs

_OBJECTS = "none, machine, numa, socket, l1cache, l2cache, l3cache, core[:N] or hwthread[:N]"
_LEVELS = {
    **dict.fromkeys(("hwthread", "core", "numa", "socket"), ""),
    **{f"l{number}{kind}cache": f"l{number}cache" for number in "123" for kind in ("", "d", "u")},
}
#: what -bind-to takes in hydra only, and what to use instead
_OTHERS = {
    "rr": "use core: ranks get them in order",
    "user": "use a rankfile, in the dialect of mpirun: mslaunch --rankfile FILE",
}
_DEVICES = ("pci", "gpu", "ib", "en", "eth", "hfi", "nic")


def pair(name: str, value: str) -> tuple[tuple[str, str]]:
    """-env NAME VALUE."""
    if not name or "=" in name:
        raise Expected("NAME VALUE or NAME=VALUE")
    return ((name, value),)


def names(word: str) -> tuple[str, ...]:
    """NAME,NAME,…; may be empty."""
    return tuple(name for name in word.split(",") if name)


def forwarded(word: str) -> tuple[str, ...]:
    """HYDRA_ENV: `all`; any other word means none, as with hydra."""
    return ("*",) if word == "all" else ()


def hosts_of(source: str) -> Callable[[str], tuple[str, str]]:
    """The reader of a list or file of hosts: the option or variable, and its word."""
    return lambda word: (source, text(word))


def rankmap(word: str) -> tuple[int, ...]:
    """-rankmap: numbers of hosts, `1,1,0`; or blocks `(first host, hosts, ranks on each)`; or both, in `(vector,…)`."""
    inner = word[8:-1] if word.startswith("(vector,") and word.endswith(")") else word
    found: list[int] = []
    for part in inner.replace("),", ");").replace(",(", ";(").split(";"):
        try:
            if part.startswith("("):
                first, hosts, each = (int(field) for field in part[1:].rstrip(")").split(","))
                numbers = [first + at for at in range(hosts) for _ in range(each)] if hosts * each < 1 << 16 else []
            else:
                numbers = [int(field) for field in part.split(",")]
        except ValueError:
            numbers = []
        if not numbers or min(numbers) < 0:
            raise Expected(
                "numbers of hosts, such as 0,0,1,1 or (0,2,2)", "the three numbers are: first host, hosts, ranks"
            )
        found += numbers
    return tuple(found)


def interface(word: str) -> Pairs:
    """-iface: a variable of the ranks' library, as with hydra."""
    return [("app.env+", (("MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE", text(word)),))]


def bind_to(word: str) -> Pairs:
    """OBJECT[:N].  Ranks beyond the last object begin again with the first, so cpus may be shared."""
    lower = word.lower()
    name, colon, many = lower.partition(":")
    if lower in ("none", "machine"):
        return [("policy.bind_to", "none")]
    if name in _OTHERS or name.startswith(_DEVICES):
        near = "mslaunch does not know which cpus are near a device; use numa"
        raise Expected(_OBJECTS, _OTHERS.get(name, near))
    if name not in _LEVELS:
        raise Expected(_OBJECTS, meant(name, _LEVELS))
    level = _LEVELS[name] or name
    cpus = count(many) if colon else 1
    settings: Pairs = [("policy.bind_to", level), ("policy.overload", True), ("own.bound", name)]
    if cpus > 1 and name not in ("core", "hwthread"):
        raise Expected(f"{name} without a number", f"bind to cores instead: core:N, or one {name} for each rank")
    if cpus > 1:
        settings += [("policy.pe", cpus), ("policy.hwthread_cpus", name == "hwthread")]
    return settings
