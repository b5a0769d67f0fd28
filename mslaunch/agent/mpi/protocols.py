"""The MPI protocols, by their names: a table, and the choice of one for each program before its ranks start.

Offering PMI costs next to nothing (a socket, and no server until a rank speaks).  So every rank gets it, unless its
program is known to be Open MPI's: that needs a PMIx server before it starts, and must not see PMI's variables.
"""

from __future__ import annotations

from mslaunch.agent import on_demand
from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.agent.mpi.mpi_servers import MpiServer, ServerContext
    from mslaunch.datamodel.node_plan import AppPlan, World
    from mslaunch.runtime.loop import Loop

    Program = tuple[str, list[str], Mapping[str, str], str]


class MpiProtocol(NamedTuple):
    """A row of the table.  The rows of one family share a server."""

    family: str  # of servers, and of the libraries that they serve (`MpiLibrary.family`)
    title: str  # as users know the protocol
    server: str  # module whose `start` takes a `ServerContext` and returns an `MpiServer`
    commands: str = ""  # where ranks speak on a socket: module whose `COMMANDS` say what the server does for each


#: name, as --mpi has it -> protocol
PROTOCOLS = {
    "pmi1": MpiProtocol("pmi", "PMI-1", "agent.mpi.pmi.pmi_server", "agent.mpi.pmi.pmi1"),
    "pmi2": MpiProtocol("pmi", "PMI-2", "agent.mpi.pmi.pmi_server", "agent.mpi.pmi.pmi2"),
    "pmix": MpiProtocol("pmix", "PMIx", "agent.mpi.pmix.pmix_server"),
}


def server_module(family: str) -> str:
    """The module of a family's server, which may have to be sent to this host first."""
    return next(row.server for row in PROTOCOLS.values() if row.family == family)


def load_server(family: str) -> tuple[Callable[[ServerContext], MpiServer], dict[str, Any]]:
    """What starts the server of a family, and the commands of its protocols."""
    rows = {name: row.commands for name, row in PROTOCOLS.items() if row.family == family and row.commands}
    return on_demand.get(server_module(family)).start, {name: on_demand.get(row).COMMANDS for name, row in rows.items()}


class Offer(NamedTuple):
    """What the ranks of a program are offered."""

    family: str
    demanded: str = ""  # the protocol that they must speak; "": any of the family
    library: Any = None  # the `MpiLibrary` that is served; None: they speak on sockets
    spares: Mapping[str, str] | None = None  # `MpiLibrary.spares`, if it is known that they do


class ProtocolChoices:
    """The offers of a node, by program."""

    def __init__(self, loop: Loop, need: Callable[[str, Callable[[], None]], None]) -> None:
        """`need` goes on when a module is here."""
        self._need = need
        self._offers: dict[tuple[str, int], Offer] = {}  # world, program
        self.sure = False  #: some ranks are known to speak on sockets
        loop.after(0.0, _import_hint)  # between HELLO and LAUNCH nobody waits for us

    def prepare(self, world: World, programs: Sequence[tuple[int, AppPlan, Program]], then: Callable[[], None]) -> None:
        """Choose what the ranks of each program are offered, have what that needs, and go on with `then`.

        `programs` have their number in the job, what is planned, and (file, arguments, variables, directory).
        """
        from mslaunch.agent.mpi.openmpi_hint import may_be_openmpi

        unsure = []
        for number, app, program in programs:
            kind = app.mpi.partition(":")[0] if world.here >= 0 else "none"
            row = PROTOCOLS.get(kind)
            if (row and not row.commands) or (kind == "auto" and may_be_openmpi(*program)):
                unsure.append((number, app, program))
            elif kind != "none":
                self._offers[world.name, number] = Offer("pmi", kind if row else "")

        def choose() -> None:
            detect = on_demand.get("agent.mpi.library_of_program")
            for number, app, program in unsure:
                self._offers[world.name, number] = Offer(*detect.choose(app.mpi, program))
            offers = self._offers.values()
            self.sure = any(offer.spares is not None for offer in offers)
            self._need(server_module("pmix"), then) if any(offer.library for offer in offers) else then()

        self._need("agent.mpi.library_of_program", choose) if unsure else then()

    def of(self, world: World, app: int) -> Offer | None:
        """What the ranks of a program are offered; None: nothing."""
        return self._offers.get((world.name, app))

    @property
    def anything(self) -> bool:
        """False if nobody is offered anything."""
        return bool(self._offers)


def _import_hint() -> None:
    import mslaunch.agent.mpi.openmpi_hint  # noqa: F401


def pmi_variables(world: World, rank: int) -> dict[str, str]:
    """As hydra sets them (runs of 5.0.2); `rank` is that in the world."""
    here = world.ranks[world.here]
    variables = {
        "PMI_FD": "3",
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(world.size),
        "MPI_LOCALRANKID": str(here.index(rank)),
        "MPI_LOCALNRANKS": str(len(here)),
    }
    return {**variables, "PMI_SPAWNED": "1"} if world.parent else variables
