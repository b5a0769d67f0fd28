"""Who may spawn ranks (MPI_Comm_spawn), and where: rules that hold although a host of the job may be hostile.

A spawn runs any command on other hosts.  So the job must be one of MPI by the word of the user, of its program as the
launching host sees it, or of all hosts of the world; the rank that asks must be in MPI.  A program whose text cannot be
read says nothing, nor does an MPI library that is merely installed.  The launching host takes none on the word of
others.
"""

from __future__ import annotations

import os

from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.rank_variables import exported, forwarded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.request import AppContext

_PROTOCOLS = ("pmi1", "pmi2", "pmix")  # of --mpi, where the user says that it is an MPI program


class SpawnPolicy:
    """The rules of one job."""

    def __init__(
        self, wish: str, nodes: Sequence[Node], in_mpi: Callable[[int], bool], environ: Mapping[str, str], cwd: str
    ) -> None:
        """`wish`: --spawn; `nodes` of the allocation; `in_mpi(rank)`: it runs, and has called MPI_Init."""
        self._wish = wish
        self._local = {node.name for node in nodes if node.local}
        self._in_mpi = in_mpi
        self._environ = environ
        self._cwd = cwd
        self._places: dict[int, str] = {}
        self._programs: dict[tuple[str, ...], bool] = {}

    def add_world(self, first: int, hosts: Sequence[str]) -> None:
        """A world, and the host of each of its ranks."""
        self._places.update(enumerate(hosts, first))

    def check(self, rank: int, world: range, app: AppContext) -> None:
        """Raise LaunchError unless `rank` of this world, of the program `app`, may spawn.

        The parent of a world that was spawned has been allowed to, and so is that world: its program was named by a
        host that may be hostile, so no file of that name is opened here.
        """
        if self._wish == "no":
            raise LaunchError("--spawn no was given")
        if not self._in_mpi(rank):
            raise LaunchError("it is not between MPI_Init and MPI_Finalize")
        spawned = world.start > 0
        if spawned or self._wish == "yes" or app.mpi.partition(":")[0] in _PROTOCOLS:
            return
        if not (self._has_witnesses(rank, world) or self._is_mpi_program(app)):
            what = f"only its host, {self._places[rank]}, says that {app.argv[0][:200]} is an MPI program"
            raise LaunchError(what, todo="if it is one, give --spawn yes")

    def _has_witnesses(self, rank: int, world: range) -> bool:
        """All hosts of the world have ranks in MPI, and it is not the word of one other host alone."""
        hosts = {self._places[one] for one in world}
        there = {self._places[one] for one in world if self._in_mpi(one)}
        return there == hosts and (len(hosts) > 1 or self._places[rank] in self._local)

    def _is_mpi_program(self, app: AppContext) -> bool:
        """Whether the program uses MPI, as far as one can see from here: what agents find out before it starts."""
        if app.argv not in self._programs:
            self._programs[app.argv] = self._find_library(app)
        return self._programs[app.argv]

    def _find_library(self, app: AppContext) -> bool:
        from mslaunch.agent.mpi.library_of_program import find
        from mslaunch.host.programs import find_program

        own = dict(entry.partition("=")[::2] for entry in exported(app, self._environ))
        env = {**self._environ, **own}
        wdir = os.path.join(self._cwd, app.wdir or "")
        folders = [app.path, f"{app.prefix}/bin" if app.prefix else "", env.get("PATH", os.defpath)]
        if app.prefix:
            env["LD_LIBRARY_PATH"] = f"{app.prefix}/lib:{env.get('LD_LIBRARY_PATH', '')}"
        try:
            path = find_program(app.argv[0], ":".join(filter(None, folders)), wdir)
        except LaunchError:  # it is on the other hosts only
            return False
        return find(path, list(app.argv), env, wdir, strict=True) is not None

    def barred(self) -> set[str]:
        """Hosts that take no spawned ranks: the launching one, unless a rank there is in MPI."""
        return self._local - {host for rank, host in self._places.items() if self._in_mpi(rank)}

    def exports(self, app: AppContext) -> set[str]:
        """The names of the variables that ranks of a program get from the launcher's environment, or from -x."""
        entries = (*exported(app, self._environ), *forwarded(app, self._environ))
        return {entry.partition("=")[0] for entry in entries}
