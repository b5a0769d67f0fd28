"""The components of Open MPI's launcher (-mca rmaps, plm, ras, odls), and what naming one of them means here.

mpirun opens a framework only if it has every component that is named (mca_base_components_filter), and ends with 1
otherwise; `^a,b` names those that are not to be used.  Here the known ones are those of 4.1.4 and of 5.0.11's PRRTE,
and of both with the libraries of a batch system.
"""

from __future__ import annotations

from mslaunch.cli.parser.readers import Expected, meant
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mslaunch.cli.parser.readers import Pairs

_MAPPERS = ("mindist", "ppr", "rank_file", "resilient", "round_robin", "seq", "lsf", "likwid")
_SPAWNERS = ("default", "pspawn", "alps", "pdefault")
#: component -> word of a resource manager
_ALLOCATORS = {"slurm": "slurm", "tm": "pbs", "pbs": "pbs", "lsf": "lsf", "gridengine": "gridengine", "flux": "flux",
               "pals": "pals", "alps": "", "loadleveler": "loadleveler", "simulator": "", "hosts": "",
               "testrm": "", "bootstrap": ""}  # fmt: skip
_STARTERS = ("rsh", "ssh", "slurm", "tm", "lsf", "isolated", "alps", "pals")
_LOGINS = {"rsh", "ssh"}
#: a component of old releases -> what to use instead
_GONE = {"lama": "it was removed after Open MPI 1.8; use --map-by, --rank-by and --bind-to", "load_balance":
         "it was removed after Open MPI 1.8; use --map-by node --rank-by slot", "staged": "it was removed",
         "topo": "it was removed; use --map-by"}  # fmt: skip


def mappers(word: str) -> Pairs:
    """rmaps: only `seq` changes anything."""
    names, without = _named(word, _MAPPERS)
    return [("policy.map_by", "seq"), ("policy.ppr", ())] if names == ["seq"] and not without else []


def starters(word: str) -> Pairs:
    """plm: rsh, ssh: agents are started by ssh also where a resource manager would; so does excluding all others."""
    names, without = _named(word, _STARTERS)
    if without:
        return [("link.asked", "ssh")] if {"slurm", "tm", "lsf", "pals"} & set(names) else []
    return [("link.asked", "ssh")] if names and set(names) <= _LOGINS else []


def allocators(word: str) -> Pairs:
    """ras: the resource manager whose hosts are used; of excluded ones nothing is used."""
    names, without = _named(word, tuple(_ALLOCATORS))
    systems = [_ALLOCATORS[name] for name in names if _ALLOCATORS[name]]
    if without:
        return [("resource_manager", "none")] if systems else []
    return [("resource_manager", systems[0])] if len(names) == len(systems) == 1 else []


def spawners(word: str) -> Pairs:
    """odls: all of them start ranks in the same way here."""
    _named(word, _SPAWNERS)
    return []


def _named(word: str, known: tuple[str, ...]) -> tuple[list[str], bool]:
    """The components, in lower case, and whether they are those not to be used."""
    without = word.startswith("^")
    names = [name.strip().lower() for name in word.lstrip("^").split(",") if name.strip()]
    for name in names if not without else ():  # mpirun does not mind an unknown one that is excluded
        if name not in known:
            raise Expected(f"a component that is there ({', '.join(known)})", _GONE.get(name, meant(name, known)))
    return [name for name in names if name in known], without


#: framework -> reader of its parameter, and its help
FRAMEWORKS: Mapping[str, tuple[Callable[[str], Pairs], str]] = {
    "rmaps": (mappers, "seq: as --map-by seq; another component must be one of Open MPI's"),
    "plm": (starters, "rsh, ssh: hosts of a resource manager are reached by ssh as well"),
    "ras": (allocators, "slurm, tm, lsf, gridengine: as --resource-manager; ^NAME: as --resource-manager none"),
    "odls": (spawners, "accepted: ranks are started in one way"),
}
