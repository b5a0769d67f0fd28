"""Control frames as records: what each kind carries, and its way into fields and back.

The only place where names of fields are written down.  It knows the nouns of `model` and nothing of who sends what
when (docs/wire.md tells that).  The one surprising thing: a plan's variables travel as "NAME=value" words, as
`execve` takes them.
"""

from __future__ import annotations

from mslaunch.lean import TYPE_CHECKING, NamedTuple
from mslaunch.model import AppPlan, NodePlan, RankPlan, ServicePlan
from mslaunch.wire.fields import pack, strict, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable


class Hello(NamedTuple):
    """An agent is there."""

    host: str  # its hostname
    pid: int
    cpus: int  # that it may use
    python: str
    addresses: tuple[str, ...]  # of its interfaces, the most likely to be reachable first
    seen_from: str = ""  # the launcher's address as this host sees it, if it came by ssh


class Reserved(NamedTuple):
    """Ports on the host of rank 0."""

    ports: tuple[int, ...]  # listened on until LAUNCH
    probe: int  # where the other agents knock
    token: str  # what they hear there


class Exit(NamedTuple):
    """How a process ended; or, with `error`, why it never started."""

    code: int | None
    signal: int | None
    error: str = ""
    todo: str = ""


def pack_hello(hello: Hello) -> bytes:
    """See `Hello`."""
    return pack(
        {
            "host": [hello.host, hello.python, hello.seen_from],
            "numbers": [str(hello.pid), str(hello.cpus)],
            "addresses": hello.addresses,
        }
    )


@strict
def unpack_hello(payload: bytes) -> Hello:
    """See `Hello`."""
    fields = unpack(payload)
    host, python, seen_from = fields["host"]
    pid, cpus = fields["numbers"]
    return Hello(host, int(pid), int(cpus), python, tuple(fields["addresses"]), seen_from)


def pack_reserved(reserved: Reserved) -> bytes:
    """See `Reserved`."""
    return pack({"ports": map(str, reserved.ports), "probe": [str(reserved.probe), reserved.token]})


@strict
def unpack_reserved(payload: bytes) -> Reserved:
    """See `Reserved`."""
    fields = unpack(payload)
    probe, token = fields["probe"]
    return Reserved(tuple(map(int, fields["ports"])), int(probe), token)


def pack_probe(addresses: Iterable[str], port: int, token: str) -> bytes:
    """Where to knock, and what must be heard there."""
    return pack({"addresses": addresses, "probe": [str(port), token]})


@strict
def unpack_probe(payload: bytes) -> tuple[list[str], int, str]:
    """See `pack_probe`."""
    fields = unpack(payload)
    port, token = fields["probe"]
    return fields["addresses"], int(port), token


def pack_addresses(addresses: Iterable[str]) -> bytes:
    """The payload of REACHED."""
    return pack({"addresses": addresses})


@strict
def unpack_addresses(payload: bytes) -> list[str]:
    """See `pack_addresses`."""
    return unpack(payload)["addresses"]


@strict
def unpack_number(payload: bytes) -> int:
    """The payload of STARTED (a pid) and STDIN_TAKEN (bytes)."""
    return int(payload)


def pack_exit(ended: Exit) -> bytes:
    """See `Exit`."""
    numbers = ["" if number is None else str(number) for number in (ended.code, ended.signal)]
    return pack({"exit": [*numbers, ended.error, ended.todo]})


@strict
def unpack_exit(payload: bytes) -> Exit:
    """See `Exit`."""
    code, signum, error, todo = unpack(payload)["exit"]
    return Exit(int(code) if code else None, int(signum) if signum else None, error, todo)


def pack_plan(plan: NodePlan) -> bytes:
    """The payload of LAUNCH."""
    fields: dict[str, Iterable[str]] = {
        "env": plan.env,
        "defaults": plan.defaults,
        "scrub": plan.scrub,
        "stdin": map(str, plan.stdin),
        "policy": ["yes" if plan.merge else "", plan.pty, str(plan.grace)],
        "ranks": [str(rank.rank) for rank in plan.ranks],
        "apps": [str(len(plan.apps))],
        "services": [str(len(plan.services))],
    }
    for index, app in enumerate(plan.apps):
        fields[f"argv.{index}"] = app.argv
        fields[f"app.{index}"] = [app.wdir, *app.env]
    for rank in plan.ranks:
        fields[f"rank.{rank.rank}"] = [str(rank.app), " ".join(map(str, rank.cpus)), *rank.env]
    for index, service in enumerate(plan.services):
        fields[f"service.{index}"] = [service.kind, str(service.port), service.address, *service.env]
    return pack(fields)


@strict
def unpack_plan(payload: bytes) -> NodePlan:
    """See `pack_plan`."""
    fields = unpack(payload)
    merge, pty, grace = fields["policy"]
    apps = tuple(
        AppPlan(tuple(fields[f"argv.{index}"]), fields[f"app.{index}"][0], tuple(fields[f"app.{index}"][1:]))
        for index in range(int(fields["apps"][0]))
    )
    ranks = []
    for number in fields["ranks"]:
        app, cpus, *env = fields[f"rank.{number}"]
        ranks.append(RankPlan(int(number), int(app), tuple(env), tuple(map(int, cpus.split()))))
    services = []
    for index in range(int(fields["services"][0])):
        kind, port, address, *env = fields[f"service.{index}"]
        services.append(ServicePlan(kind, int(port), address, tuple(env)))
    return NodePlan(
        tuple(ranks),
        apps,
        tuple(fields["env"]),
        defaults=tuple(fields["defaults"]),
        scrub=tuple(fields["scrub"]),
        services=tuple(services),
        stdin=tuple(map(int, fields["stdin"])),
        merge=bool(merge),
        pty=pty,
        grace=float(grace),
    )
