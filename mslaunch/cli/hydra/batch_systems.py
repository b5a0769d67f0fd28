"""-rmk and -launcher of the hydra dialect: the system that granted the hosts, and how agents are started on them.

As in MPICH's bsci_init.c: -rmk names the system whose hosts are used, unless hosts are named; -launcher is how they are
reached, and without it the means of that system.  A launcher of a system works inside of its jobs only, so here it says
which system that must be.
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import Expected, count, meant
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.datamodel.request import LinkPolicy, Request

NONE = "none"  #: of --resource-manager: no system is asked
#: -rmk -> word of --resource-manager
_MANAGERS = {"user": NONE, "slurm": "slurm", "pbs": "pbs", "lsf": "lsf", "sge": "gridengine", "ll": "loadleveler",
             "cobalt": "cobalt"}  # fmt: skip
#: -launcher -> word of --resource-manager; those in the second row are Intel's
_SYSTEMS = {"slurm": "slurm", "pbs": "pbs", "lsf": "lsf", "sge": "gridengine", "ll": "loadleveler",
            "srun": "slurm", "pbsdsh": "pbs", "blaunch": "lsf", "qrsh": "gridengine"}  # fmt: skip
_COMMANDS = {"slurm": ("srun",), "pbs": ("pbs_tmrsh", "pbsdsh"), "lsf": ("blaunch",), "gridengine": ("qrsh",)}
_HERE = ("ssh", "rsh", "fork")
_INSTEAD = {
    "manual": "mslaunch starts its agents itself; give a command that reaches a host with -launcher-exec",
    "persist": "there is no hydra_persist to connect to; leave it out, or write ssh",
    "pdsh": "a host is reached by one command of its own; write ssh, or give a command with -launcher-exec",
}


def launcher(word: str) -> str:
    """-launcher: ssh, rsh, fork, or the word of a system."""
    lower = word.lower()
    if lower not in _HERE and lower not in _SYSTEMS:
        known = ", ".join((*_HERE, *_SYSTEMS))
        raise Expected(f"one of {known}", _INSTEAD.get(lower, meant(lower, (*_HERE, *_SYSTEMS))))
    return _SYSTEMS.get(lower, lower)


def manager(word: str) -> str:
    """-rmk: the word of a system, or `none`."""
    if word.lower() not in _MANAGERS:
        known = ", ".join(_MANAGERS)
        raise Expected(f"one of {known}", meant(word, _MANAGERS, "user: hosts are only those of -hosts or -f"))
    return _MANAGERS[word.lower()]


def ranks_per_host(word: str) -> int:
    """I_MPI_PERHOST: a number; Intel's words for the cpus of a host are refused, since they are not known yet."""
    if word.lower() in ("all", "allcores"):
        raise Expected("a whole number, 1 or more", "write how many ranks a host gets, or unset it and use -ppn")
    return count(word)


def chosen(request: Request, launcher: str, manager: str, named: bool) -> Request:
    """The request with the system that its hosts are from, and how they are reached; `named`: hosts are.

    Raises `UsageError`.
    """
    system = launcher if launcher not in ("", *_HERE) else ""
    if system and manager not in ("", NONE, system):
        what = f"hosts of {manager} are not reached by the means of {system}"
        raise UsageError(what, "-launcher", "give one of -rmk and -launcher, or both for the same system")
    wanted = system or (manager if not named or manager == NONE else "")  # named hosts come before -rmk
    if launcher == "fork":
        wanted = NONE
    link = _link(request.link, launcher, system)
    return request._replace(link=link, resource_manager=wanted or request.resource_manager)


def _link(link: LinkPolicy, launcher: str, system: str) -> LinkPolicy:
    """-launcher-exec is stronger than ssh and rsh; of a system it may only be the command that this one has."""
    if system and link.agent:
        if link.agent[0].rpartition("/")[2] not in _COMMANDS.get(system, ()):
            what = f"{link.agent[0]} is not how {system} starts programs"
            raise UsageError(what, "-launcher-exec", "leave it out, or write -launcher ssh")
        return link._replace(agent=())
    if launcher == "rsh" and not link.agent:
        return link._replace(agent=("rsh",))
    return link._replace(asked="ssh") if launcher == "ssh" and not link.agent else link
