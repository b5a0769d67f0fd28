"""What lost agents have left behind: found by the mark of the job, and killed, by new agents on the same hosts.

Needed where agent and guard were killed at the same time: then nobody on that host knows the processes of the job.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import JOB_MARK
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING, partial
from mslaunch.launcher.agents.connection import is_about
from mslaunch.protocol import control, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.launcher.agents.connection import AgentConnection
    from mslaunch.runtime.loop import Loop

    Reached = Callable[[list[AgentConnection], list[LaunchError]], None]

SECONDS = 5.0  #: for all hosts together, from connecting to the answer


def clean_up(
    loop: Loop, call: Callable[[Sequence[Node], Reached], None], nodes: Sequence[Node], jobid: str
) -> dict[str, int]:
    """Kill what a job has left on these nodes, by the agents that `call` starts, within SECONDS.

    Returns how many processes that were, by the names of the nodes that have answered.
    """
    mark = f"{JOB_MARK}{jobid}"
    remote = [node for node in nodes if not node.local]
    killed: dict[str, int] = {}
    if len(remote) < len(nodes):
        from mslaunch.agent.guard import kill_marked

        killed[next(node.name for node in nodes if node.local)] = kill_marked(mark)
    waiting = {node.name for node in remote}

    def answered(name: str, frame: frames.Frame) -> None:
        if frame.kind == frames.CLEANED and is_about(frame, here=False):
            killed[name] = control.unpack_number(frame.payload)
        waiting.discard(name)

    def reached(connections: list[AgentConnection], errors: list[LaunchError]) -> None:
        waiting.intersection_update(connection.node.name for connection in connections)
        for connection in connections:
            name = connection.node.name
            connection.attach(partial(_gone, waiting, name), partial(answered, name))
            connection.send(frames.encode(frames.CLEANUP, payload=mark.encode()))

    try:
        if remote:
            call(remote, reached)
            loop.run(lambda: not waiting, SECONDS)
    except LaunchError:  # nothing can be started any more
        pass
    return killed


def _gone(waiting: set[str], name: str, error: LaunchError | None) -> None:
    waiting.discard(name)
