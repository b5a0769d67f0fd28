"""Which links between hosts are not like the others, and which hosts all of whose links are not.  Pure.

A link is odd if hosts could not connect, if its delay or its rate is far from that of most, or if TCP had to send much
again.  What a busy host spoils once is measured again; the better result of each counts.
"""

from __future__ import annotations

from collections import defaultdict

from mslaunch.errors import counted
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.preflight.check_records import Finding, on_host
from mslaunch.preflight.host_findings import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mslaunch.datamodel.jobmap import Node
    from mslaunch.preflight.check_records import LinkReport
    from mslaunch.protocol.check_messages import LinkFacts

    Pair = tuple[str, str]

_TIMES, _MORE = 5.0, 0.004  # a delay is odd that is so many times the usual one, and so many seconds more
_SLOWER = 6.0  # a rate is odd that is so many times less than the usual one
_LOSS, _LEAST = 0.008, 4  # and a part of segments that were sent again, and their number
NONE, LOSS, DELAY, RATE = "none", "loss", "delay", "rate"  # what is odd, the worst first


class LinkNorm(NamedTuple):
    """The medians of the links: seconds there and back, bytes a second."""

    delay: float = 0.0
    rate: float = 0.0


def norm_of(reports: Iterable[LinkReport]) -> LinkNorm:
    """The medians of all links that could be measured."""
    good = [report.facts for report in reports if not report.facts.error]
    if not good:
        return LinkNorm()
    return LinkNorm(_median([one.delay for one in good]), _median([one.rate for one in good]))


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def odd(facts: LinkFacts, norm: LinkNorm) -> str:
    """What is odd about a link; "" if nothing is."""
    if facts.error:
        return NONE
    if facts.again >= _LEAST and facts.again > _LOSS * facts.sent:
        return LOSS
    if facts.delay > max(_TIMES * norm.delay, norm.delay + _MORE):
        return DELAY
    return RATE if facts.rate < norm.rate / _SLOWER else ""


def worst_first(reports: Iterable[LinkReport], norm: LinkNorm) -> list[LinkReport]:
    """The odd links by kind, the worst kind first; of one kind, those that are furthest from the others first."""

    def badness(report: LinkReport) -> tuple[int, float]:
        facts, kind = report.facts, odd(report.facts, norm)
        part = facts.again / max(facts.sent, 1)
        amounts = {NONE: (3, 0.0), LOSS: (2, part), DELAY: (1, facts.delay), RATE: (0, -facts.rate)}
        return amounts[kind]

    return sorted((one for one in reports if odd(one.facts, norm)), key=badness, reverse=True)


def better(one: LinkFacts, other: LinkFacts) -> LinkFacts:
    """The best of two measurements of a link."""
    if one.error or other.error:
        return other if one.error else one
    less = min(one, other, key=lambda facts: facts.again / max(facts.sent, 1))
    return less._replace(delay=min(one.delay, other.delay), rate=max(one.rate, other.rate))


def settled(found: Sequence[LinkReport], again: Sequence[LinkReport], norm: LinkNorm) -> list[LinkReport]:
    """Measurements, of which some odd ones were made again: the better result of each.

    One that was not made again stays if all of those at one of its ends are odd still; else it tells nothing.
    """
    second = {(one.source, one.target): one.facts for one in again}
    made: list[LinkReport] = []
    doubtful: list[LinkReport] = []
    still: dict[str, list[bool]] = defaultdict(list)
    for one in found:
        other = second.get((one.source, one.target))
        if other:
            best = one._replace(facts=better(one.facts, other))
            made.append(best)
            for name in (one.source, one.target):
                still[name].append(bool(odd(best.facts, norm)))
        else:
            (doubtful if odd(one.facts, norm) else made).append(one)
    sure = {name for name, results in still.items() if len(results) > 1 and all(results)}
    return [*made, *(one for one in doubtful if not sure.isdisjoint((one.source, one.target)))]


def link_findings(reports: Sequence[LinkReport], nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Hosts with many odd links, and the other odd links."""
    norm = norm_of(reports)
    measured: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        measured[report.source].add(report.target)
        measured[report.target].add(report.source)
    for kind in (NONE, LOSS, DELAY, RATE):
        bad = {(one.source, one.target): one.facts for one in reports if odd(one.facts, norm) == kind}
        links = {frozenset(pair) for pair in bad}
        if kind == LOSS and len(links) > 2 and 2 * len(links) > len({frozenset((a.source, a.target)) for a in reports}):
            parts = [facts.again / max(facts.sent, 1) for facts in bad.values()]
            what = f"{counted(len(links), 'link')} between hosts lose packets (median {_median(parts):.1%})"
            yield Finding((), "network", what, ("ip -s link", "look for errors and drops on hosts and switches"))
            continue
        while worst := _worst(links, measured):
            others = sorted(name for pair in links if worst in pair for name in pair if name != worst)
            of_host = {
                pair: facts for pair, facts in bad.items() if worst in pair and not links.isdisjoint([frozenset(pair)])
            }
            what = f"{_of_host(kind, _typical(of_host.values(), kind), norm)} ({_some(others)})"
            yield Finding((worst,), "network", what, _repair(kind, nodes[worst], next(iter(of_host.values()))))
            links = {pair for pair in links if worst not in pair}
        for (source, target), facts in sorted(bad.items()):
            if frozenset((source, target)) in links:
                links.discard(frozenset((source, target)))
                what = f"{source} to {target}: {_of_link(kind, facts, norm)}"
                yield Finding((source, target), "link", what, _repair(kind, nodes[target], facts))


def deaf_hosts(deaf: Mapping[str, str], nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Hosts that could not take part in the measurements, and why."""
    for name, why in deaf.items():
        command = on_host(nodes[name], "ulimit -n; ss -s")
        yield Finding((name,), "network", f"its links were not measured: {why}", (command,))


def _worst(links: Iterable[frozenset[str]], measured: Mapping[str, set[str]]) -> str:
    """The host most of whose links are among these, at least two; "": there is none."""
    counts: dict[str, int] = defaultdict(int)
    for pair in links:
        for name in pair:
            counts[name] += 1
    many = [name for name, count in sorted(counts.items()) if count >= 2 and count > 0.5 * len(measured[name])]
    return max(many, key=lambda name: counts[name], default="")


def _typical(found: Iterable[LinkFacts], kind: str) -> LinkFacts:
    keys = {DELAY: lambda one: one.delay, RATE: lambda one: one.rate, LOSS: lambda one: one.again / max(one.sent, 1)}
    listed = sorted(found, key=keys.get(kind, lambda one: 0.0))
    return listed[len(listed) // 2]


def _of_host(kind: str, facts: LinkFacts, norm: LinkNorm) -> str:
    if kind == NONE:
        return f"it cannot connect to other hosts, or they cannot connect to it: {facts.error}"
    return f"its links: {_of_link(kind, facts, norm)}"


def _of_link(kind: str, facts: LinkFacts, norm: LinkNorm) -> str:
    if kind == NONE:
        return f"no connection: {facts.error}"
    if kind == LOSS:
        return f"{facts.again / max(facts.sent, 1):.1%} of the packets are lost ({facts.again} of {facts.sent})"
    if kind == DELAY:
        return f"round trip {milliseconds(facts.delay)}; the median is {milliseconds(norm.delay)}"
    return f"{size(int(facts.rate))}/s; the median is {size(int(norm.rate))}/s"


def milliseconds(seconds: float) -> str:
    """`0.12 ms`."""
    return f"{seconds * 1000:.3g} ms"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _repair(kind: str, node: Node, facts: LinkFacts) -> tuple[str, ...]:
    if kind == NONE:
        return (
            on_host(node, "sudo nft list ruleset || sudo iptables -L -n"),
            "let the hosts of a job connect to each other at all ports",
        )
    if kind == LOSS:
        return on_host(node, "ip -s link"), "look for errors and drops, then at its cable and its port of the switch"
    return on_host(node, "ip route; tc qdisc show; ip -s link"), "look for a detour, a limit, or a slow port"
