"""The command line of --rsh-agent for one host: as mpirun builds it, or with the places that other programs want.

mpirun calls its plm_rsh_agent as AGENT [ARGS] [USER@]HOST COMMAND.  Words of ours may name these places: `{host}` and
`{command}`, and programs that run commands in containers have a form of their own (`_FORMS`).  COMMAND is for a shell.

MPIJob v1 of mpi-operator gives its launcher a script, /etc/mpi/kubexec.sh, which joins its arguments for `kubectl exec`
without standard input (`newConfigMap` in pkg/controllers/v1/mpi_job_controller.go, v0.3.0).  An agent needs its input:
the script is read, and its command is run with -i.
"""

from __future__ import annotations

import os

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.host.files import read_text

if TYPE_CHECKING:
    from mslaunch.datamodel.jobmap import Node
    from mslaunch.datamodel.request import LinkPolicy

_HOST, _COMMAND = "{host}", "{command}"
_IN_CONTAINER = (_HOST, "/bin/sh", "-c", _COMMAND)
#: what follows the words of the user, where they have no places
_FORMS = {
    "kubectl": (_HOST, "--", "/bin/sh", "-c", _COMMAND),
    "oc": (_HOST, "--", "/bin/sh", "-c", _COMMAND),
    "docker": _IN_CONTAINER,
    "podman": _IN_CONTAINER,
}
#: programs that may lose what a host says first: kubectl 1.30 to 1.32 drops what comes before it has opened its
#: streams (Kubernetes' issue 131189), of answers that came together with the connection 1 in 100 here
_LOSING = ("kubectl", "oc", "kubexec.sh")
_KUBEXEC_END = ["--", "/bin/sh", "-c", "$*"]


class AgentCommand:
    """The words of --rsh-agent, understood once for all hosts.  Raises UsageError for places that are not enough."""

    def __init__(self, policy: LinkPolicy) -> None:
        words = policy.agent
        name = os.path.basename(words[0])
        if name == "kubexec.sh":
            words = _of_kubexec(words[0]) or words
        if not any(_HOST in word or _COMMAND in word for word in words):
            words = (*words, *_FORMS.get(name, ()))
        self._words = words
        self._args = policy.agent_args
        self._ssh = name == "ssh"
        #: whether the program may lose what a host says first
        self.may_lose = any(os.path.basename(word) in _LOSING for word in words)
        self._placed = any(_HOST in word for word in words)
        if self._placed != (_COMMAND in words):
            what = f"{' '.join(words)} has not both {_HOST} and, as a word of its own, {_COMMAND}"
            raise UsageError(what, "--rsh-agent", f"write it like 'kubectl exec -i {_HOST} -- sh -c {_COMMAND}'")
        if self._placed and self._args:
            what = f"there is no place for {' '.join(self._args)} (plm_rsh_args) in {' '.join(words)}"
            raise UsageError(what, "--rsh-agent", "write these words into the command")

    def argv(self, node: Node, command: str) -> list[str]:
        """What starts the agent on a host."""
        host = f"{node.user}@{node.called}" if node.user else node.called
        if self._placed:
            return [command if word == _COMMAND else word.replace(_HOST, host) for word in self._words]
        port = ["-p", str(node.port)] if node.port and self._ssh else []
        return [*self._words, *self._args, *port, host, command]


def _of_kubexec(path: str) -> tuple[str, ...]:
    """The command of mpi-operator's script, with -i and our places; () for any other script."""
    import shlex

    try:
        lines = read_text(path).splitlines()
        words = shlex.split(lines[-1]) if lines else []
    except (OSError, ValueError):
        return ()
    if words[1:2] != ["exec"] or "${POD_NAME}" not in words or words[-4:] != _KUBEXEC_END:
        return ()
    rest = [_HOST if word == "${POD_NAME}" else word for word in words[2:-1]]
    return (words[0], "exec", "-i", *rest, _COMMAND)
