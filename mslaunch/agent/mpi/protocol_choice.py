"""The choice of a protocol for each program: by which one its ranks may start up as MPI, decided before they run.

PMI costs next to nothing to offer (a socket, and no engine until a rank speaks), so every rank gets it unless its
program is known to be Open MPI's: that needs a PMIx server before it starts, and must not see PMI's variables.
"""

from __future__ import annotations

from mslaunch.agent import on_demand
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.node_plan import AppPlan, World
    from mslaunch.runtime.loop import Loop

    Program = tuple[str, list[str], Mapping[str, str], str]


class ProtocolChoices:
    """What the programs of a node are offered: none, pmi, pmi1, pmi2, or the `MpiLibrary` that needs PMIx."""

    def __init__(self, loop: Loop, need: Callable[[str, Callable[[], None]], None]) -> None:
        """`need` goes on when a module is here."""
        self._need = need
        self._offers: dict[tuple[str, int], Any] = {}  # world, program
        loop.after(0.0, _import_hint)  # between HELLO and LAUNCH nobody waits for us

    def prepare(self, world: World, programs: Sequence[tuple[int, AppPlan, Program]], then: Callable[[], None]) -> None:
        """Choose what the ranks of each program are offered, have what that needs, and go on with `then`.

        `programs` have their number in the job, what is planned, and (file, arguments, variables, directory).
        """
        from mslaunch.agent.mpi.openmpi_hint import may_be_openmpi

        unsure = []
        for number, app, program in programs:
            kind = app.mpi.partition(":")[0] if world.here >= 0 else "none"
            if kind == "pmix" or (kind == "auto" and may_be_openmpi(*program)):
                unsure.append((number, app, program))
            else:
                self._offers[world.name, number] = "pmi" if kind == "auto" else kind

        def choose() -> None:
            for number, app, program in unsure:
                self._offers[world.name, number] = _choose(app.mpi, program)
            serve = any(not isinstance(offer, str) for offer in self._offers.values())
            self._need("agent.mpi.pmix.pmix_server", then) if serve else then()

        self._need("agent.mpi.library_of_program", choose) if unsure else then()

    def of(self, world: World, app: int) -> Any:
        """What the ranks of a program are offered."""
        return self._offers.get((world.name, app), "none")

    @property
    def anything(self) -> bool:
        """False if nobody is offered anything."""
        return any(offer != "none" for offer in self._offers.values())


def _import_hint() -> None:
    import mslaunch.agent.mpi.openmpi_hint  # noqa: F401


def _choose(asked: str, program: Program) -> Any:
    """The library of a program that may be Open MPI's, or "pmi"; `asked` is auto, pmix, or pmix:PATH."""
    detect = on_demand.get("agent.mpi.library_of_program")
    assert detect
    found = detect.find(*program)
    kind, _, path = asked.partition(":")
    if kind != "pmix" and not (found and found.family == "pmix"):
        return "pmi"
    found = found or detect.MpiLibrary("pmix", "Open MPI", "")
    return found._replace(pmix=path or detect.find_pmix(found, program[2]))


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
    if world.parent:
        variables["PMI_SPAWNED"] = "1"
    return variables
