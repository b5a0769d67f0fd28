"""The payloads of control frames as records, and their conversion to fields and back.

docs/wire.md describes the conversation.  A plan's variables travel as "NAME=value" words, as execve takes them.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankId, RankPlan, ServicePlan, World
from mslaunch.datamodel.node_report import LEVELS, Topology
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.codec import checked, integer, pack, strict, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")


ADDRESSES = 256  #: that HELLO names at most; a host with thousands of containers has more interfaces


class Hello(NamedTuple):
    """An agent is there."""

    host: str  # its hostname
    pid: int
    cpus: int  # hardware threads that it may use
    cores: int  # that they are on
    python: str
    addresses: tuple[str, ...]  # of its interfaces, the most likely to be reachable first
    seen_from: str = ""  # the launcher's address as this host sees it, if it came by ssh
    session: str = ""  # its session directory, once that is made


class PortRequest(NamedTuple):
    """A port to be held."""

    port: int = 0  # 0: any that is free
    moves: bool = False  # if it is taken, one a little below it is as good


class Reserved(NamedTuple):
    """Ports on the host of rank 0."""

    ports: tuple[int, ...]  # listened on until LAUNCH
    probe: int  # the port of the token listener
    token: str  # the key of its proofs


class Probe(NamedTuple):
    """What an agent is to try to reach (PROBE)."""

    addresses: tuple[str, ...]
    port: int
    token: str  # the key of the proof that is wanted there


class Reached(NamedTuple):
    """Where the token listener has answered (REACHED)."""

    addresses: tuple[str, ...]  # that it has proved
    translated: tuple[str, ...] = ()  # where it proved another address, that of its end


class FileHead(NamedTuple):
    """The head of a file that follows (FILE)."""

    name: str  # below the session directory
    mode: int  # the bits of its mode


class Stored(NamedTuple):
    """Whether a file is there now (STORED)."""

    error: str = ""  # "": it is
    todo: str = ""


class StackTrace(NamedTuple):
    """What was found out about one process of a rank."""

    pid: int
    name: str  # of its program, as the kernel has it: 15 characters at most
    tool: str  # the source: py-spy, gdb, /proc
    text: str


#: what a word of a field becomes, by the annotation of the record's field
_READERS: dict[str, Callable[[str], object]] = {
    "str": str,
    "int": integer,
    "RankId": integer,
    "ServiceId": integer,
    "float": float,
    "bool": bool,
    "int | None": lambda word: integer(word) if word else None,
}


def words_of(value: Any) -> Iterable[str]:
    """One word, or one for each of several values.  A flag is "yes" or ""; what is not known is ""."""
    if isinstance(value, (tuple, list)):
        return map(str, value)
    return ("yes" if value is True else "" if value is None or value is False else str(value),)


def fields_of(record: Any, prefix: str = "", without: Collection[str] = ()) -> dict[str, Iterable[str]]:
    """The fields of a record by their names."""
    return {prefix + name: words_of(value) for name, value in zip(record._fields, record) if name not in without}


def record_of(kind: Callable[..., T], fields: Mapping[str, Sequence[str]], prefix: str = "", /, **known: object) -> T:
    """The inverse of `fields_of`; `known` are the fields that it was told to leave out."""
    values = known
    for name, annotation in kind.__annotations__.items():
        if name in known:
            continue
        words = fields[prefix + name]
        if annotation.startswith("tuple["):
            values[name] = tuple(map(_READERS[annotation[6:-6]], words))  # tuple[int, ...]
        else:
            (word,) = words
            values[name] = _READERS[annotation](word)
    return kind(**values)


def pack_record(record: Any) -> bytes:
    """The payload of a record whose fields are words, numbers and flags, or tuples of these."""
    return pack(fields_of(record))


def unpack_record(kind: type[T], payload: bytes) -> T:
    """The inverse of `pack_record`."""
    return checked(kind.__name__, lambda: record_of(kind, unpack(payload)))


def unpack_address(payload: bytes) -> str:
    """The address behind the ports of RESERVE, where services listen; "": all."""
    return payload.decode("ascii", "replace").partition("@")[2].strip()


@strict
def unpack_ports(payload: bytes) -> list[PortRequest]:
    """The ports of RESERVE."""
    words = payload.decode("ascii").partition("@")[0].split()
    ports = [PortRequest(int(word[:-1] if word[-1] == "-" else word), word[-1] == "-") for word in words]
    if not all(0 <= wanted.port < 1 << 16 for wanted in ports):
        raise ValueError(words)
    return ports


@strict
def unpack_number(payload: bytes) -> int:
    """The payload of STARTED (a pid), STDIN_TAKEN (bytes) and RESTART (how often)."""
    return integer(payload.decode("ascii"))


def pack_traced(traced: StackTrace) -> bytes:
    """The payload of `StackTrace`, whose text may hold anything, a NUL too; agents keep 64 KiB of it at most."""
    return pack_record(StackTrace(traced.pid, *(text.replace("\0", " ") for text in traced[1:])))


def pack_topology(topology: Topology) -> bytes:
    """The payload of TOPOLOGY: cpus, a field for each level, and the kernel's numbers of NUMA nodes."""
    rows = {level: map(str, row) for level, row in zip(LEVELS, topology.objects)}
    return pack({"cpus": map(str, topology.cpus), **rows, "nodes": map(str, topology.numa)})


@strict
def unpack_topology(payload: bytes) -> Topology:
    """The inverse of `pack_topology`; a row is empty or has a number for each cpu, from 0 on without gaps."""
    fields = unpack(payload)
    cpus = tuple(map(int, fields["cpus"]))
    objects = tuple(tuple(map(int, fields[level])) for level in LEVELS)
    if not cpus or len(set(cpus)) < len(cpus) or min(cpus) < 0:
        raise ValueError(cpus)
    for row in filter(None, objects):
        if len(row) != len(cpus) or min(row) != 0 or max(row) + 1 != len(set(row)):
            raise ValueError(row)
    numa = tuple(map(int, fields["nodes"]))
    if numa and len(numa) != len(set(objects[LEVELS.index("numa")])):
        raise ValueError(numa)
    return Topology(cpus, objects, numa)


def pack_plan(plan: NodePlan) -> bytes:
    """The payload of LAUNCH; of many, `alike_plans` makes smaller ones, and sooner."""
    fields: dict[str, Iterable[str]] = {}
    for name, value in zip(plan._fields, plan):
        fields.update(plan_fields(name, value))
    return pack(fields)


def plan_fields(name: str, value: Any) -> dict[str, Iterable[str]]:
    """One field of a plan.  Ranks are packed more tightly than other records, since there are many."""
    fields: dict[str, Iterable[str]] = {name: words_of(value)}
    if name == "world":
        fields = fields_of(value, "world.")
        fields["world.ranks"] = [" ".join(f"{rank}:1:1" for rank in row) + "/1/0" for row in value.ranks]
    if name in ("apps", "services"):
        fields = {name: (str(len(value)),)}
        for index, record in enumerate(value):
            fields.update(fields_of(record, f"{name[:-1]}.{index}."))
    if name == "ranks":
        fields = {name: [str(rank.rank) for rank in value]}
        for number, app, env, cpus, wrapper, memory in value:
            fields[f"rank.{number}"] = [str(app), " ".join(map(str, cpus)), *env]
            if wrapper:
                fields[f"wrapper.{number}"] = words_of(wrapper)
            if memory:
                fields[f"memory.{number}"] = words_of(memory)
    return fields


@strict
def unpack_plan(payload: bytes) -> NodePlan:
    """The inverse of `pack_plan`."""
    fields = unpack(payload, len(payload) + 1)
    ranks = []
    for number in fields["ranks"]:
        app, cpus, *env = fields[f"rank.{number}"]
        wrapper = tuple(fields.get(f"wrapper.{number}", ()))
        memory = tuple(map(int, fields.get(f"memory.{number}", ())))
        ranks.append(
            RankPlan(RankId(int(number)), int(app), tuple(env), tuple(map(int, cpus.split())), wrapper, memory)
        )
    return record_of(
        NodePlan,
        fields,
        ranks=tuple(ranks),
        apps=_records_of(AppPlan, fields, "app"),
        services=_records_of(ServicePlan, fields, "service"),
        world=record_of(
            World,
            fields,
            "world.",
            hosts=tuple(one for word in fields["world.hosts"] for one in _hosts_of(word)),
            ranks=tuple(one for word in fields["world.ranks"] for one in _ranks_of(word)),
        ),
    )


def _records_of(kind: type[T], fields: Mapping[str, Sequence[str]], name: str) -> tuple[T, ...]:
    (count,) = fields[f"{name}s"]
    return tuple(record_of(kind, fields, f"{name}.{index}.") for index in range(int(count)))


_MOST_RANKS = 1 << 20  #: of a world


def unpack_runs(text: str) -> tuple[int, ...]:
    """Ascending numbers from runs of one step, `first:count:step`; raises ValueError for anything else."""
    numbers: list[int] = []
    for word in text.split():
        first, count, step = map(int, word.split(":"))
        if not 1 <= count <= _MOST_RANKS - len(numbers) or step < 1:
            raise ValueError(word)
        numbers += range(first, first + count * step, step)
    return tuple(numbers)


def _hosts_of(word: str) -> Iterable[str]:
    """`PREFIX/FIRST/COUNT/SUFFIX`, hosts whose names differ by a number, or one name."""
    if word.count("/") < 3:
        return (word,)
    prefix, first, count, suffix = word.split("/")
    return (f"{prefix}{int(first) + at:0{len(first)}}{suffix}" for at in range(min(int(count), _MOST_RANKS)))


def _ranks_of(word: str) -> Iterable[tuple[int, ...]]:
    """`RUNS/COUNT/STRIDE`: so many nodes, the ranks of each so much higher than those of the one before."""
    runs, count, stride = word.split("/")
    row = unpack_runs(runs)
    return (tuple(rank + at * int(stride) for rank in row) for at in range(min(int(count), _MOST_RANKS)))
