"""--health-check: a command of the user's on each host of an attempt, before its ranks are started.

A host on which it fails counts as one that could not be reached: with --restart group a spare takes its place, else the
launch is refused.
"""

from __future__ import annotations

from weakref import WeakSet

from mslaunch.errors import EXIT_UNREACHED, LaunchError, UnreachedError, WireError, printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.agents.host_questions import HostQuestions
from mslaunch.protocol.check_messages import COMMAND, CommandFacts, CommandQuestion, pack_check, unpack_check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mslaunch.datamodel.request import Request
    from mslaunch.launcher.agents.connection import AgentConnection

_LINES, _WIDTH = 10, 200  # of what it printed
_MORE = 10.0  # seconds that an answer may take beyond the limit of the command
_passed: WeakSet[AgentConnection] = WeakSet()  # when a spare comes in, the other hosts are not asked again


def require_healthy(
    request: Request,
    agents: Sequence[AgentConnection],
    wait: Callable[[Callable[[], bool], float | None], None],
) -> None:
    """Run the command on all hosts at once; raises `UnreachedError` for those on which it failed."""
    failed = failures(request, [agent for agent in agents if agent not in _passed], HostQuestions(wait))
    _passed.update(agent for agent in agents if agent.node.name not in failed)
    if failed:
        raise UnreachedError(failed, len(agents))


def failures(
    request: Request, agents: Sequence[AgentConnection], questions: HostQuestions
) -> Mapping[str, LaunchError]:
    """Why hosts failed, by the names of their nodes."""
    seconds = request.health_timeout
    payload = pack_check(COMMAND, CommandQuestion(request.health_check, seconds))
    answers, failed = questions.ask(dict.fromkeys(agents, payload), seconds + _MORE)
    for name, answer in answers.items():
        try:
            error = _failure(name, request.health_check, unpack_check(COMMAND, CommandFacts, answer))
        except WireError as garbled:
            error = LaunchError(garbled.what, name, code=EXIT_UNREACHED)
        if error:
            failed[name] = error
    return failed


def _failure(name: str, argv: Sequence[str], facts: CommandFacts) -> LaunchError | None:
    if not (facts.error or facts.code):
        return None
    how = facts.error or f"ended with exit code {facts.code}"
    lines = [line.rstrip()[:_WIDTH] for line in printable(facts.output).splitlines() if line.strip()][-_LINES:]
    printed = "\n".join(["it printed:", *(f"  | {line}" for line in lines)]) if lines else "it printed nothing"
    what = f"the command of --health-check, {argv[0]!r}, failed: {' '.join(printable(how).split())[:_WIDTH]}"
    return LaunchError(what, name, printed, code=EXIT_UNREACHED)
