"""Options that contradict each other, or are given twice: which one holds, and which pairs are refused.

As in mpirun 4.1.4 (by experiment): of the same option twice the last one counts; two different options that say
different things are an error; -N and its like beside --map-by say how many ranks a node takes and --map-by where they
go, unless it is a ppr, which overrides them with a note.  This concerns the command line alone, which overrides the
environment and files silently.  Two values of one variable (-x A=1 -x A=2) are no error here, as they are with mpirun:
`plan.rank_variables` takes the last one.
"""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.cli.parser.options import Setting, Settings
    from mslaunch.datamodel.request import Request

_RESTARTS = 3  # --max-restarts where --restart is given without it
#: options that give way to --map-by
_WEAK = ("N", "pernode", "npersocket")
#: what only one option may say, or several alike: the field, and its description
_ALONE = {
    "policy.rank_by": "how ranks are numbered",
    "policy.bind_to": "what ranks are bound to",
    "policy.oversubscribe": "whether slots may be exceeded",
    "policy.pe": "how many cpus a rank has",
    "policy.cpu_set": "which cpus are used",
    "policy.rankfile": "which rankfile is read",
    "output.directory": "where output is kept",
}


def settle(job: Settings) -> list[str]:
    """Remove from `job` what another option overrides; returns a sentence about each thing that has no effect.

    Raises `UsageError` for options that contradict each other.
    """
    maps, patterns = job.get("policy.map_by", []), job.get("policy.ppr", [])
    claims = [one._replace(value=(one.value, ppr.value)) for one, ppr in zip(maps, patterns)]  # each option sets both
    strong = [claim for claim in claims if not _is_weak(claim)]
    weak = [claim for claim in claims if _is_weak(claim)]
    notes = _agreed(strong or weak, "where ranks go")
    for path, what in _ALONE.items():
        notes += _agreed(job.get(path, ()), what)
    if claims and "policy.rankfile" in job:
        what = f"a rankfile says where each rank goes, but {claims[0].source} is given too"
        raise UsageError(what, job["policy.rankfile"][0].source, "leave one of them out")
    if strong and weak:
        job["policy.map_by"] = [one for one in maps if not _is_weak(one)]
        pattern_wins = strong[-1].value[0] == "ppr"
        job["policy.ppr"] = [one for one in patterns if _is_weak(one) != pattern_wins]
        if pattern_wins and strong[-1].value != weak[-1].value:
            ranks, level = weak[-1].value[1][0]
            notes.append(
                f"{weak[-1].source} has no effect beside {strong[-1].source}, as in mpirun; "
                f"for {ranks} on each {level}, write --map-by ppr:{ranks}:{level} alone"
            )
    return notes


def recovering(request: Request, job: Settings) -> Request:
    """The request with its options of recovery made consistent.  Raises `UsageError` if they contradict each other."""
    how, often = job.last("restart"), job.last("max_restarts")
    if how == "none" and often:
        raise UsageError(f"it contradicts --max-restarts {often}", "--restart none", "leave one of them out")
    if how in ("rank", "group"):
        if often == 0:
            raise UsageError("it contradicts --max-restarts 0", f"--restart {how}", "leave one of them out")
        if often is None:
            request = request._replace(max_restarts=_RESTARTS)
    if request.min_ranks and how != "group":
        what = "only a group can be started again with fewer ranks"
        raise UsageError(what, "--min-ranks", "add --restart group")
    if request.min_ranks and len(request.apps) > 1:
        what = "with several programs it is not clear which one gets fewer ranks"
        raise UsageError(what, "--min-ranks", "leave it out, and let spares replace lost hosts")
    request = restarting(request, job)
    # --enable-recovery alone lets the other ranks go on, which a group cannot do
    return request._replace(recovery=request.recovery and how != "group")


def restarting(request: Request, job: Settings) -> Request:
    """The request with notes about options of restarts that have no effect.  Raises `UsageError` for contradictions."""
    delay, most = request.restart_delay, request.max_restart_delay
    if most and most < delay:
        raise UsageError(
            f"it is less than --restart-delay {delay:g}", "--max-restart-delay", "raise it, or leave it out"
        )
    if job.last("max_no_progress") and request.progress_file is None:
        raise UsageError("it needs --progress-file", "--max-no-progress", "add --progress-file PATH")
    never = "nothing is started again without --restart or --max-restarts"
    alone = "it is for --restart group"
    group = request.restart == "group"
    without = [
        (bool(delay) and not request.max_restarts, "--restart-delay", never),
        (bool(most) and not request.max_restarts, "--max-restart-delay", never),
        (
            request.progress_file is not None and not (group or request.hang.seconds),
            "--progress-file",
            f"{alone}, or for --hang-timeout",
        ),
        (bool(job.last("max_no_progress")) and not group, "--max-no-progress", alone),
        (job.last("device_wait") is not None and not group, "--device-wait", alone),
    ]
    notes = tuple(f"{option} has no effect: {why}" for has_none, option, why in without if has_none)
    return request._replace(notes=(*request.notes, *notes))


def _agreed(claims: Sequence[Setting], what: str) -> list[str]:
    """Raises `UsageError` if different options differ.

    Of a repeated option the last one counts, with a note if they differ and stand before different programs.
    """
    last: dict[str, Setting] = {}
    notes = []
    for claim in claims:
        before = last.setdefault(_bare(claim.source), claim)
        if before.value != claim.value and before.program != claim.program:
            notes.append(f"{claim.source} acts on all programs, and was given twice: the last one counts")
        last[_bare(claim.source)] = claim
    given = list(last.values())
    for other in given[1:]:
        if other.value != given[0].value:
            raise UsageError(f"it contradicts {given[0].source}: both say {what}", other.source, "give one of them")
    return notes


def _is_weak(claim: Setting) -> bool:
    return _bare(claim.source) in _WEAK


def _bare(source: str) -> str:
    """One name for an option, however it was written."""
    bare = source.lstrip("-")
    return "N" if bare == "npernode" else bare
