"""The agent's answers to CHECK: facts of this host and its programs, measurements of links, a command's result.

A part that travels on demand; the other modules of this folder belong to it.
"""

from __future__ import annotations

import time
from weakref import WeakKeyDictionary

from mslaunch.agent.checks import host_limits, program_facts
from mslaunch.agent.checks.bounded_command import run_command
from mslaunch.agent.checks.link_server import LinkServer
from mslaunch.agent.checks.measure_link import measure
from mslaunch.errors import LaunchError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.programs import find_program
from mslaunch.protocol import check_messages as messages
from mslaunch.protocol import control, frames
from mslaunch.protocol.control import unpack_record

if TYPE_CHECKING:
    from mslaunch.agent.launcher_link import AgentContext, LauncherLink

_KEPT = 8000  # bytes of a command's output: the end of it
_servers: WeakKeyDictionary[LauncherLink, LinkServer] = WeakKeyDictionary()


def handle(context: AgentContext, frame: frames.Frame) -> None:
    """CHECK; CHECKED follows, perhaps later."""
    came = time.time()
    word, rest = messages.word_of(frame.payload)
    if word == messages.HOST:
        question = unpack_record(messages.HostQuestion, rest)
        facts = host_limits.collect(question, context.environ, came)
        _answer(context, messages.pack_check(word, facts._replace(went=time.time())))
    elif word == messages.PROGRAMS:
        plan = control.unpack_plan(rest)
        done = lambda found: _answer(context, messages.pack_programs(found))  # noqa: E731
        program_facts.collect(context, plan, done)
    elif word == messages.LISTEN:
        _answer(context, messages.pack_check(word, _listening(context)))
    elif word == messages.MEASURE:
        _answer(context, messages.pack_check(word, measure(unpack_record(messages.LinkQuestion, rest))))
    else:
        _run(context, unpack_record(messages.CommandQuestion, rest))


def _listening(context: AgentContext) -> messages.Listening:
    """Where others may measure, or why they cannot."""
    server = _servers.get(context.link)
    if server is None:
        try:
            server = _servers[context.link] = LinkServer(context.loop)
        except OSError as error:
            return messages.Listening(0, "", f"it cannot listen at any port: {error.strerror}")
    return server.listening


def _answer(context: AgentContext, payload: bytes) -> None:
    context.link.send(frames.CHECKED, frames.NO_RANK, payload)


def _run(context: AgentContext, question: messages.CommandQuestion) -> None:
    """Run the command of --health-check; its answer follows."""

    def ended(code: int, output: bytes, late: bool) -> None:
        error = f"it did not end within {question.seconds:g} s" if late else ""
        text = output.decode("utf-8", "replace")
        facts = messages.CommandFacts(error, code, text)
        _answer(context, messages.pack_check(messages.COMMAND, facts))

    environ = dict(context.environ)
    try:
        path = find_program(question.argv[0], environ.get("PATH", ""), "/", "name its path")
        run_command(context.loop, [path, *question.argv[1:]], environ, question.seconds, _KEPT, ended)
    except (LaunchError, OSError) as error:
        what = error.what if isinstance(error, LaunchError) else f"it could not be started: {error.strerror}"
        code = error.code if isinstance(error, LaunchError) else 126
        _answer(context, messages.pack_check(messages.COMMAND, messages.CommandFacts(what, code)))
