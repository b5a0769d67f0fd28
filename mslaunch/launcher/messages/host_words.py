"""Errors in the words of a host: a sentence, and lines that are marked as those of the host, whatever it says."""

from __future__ import annotations

from mslaunch.errors import one_line, printable, quoted_lines, sentence_of
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.node_report import ExitStatus


def advised(error: str, todo: str, local: bool) -> tuple[str, str]:
    """An error and what its agent says is to be done; the advice of this host (`local`) is ours."""
    what, more = sentence_of(error)
    return what, "\n".join([*more, *(printable(todo).splitlines() if local else quoted_lines(todo))])


def status_of(status: ExitStatus, local: bool) -> ExitStatus:
    """The same for a process that did not start."""
    error, todo = advised(status.error, status.todo, local)
    return status._replace(error=error, todo=todo)


def error_of(error: str, todo: str, node: Node) -> tuple[str, str, str]:
    """The same as the arguments of a `LaunchError`."""
    what, advice = advised(error, todo, node.local)
    return what, node.name, advice


def named(text: str) -> str:
    """A name that a host has said, as a part of a sentence."""
    return one_line(text)
