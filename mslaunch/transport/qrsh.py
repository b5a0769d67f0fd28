"""The transport `qrsh`: in a job of Grid Engine, a `qrsh -inherit` starts the agent of each host, which calls back.

What qrsh does, by experiment with Son of Grid Engine 8.1.9 and its own remote startup (rsh_command `builtin`):

- Bytes pass as they are, in 11 ms there and back.  Output of 16 MB is right, but input of 1 MB stays on the way for
  ever, as 128 KB does that come back at once; 64 KB pass.  So qrsh carries program and token, and no frames.
- Its words, joined by blanks, are a command line for the user's login shell there.  The exit code is that of the
  command, 128 more than a signal that has ended it.
- A task has the environment and the directory that the job was submitted with.  With -V it would have ours, which the
  daemon keeps in a file that all users may read, so -V is left out.
- A host takes so many tasks at a time as the job has slots there, and one more (job_is_first_task is FALSE); then
  qrsh says "didn't accept task" and ends with 1.
- A signal to qrsh, or its end, is SIGKILL for the task, but not for daemons of other sessions.
- Where its input begins or ends before the task reads, every third qrsh starts a second late; one with `-nostdin` ends
  a second late.  So the agent asks for its program by a line, and its input stays open until it has ended.

SSH is the way where there is no qrsh, as after `qsub -v` without
SGE_ROOT, and where tasks are not accepted (control_slaves is FALSE in the parallel environment, sge_pe(5)).
"""

from __future__ import annotations

import os

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.transport.batch_tasks import TasksStart, Way
from mslaunch.transport.bootstrap.command_lines import calling_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.transport.base import OpenContext
    from mslaunch.transport.batch_tasks import Calling

_REFUSED = b"didn't accept task"


def qrsh_path(environ: Mapping[str, str]) -> str:
    """The program, as Open MPI and hydra find it (plm_rsh_module.c, sge_launch.c); "" if it is not there."""
    root, arc = environ.get("SGE_ROOT", ""), environ.get("ARC", "")
    path = os.path.join(root, "bin", arc, "qrsh")
    return path if root and arc and os.access(path, os.X_OK) else ""


def open_by_qrsh(nodes: Sequence[Node], context: OpenContext) -> None:
    """A qrsh for each host; see `base.Opener`."""
    qrsh = qrsh_path(context.environ)
    if not qrsh:
        from mslaunch.transport.ssh.ssh_link import open_by_ssh

        context.notice("there is no qrsh in $SGE_ROOT/bin/$ARC, so agents are started by SSH")
        open_by_ssh(nodes, context)
        return

    line, program = calling_line(context.policy.python, context.policy.timeout)

    def way(calling: Calling) -> Way:
        return Way(
            lambda node: [qrsh, "-inherit", node.name, line],
            lambda node: program + calling.terms(f"={node.name}"),
            lambda: None,
            _refusal,
            held=True,
        )

    TasksStart(nodes, context, way)


def _refusal(said: bytes) -> str:
    """Why SSH may do what qrsh did not, by its standard error."""
    return "Grid Engine accepts no task of this job there" if _REFUSED in said else ""
