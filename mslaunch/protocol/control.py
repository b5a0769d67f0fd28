"""The payloads of control frames as records, and their conversion to fields and back.

docs/wire.md describes the conversation.  A plan's variables travel as "NAME=value" words, as execve takes them.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import AppPlan, NodePlan, RankPlan, ServicePlan, World
from mslaunch.datamodel.node_report import LEVELS, ExitStatus, Topology
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.protocol.codec import pack, strict, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable


class Hello(NamedTuple):
    """An agent is there."""

    host: str  # its hostname
    pid: int
    cpus: int  # hardware threads that it may use
    cores: int  # that they are on
    python: str
    addresses: tuple[str, ...]  # of its interfaces, the most likely to be reachable first
    seen_from: str = ""  # the launcher's address as this host sees it, if it came by ssh


class PortRequest(NamedTuple):
    """A port to be held."""

    port: int = 0  # 0: any that is free
    moves: bool = False  # if it is taken, one a little below it is as good


class Reserved(NamedTuple):
    """Ports on the host of rank 0."""

    ports: tuple[int, ...]  # listened on until LAUNCH
    probe: int  # the port of the token listener
    token: str  # what it says


class StackTrace(NamedTuple):
    """What was found out about one process of a rank."""

    pid: int
    name: str  # of its program, as the kernel has it: 15 characters at most
    tool: str  # the source: py-spy, gdb, /proc
    text: str


def pack_hello(hello: Hello) -> bytes:
    """The payload of `Hello`."""
    return pack(
        {
            "host": [hello.host, hello.python, hello.seen_from],
            "numbers": [str(hello.pid), str(hello.cpus), str(hello.cores)],
            "addresses": hello.addresses,
        }
    )


@strict
def unpack_hello(payload: bytes) -> Hello:
    """The inverse of `pack_hello`."""
    fields = unpack(payload)
    host, python, seen_from = fields["host"]
    pid, cpus, cores = map(int, fields["numbers"])
    return Hello(host, pid, cpus, cores, python, tuple(fields["addresses"]), seen_from)


def pack_ports(ports: Iterable[PortRequest]) -> bytes:
    """The payload of RESERVE: words, `0`, `8118` or `8118-`."""
    return " ".join(f"{wanted.port}{'-' * wanted.moves}" for wanted in ports).encode()


@strict
def unpack_ports(payload: bytes) -> list[PortRequest]:
    """The inverse of `pack_ports`."""
    words = payload.decode("ascii").split()
    ports = [PortRequest(int(word[:-1] if word[-1] == "-" else word), word[-1] == "-") for word in words]
    if not all(0 <= wanted.port < 1 << 16 for wanted in ports):
        raise ValueError(words)
    return ports


def pack_reserved(reserved: Reserved) -> bytes:
    """The payload of `Reserved`."""
    return pack({"ports": map(str, reserved.ports), "probe": [str(reserved.probe), reserved.token]})


@strict
def unpack_reserved(payload: bytes) -> Reserved:
    """The inverse of `pack_reserved`."""
    fields = unpack(payload)
    probe, token = fields["probe"]
    return Reserved(tuple(map(int, fields["ports"])), int(probe), token)


def pack_probe(addresses: Iterable[str], port: int, token: str) -> bytes:
    """The payload of PROBE: addresses and port to connect to, and the token to be read there."""
    return pack({"addresses": addresses, "probe": [str(port), token]})


@strict
def unpack_probe(payload: bytes) -> tuple[list[str], int, str]:
    """The inverse of `pack_probe`."""
    fields = unpack(payload)
    port, token = fields["probe"]
    return fields["addresses"], int(port), token


def pack_addresses(addresses: Iterable[str]) -> bytes:
    """The payload of REACHED."""
    return pack({"addresses": addresses})


@strict
def unpack_addresses(payload: bytes) -> list[str]:
    """The inverse of `pack_addresses`."""
    return unpack(payload)["addresses"]


@strict
def unpack_number(payload: bytes) -> int:
    """The payload of STARTED (a pid), STDIN_TAKEN (bytes) and RESTART (how often)."""
    return int(payload)


def pack_exit(ended: ExitStatus) -> bytes:
    """The payload of EXIT."""
    numbers = ["" if number is None else str(number) for number in (ended.code, ended.signal)]
    return pack({"exit": [*numbers, ended.error, ended.todo, _flag(ended.asked)]})


@strict
def unpack_exit(payload: bytes) -> ExitStatus:
    """The inverse of `pack_exit`."""
    code, signum, error, todo, asked = unpack(payload)["exit"]
    return ExitStatus(int(code) if code else None, int(signum) if signum else None, error, todo, bool(asked))


def pack_traced(traced: StackTrace) -> bytes:
    """The payload of `StackTrace`."""
    words = (str(traced.pid), traced.name, traced.tool, traced.text)
    return pack({"trace": [word.replace("\0", " ") for word in words]})


@strict
def unpack_traced(payload: bytes) -> StackTrace:
    """The inverse of `pack_traced`."""
    pid, name, tool, text = unpack(payload)["trace"]
    return StackTrace(int(pid), name, tool, text)


def pack_file(name: str, mode: int) -> bytes:
    """The payload of FILE: a name below the session directory, and the bits of its mode."""
    return pack({"file": [name, str(mode)]})


@strict
def unpack_file(payload: bytes) -> tuple[str, int]:
    """The inverse of `pack_file`."""
    name, mode = unpack(payload)["file"]
    return name, int(mode)


def pack_stored(error: str, todo: str = "") -> bytes:
    """The payload of STORED: "" for a file that is there, or why it is not."""
    return pack({"stored": [error, todo]})


@strict
def unpack_stored(payload: bytes) -> tuple[str, str]:
    """The inverse of `pack_stored`."""
    error, todo = unpack(payload)["stored"]
    return error, todo


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
    """The payload of LAUNCH."""
    fields: dict[str, Iterable[str]] = {
        "env": plan.env,
        "defaults": plan.defaults,
        "scrub": plan.scrub,
        "stdin": map(str, plan.stdin),
        "policy": [_flag(plan.merge), plan.pty, str(plan.grace), _flag(plan.session), _flag(plan.index_argv)],
        "ranks": [str(rank.rank) for rank in plan.ranks],
        "apps": [str(len(plan.apps))],
        "services": [str(len(plan.services))],
        **_pack_world(plan.world),
    }
    for index, app in enumerate(plan.apps):
        fields[f"argv.{index}"] = app.argv
        fields[f"app.{index}"] = [app.wdir, app.path, _flag(app.in_session), app.mpi]
        fields[f"env.{index}"] = app.env
        fields[f"front.{index}"] = app.front
    for rank in plan.ranks:
        fields[f"rank.{rank.rank}"] = [str(rank.app), " ".join(map(str, rank.cpus)), *rank.env]
        if rank.wrapper:
            fields[f"wrapper.{rank.rank}"] = rank.wrapper
        if rank.memory:
            fields[f"memory.{rank.rank}"] = map(str, rank.memory)
    for index, service in enumerate(plan.services):
        how = [_flag(service.first), service.program, " ".join(map(str, service.cpus)), service.hint, service.name]
        fields[f"service.{index}"] = [str(service.port), str(service.number), *how, *service.env]
    return pack(fields)


@strict
def unpack_plan(payload: bytes) -> NodePlan:
    """The inverse of `pack_plan`."""
    fields = unpack(payload)
    merge, pty, grace, session, index_argv = fields["policy"]
    ranks = []
    for number in fields["ranks"]:
        app, cpus, *env = fields[f"rank.{number}"]
        wrapper = tuple(fields.get(f"wrapper.{number}", ()))
        memory = tuple(map(int, fields.get(f"memory.{number}", ())))
        ranks.append(RankPlan(int(number), int(app), tuple(env), tuple(map(int, cpus.split())), wrapper, memory))
    return NodePlan(
        tuple(ranks),
        tuple(_unpack_app(fields, index) for index in range(int(fields["apps"][0]))),
        tuple(fields["env"]),
        defaults=tuple(fields["defaults"]),
        scrub=tuple(fields["scrub"]),
        services=tuple(_unpack_service(fields, index) for index in range(int(fields["services"][0]))),
        stdin=tuple(map(int, fields["stdin"])),
        merge=bool(merge),
        pty=pty,
        grace=float(grace),
        session=bool(session),
        index_argv=bool(index_argv),
        world=_unpack_world(fields),
    )


def _unpack_app(fields: dict[str, list[str]], index: int) -> AppPlan:
    wdir, path, in_session, mpi = fields[f"app.{index}"]
    env, front = (tuple(fields[f"{name}.{index}"]) for name in ("env", "front"))
    return AppPlan(tuple(fields[f"argv.{index}"]), wdir, env, path, front, bool(in_session), mpi)


def _unpack_service(fields: dict[str, list[str]], index: int) -> ServicePlan:
    port, number, first, program, cpus, hint, name, *env = fields[f"service.{index}"]
    bound = tuple(map(int, cpus.split()))
    return ServicePlan(int(port), tuple(env), int(number), bool(first), program, bound, hint, name)


def _pack_world(world: World) -> dict[str, Iterable[str]]:
    numbers = (str(world.first), str(world.here), str(world.slots))
    return {
        "world": [world.name, *numbers, world.parent],
        "world.sizes": map(str, world.sizes),
        "world.hosts": world.hosts,
        "world.ranks": map(pack_runs, world.ranks),
        "world.preput": world.preput,
    }


def _unpack_world(fields: dict[str, list[str]]) -> World:
    name, first, here, slots, parent = fields["world"]
    return World(
        name,
        int(first),
        tuple(fields["world.hosts"]),
        tuple(map(unpack_runs, fields["world.ranks"])),
        int(here),
        tuple(map(int, fields["world.sizes"])),
        int(slots),
        parent,
        tuple(fields["world.preput"]),
    )


def pack_runs(numbers: Iterable[int]) -> str:
    """Ascending numbers in short: runs of one step, `first:count:step` with blanks between."""
    runs: list[list[int]] = []
    for number in numbers:
        run = runs[-1] if runs else None
        if run and run[1] == 1:
            run[1:] = [2, number - run[0]]
        elif run and number == run[0] + run[1] * run[2]:
            run[1] += 1
        else:
            runs.append([number, 1, 1])
    return " ".join(":".join(map(str, run)) for run in runs)


def unpack_runs(text: str) -> tuple[int, ...]:
    """The inverse of `pack_runs`; raises ValueError for anything else."""
    numbers: list[int] = []
    for word in text.split():
        first, count, step = map(int, word.split(":"))
        if count < 1 or step < 1:
            raise ValueError(word)
        numbers += range(first, first + count * step, step)
    return tuple(numbers)


def _flag(value: bool) -> str:
    return "yes" if value else ""
