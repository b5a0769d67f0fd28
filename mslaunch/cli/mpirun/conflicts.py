"""Options that contradict each other, most of them about placement: which holds, and which pairs are refused.

As in mpirun 4.1.4 (by experiment): the same option twice, the last one counts; two different ones that say different
things are an error, so nobody wonders which one won; -N and its kin beside --map-by say how many ranks a node takes,
and --map-by how, unless it is a ppr: that one beats them, and we say so.  Only imported for a command line that says
something about placement, or twice where output is kept.  The surprising thing: that concerns the command line alone;
what it says beats the environment and files without a word.
"""

from __future__ import annotations

from mslaunch.cli.parser.options import kept
from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from mslaunch.cli.parser.options import Section

    Claim = tuple[str, Any, int]  # the option as it was written, what it says, before which program

#: options that give way to --map-by
_WEAK = ("N", "pernode", "npersocket")
#: what only one option may say, or several alike: the field, and how it is called
_ALONE = {
    "policy.rank_by": "how ranks are numbered",
    "policy.bind_to": "what ranks are bound to",
    "policy.oversubscribe": "whether slots may be exceeded",
    "policy.pe": "how many cpus a rank has",
    "policy.cpu_set": "which cpus are used",
    "policy.rankfile": "which rankfile is read",
    "output.directory": "where output is kept",
}


def settled(found: Sequence[Section]) -> tuple[list[Section], list[str]]:
    """The sections without what another option overrides, and a sentence about each thing that has no effect.

    Raises `UsageError` for options that contradict each other.
    """
    claims = list(_maps(found))
    strong = [claim for claim in claims if _bare(claim[0]) not in _WEAK]
    weak = [claim for claim in claims if _bare(claim[0]) in _WEAK]
    notes = _agreed(strong or weak, "where ranks go")
    for path, what in _ALONE.items():
        notes += _agreed(list(_claims(found, path)), what)
    rankfile = next(_claims(found, "policy.rankfile"), None)
    if rankfile and claims:
        what = f"a rankfile says where each rank goes, but {claims[0][0]} is given too"
        raise UsageError(what, rankfile[0], "leave one of them out")
    if not (strong and weak):
        return list(found), notes
    if strong[-1][1][0] != "ppr":
        return [_both(part) for part in found], notes
    return [_without(part) for part in found], notes + _beaten(weak[-1], strong[-1])


def _beaten(weak: Claim, strong: Claim) -> list[str]:
    """What to tell of -N or its kin beside a ppr, unless they say the same."""
    if weak[1] == strong[1]:
        return []
    ranks, level = weak[1][1][0]
    return [
        f"{weak[0]} has no effect beside {strong[0]}, as in mpirun; "
        f"for {ranks} on each {level}, write --map-by ppr:{ranks}:{level} alone"
    ]


def _claims(found: Sequence[Section], path: str) -> Iterator[Claim]:
    for index, part in enumerate(found):
        for source, (name, value) in zip(part.sources, part.settings):
            if name == path:
                yield source, value, index


def _maps(found: Sequence[Section]) -> Iterator[Claim]:
    """Each option that says where ranks go: (policy, pattern)."""
    for (source, policy, index), (_, pattern, _) in zip(_claims(found, "policy.map_by"), _claims(found, "policy.ppr")):
        yield source, (policy, pattern), index


def _agreed(claims: Sequence[Claim], what: str) -> list[str]:
    """Different options must say the same; of one that is repeated the last counts, which is told if they differ and
    stand before different programs."""
    last: dict[str, Claim] = {}
    notes = []
    for claim in claims:
        before = last.setdefault(_bare(claim[0]), claim)
        if before[1] != claim[1] and before[2] != claim[2]:
            notes.append(f"{claim[0]} acts on all programs, and was given twice: the last one counts")
        last[_bare(claim[0])] = claim
    (first, said, _), *others = last.values() if last else [("", None, 0)]
    for source, value, _ in others:
        if value != said:
            raise UsageError(f"it contradicts {first}: both say {what}", source, "give one of them")
    return notes


def _both(part: Section) -> Section:
    """The section with the pattern of -N and its kin, and the policy of --map-by."""
    over = {True: "policy.map_by", False: "policy.ppr"}
    return kept(part, lambda setting, source: setting[0] != over[_bare(source) in _WEAK])


def _without(part: Section) -> Section:
    """The section without -N and its kin."""
    return kept(part, lambda _, source: _bare(source) not in _WEAK)


def _bare(source: str) -> str:
    """One name for an option, however it was written."""
    bare = source.lstrip("-")
    return "N" if bare == "npernode" else bare
