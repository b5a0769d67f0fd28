"""The wording of PMI-2: which command asks for what, and how its answer reads.

`pmi.Pmi` does the rest.  Intel MPI speaks it through Slurm's libpmi2; the MPICH of PyPI and Debian does not.
The surprising thing: MPI_Abort has no exit code here, only a text; that of MPICH and Intel MPI holds the code.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi.pmi_wire import Refused
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.mpi.pmi.pmi_engine import Call, PmiEngine


def _fullinit(pmi: PmiEngine, call: Call) -> None:
    client, world = call.client, call.client.place.world
    if call.message.words.get("pmirank", str(client.number)) != str(client.number):
        raise Refused("invalid_rank")
    parent = [("spawner-jobid", world.parent.partition(".")[0])] if world.parent else []
    call.done(
        ("pmi-version", 2),
        ("pmi-subversion", 0),
        ("rank", client.number),
        ("size", world.size),
        ("appnum", client.place.program(client.number)),
        *parent,
        ("debugged", "FALSE"),
        ("pmiverbose", "FALSE"),
    )


def _job(pmi: PmiEngine, call: Call) -> None:
    call.done(("jobid", call.client.place.world.name))


def _found(call: Call, value: str | None) -> None:
    if value is None:
        call.done(("found", "FALSE"))
    else:
        call.done(("found", "TRUE"), ("value", value))


def _get_job_attribute(pmi: PmiEngine, call: Call) -> None:
    place, key = call.client.place, call.message.need("key")
    if key == "universeSize":
        _found(call, str(place.world.slots) if place.world.slots else None)
    else:
        _found(call, place.get(call.client.life, key))


def _put_node_attribute(pmi: PmiEngine, call: Call) -> None:
    client, key, value = call.client, call.message.need("key"), call.message.words.get("value", "")
    client.place.put_attribute(client.life, key, value)
    call.done()
    pmi.arrived(client.place, client.life, key, value)


def _get_node_attribute(pmi: PmiEngine, call: Call) -> None:
    key = call.message.need("key")
    value = call.client.place.store(call.client.life).attributes.get(key)
    if value is None and call.message.words.get("wait") == "TRUE":
        pmi.wait(call, key)
    else:
        _found(call, value)


def _put(pmi: PmiEngine, call: Call) -> None:
    call.client.place.put(call.client.life, call.message.need("key"), call.message.words.get("value", ""))
    call.done()


def _get(pmi: PmiEngine, call: Call) -> None:
    place = call.client.place
    if call.message.words.get("jobid") not in (None, "", place.world.name):
        raise Refused("unknown_jobid")
    _found(call, place.get(call.client.life, call.message.need("key")))


def _fence(pmi: PmiEngine, call: Call) -> None:
    pmi.fence(call, "WORLD")


def _publish(pmi: PmiEngine, call: Call) -> None:
    pmi.name(call, "publish", call.message.need("name"), call.message.need("port"))


def _lookup(pmi: PmiEngine, call: Call) -> None:
    # Slurm's library reads the one, MPICH's the other
    pmi.name(call, "lookup", call.message.need("name"), keys=("value", "port"))


def _unpublish(pmi: PmiEngine, call: Call) -> None:
    pmi.name(call, "unpublish", call.message.need("name"))


def _abort(pmi: PmiEngine, call: Call) -> None:
    text = call.message.words.get("msg", "")
    _, _, said = text.partition("MPI_Abort(")  # ... MPI_Abort(MPI_COMM_WORLD, 7) - process 1
    code = said.partition(")")[0].rpartition(",")[2].strip()
    pmi.abort(call, code or "1", text)


def _finalize(pmi: PmiEngine, call: Call) -> None:
    pmi.finalize(call)


def _spawn(pmi: PmiEngine, call: Call) -> None:
    pmi.spawn(call)


#: the command of its answer, and what obeys it
COMMANDS: dict[str, tuple[str, Callable[[PmiEngine, Call], None]]] = {
    "fullinit": ("fullinit-response", _fullinit),
    "job-getid": ("job-getid-response", _job),
    "info-getjobattr": ("info-getjobattr-response", _get_job_attribute),
    "info-putnodeattr": ("info-putnodeattr-response", _put_node_attribute),
    "info-getnodeattr": ("info-getnodeattr-response", _get_node_attribute),
    "kvs-put": ("kvs-put-response", _put),
    "kvs-get": ("kvs-get-response", _get),
    "kvs-fence": ("kvs-fence-response", _fence),
    "name-publish": ("name-publish-response", _publish),
    "name-lookup": ("name-lookup-response", _lookup),
    "name-unpublish": ("name-unpublish-response", _unpublish),
    "spawn": ("spawn-response", _spawn),
    "abort": ("abort-response", _abort),
    "finalize": ("finalize-response", _finalize),
}
