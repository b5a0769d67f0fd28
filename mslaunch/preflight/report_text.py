"""What --check prints: a table with a line for each host that has something, or one sentence; or all of it as JSON."""

from __future__ import annotations

from mslaunch.errors import counted, printable
from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.plan.hosts.host_ranges import fold
from mslaunch.preflight.compare_hosts import HERE, summary_of
from mslaunch.preflight.host_findings import size
from mslaunch.preflight.link_findings import milliseconds, norm_of
from mslaunch.preflight.measure_rounds import EVERY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mslaunch.preflight.check_records import Finding, HostReport, LinkReport

_WIDEST = 30  # characters of the column of hosts
_SHOWN = 8  # lines of a repair


class CheckResult(NamedTuple):
    """All that --check has found."""

    hosts: tuple[HostReport, ...]
    links: tuple[LinkReport, ...]
    rounds: int  # in which links were measured
    findings: tuple[Finding, ...]
    seconds: float


def as_text(result: CheckResult) -> str:
    """The table, or the sentence."""
    how = f" ({_links(result)}{result.seconds:.1f} s)"
    if not result.findings:
        return f"mslaunch: no problem found {summary_of(result.hosts)}{how}\n"
    order = {report.name: at for at, report in enumerate(result.hosts)}
    rows = sorted(_merged(result.findings), key=lambda one: order.get(one.hosts[0], -1) if one.hosts else -2)
    names = [_names(finding) for finding in rows]
    width = min(_WIDEST, max(len("HOST"), *map(len, names)))
    checks = max(len("CHECK"), *(len(finding.check) for finding in rows))
    lines = [f"mslaunch: {counted(len(rows), 'finding')} {_where(result)}; no rank was started{how}"]
    lines.append(f"{'HOST':{width}}  {'CHECK':{checks}}  WHAT")
    for at, (name, finding) in enumerate(zip(names, rows)):
        shown = "" if at and name == names[at - 1] else name
        head = f"{shown:{width}}  {finding.check:{checks}}  {finding.what}"
        more = (f"{'':{width}}    {line}" for line in finding.repair[:_SHOWN])
        lines += [line.replace("\n", " ") for line in (head, *more)]  # no text can begin a line of its own
    return printable("\n".join(lines)) + "\n"


def _where(result: CheckResult) -> str:
    """`on 4 of 8 hosts`; this host is none of those that are counted, even if the launch uses it."""
    bad = {name for finding in result.findings for name in finding.hosts}
    count = len(bad - {HERE})
    parts = [HERE] if HERE in bad else []
    if count:
        parts.append(f"{count} of {counted(len(result.hosts), 'host')}")
    return f"on {' and '.join(parts)}" if parts else "for the launch"


def _links(result: CheckResult) -> str:
    """The part of a sentence about measurements."""
    if not result.links:
        return ""
    norm = norm_of(result.links)
    text = f"{counted(len({frozenset((one.source, one.target)) for one in result.links}), 'link')} measured"
    if len(result.hosts) > EVERY:
        text += f" in {result.rounds} rounds, a sample of all links"
    return f"{text}: {milliseconds(norm.delay)}, {size(int(norm.rate))}/s; "


def _names(finding: Finding) -> str:
    if len(finding.hosts) < 2:
        return finding.hosts[0] if finding.hosts else "-"
    return ", ".join(finding.hosts) if len(finding.hosts) == 2 else fold(sorted(finding.hosts))


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Hosts with the same finding in one row, with the commands for the first of them."""
    rows: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        key: tuple[str, ...] = (finding.check, _without(finding))
        if len(finding.hosts) != 1:
            key = (*key, *finding.hosts)
        before = rows.get(key)
        if before is None:
            rows[key] = finding
            continue
        same = "and the same on the other hosts"
        repair = before.repair if same in before.repair else (*before.repair, same)
        rows[key] = before._replace(hosts=(*before.hosts, *finding.hosts), repair=repair)
    return list(rows.values())


def _without(finding: Finding) -> str:
    """Its text without the name and address of its host."""
    import re

    text = re.sub(r"\b\d+\.\d+\.\d+\.\d+\b", "ADDRESS", finding.what)
    for host in finding.hosts:
        text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", text)
    return text


def as_json(result: CheckResult) -> str:
    """An object; docs/check.md describes it."""
    import json

    found = {
        "clean": not result.findings,
        "seconds": round(result.seconds, 3),
        "findings": [finding._asdict() for finding in result.findings],
        "hosts": [_host(report) for report in result.hosts],
        "links": [{"from": one.source, "to": one.target, **_link(one)} for one in result.links],
        "rounds": result.rounds,
    }
    return json.dumps(found, indent=1, ensure_ascii=True).replace("\x7f", "\\u007f") + "\n"


def _link(report: LinkReport) -> dict[str, object]:
    facts = report.facts
    if facts.error:
        return {"error": facts.error}
    return {
        "address": facts.address,
        "delay": round(facts.delay, 7),
        "rate": round(facts.rate),
        "segments": facts.sent,
        "sent_again": facts.again,
    }


def _host(report: HostReport) -> dict[str, object]:
    error = report.error.what if report.error else ""
    facts = (
        {name: value for name, value in report.facts._asdict().items() if name != "machine"} if report.facts else None
    )
    programs = [program._asdict() for program in report.programs]
    clock = {"offset": round(report.offset, 3), "doubt": round(report.doubt, 3)} if facts else None
    return {
        "name": report.name,
        "ranks": report.ranks,
        "error": error,
        "clock": clock,
        "facts": facts,
        "programs": programs,
    }
