"""The commands of PMI-1: what each does, and its answer.

MPI_UNIVERSE_SIZE is the slots of the allocation, as with Open MPI.  MPICH's own mpiexec leaves it unset, but it is what
MPI_Comm_spawn can count on here, whichever library asks.
"""

from __future__ import annotations

from mslaunch.agent.mpi.pmi.key_value_store import KEY, NAME, VALUE
from mslaunch.agent.mpi.pmi.pmi_wire import Refused
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.agent.mpi.pmi.key_value_store import KeySpace
    from mslaunch.agent.mpi.pmi.pmi_barriers import PmiWaits
    from mslaunch.agent.mpi.pmi.pmi_client import Call


def _own_space(call: Call) -> KeySpace:
    if call.message.need("kvsname") != call.client.space.world.name:
        raise Refused("unknown_kvsname")
    return call.client.space


def _put(_: PmiWaits, call: Call) -> None:
    _own_space(call).put(call.client.life, call.message.need("key"), call.message.words.get("value", ""))
    call.done()


def _get(_: PmiWaits, call: Call) -> None:
    value = _own_space(call).get(call.client.life, call.message.need("key"))
    if value is None:
        raise Refused("key_not_found")
    call.done(("value", value))


#: command -> the command of its answer, and what carries it out
COMMANDS: dict[str, tuple[str, Callable[[PmiWaits, Call], None]]] = {
    "get_maxes": (
        "maxes",
        lambda _, call: call.done(("kvsname_max", NAME), ("keylen_max", KEY), ("vallen_max", VALUE)),
    ),
    "get_appnum": ("appnum", lambda _, call: call.done(("appnum", call.client.space.program(call.client.number)))),
    "get_my_kvsname": ("my_kvsname", lambda _, call: call.done(("kvsname", call.client.space.world.name))),
    "get_universe_size": (  # -1: the attribute is not set
        "universe_size",
        lambda _, call: call.done(("size", call.client.space.world.slots or -1)),
    ),
    "put": ("put_result", _put),
    "get": ("get_result", _get),
    "barrier_in": ("barrier_out", lambda waits, call: waits.fence(call, call.message.words.get("group", "WORLD"))),
    "publish_name": (
        "publish_result",
        lambda _, call: call.ask_name("publish", call.message.need("service"), call.message.need("port")),
    ),
    "lookup_name": (
        "lookup_result",
        lambda _, call: call.ask_name("lookup", call.message.need("service"), keys=("port",)),
    ),
    "unpublish_name": ("unpublish_result", lambda _, call: call.ask_name("unpublish", call.message.need("service"))),
    "spawn": ("spawn_result", lambda _, call: call.ask_spawn()),
    "abort": (
        "abort_result",
        lambda _, call: call.abort(call.message.words.get("exitcode", "1"), call.message.words.get("message", "")),
    ),
    "finalize": ("finalize_ack", lambda _, call: call.finalize()),
}
