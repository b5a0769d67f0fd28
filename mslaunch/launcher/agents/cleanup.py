"""What lost agents have left behind: killed and removed by new agents on the same hosts, and here by the launcher.

Needed where agent and guard were killed, or stopped, at the same time: then nobody on that host acts for the job.
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
    from mslaunch.launcher.agents.start_agents import AgentPool
    from mslaunch.runtime.loop import Loop

    Reached = Callable[[list[AgentConnection], list[LaunchError]], None]

PART = "agent.leftovers"
SECONDS = 5.0  #: for all hosts together, from connecting to the answer
SILENT_SECONDS = 2.0  #: the same if all have fallen silent: they may be cut off, and then end their part by themselves


def clean_up_lost(
    loop: Loop, pool: AgentPool, made: list[AgentConnection], jobid: str, tell: Callable[[str], None]
) -> list[str]:
    """The same for those of the connections `made` that were lost; returns the hosts whose new agents would not end."""
    lost = [connection for connection in made if connection.lost]
    made.clear()
    for host, killed in clean_up(loop, pool.call, lost, jobid).items():
        tell(f"{host}: killed what the lost agent had left, processes: {killed}")
    return pool.close()


def clean_up(
    loop: Loop,
    call: Callable[[Sequence[Node], Reached], None],
    lost: Sequence[AgentConnection],
    jobid: str,
) -> dict[str, int]:
    """Kill and remove what these agents of a job have left on their hosts, by the agents that `call` starts.

    It takes SECONDS at most.  Returns how many processes were killed, by the names of the nodes that have answered.
    """
    killed: dict[str, int] = {}
    asked = _ask(lost, jobid, loop.now(), killed)
    left = {name: len(requests) for name, requests in asked.items()}  # answers that are missing

    def answered(name: str, frame: frames.Frame) -> None:
        if frame.kind == frames.CLEANED and is_about(frame, here=False) and name in left:
            killed[name] = killed.get(name, 0) + control.unpack_number(frame.payload)
            left[name] -= 1
            if left[name]:
                return
        left.pop(name, None)

    def reached(connections: list[AgentConnection], errors: list[LaunchError]) -> None:
        for name in left.keys() - {connection.node.name for connection in connections}:
            del left[name]
        from mslaunch.transport.bootstrap.agent_program import part_frame

        part = part_frame(PART)
        for connection in connections:
            name = connection.node.name
            connection.attach(partial(_gone, left, name), partial(answered, name))
            connection.send(part)
            for request in asked[name]:
                connection.send(frames.encode(frames.CLEANUP, payload=request))

    nodes = {connection.node.name: connection.node for connection in lost if connection.node.name in asked}
    silent = all(connection.silent for connection in lost if connection.node.name in asked)
    try:
        if nodes:
            call(list(nodes.values()), reached)
            loop.run(lambda: not left, SILENT_SECONDS if silent else SECONDS)
    except LaunchError:  # nothing can be started any more
        pass
    return killed


def _ask(lost: Sequence[AgentConnection], jobid: str, now: float, killed: dict[str, int]) -> dict[str, list[bytes]]:
    """What new agents are asked for, by host; what is on this host is done, and counted in `killed`."""
    asked: dict[str, list[bytes]] = {}
    for connection in lost:
        node, request = connection.node, _request(connection, jobid, now)
        if node.local:
            from mslaunch.agent.leftovers import clean_up as clean_up_here

            killed[node.name] = killed.get(node.name, 0) + int(clean_up_here(request))
        else:
            asked.setdefault(node.name, []).append(request)
    return asked


def _request(connection: AgentConnection, jobid: str, now: float) -> bytes:
    """The agent has run since HELLO at least, so a younger process has only got its number."""
    hello = connection.hello
    assert hello
    seconds = now - connection.greeted
    return f"{JOB_MARK}{jobid} {hello.pid} {seconds:.3f} {hello.session}".encode("utf-8", "surrogateescape")


def _gone(left: dict[str, int], name: str, error: LaunchError | None) -> None:
    left.pop(name, None)
