"""The wording of PMI-1: which command asks for what, and how its answer reads.

`pmi.Pmi` does the rest.  Each answer has an `rc`, for the newer of MPICH's clients look at it first.  The surprising
thing: MPI_UNIVERSE_SIZE is the slots of the allocation, as with Open MPI.  MPICH's own mpiexec leaves it unset, but it
is what MPI_Comm_spawn can count on here, whichever library asks.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi.key_value_store import KEY, NAME, VALUE
from mslaunch.agent.mpi.pmi.pmi_wire import Refused
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.mpi.pmi.key_value_store import KeySpace
    from mslaunch.agent.mpi.pmi.pmi_engine import Call, PmiEngine


def _init(pmi: PmiEngine, call: Call) -> None:
    version = call.message.need("pmi_version")
    if version not in ("1", "2"):
        raise Refused("unknown_version")
    pmi.init(call, version)
    call.done(("pmi_version", version), ("pmi_subversion", "2" if version == "1" else "0"))


def _maxes(pmi: PmiEngine, call: Call) -> None:
    call.done(("kvsname_max", NAME), ("keylen_max", KEY), ("vallen_max", VALUE))


def _appnum(pmi: PmiEngine, call: Call) -> None:
    call.done(("appnum", call.client.place.program(call.client.number)))


def _name(pmi: PmiEngine, call: Call) -> None:
    call.done(("kvsname", call.client.place.world.name))


def _own(call: Call) -> KeySpace:
    if call.message.need("kvsname") != call.client.place.world.name:
        raise Refused("unknown_kvsname")
    return call.client.place


def _put(pmi: PmiEngine, call: Call) -> None:
    _own(call).put(call.client.life, call.message.need("key"), call.message.words.get("value", ""))
    call.done()


def _get(pmi: PmiEngine, call: Call) -> None:
    value = _own(call).get(call.client.life, call.message.need("key"))
    if value is None:
        raise Refused("key_not_found")
    call.done(("value", value))


def _barrier(pmi: PmiEngine, call: Call) -> None:
    pmi.fence(call, call.message.words.get("group", "WORLD"))


def _universe(pmi: PmiEngine, call: Call) -> None:
    call.done(("size", call.client.place.world.slots or -1))  # -1: the attribute is not set


def _publish(pmi: PmiEngine, call: Call) -> None:
    pmi.name(call, "publish", call.message.need("service"), call.message.need("port"))


def _lookup(pmi: PmiEngine, call: Call) -> None:
    pmi.name(call, "lookup", call.message.need("service"), keys=("port",))


def _unpublish(pmi: PmiEngine, call: Call) -> None:
    pmi.name(call, "unpublish", call.message.need("service"))


def _abort(pmi: PmiEngine, call: Call) -> None:
    pmi.abort(call, call.message.words.get("exitcode", "1"), call.message.words.get("message", ""))


def _spawn(pmi: PmiEngine, call: Call) -> None:
    pmi.spawn(call)


def _finalize(pmi: PmiEngine, call: Call) -> None:
    pmi.finalize(call)


#: the command of its answer, and what obeys it
COMMANDS: dict[str, tuple[str, Callable[[PmiEngine, Call], None]]] = {
    "init": ("response_to_init", _init),
    "get_maxes": ("maxes", _maxes),
    "get_appnum": ("appnum", _appnum),
    "get_my_kvsname": ("my_kvsname", _name),
    "get_universe_size": ("universe_size", _universe),
    "put": ("put_result", _put),
    "get": ("get_result", _get),
    "barrier_in": ("barrier_out", _barrier),
    "publish_name": ("publish_result", _publish),
    "lookup_name": ("lookup_result", _lookup),
    "unpublish_name": ("unpublish_result", _unpublish),
    "spawn": ("spawn_result", _spawn),
    "abort": ("abort_result", _abort),
    "finalize": ("finalize_ack", _finalize),
}
