"""The entry point of the agent: what runs first in the process that forks the agent and becomes its guard.

Only this module and `call_launcher` read `os.environ` in an agent.  On a host where nothing of this package is
installed, the stub of `transport.bootstrap` calls `remote_main`; a local agent is forked and calls `agent_main`.
"""

from __future__ import annotations

import fcntl
import os

from mslaunch.agent.agent import serve
from mslaunch.agent.guard import guarded
from mslaunch.faststd import signal


def agent_main(reader: int, writer: int, ssh: str = "", patience: float = 0) -> int:
    """Become guard and agent of the link `reader`/`writer`; returns the exit code, in the guard.

    `ssh`: see `serve`; `patience`: see `guarded`.
    """
    try:
        os.setsid()  # a Ctrl-C at the launcher's terminal is the launcher's business
    except OSError:  # a session leader already, as under sshd
        pass
    environ = dict(os.environ)
    return guarded(
        lambda guard, directories: serve((reader, writer), (guard, directories), environ, ssh),
        (reader, writer),
        patience,
    )


def remote_main() -> None:
    """The link is standard input and output; both are moved to other descriptors, so that nothing can print there."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)  # of the limit of `transport.bootstrap` for its payload
    reader, writer = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))  # stderr may be closed
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    os._exit(agent_main(reader, writer, os.environ.get("SSH_CONNECTION", ""), left))
