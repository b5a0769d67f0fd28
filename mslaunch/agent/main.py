"""The agent's entry: what runs first in the process that will be guard and agent.

It is the only place of the agent that reads `os.environ`.  `remote_main` is called by the stub of `transport.bootstrap`
on a host where nothing of this package is installed; a local agent is forked and calls `guarded` with `serve`
itself.  The surprising thing: standard input and output *are* the link, so they are moved away before any other
code could print there.
"""

from __future__ import annotations

import fcntl
import os

from mslaunch.agent.agent import serve
from mslaunch.agent.guard import guarded


def agent_main(reader: int, writer: int, by_ssh: bool) -> int:
    """Become guard and agent of the link `reader`/`writer`; returns the exit code, in the guard."""
    try:
        os.setsid()  # a Ctrl-C at the launcher's terminal is the launcher's business
    except OSError:  # a session leader already, as under sshd
        pass
    environ = dict(os.environ)
    return guarded(lambda guard, tell: serve((reader, writer), (guard, tell), environ, by_ssh), (reader, writer))


def remote_main() -> None:
    """Called by the stub: the link is standard input and output."""
    reader, writer = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))  # stderr may be closed
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    os._exit(agent_main(reader, writer, by_ssh="SSH_CONNECTION" in os.environ))
