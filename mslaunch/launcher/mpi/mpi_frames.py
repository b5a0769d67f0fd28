"""The MPI programs of a job, which most jobs do not have: what serves them is imported and made when the first asks."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mslaunch.datamodel.node_plan import World
    from mslaunch.launcher.mpi.coordinator import Coordinator
    from mslaunch.launcher.mpi.running_job import RunningJob
    from mslaunch.launcher.mpi.spawn_ranks import Spawner
    from mslaunch.protocol import frames
    from mslaunch.protocol.mpi import Answer, Question


class MpiFrames:
    """The MPI frames of one job, and what they need to know of its ranks."""

    def __init__(self, job: RunningJob, make_spawner: Callable[[RunningJob], Spawner] | None) -> None:
        self._job = job
        self._make_spawner = make_spawner
        self._coordinator: Coordinator | None = None
        self._spawner: Spawner | None = None
        self._worlds: list[World] = []

    def on_frame(self, node: int, frame: frames.Frame) -> None:
        """A frame of an MPI program."""
        if self._coordinator is None:
            from mslaunch.launcher.mpi.coordinator import Coordinator

            job = self._job
            self._coordinator = Coordinator(job.send, job.post, job.notify, job.hosts, self._spawn)
            for world in self._worlds:
                self._coordinator.add_world(world)
            for number in job.ended():
                self._coordinator.ended(number)
        self._coordinator.on_frame(node, frame)

    def add_world(self, world: World) -> None:
        """The ranks of a world are about to start."""
        self._worlds.append(world)
        if self._coordinator:
            self._coordinator.add_world(world)

    def ended(self, number: int) -> None:
        """A rank has ended, and is not restarted."""
        if self._coordinator:
            self._coordinator.ended(number)

    def lost(self, node: int) -> None:
        """The connection to a node has ended."""
        if self._coordinator:
            self._coordinator.lost(node)

    def _spawn(self, question: Question, done: Callable[[Answer], None]) -> None:
        if self._spawner is None:
            assert self._make_spawner
            self._spawner = self._make_spawner(self._job)
        self._spawner.spawn(question, done)

    def settled(self, world: int, error: str) -> None:
        """All ranks of a spawned world run, or (`error`) it is being ended."""
        assert self._spawner
        self._spawner.settled(world, error)
