"""Readers of mapping, ranking and binding options (--map-by, --rank-by, --bind-to …), 4.1's and 5.0's.

Names are taken in any case and may be shortened, as mpirun 4.1.4 takes them (`nod`, `L2`); modifiers follow a colon
with commas between (4.1), or each a colon of its own (5.0).  A mapping policy always sets `policy.ppr` as well, so that
a later policy leaves nothing of an earlier one.  Whether a machine has such objects is seen when ranks are mapped.
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import Expected, count, is_number, meant, shortened, text, yes_no
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mslaunch.cli.parser.readers import Pairs

_DEVICES = 256  # of a node, at most
_OF_NAMES = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:/"  # characters of devices' names
_LEVELS = ("core", "l1cache", "l2cache", "l3cache", "socket", "numa", "board", "hwthread")
_POLICIES = ("slot", "node", "seq", *_LEVELS, "dist", "ppr", "package", "rankfile", "sequential", "distance")
_OBJECTS = ("node", *_LEVELS, "package", "skt", "thread")
_TARGETS = ("none", *_LEVELS, "package", "cpu-list", "cpulist")
_RANKINGS = ("slot", "node", *_LEVELS, "package", "fill", "span")

#: other names of 5.0 and the man page
_SAME = {
    "package": "socket",
    "skt": "socket",
    "thread": "hwthread",
    "sequential": "seq",
    "distance": "dist",
    "cpulist": "cpu-list",
}

#: modifiers of --map-by without a value, in the order in which mpirun tries a shortened one
_MODIFIERS: dict[str, Pairs] = {
    "span": [("policy.span", True)],
    "oversubscribe": [("policy.oversubscribe", True)],
    "nooversubscribe": [("policy.oversubscribe", False)],
    "nolocal": [("policy.nolocal", True)],
    "hwtcpus": [("policy.hwthread_cpus", True)],
    "corecpus": [("policy.hwthread_cpus", False)],
    "inherit": [],  # concerns jobs that ranks start
    "noinherit": [],
}
_QUALIFIERS: dict[str, tuple[str, Any]] = {
    "if-supported": ("policy.if_supported", True),
    "overload-allowed": ("policy.overload", True),
    "oversubscribe-allowed": ("policy.overload", True),
    "no-overload": ("policy.overload", False),
    "ordered": ("policy.bind_to", "cpu-list:ordered"),
    "report": ("report_bindings", True),
}
_VALUED = ("pe", "file", "device", "pe-list")
_MODIFIER_NAMES = "PE=N, SPAN, OVERSUBSCRIBE, NOOVERSUBSCRIBE, NOLOCAL, HWTCPUS or PE-LIST=CPUS"
_POLICY_NAMES = (
    "slot, node, hwthread, core, l1cache, l2cache, l3cache, socket, numa, board, seq, ppr:N:OBJECT "
    "or rankfile:file=FILE"
)


def map_by(word: str) -> Pairs:
    """POLICY[:MODIFIERS], or :MODIFIERS alone; mpirun(1), and --help map-by of 5.0."""
    policy, *rest = word.split(":")
    lower = policy.lower()
    if lower.startswith("pe-list="):
        others = [part for part in rest if part.lower() != "ordered"]
        bound: Pairs = [("policy.bind_to", "cpu-list:ordered")] if others != rest else []
        return [*_policy("slot"), ("policy.cpu_set", cpu_list(policy[8:])), *bound, *_modifiers(others, "")]
    if lower == "ppr":
        return ppr(":".join(rest))
    if rest and not policy:
        return _modifiers(rest, "")
    name = _first(policy, _POLICIES)
    if not name or name == "ppr":
        raise Expected(_POLICY_NAMES, meant(lower, _POLICIES))
    modifiers = _modifiers(rest, name)
    if name != "rankfile":
        return [*_policy(name), *modifiers]
    if not any(path == "policy.rankfile" for path, _ in modifiers):
        raise Expected("rankfile:file=FILE", "write --map-by rankfile:file=FILE, or --rankfile FILE")
    return modifiers


def ppr(word: str) -> Pairs:
    """--ppr: N:OBJECT, several with commas between."""
    pattern, rest = _pattern(word.split(":"))
    return [*_policy("ppr", pattern), *_modifiers(rest, "ppr")]


def ranks_per(level: str) -> Callable[[str], Pairs]:
    """The reader of -N and its like: so many ranks on each node, or on each object of a level."""
    return lambda word: _policy("ppr", ((count(word), level),))


def one_per_node() -> Pairs:
    """--pernode."""
    return _policy("ppr", ((1, "node"),))


def map_and_rank(level: str) -> Callable[[], Pairs]:
    """The reader of --bynode and its like, which also set the order in which ranks are numbered."""
    return lambda: [*_policy(level), ("policy.rank_by", level)]


def if_yes(pairs: Pairs) -> Callable[[str], Pairs]:
    """The reader of a parameter that is yes or no: yes sets `pairs`, no sets nothing."""
    return lambda word: list(pairs) if yes_no(word) else []


def rank_by(word: str) -> Pairs:
    """POLICY[:SPAN|:FILL], or 5.0's fill and span, which are of the objects that ranks are mapped by."""
    policy, _, how = word.partition(":")
    name = _first(policy, _RANKINGS)
    if not name:
        raise Expected("slot, node, fill, span, hwthread, core, l1cache, l2cache, l3cache, socket, numa or board",
                       meant(policy, _RANKINGS))  # fmt: skip
    if name in ("fill", "span"):
        if how:
            raise Expected(f"{name} without {how}", f"write --rank-by {name}, or with an object --rank-by core:{name}")
        return [("policy.rank_by", ""), ("policy.rank_how", name)]
    modifier = shortened(how, ("span", "fill"))
    if how and not modifier:
        raise Expected("the modifier SPAN or FILL", meant(how, ("span", "fill")))
    return [("policy.rank_by", name), ("policy.rank_how", modifier)]


def bind_to(word: str) -> Pairs:
    """WHAT[:QUALIFIERS], or :QUALIFIERS alone."""
    target, *rest = word.split(":")
    name = shortened(target, _TARGETS)
    if not name and (target or not rest):
        raise Expected("none, hwthread, core, l1cache, l2cache, l3cache, socket, numa, board or cpu-list",
                       meant(target, _TARGETS))  # fmt: skip
    settings: Pairs = [("policy.bind_to", _SAME.get(name, name))] if name else []
    for qualifier in [qualifier for part in rest for qualifier in part.split(",") if qualifier]:
        known = _first(qualifier, tuple(_QUALIFIERS))
        if not known or (known == "ordered" and name not in ("cpu-list", "cpulist")):
            near = meant(qualifier, ("overload", "if-supported", "report")).replace("overload", "overload-allowed")
            raise Expected("the qualifier overload-allowed, if-supported or report", near)
        settings.append(_QUALIFIERS[known])
    return settings


def cpu_list(word: str) -> str:
    """--cpu-set, --cpu-list: `0,2-3`; `plan.cpu_lists` reads the numbers."""
    squeezed = "".join(word.split())
    if not squeezed or squeezed.strip("0123456789,;:-*sScC") or not any(char.isdigit() for char in squeezed):
        raise Expected("numbers of cpus, such as 0,2-3", "the numbers are logical ones, as lstopo -l shows them")
    return word


def device_names(word: str) -> tuple[str, ...]:
    """Numbers, ranges of them and other names of devices, with commas between: 0,2-3 or GPU-1b2c3d4e."""
    names = [name for part in word.split(",") for name in _devices(part)]
    if len(set(names)) < len(names) or len(names) > _DEVICES:
        raise Expected(f"at most {_DEVICES} devices, each once")
    return tuple(names)


def _devices(part: str) -> list[str]:
    first, dash, last = part.partition("-")
    if dash and is_number(first) and is_number(last):
        numbers = range(int(first), int(last) + 1)[: _DEVICES + 1]
        if numbers:
            return [str(number) for number in numbers]
    elif part[:1].isalnum() and not part.strip(_OF_NAMES):
        return [str(int(part)) if is_number(part) else part]
    raise Expected("a list of devices such as 0,2-3")


def _policy(name: str, pattern: tuple[tuple[int, str], ...] = ()) -> Pairs:
    return [("policy.map_by", _SAME.get(name, name)), ("policy.ppr", pattern)]


def _first(word: str, known: Sequence[str]) -> str:
    """The first known word that begins with this one: `s` is slot, as with mpirun."""
    return next((_SAME.get(name, name) for name in known if name.startswith(word.lower())), "")


def _pattern(fields: Sequence[str]) -> tuple[tuple[tuple[int, str], ...], list[str]]:
    """The pairs of N:OBJECT,N:OBJECT, from the parts between the colons; and the parts that follow."""
    pairs: list[tuple[int, str]] = []
    number, rest = fields[0] if fields else "", list(fields[1:])
    while True:
        if not rest:
            raise Expected("ppr:N:OBJECT, such as ppr:2:socket", "it is N ranks on each OBJECT")
        level, comma, following = rest.pop(0).partition(",")
        name = shortened(level, _OBJECTS)
        if not name:
            raise Expected("ppr:N:OBJECT with node, socket, numa, l3cache, l2cache, l1cache, core or hwthread "
                           "for OBJECT", meant(level, _OBJECTS))  # fmt: skip
        try:
            pairs.append((count(number), _SAME.get(name, name)))
        except Expected:
            raise Expected("ppr:N:OBJECT with a whole number N, 1 or more", "it is N ranks on each OBJECT") from None
        if not comma:
            return tuple(pairs), rest
        number = following


def _modifiers(parts: Sequence[str], policy: str) -> Pairs:
    pairs: Pairs = []
    whole = ("pe-list=", "file=", "device=")  # their values may contain commas
    words = [word for part in parts for word in ([part] if part.lower().startswith(whole) else part.split(","))]
    for word in filter(None, words):
        known = next((name for name in _MODIFIERS if name.startswith(word.lower())), "")
        name, equals, value = word.partition("=")
        if known:
            pairs += _MODIFIERS[known]
        elif policy == "dist" and (not equals or name.lower() == "device"):
            continue  # the device; the planner refuses this policy
        elif equals:
            pairs.append(_valued(name.lower(), value, policy))
        else:
            raise Expected(f"the modifiers {_MODIFIER_NAMES}", meant(word, [*_MODIFIERS, "pe=", "pe-list="]))
    return pairs


def _valued(name: str, value: str, policy: str) -> tuple[str, Any]:
    if name == "pe":
        try:
            return "policy.pe", count(value)
        except Expected:
            raise Expected("PE=N with a whole number N, 1 or more", "it is N cpus for each rank") from None
    if name == "pe-list":
        return "policy.cpu_set", cpu_list(value)
    if name == "file" and policy in ("rankfile", "seq"):
        return "policy.rankfile" if policy == "rankfile" else "app.hostfile", text(value)
    if name in _VALUED:
        where = "dist" if name == "device" else "seq or rankfile"
        raise Expected(f"{name}= after {where} only", f"leave {name}= out, or map by {where}")
    raise Expected(f"the modifiers {_MODIFIER_NAMES}", meant(name, _VALUED))
