"""The commands of PMI-2: what each does, and its answer.

Intel MPI speaks it through Slurm's libpmi2; the MPICH of PyPI and Debian does not.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi.pmi_wire import Refused
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.mpi.pmi.pmi_barriers import PmiWaits
    from mslaunch.agent.mpi.pmi.pmi_client import Call


def _fullinit(_: PmiWaits, call: Call) -> None:
    client, world = call.client, call.client.space.world
    if call.message.words.get("pmirank", str(client.number)) != str(client.number):
        raise Refused("invalid_rank")
    parent = [("spawner-jobid", world.parent.partition(".")[0])] if world.parent else []
    call.done(
        ("pmi-version", 2),
        ("pmi-subversion", 0),
        ("rank", client.number),
        ("size", world.size),
        ("appnum", client.space.program(client.number)),
        *parent,
        ("debugged", "FALSE"),
        ("pmiverbose", "FALSE"),
    )


def _found(call: Call, value: str | None) -> None:
    if value is None:
        call.done(("found", "FALSE"))
    else:
        call.done(("found", "TRUE"), ("value", value))


def _get_job_attribute(_: PmiWaits, call: Call) -> None:
    space, key = call.client.space, call.message.need("key")
    if key == "universeSize":
        _found(call, str(space.world.slots) if space.world.slots else None)
    else:
        _found(call, space.get(call.client.life, key))


def _put_node_attribute(waits: PmiWaits, call: Call) -> None:
    client, key, value = call.client, call.message.need("key"), call.message.words.get("value", "")
    client.space.put_attribute(client.life, key, value)
    call.done()
    waits.put(client, key, value)


def _get_node_attribute(waits: PmiWaits, call: Call) -> None:
    key = call.message.need("key")
    value = call.client.space.attribute(call.client.life, key)
    if value is None and call.message.words.get("wait") == "TRUE":
        waits.attribute(call, key)
    else:
        _found(call, value)


def _put(_: PmiWaits, call: Call) -> None:
    call.client.space.put(call.client.life, call.message.need("key"), call.message.words.get("value", ""))
    call.done()


def _get(_: PmiWaits, call: Call) -> None:
    space = call.client.space
    if call.message.words.get("jobid") not in (None, "", space.world.name):
        raise Refused("unknown_jobid")
    _found(call, space.get(call.client.life, call.message.need("key")))


def _abort(_: PmiWaits, call: Call) -> None:
    """There is only a text here; that of MPICH and Intel MPI holds the code: … MPI_Abort(MPI_COMM_WORLD, 7) - …"""
    text = call.message.words.get("msg", "")
    code = text.partition("MPI_Abort(")[2].partition(")")[0].rpartition(",")[2].strip()
    call.abort(code or "1", text)


#: command -> the command of its answer, and what carries it out
COMMANDS: dict[str, tuple[str, Callable[[PmiWaits, Call], None]]] = {
    "fullinit": ("fullinit-response", _fullinit),
    "job-getid": ("job-getid-response", lambda _, call: call.done(("jobid", call.client.space.world.name))),
    "info-getjobattr": ("info-getjobattr-response", _get_job_attribute),
    "info-putnodeattr": ("info-putnodeattr-response", _put_node_attribute),
    "info-getnodeattr": ("info-getnodeattr-response", _get_node_attribute),
    "kvs-put": ("kvs-put-response", _put),
    "kvs-get": ("kvs-get-response", _get),
    "kvs-fence": ("kvs-fence-response", lambda waits, call: waits.fence(call, "WORLD")),
    "name-publish": (
        "name-publish-response",
        lambda _, call: call.ask_name("publish", call.message.need("name"), call.message.need("port")),
    ),
    "name-lookup": (  # Slurm's library reads the one key, MPICH's the other
        "name-lookup-response",
        lambda _, call: call.ask_name("lookup", call.message.need("name"), keys=("value", "port")),
    ),
    "name-unpublish": (
        "name-unpublish-response",
        lambda _, call: call.ask_name("unpublish", call.message.need("name")),
    ),
    "spawn": ("spawn-response", lambda _, call: call.ask_spawn()),
    "abort": ("abort-response", _abort),
    "finalize": ("finalize-response", lambda _, call: call.finalize()),
}
